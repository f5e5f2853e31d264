"""`job attach`, and what `submit --interactive` does once the job runs: a person at a job's terminal.

A session is one conversation with the agent of the job's host. It may be lost at any time, with the agent, the
bus or the network, and is begun anew until the job is over; the job never notices. When an attempt is over and
the job waits again, its next attempt is waited for. What is typed is sent a piece at a time, each confirmed
before the next, so that nothing is typed twice: what was on its way when a session is lost may be lost with it.
"""

import argparse
import asyncio
import contextlib
import secrets
import signal
from enum import Enum
from typing import Final, NamedTuple

import msgspec
import nats.errors
from nats.aio.subscription import Subscription

from fairlease.cli.console import END_OF_INPUT, Console
from fairlease.cli.ending import ended
from fairlease.cli.exits import FAILED, INTERRUPTED, OK, TERMINAL, USAGE, CommandError
from fairlease.cli.link import Answer, Link, linked
from fairlease.cli.logs import job_view
from fairlease.cli.output import Output, output_of
from fairlease.cli.watch import Step, Watch
from fairlease.runtime.tasks import end, heed_cancellation
from fairlease_schemas.attach import HEARTBEAT_S, MOST_TYPED_BYTES, AttachAnswer, AttachQuestion, Shown, Taken, Typed
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.explain import AttemptView, JobView
from fairlease_schemas.subjects import BEGIN

_ANSWER_S: Final = 5.0
_AGAIN_S: Final = 0.3
_LOOK_S: Final = 2.0
_ON_ITS_WAY_S: Final = 1.0
_UNSEEN_BYTES: Final = 64 * 1024
"""How much is shown before the agent is told without waiting for the next word."""
_KEYS: Final = "ctrl-] d detaches"


class _End(Enum):
    """How a session ended."""

    DETACHED = "detached"
    OVER = "over"
    LOST = "lost"


class _Place(NamedTuple):
    """Where to attach: a running attempt, and the host that it has its terminal on."""

    attempt: str
    host: str


def run(args: argparse.Namespace) -> int:
    """Attach; the job's exit code when it ends meanwhile, 0 after detaching, or CommandError."""
    check(args.output)
    output = output_of(args)
    try:
        return asyncio.run(_attached(args, output))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise CommandError(INTERRUPTED, f"interrupted: {args.job} goes on without this command") from None


def check(form: str) -> None:
    """CommandError 64 where standard output shall carry data: it is the terminal's."""
    if form not in ("table", "wide"):
        raise CommandError(USAGE, "a terminal is no data: standard output is the job's", way_out="leave out -o")


async def _attached(args: argparse.Namespace, output: Output) -> int:
    async with linked(args) as link:
        view = await job_view(link, args.job)
        if view.state in TERMINAL:
            raise CommandError(
                FAILED, f"{view.job} is over: it {view.state}", way_out=f"see `fairlease job logs {view.job}`"
            )
        feed = await link.subscribe(link.subjects.feed(view.budget, view.job, ">"))
        return await attended(link, view.job, feed, output, is_read_only=args.read_only)


async def attended(
    link: Link,
    job: str,
    feed: Subscription,
    output: Output,
    *,
    is_read_only: bool = False,
    start_timeout_ms: int | None = None,
) -> int:
    """Waits for the job, attaches, and goes on so until it is over or the person detaches; the exit code."""
    console = Console(is_read_only=is_read_only)
    visit = _Visit(link, job, console, output, is_read_only=is_read_only)
    with console.ended_by(signal.SIGTERM, signal.SIGHUP):
        watching = asyncio.create_task(Watch(link, job, feed, visit.on_step).end(start_timeout_ms))
        try:
            answer = await visit.go_on(watching)
        finally:
            watching.cancel()
    if answer is None:
        if not output.is_quiet:
            console.tell(f"detached; `fairlease job attach {job}` comes back, `fairlease job cancel {job}` ends it")
        return OK
    assert isinstance(answer.view, JobView)
    return ended(answer.raw, answer.view, output)


