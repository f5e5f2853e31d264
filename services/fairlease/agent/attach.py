"""Terminals by way of the bus: `attach.<host>.<account>.begin`, and then a session for each client (1.17).

The terminal is its keeper's (terminal.py); here are only bridges, which may be lost and made again at any time: by
a client that went, an agent that was restarted, a bus that was away. A session's subject cannot be guessed. Each
side is bounded: to the client goes no more than it said it saw and a window; keys that the job does not take stay
with the client. Only the job's own account may attach, and the account is what the subject says.
"""

import asyncio
import contextlib
import logging
import os
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec
import nats.errors
from nats.aio.msg import Msg

from fairlease.agent import layout, terminal
from fairlease.agent.host import Host
from fairlease.agent.runs import Run
from fairlease.runtime.connection import is_inbox
from fairlease.runtime.tasks import end
from fairlease_schemas.attach import (
    MOST_SHOWN_BYTES,
    MOST_TYPED_BYTES,
    SILENCE_S,
    WINDOW_BYTES,
    AttachAnswer,
    AttachQuestion,
    Shown,
    Taken,
    Typed,
)
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.ids import AttemptId
from fairlease_schemas.subjects import Subjects, token

log = logging.getLogger("fairlease.agent")

MOST_SESSIONS: Final = 16
"""At one terminal, so that nobody takes the others' room."""
_MOST_UNTAKEN_BYTES: Final = 64 * 1024
_LOOK_S: Final = 1.0
_ACCOUNT: Final = 4
"""The token of the subject that says whose question it is."""
_OUTPUT: Final = re.compile(r"[a-z0-9]{1,64}")


class Listening(Protocol):
    """A subscription."""

    async def unsubscribe(self) -> None: ...


class Bus(Protocol):
    """What sessions need of a connection."""

    async def publish(self, subject: str, payload: bytes) -> None: ...
    async def subscribe(self, subject: str, *, cb: Callable[[Msg], Awaitable[None]]) -> Listening: ...


class Sessions:
    """Who is attached to the terminals of one host."""

    def __init__(self, host: Host, bus: Bus, subjects: Subjects, *, silence_s: float = SILENCE_S) -> None:
        self._host = host
        self._bus = bus
        self._subjects = subjects
        self._silence_s = silence_s
        self._tasks: dict[asyncio.Task[None], AttemptId] = {}
        self._coming: Counter[AttemptId] = Counter()

    @property
    def count(self) -> int:
        return len(self._tasks)

    async def on_question(self, message: Msg) -> None:
        """Begins a session, or says why not; but only to an inbox: a reply must not become a record."""
        if is_inbox(message.reply):
            account = token(message.subject, _ACCOUNT)
            await message.respond(msgspec.json.encode(await self.attach(account, message.data)))

    def close(self) -> None:
        """Lets all clients go; they may come again to the next agent."""
        for task in self._tasks:
            task.cancel()

    async def attach(self, account: str, data: bytes) -> AttachAnswer:
        """The answer to an AttachQuestion of that account."""
        try:
            asked = understood(data, AttachQuestion)
        except Unreadable as error:
            return AttachAnswer(problem=f'{error}: ask {{"attempt": …, "output": …}}')
        run = self._host.run(asked.attempt)
        problem = self._problem(run, account, asked)
        if problem:
            return AttachAnswer(problem=problem)
        assert run is not None
        if run.gone is not None:
            return AttachAnswer(problem=f"{asked.attempt} is over", is_over=True)
        self._coming[asked.attempt] += 1
        try:
            return await self._begun(run, account, asked)
        finally:
            self._coming -= Counter((asked.attempt,))

    async def _begun(self, run: Run, account: str, asked: AttachQuestion) -> AttachAnswer:
        """A new session, whose place was counted before; or why there is none after all."""
        try:
            reader, writer = await _opened(run)
        except OSError:
            return AttachAnswer(problem=f"the terminal of {asked.attempt} is not there yet", is_soon=True)
        output = self._subjects.shown(self._host.id, account, asked.output)
        try:
            session = Session(self._bus, asked, output, run, reader, writer)
            subject = self._subjects.attach(self._host.id, account, secrets.token_hex(16))
            listening = await self._bus.subscribe(subject, cb=session.on_typed)
        except BaseException as error:
            writer.transport.abort()
            if not isinstance(error, nats.errors.Error):
                raise
            return AttachAnswer(problem=f"{self._host.id} cannot listen now: {error}", is_soon=True)
        task = asyncio.get_running_loop().create_task(session.run(listening, self._silence_s))
        self._tasks[task] = asked.attempt
        task.add_done_callback(self._tasks.pop)
        return AttachAnswer(input=subject)

    def _problem(self, run: Run | None, account: str, asked: AttachQuestion) -> str:
        """Why this client may not attach; empty when it may."""
        shown = asked.attempt[:80]
        if run is None:
            return f"no run {shown} on {self._host.id}"
        if not account or account != run.facts.account:
            return f"{shown} is a job of another account; only its own may attach"
        if not run.facts.has_terminal:
            return f"{shown} has no terminal: submit it with --interactive, or with terminal: true"
        if _OUTPUT.fullmatch(asked.output) is None:
            return "output must be a name of a-z 0-9, at most 64"
        here = sum(attempt == asked.attempt for attempt in self._tasks.values())
        if here + self._coming[asked.attempt] >= MOST_SESSIONS:
            return f"{MOST_SESSIONS} clients are attached to the terminal of {shown} already"
        return ""


