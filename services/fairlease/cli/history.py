"""A cell's whole past for a command: the live log or a file, folded up to the end of a period.

The live log is copied to disk first, as `fairlease replay` does. A period is told in log time and counted from
the log's own end, not from the clock here: so a saved log gives the same figures as the live one did.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import IO, Final, NamedTuple

import msgspec

from fairlease.cli.exits import AWAY, FAILED, FORBIDDEN, USAGE, CommandError
from fairlease.cli.output import Output, refused
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.scope import Scope
from fairlease.core.world import World
from fairlease.runtime import plain_file
from fairlease.runtime.errors import LogDamaged, ShellError
from fairlease.runtime.export import export
from fairlease.runtime.keys import KeyUnusable, NoKey
from fairlease_schemas.codec import Unreadable, read_record
from fairlease_schemas.envelope import Record
from fairlease_schemas.subjects import SCOPES
from fairlease_schemas.units import parse_length_ms

OnRecord = Callable[[World, Record, int | None], None]
"""Called behind every record: the world, the record, and the bus's time of it in ms where that is known."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_LAST_S: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_TELL_S: Final = 0.5
_MAX_LINE: Final = 2 << 20
"""Four times what a bus takes as one message."""
_START: Final = "start the cell with `fairlease up`, or name a saved log with --log FILE"
_COPY: Final = (
    "ask where the cell was started for a copy (`fairlease replay --live --save FILE`) and name it with --log"
)
_SAVED: Final = "name a log that `fairlease replay --live --save FILE` wrote"


class _Stamp(msgspec.Struct):
    """What the first look at a record reads."""

    at_ms: int


_STAMPS: Final = msgspec.json.Decoder(_Stamp)


class Log(NamedTuple):
    """A log on disk, the bus's times of its records where it came from the bus, and its span of log time."""

    file: IO[bytes]
    stored_ms: "array[int]"
    records: int
    first_ms: int
    last_ms: int


@contextmanager
def opened(path: str | None) -> Iterator[Log]:
    """The log in this file, or the running cell's; CommandError when there is none or a line is no record."""
    stored_ms = array("q")
    try:
        with tempfile.TemporaryFile() if path is None else plain_file.opened(path) as file:
            if path is None:
                asyncio.run(export(file, "fairlease-history", lambda _position, at_ms: stored_ms.append(at_ms)))
            yield spanned(file, stored_ms)
    except LogDamaged as error:
        raise CommandError(FAILED, str(error), way_out="restore the log from its archive") from error
    except (NoKey, KeyUnusable) as error:
        raise CommandError(FORBIDDEN, str(error), way_out=_COPY) from error
    except ShellError as error:
        raise CommandError(AWAY, str(error), way_out=_START) from error
    except OSError as error:
        raise CommandError(FAILED, refused(error), way_out=_SAVED) from error


