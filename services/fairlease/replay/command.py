"""`fairlease replay`: decide a recorded log again, and say where today's code would part from it.

A log on disk is one record a line, line k the record of position k, byte for byte as the bus has it.
The surprising choice: the live log is first copied to disk, up to the end it has now, and then replayed
like any other. So the cell waits for nobody, memory does not grow with the log, and `--save` keeps what
was judged. Whoever cannot tell says so with a code of its own: a missing log is not an equal one.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from fairlease.replay.verify import ReplayReport, verify
from fairlease.runtime import plain_file
from fairlease.runtime.errors import ShellError
from fairlease.runtime.export import export
from fairlease_schemas.codec import Unreadable

EQUAL: Final = 0
DIVERGED: Final = 1
CANNOT_TELL: Final = 2
_WAY_OUT: Final = "name a file written by `fairlease replay --live --save FILE`, or start the cell with `fairlease up`"
_SHOWN_CHARS: Final = 2_000


class CannotTell(Exception):
    """There is no verdict; the text says why."""


def run(args: argparse.Namespace) -> int:
    """0 when every decision comes out the same, 1 when one does not, 2 when the log cannot be judged."""
    is_data = args.output in ("json", "jsonl", "yaml")
    try:
        report = _replayed(args)
    except (CannotTell, ShellError, OSError) as error:
        _complain(str(error), is_data=is_data)
        return CANNOT_TELL
    sys.stdout.write(_data(report, args.output) if is_data else _words(report))
    return EQUAL if report.divergences == 0 else DIVERGED


def _replayed(args: argparse.Namespace) -> ReplayReport:
    if args.live:
        return _live(Path(args.save) if args.save else None)
    if args.save:
        raise CannotTell("--save goes with --live: a LOG is on disk already")
    with plain_file.opened(args.log) as log:
        return _judged(log)


def _live(kept: Path | None) -> ReplayReport:
    """The verdict on the cell's log. A file of that name is replaced once the whole log is there, not before."""
    if kept is None:
        with tempfile.TemporaryFile() as log:
            asyncio.run(export(log, "fairlease-replay"))
            log.seek(0)
            return _judged(log)
    fresh = kept.with_name(kept.name + ".new")
    try:
        with fresh.open("wb") as log:
            asyncio.run(export(log, "fairlease-replay"))
        fresh.replace(kept)
    finally:
        fresh.unlink(missing_ok=True)
    with kept.open("rb") as log:
        return _judged(log)


class _Lines:
    """The records of a log on disk: (position, bytes) of every line. `position` is the last one handed out."""

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self.position = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for line in self._log:
            self.position += 1
            yield self.position, line.rstrip(b"\n")


def _judged(log: IO[bytes]) -> ReplayReport:
    """The verdict on a log; CannotTell where a line is no record, the fold does not take it, or there is none."""
    lines = _Lines(log)
    try:
        report = verify(lines)
    except Unreadable as error:
        raise CannotTell(f"line {lines.position}: {error}") from error
    except OSError:
        raise
    except Exception as error:
        raise CannotTell(f"line {lines.position} breaks the fold: {type(error).__name__}: {error}") from error
    if report.positions == 0:
        raise CannotTell("the log holds no record: nothing was decided, so nothing can be compared")
    return report


def _data(report: ReplayReport, form: str) -> str:
    """The report as JSON (which YAML reads too), over several lines or on one."""
    raw = msgspec.json.encode(report)
    return (raw if form == "jsonl" else msgspec.json.format(raw, indent=2)).decode() + "\n"


def _words(report: ReplayReport) -> str:
    head = (
        f"{report.decisions} decisions, {report.events} events replayed, "
        f"{report.events_per_s:.0f} events/s, fold {report.digest[:16]}\n"
    )
    first = report.first
    if first is None:
        return head + "equal: every decision comes out the same today\n"
    where = f"position {first.position}" + (f", event {first.index}" if first.index >= 0 else ", the record itself")
    shown = [json.dumps(value, ensure_ascii=True)[:_SHOWN_CHARS] for value in (first.recorded, first.replayed)]
    return head + f"diverged at {where}\n  recorded  {shown[0]}\n  replayed  {shown[1]}\n"


def _complain(text: str, *, is_data: bool) -> None:
    """Say on standard error why there is no verdict, in the form the command line uses for errors."""
    line = f"fairlease: cannot tell: {text}\n  {_WAY_OUT}"
    if is_data:
        facts = {"apiVersion": "fairlease/v1", "kind": "Error", "exit_code": CANNOT_TELL, "text": text}
        line = json.dumps({**facts, "way_out": _WAY_OUT, "problems": []})
    sys.stderr.write(line + "\n")