async def _opened(run: Run) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the run's terminal, by way of its directory: a socket's own path may be too long."""
    directory = os.open(run.directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = f"/proc/self/fd/{directory}/{layout.ATTACH}"
        return await asyncio.open_unix_connection(path, limit=MOST_SHOWN_BYTES)
    finally:
        os.close(directory)


class Session:
    """One client at one terminal."""

    def __init__(
        self,
        bus: Bus,
        asked: AttachQuestion,
        output: str,
        run: Run,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._bus = bus
        self._asked = asked
        self._output = output
        self._socket = run.directory.path / layout.ATTACH
        self._reader = reader
        self._writer = writer
        self._sent = 0
        self._seen = 0
        self._news = asyncio.Event()
        self._left = asyncio.Event()
        self._heard_s = asyncio.get_running_loop().time()
        self._resize(asked.rows, asked.cols)

    async def run(self, listening: Listening, silence_s: float) -> None:
        """Bridges until the job is over, the client leaves or is silent for too long, or the bus is away."""
        work = {asyncio.ensure_future(self._show()), asyncio.ensure_future(self._wait_for_silence(silence_s))}
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writer.transport.abort()  # a close would wait for a job that does not read
            with contextlib.suppress(nats.errors.Error, OSError):
                await listening.unsubscribe()
            await end(work)
            for task in work:
                with contextlib.suppress(asyncio.CancelledError, nats.errors.Error, OSError):
                    task.result()

    async def on_typed(self, message: Msg) -> None:
        """Takes what the client says, and answers, also only to an inbox."""
        taken = self.take(message.data)
        if is_inbox(message.reply):
            with contextlib.suppress(nats.errors.Error, OSError):
                await message.respond(msgspec.json.encode(taken))

    def take(self, data: bytes) -> Taken:
        """The answer to a Typed."""
        try:
            typed = understood(data, Typed)
        except Unreadable as error:
            return Taken(problem=str(error))
        if len(typed.data) > MOST_TYPED_BYTES:
            return Taken(problem=f"{len(typed.data)} bytes at once, the limit is {MOST_TYPED_BYTES}")
        self._heard_s = asyncio.get_running_loop().time()
        self._seen = min(max(self._seen, typed.seen), self._sent)
        self._news.set()
        if typed.is_leaving:
            self._left.set()
        self._resize(typed.rows, typed.cols)
        if not typed.data or self._asked.is_read_only or self._writer.is_closing():
            return Taken(sent=self._sent)
        if self._writer.transport.get_write_buffer_size() > _MOST_UNTAKEN_BYTES:
            return Taken(is_full=True, sent=self._sent)
        self._writer.write(terminal.keys(typed.data))
        return Taken(sent=self._sent)

    def _resize(self, rows: int, cols: int) -> None:
        if 0 < rows < 1 << 16 and 0 < cols < 1 << 16 and not self._asked.is_read_only:
            self._writer.write(terminal.window(rows, cols))

    async def _show(self) -> None:
        """What the terminal shows, in order, and its end; no further ahead of the client than the window."""
        while True:
            while self._sent - self._seen >= WINDOW_BYTES:
                self._news.clear()
                await self._news.wait()
            try:
                data = await self._reader.read(MOST_SHOWN_BYTES)
            except OSError:
                data = b""
            if not data and self._socket.exists():
                return  # the keeper let this client go, or was killed: the job is not known to be over
            shown = Shown(at=self._sent, data=data, is_over=not data)
            await self._bus.publish(self._output, msgspec.json.encode(shown))
            self._sent += len(data)
            if not data:
                return

    async def _wait_for_silence(self, silence_s: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self._heard_s + silence_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOK_S, silence_s)):
                    await self._left.wait()
                    return
