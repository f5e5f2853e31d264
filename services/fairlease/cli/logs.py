"""`job logs`: what the job wrote, read page by page from the agents of its hosts.

The log lives where the job ran and nowhere else, so each host is asked by itself. One host's text is
printed as it is, byte for byte, because it is the job's own; with several, every line begins with its
host. Following goes on over preemptions, from one attempt to the next, until the job is over.
"""

import argparse
import asyncio
import json
from typing import Final

from fairlease.cli.exits import FAILED, OK, TERMINAL, CommandError
from fairlease.cli.link import Link, LogPage, linked
from fairlease.cli.output import Output, output_of, print_text, say
from fairlease.runtime.tasks import heed_cancellation
from fairlease_schemas.explain import AttemptView, JobView

PAGE_BYTES: Final = 64 * 1024
IDLE_S: Final = 0.3
REFRESH_S: Final = 1.0
_JSON: Final = ("json", "jsonl")


class Pen:
    """Writes what one host said, in the chosen form."""

    def __init__(self, output: Output, attempt: str, host: str, *, has_prefix: bool) -> None:
        self._is_data = output.form in _JSON
        self._facts = {"kind": "LogPage", "attempt": attempt, "host": host}
        self._prefix = f"{host} | " if has_prefix else ""
        self._rest = ""

    def write(self, text: str) -> None:
        """Print the text; with a prefix, whole lines only, so that hosts do not mix within a line."""
        if self._is_data:
            print_text(json.dumps({**self._facts, "data": text}, ensure_ascii=False) + "\n")
        elif not self._prefix:
            print_text(text)
        else:
            *lines, self._rest = (self._rest + text).split("\n")
            print_text("".join(f"{self._prefix}{line}\n" for line in lines))

    def close(self) -> None:
        """Print the last line, which had no end."""
        if self._rest:
            print_text(f"{self._prefix}{self._rest}\n")


def run(args: argparse.Namespace) -> int:
    """Print the log of the attempt, or follow the job; 0, or CommandError."""
    return asyncio.run(_printed(args, output_of(args)))


async def _printed(args: argparse.Namespace, output: Output) -> int:
    async with linked(args) as link:
        view = await job_view(link, args.job)
        if args.follow:
            reader = Follower(link, args.job, output, only_host=args.host)
            await reader.follow(first=args.attempt, is_one=args.attempt is not None)
            return OK
        attempt = _chosen(view, args.attempt)
        for host in hosts_of(attempt, args.host):
            pen = Pen(output, attempt.attempt, host, has_prefix=len(attempt.hosts) > 1 and args.host is None)
            await _read(link, attempt.attempt, host, pen)
        return OK


async def job_view(link: Link, job: str) -> JobView:
    """The job as it stands; CommandError as `Link.ask` raises it."""
    view = (await link.ask("job", {"job": job})).view
    assert isinstance(view, JobView), f"asked about a job, was told of a {type(view).__name__}"
    return view


def _chosen(view: JobView, number: int | None) -> AttemptView:
    """The attempt with this number, or the latest; CommandError 1 where there is none."""
    if not view.attempts:
        raise CommandError(
            FAILED, f"{view.job} is {view.state} and has not run yet", way_out=f"see `fairlease why {view.job}`"
        )
    if number is None:
        return view.attempts[-1]
    for attempt in view.attempts:
        if attempt.number == number:
            return attempt
    raise CommandError(FAILED, f"{view.job} has no attempt {number}; the latest is {view.attempts[-1].number}")


def hosts_of(attempt: AttemptView, only: str | None) -> tuple[str, ...]:
    """The hosts to read, in rank order; CommandError 1 for one the attempt did not run on."""
    if only is None:
        return attempt.hosts
    if only not in attempt.hosts:
        raise CommandError(FAILED, f"{attempt.attempt} has no part on {only}; it ran on {', '.join(attempt.hosts)}")
    return (only,)


async def _read(link: Link, attempt: str, host: str, pen: Pen) -> None:
    """Print what is there now."""
    offset = 0
    while True:
        heed_cancellation()
        page = _advanced(await link.read_log(host, attempt, offset, PAGE_BYTES), offset, host)
        if page.problem:
            raise CommandError(FAILED, f"no log from {host}: {page.problem}")
        pen.write(page.data)
        if page.is_end or not page.data:
            pen.close()
            return
        offset = page.next


def _advanced(page: LogPage, offset: int, host: str) -> LogPage:
    """The page, unless it has text and stands still, which would be read for ever."""
    if page.data and page.next <= offset:
        raise CommandError(FAILED, f"the agent of {host} repeats its log at {offset}: its log is damaged")
    return page


class Follower:
    """Prints a job's log as it grows, attempt after attempt."""

    def __init__(self, link: Link, job: str, output: Output, *, only_host: str | None = None) -> None:
        self._link = link
        self._job = job
        self._output = output
        self._only_host = only_host
        self._view: JobView | None = None
        self._read_at = float("-inf")

    async def follow(self, *, first: int | None = None, is_one: bool = False) -> None:
        """Print from attempt `first` (the latest there is) until the job is over, or only that one."""
        wanted = first
        while True:
            heed_cancellation()
            view = await self._fresh()
            attempts = view.attempts if view is not None else ()
            if wanted is None and attempts:
                wanted = attempts[-1].number
            attempt = next((a for a in attempts if wanted is not None and a.number >= wanted), None)
            if attempt is not None:
                hosts = hosts_of(attempt, self._only_host)
                has_prefix = len(attempt.hosts) > 1 and self._only_host is None
                pens = [Pen(self._output, attempt.attempt, host, has_prefix=has_prefix) for host in hosts]
                await asyncio.gather(*(self._tail(attempt, host, pen) for host, pen in zip(hosts, pens, strict=True)))
                if is_one:
                    return
                wanted = attempt.number + 1
            elif view is not None and view.state in TERMINAL:
                return
            else:
                await asyncio.sleep(IDLE_S)

    async def _tail(self, attempt: AttemptView, host: str, pen: Pen) -> None:
        """Print one host's part until it says that this was all, or until the attempt is over and it is silent."""
        offset = 0
        is_last = False
        while True:
            heed_cancellation()
            page = await self._page(host, attempt.attempt, offset)
            if page.data:
                pen.write(page.data)
                offset = page.next
            if page.is_end or (is_last and not page.data):
                pen.close()
                if page.problem:
                    say(self._output, f"no more from {host}: {page.problem}", {"host": host, "problem": page.problem})
                return
            if not page.data:
                is_last = await self._is_over(attempt.number)
                await asyncio.sleep(IDLE_S)

    async def _page(self, host: str, attempt: str, offset: int) -> LogPage:
        """A page; an agent that is away or does not know the attempt yet has none for now."""
        try:
            return _advanced(await self._link.read_log(host, attempt, offset, PAGE_BYTES), offset, host)
        except CommandError as error:
            return LogPage(next=offset, problem=error.text)

    async def _is_over(self, number: int) -> bool:
        """Whether this attempt has ended, as far as the explainer knows."""
        view = await self._fresh()
        if view is None:
            return False
        return view.state in TERMINAL or any(a.number == number and a.ended_ms is not None for a in view.attempts)

    async def _fresh(self) -> JobView | None:
        """The job's view, at most a second old; the last known while nobody answers."""
        now = asyncio.get_running_loop().time
        if now() - self._read_at >= REFRESH_S:
            self._read_at = now()
            try:
                self._view = await job_view(self._link, self._job)
            except CommandError:
                return self._view
        return self._view