class _Visit:
    """A person at one job, over all its attempts and sessions."""

    def __init__(self, link: Link, job: str, console: Console, output: Output, *, is_read_only: bool) -> None:
        self._link = link
        self._job = job
        self._console = console
        self._is_quiet = output.is_quiet
        self._is_read_only = is_read_only
        self._is_lost = False
        self._over: set[str] = set()
        self._stepped = asyncio.Event()

    def on_step(self, step: Step) -> None:
        """Tells a new state of the job, which may be one to attach in."""
        self._stepped.set()
        if not self._is_quiet:
            self._console.tell(step.sentence())

    async def go_on(self, watching: "asyncio.Task[Answer]") -> Answer | None:
        """The job as it ended; None when the person detached."""
        while not watching.done():
            heed_cancellation()
            place = await self._place()
            end = _End.LOST
            if place is not None:
                end = await self._until_over(place, watching)
                if end is _End.OVER:
                    self._over.add(place.attempt)
                elif end is _End.LOST:
                    self._tell_lost(watching)
            if end is _End.DETACHED or self._console.is_detached:
                return None
            await self._pause(watching)
        return watching.result()

    async def _until_over(self, place: _Place, watching: "asyncio.Task[Answer]") -> _End:
        """A session, which need not learn from its agent that the job is over."""
        session = asyncio.create_task(self._session(place))
        try:
            await asyncio.wait((session, watching), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((session,), timeout=_ANSWER_S)  # its last words may still be on their way
        finally:
            await end((session,))
        return _End.LOST if session.cancelled() else session.result()

    def _tell_lost(self, watching: "asyncio.Task[Answer]") -> None:
        if not self._is_lost and not watching.done():
            self._is_lost = True
            self._console.tell("the link to the terminal is lost; attaching again, what was typed last may be lost too")

    async def _pause(self, watching: "asyncio.Task[Answer]") -> None:
        """Until the job took a step, or it is time to look again."""
        stepping = asyncio.create_task(self._stepped.wait())
        limit_s = _AGAIN_S if self._is_lost else _LOOK_S
        await asyncio.wait((watching, stepping), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        stepping.cancel()
        self._stepped.clear()

    async def _place(self) -> _Place | None:
        """Where the job runs now; None where it does not, or nobody knows."""
        with contextlib.suppress(CommandError):
            view = await job_view(self._link, self._job)
            found = next((a for a in view.attempts if self._is_open(a)), None)
            return _Place(found.attempt, found.hosts[0]) if found is not None else None
        return None

    def _is_open(self, attempt: AttemptView) -> bool:
        return attempt.started_ms is not None and attempt.ended_ms is None and attempt.attempt not in self._over

    async def _session(self, place: _Place) -> _End:
        """One session, to its end; CommandError 1 when the agent says no."""
        output = secrets.token_hex(16)
        heard = await self._link.subscribe(self._link.subjects.shown(place.host, self._link.account, output))
        try:
            return await self._talk(place, output, heard)
        finally:
            with contextlib.suppress(nats.errors.Error):
                await heard.unsubscribe()

    async def _talk(self, place: _Place, output: str, heard: Subscription) -> _End:
        answer = await self._ask(place, output)
        heed_cancellation()
        if answer is None or answer.is_soon:
            return _End.LOST
        if answer.is_over:
            return _End.OVER
        if answer.problem:
            raise CommandError(FAILED, answer.problem)
        if not self._is_quiet:
            how = f"reading along, {_KEYS}, so does Ctrl-C" if self._is_read_only else _KEYS
            said = "attached again" if self._is_lost else "attached"
            self._console.tell(f"{said} to {place.attempt} on {place.host}" + f"; {how}" * self._has_hint())
        self._is_lost = False
        with self._console.attached():
            return await Session(self._link, answer.input, heard, self._console).run()

    def _has_hint(self) -> bool:
        return self._is_read_only or self._console.window is not None

    async def _ask(self, place: _Place, output: str) -> AttachAnswer | None:
        """What the agent says; None when it is away."""
        rows, cols = self._console.window or (0, 0)
        question = AttachQuestion(
            attempt=place.attempt,
            output=output,
            rows=rows,
            cols=cols,
            is_read_only=self._is_read_only,
        )
        subject = self._link.subjects.attach(place.host, self._link.account, BEGIN)
        try:
            reply = await self._link.client.request(subject, msgspec.json.encode(question), timeout=_ANSWER_S)
            return understood(reply.data, AttachAnswer)
        except (nats.errors.Error, Unreadable):
            return None


class Session:
    """Two loops: what the terminal shows, and what is typed."""

    def __init__(self, link: Link, subject: str, heard: Subscription, console: Console) -> None:
        self._link = link
        self._subject = subject
        self._heard = heard
        self._console = console
        self._shown = 0
        self._told = 0
        self._expected = 0
        self._expected_at_s = 0.0
        self._is_showing = False
        self._wake = console.news

    async def run(self) -> _End:
        """How it ended."""
        showing, typing = asyncio.create_task(self._show()), asyncio.create_task(self._type())
        try:
            await asyncio.wait((showing, typing), return_when=asyncio.FIRST_COMPLETED)
            if typing.done() and typing.result() is _End.LOST:
                # Nobody hears keys after the job's end, whose last words are here already but not yet shown.
                await asyncio.wait((showing,), timeout=_ON_ITS_WAY_S)
            return showing.result() if showing.done() else typing.result()
        finally:
            showing.cancel()
            typing.cancel()

    async def _show(self) -> _End:
        while True:
            try:
                message = await self._heard.next_msg(timeout=None)
                shown = understood(message.data, Shown)
            except (nats.errors.Error, Unreadable):
                return _End.LOST
            if shown.at != self._shown:
                return _End.LOST  # some of it is missing; a new session begins with the last screens
            self._is_showing = True
            await self._console.show(shown.data)
            self._is_showing = False
            self._shown += len(shown.data)
            if shown.is_over:
                return _End.OVER
            if self._shown - self._told >= _UNSEEN_BYTES:
                self._wake.set()

    async def _type(self) -> _End:
        """Keys as they come, and a word at least every two seconds."""
        window, data = None, b""
        while True:
            data = data or self._console.take(MOST_TYPED_BYTES)
            is_leaving = self._console.is_detached and not data
            rows, cols = (0, 0) if self._console.window == window else self._console.window or (0, 0)
            window = self._console.window
            self._told = self._shown
            typed = Typed(data=data, rows=rows, cols=cols, seen=self._shown, is_leaving=is_leaving)
            taken = await self._said(typed)
            heed_cancellation()
            if is_leaving:
                return _End.DETACHED
            if taken is None or taken.problem or self._has_lost(taken):
                return _End.LOST
            if taken.is_full:
                await asyncio.sleep(_AGAIN_S)
                data = b"" if self._console.is_detached else data
                continue
            has_more, data = len(data) == MOST_TYPED_BYTES, b""
            if not has_more and not self._console.is_detached:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await self._wake.wait()
                except TimeoutError:
                    data = END_OF_INPUT if self._console.is_at_end else b""
            self._wake.clear()

    def _has_lost(self, taken: Taken) -> bool:
        """Whether something that was on its way a second ago is still not here, and never will be."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._expected_at_s + _ON_ITS_WAY_S:
            return False
        expected, self._expected, self._expected_at_s = self._expected, taken.sent, now_s
        return self._shown < expected and not self._is_showing and not self._heard.pending_msgs

    async def _said(self, typed: Typed) -> Taken | None:
        """The agent's answer; None when it does not answer."""
        try:
            reply = await self._link.client.request(self._subject, msgspec.json.encode(typed), timeout=_ANSWER_S)
            return understood(reply.data, Taken)
        except (nats.errors.Error, Unreadable):
            return None
