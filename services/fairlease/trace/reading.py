"""A trace file, packed or not, whichever of the known formats it is.

It is read a line at a time, within bounds for a line, for the whole, and for how much a packed file may grow: a file
that somebody made to fill the memory is refused before it does.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Final

from fairlease.trace.cells import Line, Problem, TraceWrong, rows_of, split, told
from fairlease.trace.own_log import read_log
from fairlease.trace.recorded import Recorded, RecordedJob, by_arrival, met
from fairlease.trace.slips import slips
from fairlease.trace.tables import FORMATS, Format

MAX_BYTES: Final = 512 << 20
MAX_LINE: Final = 2 << 20
MAX_GROWTH: Final = 100
"""A packed file may be so many times as large unpacked; real traces grow by less than thirty."""
GROWTH_FREE: Final = 1 << 20
LOG: Final = "log"
NAMES: Final = (*(known.name for known in FORMATS), LOG)
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


def read_trace(path: Path, expected: str = "") -> Recorded:
    """The jobs of a file; `expected` is the name of the format it must have, if anybody said so.

    OSError when the file cannot be read; TraceWrong, with every problem found, when it is no trace.
    """
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise TraceWrong(path.name, [_too_long(1)])
    lines = _lines(path.name, raw)
    first = next(lines, b"")
    lines = chain([first], lines)
    sha256 = hashlib.sha256(raw).hexdigest()
    if first.lstrip().startswith(b"{"):
        _check_format(path.name, 1, LOG, expected)
        return read_log(path.name, lines, sha256)
    return _table(path.name, lines, sha256, expected)


def _lines(file: str, raw: bytes) -> Iterator[bytes]:
    """The lines of the text without their ends, unpacked where it is packed."""
    is_packed = raw.startswith(_GZIP)
    most = min(MAX_BYTES, GROWTH_FREE + MAX_GROWTH * len(raw)) if is_packed else MAX_BYTES
    text: IO[bytes] = io.BytesIO(raw)
    if is_packed:
        text = gzip.GzipFile(fileobj=text)  # type: ignore[assignment]  # it reads as any file does
    size, row = 0, 0
    try:
        while line := text.readline(MAX_LINE + 1):
            row, size = row + 1, size + len(line)
            if len(line) > MAX_LINE:
                raise TraceWrong(file, [Problem(row, "", "", f"is longer than {MAX_LINE} bytes: is it a trace?")])
            if size > most:
                raise TraceWrong(file, [_too_long(row)])
            yield (line.removeprefix(_BOM) if row == 1 else line).rstrip(b"\r\n")
    except (OSError, EOFError, zlib.error) as error:
        text_ = f"is packed and cannot be unpacked ({error}): copy it again"
        raise TraceWrong(file, [Problem(row + 1, "", "", text_)]) from error


def _too_long(row: int) -> Problem:
    text = f"is beyond {MAX_BYTES >> 20} MiB, or {MAX_GROWTH} times the packed file: cut the trace"
    return Problem(row, "", "", text)


def _decoded(file: str, lines: Iterator[bytes]) -> Iterator[Line]:
    for row, line in enumerate(lines, start=1):
        try:
            yield row, line.decode("utf-8")
        except UnicodeDecodeError as error:
            text = "is not UTF-8 text: a trace is CSV in UTF-8, or a log; convert it"
            raise TraceWrong(file, [Problem(row, "", "", text)]) from error


def _table(file: str, lines: Iterator[bytes], sha256: str, expected: str) -> Recorded:
    below = told(_decoded(file, lines))
    row, line = next(below, (1, ""))
    header = split(line)
    format_ = _format_of(file, row, line, header)
    _check_format(file, row, format_.name, expected)
    problems: list[Problem] = []
    rows = [format_.read(cells) for cells in rows_of(below, header, problems)]
    problems += _repeated(rows, format_)
    problems = problems or (slips(rows, format_) if rows else [])
    if problems:
        raise TraceWrong(file, problems)
    jobs, zero_ms, rules = by_arrival(rows)
    rules = (*met([(note, len(rows)) for note in format_.notes]), *rules)
    if not jobs:
        found = "; ".join(f"{rule.rule}: {rule.count}" for rule in rules) or "it has no rows"
        raise TraceWrong(file, [Problem(1, "", "", f"begins a file without a job to run: name another ({found})")])
    return Recorded(
        file=file,
        format=format_.name,
        has_outcomes=format_.has_outcomes,
        gpus_column=format_.gpus_column,
        jobs=jobs,
        rules=rules,
        sha256=sha256,
        zero_ms=None if format_.arrival[1] else zero_ms,
    )


def _check_format(file: str, row: int, name: str, expected: str) -> None:
    if expected and name != expected:
        text = f"begins a {name} trace, not a {expected} one: say --format {name}, or leave it out"
        raise TraceWrong(file, [Problem(row, "", "", text)])


def _format_of(file: str, row: int, line: str, header: Sequence[str]) -> Format:
    """The format that shares the most columns with this header; TraceWrong names those it lacks."""
    if "\r" in line:
        text = "has its lines ended by CR alone: end them with LF"
        raise TraceWrong(file, [Problem(row, "", "", text)])
    likeliest = max(FORMATS, key=lambda known: len(set(known.columns) & set(header)))
    if not set(likeliest.columns) & set(header):
        known = "; or ".join(f"{one.name}: {','.join(one.columns)}" for one in FORMATS)
        raise TraceWrong(file, [Problem(row, "", ",".join(header), f"is no header of a known trace ({known})")])
    missing = [name for name in likeliest.columns if name not in header]
    twice = [name for name in likeliest.columns if header.count(name) > 1]
    if missing or twice:
        problems = [Problem(row, name, "", f"is missing: a {likeliest.name} trace has it, add it") for name in missing]
        raise TraceWrong(file, [*problems, *(Problem(row, name, "", "stands there twice: keep one") for name in twice)])
    return likeliest


def _repeated(rows: Sequence[RecordedJob], format_: Format) -> list[Problem]:
    """Every row whose id an earlier row has."""
    first: dict[str, int] = {}
    return [
        Problem(
            row.row, format_.id_column, row.request_id.partition("-")[2], f"stands in row {before} already: keep one"
        )
        for row in rows
        if (before := first.setdefault(row.request_id, row.row)) != row.row
    ]
