"""`fairlease trace play`: a recorded workload through a cell of its own, from file to verdict.

The cell lives in a directory of its own, so that a play touches no other cell. It is gone afterwards,
unless it is evidence: of jobs that were lost, of a log that differs, of a cell that did not come up.
The played log is decided again by the program that judges any log, `fairlease replay`, in a process of
its own: what is judged is the file, not what this process remembers.
"""

import argparse
import asyncio
import json
import logging
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from fairlease.runtime.errors import ShellError
from fairlease.trace.cells import TraceWrong
from fairlease.trace.complaint import DATA_FORMATS, complain
from fairlease.trace.player import OnProgress, PlayFailed, Progress, play
from fairlease.trace.reading import read_trace
from fairlease.trace.recorded import Recorded
from fairlease.trace.report import encoded, is_good, report_of, table_of
from fairlease.trace.workload import Workload, prepare

GOOD: Final = 0
NOT_GOOD: Final = 1
USAGE: Final = 64
WRONG_TRACE: Final = 65
CELL_AWAY: Final = 69


def run(args: argparse.Namespace) -> int:
    """0 when every job came to an end and the log replays equal, else 1; 64 and 65 for wrong arguments, 69: no cell."""
    is_data = args.output in DATA_FORMATS
    path = Path(args.file)
    hosts, gpus_per_host = args.hosts
    # What the follower and the supervisor see is in the cell's own logs; here it would break the progress line.
    logging.getLogger("fairlease").addHandler(logging.NullHandler())
    try:
        recorded = read_trace(path)
        workload = prepare(
            recorded, hosts=hosts, gpus_per_host=gpus_per_host, speed=args.speed, cut_s=args.cut, limit=args.limit or 0
        )
    except (TraceWrong, OSError) as error:
        return complain(f"{path} cannot be played\n{error}", WRONG_TRACE, is_data=is_data)
    if args.keep and Path(args.keep).exists():
        return complain(f"--keep {args.keep}: is there already; name a new directory", USAGE, is_data=is_data)
    home = _home(args.keep)
    is_evidence = bool(args.keep)
    try:
        report = _played(path.name, recorded, workload, home, _progress(is_quiet=args.quiet))
        is_evidence = is_evidence or not is_good(report)
    except (ShellError, OSError) as error:
        is_evidence = True
        return complain(f"{error}\n  the cell's state is kept in {home}", CELL_AWAY, is_data=is_data)
    finally:
        if not is_evidence:
            shutil.rmtree(home, ignore_errors=True)
    sys.stdout.write(encoded(report, args.output) if is_data else table_of(report))
    if is_good(report):
        return GOOD
    return complain(
        f"not every job came to an end, or the log differs; it is kept in {home}", NOT_GOOD, is_data=is_data
    )


def _played(
    name: str, recorded: Recorded, workload: Workload, home: Path, on_progress: OnProgress | None
) -> dict[str, Any]:
    result = asyncio.run(play(workload, home, on_progress=on_progress))
    if on_progress is not None:
        sys.stderr.write("\n")
    return report_of(name, recorded, workload, result, replayed(result.log))


def replayed(log: Path) -> dict[str, Any]:
    """The ReplayReport of a log on disk; PlayFailed when it cannot be judged."""
    done = subprocess.run(  # noqa: S603 - our own interpreter and our own command, no shell reads it
        [sys.executable, "-m", "fairlease", "replay", str(log), "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise PlayFailed(f"the played log cannot be judged: {done.stderr.strip()[-500:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _home(kept: str | None) -> Path:
    """A new state directory: the one that was named, else one for this play alone."""
    if kept is None:
        return Path(tempfile.mkdtemp(prefix="fairlease-trace-"))
    home = Path(kept).absolute()
    home.mkdir(parents=True, mode=0o700)
    return home


def _progress(*, is_quiet: bool) -> OnProgress | None:
    """A line that is written over itself, on a terminal; nothing elsewhere."""
    if is_quiet or not sys.stderr.isatty():
        return None

    async def show(now: Progress) -> None:
        sys.stderr.write(
            f"\r{now.submitted}/{now.total} submitted, {now.waiting} waiting, {now.live} live, {now.over} over\x1b[K"
        )
        sys.stderr.flush()

    return show