def spanned(file: IO[bytes], stored_ms: "array[int]") -> Log:
    """One quick look at every record for its log time, which must be known before the first one is counted."""
    file.seek(0)
    first_ms = last_ms = records = 0
    for records, line in enumerate(lines_of(file), start=1):
        try:
            at_ms = _STAMPS.decode(line).at_ms
        except msgspec.DecodeError as error:
            raise CommandError(FAILED, f"line {records} of the log is no record: {error}", way_out=_SAVED) from error
        first_ms = first_ms or at_ms
        last_ms = max(last_ms, at_ms)
    if records == 0:
        raise CommandError(FAILED, "the log holds no record", way_out=_START)
    return Log(file, stored_ms, records, first_ms, last_ms)


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a log; CommandError for one that no bus would have taken."""
    number = 0
    while line := file.readline(_MAX_LINE + 1):
        number += 1
        if len(line) > _MAX_LINE:
            text = f"line {number} of the log is longer than {_MAX_LINE} bytes, so it is no record"
            raise CommandError(FAILED, text, way_out=_SAVED)
        yield line


def period_of(args: argparse.Namespace, log: Log) -> Period:
    """From `--since` (the log's beginning) to `--until` (its end), within what the log spans; CommandError when empty.

    The first record is in a period that begins where the log does.
    """
    until_ms = log.last_ms if args.until is None else min(log.last_ms, instant(args.until, log.last_ms))
    since_ms = log.first_ms - 1 if args.since is None else max(log.first_ms - 1, instant(args.since, log.last_ms))
    if since_ms >= until_ms:
        text = f"the period is empty: since {clock(since_ms)}, until {clock(until_ms)}"
        way_out = f"the log goes from {clock(log.first_ms)} to {clock(log.last_ms)}; choose --since before --until"
        raise CommandError(USAGE, text, way_out=way_out)
    return Period(since_ms, until_ms)


def instant(text: str, end_ms: int) -> int:
    """An instant written as a length before the end of the log, or as a date and time of UTC."""
    try:
        return end_ms - parse_length_ms(text)
    except ValueError:
        at = datetime.fromisoformat(text)
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def clock(at_ms: int) -> str:
    """An instant to the second, in UTC; what lies outside the calendar is shown as its first or last second."""
    at_s = min(max(at_ms // 1000, _FIRST_S), _LAST_S)
    return (_EPOCH + timedelta(seconds=at_s)).replace(tzinfo=None).isoformat(" ", "seconds")


def folded(log: Log, period: Period, on_record: OnRecord, output: Output) -> World:
    """The world at the end of the period; CommandError where a line does not fold. Long logs are told of."""
    log.file.seek(0)
    world = World()
    told_s = time.monotonic()
    for position, line in enumerate(lines_of(log.file), start=1):
        try:
            record = read_record(line.rstrip(b"\n"))
            _check_place(world, record, position)
            if max(world.log_time_ms, record.at_ms) > period.until_ms:
                break
            world.apply(record, position)
        except Unreadable as error:
            raise CommandError(FAILED, f"line {position} of the log is no record: {error}", way_out=_SAVED) from error
        except (KeyError, IndexError, AssertionError) as error:
            text = f"line {position} of the log does not follow from those before it: {type(error).__name__}: {error}"
            raise CommandError(FAILED, text, way_out="`fairlease replay` says where a log differs") from error
        on_record(world, record, log.stored_ms[position - 1] if log.stored_ms else None)
        if time.monotonic() - told_s > _TELL_S and sys.stderr.isatty() and not output.is_quiet and not output.is_data:
            told_s = time.monotonic()
            print(f"\r{position:,} of {log.records:,} records\x1b[K", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty() and not output.is_quiet and not output.is_data:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return world


def _check_place(world: World, record: Record, position: int) -> None:
    """CommandError where the record cannot stand here: a log that begins late, is turned round or comes twice.

    It was decided on a fold of what stands before it, with nothing of its own scope since (the fence).
    """
    last = world.scope_position(SCOPES[record.by])
    if last <= record.basis < position:
        return
    text = f"line {position} of the log does not follow from those before it: it was decided at position {record.basis}"
    raise CommandError(FAILED, text, way_out=f"{_SAVED}, from its first record on")


def scope_of(args: argparse.Namespace) -> Scope:
    """Whose figures the options ask for."""
    return Scope(
        budget=getattr(args, "budget", None) or "",
        pool=getattr(args, "pool", None) or "",
        account=getattr(args, "person", None) or "",
        job=getattr(args, "job", None) or "",
    )


def check_scope(world: World, scope: Scope) -> None:
    """CommandError 1 for a budget, pool, person or job that the log does not know, with some that it does."""
    jobs = world.jobs.values()
    budgets = {*world.tree.nodes, *(job.budget for job in jobs)}
    pools = {*world.fleet.pools(), *world.fleet.schedulable}
    people = {*(job.account for job in jobs), *(name for roles in world.members.values() for name in roles)}
    for kind, name, known in (
        ("budget", scope.budget, budgets),
        ("pool", scope.pool, pools),
        ("person", scope.account, people),
        ("job", scope.job, world.jobs.keys()),
    ):
        if name and name not in known:
            shown = ", ".join(sorted(known)[:8]) or "none"
            more = ", …" if len(known) > 8 else ""
            raise CommandError(
                FAILED,
                f"the log knows no {kind} {name}",
                way_out=f"it knows: {shown}{more}",
                facts={"trouble": f"unknown-{kind}"},
            )
