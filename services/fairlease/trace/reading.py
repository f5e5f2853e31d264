"""A trace file, whichever of the known formats its header says it is."""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from fairlease.trace import helios, philly
from fairlease.trace.recorded import Recorded, RecordedJob, from_first_arrival
from fairlease.trace.table import Problem, Row, TraceWrong, header_of, rows_of

MAX_BYTES: Final = 256 * 1024 * 1024


class Format(msgspec.Struct, frozen=True):
    """How one kind of file is read. `check` finds what only the whole file shows, for a cluster of so many GPUs."""

    name: str
    columns: tuple[str, ...]
    gpus_column: str
    has_outcomes: bool
    read_row: Callable[[Row, int], RecordedJob]
    check: Callable[[Sequence[RecordedJob], int], list[Problem]]


def _nothing(_jobs: Sequence[RecordedJob], _cluster_gpus: int) -> list[Problem]:
    return []


def _check_helios(jobs: Sequence[RecordedJob], cluster_gpus: int) -> list[Problem]:
    return [*helios.repeated(jobs), *helios.implausible(from_first_arrival(list(jobs)), cluster_gpus)]


FORMATS: Final = (
    Format(philly.NAME, philly.COLUMNS, philly.GPUS_COLUMN, philly.HAS_OUTCOMES, philly.read_row, _nothing),
    Format(helios.NAME, helios.COLUMNS, helios.GPUS_COLUMN, helios.HAS_OUTCOMES, helios.read_row, _check_helios),
)


def read_trace(path: Path, cluster_gpus: int) -> Recorded:
    """The jobs of a file. OSError when it cannot be read; TraceWrong, with every problem, when it is no trace."""
    raw = _bytes_of(path)
    try:
        lines = raw.decode("utf-8-sig").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        text = "is not UTF-8 text: traces are plain CSV, or packed as .gz"
        raise TraceWrong([Problem(line, "", "", text)]) from error
    format_ = format_of(header_of(lines))
    problems: list[Problem] = []
    rows = [format_.read_row(row, number) for number, row in enumerate(rows_of(lines, problems), start=1)]
    problems = problems or format_.check(rows, cluster_gpus)
    if not rows and not problems:
        problems = [Problem(len(lines), "", "", "is the end, and no job came before it")]
    if problems:
        raise TraceWrong(sorted(problems))
    jobs = [job for job in rows if job.gpus]
    return Recorded(
        format=format_.name,
        has_outcomes=format_.has_outcomes,
        gpus_column=format_.gpus_column,
        jobs=from_first_arrival(jobs),
        left_out=len(rows) - len(jobs),
        sha256=hashlib.sha256(raw).hexdigest(),
    )


def format_of(header: Sequence[str]) -> Format:
    """The format that shares the most columns with this header; TraceWrong names those it lacks."""
    likeliest = max(FORMATS, key=lambda known: len(set(known.columns) & set(header)))
    if not set(likeliest.columns) & set(header):
        known = "; or ".join(f"{f.name}: {','.join(f.columns)}" for f in FORMATS)
        raise TraceWrong([Problem(1, "", ",".join(header), f"is no header of a known trace ({known})")])
    missing = [name for name in likeliest.columns if name not in header]
    twice = [name for name in likeliest.columns if list(header).count(name) > 1]
    if missing or twice:
        problems = [Problem(1, name, "", f"is missing: a {likeliest.name} trace has it") for name in missing]
        raise TraceWrong([*problems, *(Problem(1, name, "", "stands there twice") for name in twice)])
    return likeliest


def _bytes_of(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (EOFError, zlib.error) as error:
        raise TraceWrong([Problem(1, "", "", f"begins a packed file that is torn: {error}")]) from error
    if len(raw) > MAX_BYTES:
        raise TraceWrong([Problem(1, "", "", f"begins a file of more than {MAX_BYTES} bytes: cut it")])
    return raw
