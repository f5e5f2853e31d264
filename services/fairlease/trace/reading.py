"""A trace file, packed or not, whichever of the known formats it is.

It is read a line at a time, within bounds for a line, for a table, and for how much a packed file may grow: a file that
somebody made to fill the memory is refused before it does. A log may be of any length; what is kept of it are its jobs.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec

from fairlease.trace.cells import Line, Problem, TraceWrong, rows_of, split, told
from fairlease.trace.own_log import read_log
from fairlease.trace.recorded import Recorded, RecordedJob, by_arrival, met
from fairlease.trace.slips import slips
from fairlease.trace.tables import FORMATS, Format

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

MAX_BYTES: Final = 512 << 20
"""Of a table, unpacked."""
MAX_LINE: Final = 2 << 20
MAX_GROWTH: Final = 100
"""A packed file may be so many times as large unpacked; real traces grow by less than thirty."""
GROWTH_FREE: Final = 1 << 20
LOG: Final = "log"
NAMES: Final = (*(known.name for known in FORMATS), LOG)
_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
_BOM: Final = b"\xef\xbb\xbf"


class _Counted(io.RawIOBase):
    """The file as it lies on disk, with its digest and size as far as it was read."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__()
        self._file = file
        self.sha256 = hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer", /) -> int:
        count = self._file.readinto(buffer)
        self.sha256.update(memoryview(buffer)[:count])
        self.size += count
        return count


def read_trace(path: Path, expected: str = "") -> Recorded:
    """The jobs of a file; `expected` is the name of the format it must have, if anybody said so.

    OSError when the file cannot be read; TraceWrong, with every problem found, when it is no trace.
    """
    with path.open("rb", buffering=0) as file:
        counted = _Counted(file)
        whole = io.BufferedReader(counted, _CHUNK)
        lines = _lines(path.name, whole, counted)
        first = next(lines, b"")
        is_log = first.lstrip().startswith(b"{")
        if is_log:
            _check_format(path.name, 1, LOG, expected)
        read = read_log if is_log else partial(_table, expected=expected)
        recorded = read(path.name, chain([first], lines))
        while whole.read(_CHUNK):
            pass  # what stands behind the last line belongs to the digest
    return msgspec.structs.replace(recorded, sha256=counted.sha256.hexdigest())


def _lines(file: str, whole: "io.BufferedReader[_Counted]", counted: _Counted) -> Iterator[bytes]:
    """The lines of the text without their ends, unpacked where it is packed."""
    is_packed = whole.peek(2).startswith(_GZIP)
    text: IO[bytes] = gzip.GzipFile(fileobj=whole) if is_packed else whole  # type: ignore[assignment]  # read as a file
    size, row = 0, 0
    try:
        while line := text.readline(MAX_LINE + 1):
            row, size = row + 1, size + len(line)
            if len(line) > MAX_LINE:
                raise TraceWrong(file, [Problem(row, "", "", f"is longer than {MAX_LINE} bytes: is it a trace?")])
            if is_packed and size > GROWTH_FREE + MAX_GROWTH * counted.size:
                told = f"is beyond {MAX_GROWTH} times the packed file: no trace packs so well, unpack it yourself"
                raise TraceWrong(file, [Problem(row, "", "", told)])
            yield (line.removeprefix(_BOM) if row == 1 else line).rstrip(b"\r\n")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        told = f"is packed and cannot be unpacked ({error}): copy it again"
        raise TraceWrong(file, [Problem(row + 1, "", "", told)]) from error


def _decoded(file: str, lines: Iterator[bytes]) -> Iterator[Line]:
    size = 0
    for row, line in enumerate(lines, start=1):
        size += len(line) + 1
        if size > MAX_BYTES:
            raise TraceWrong(file, [Problem(row, "", "", f"is beyond {MAX_BYTES >> 20} MiB of a table: cut it")])
        try:
            yield row, line.decode("utf-8")
        except UnicodeDecodeError as error:
            text = "is not UTF-8 text: a trace is CSV in UTF-8, or a log; convert it"
            raise TraceWrong(file, [Problem(row, "", "", text)]) from error


def _table(file: str, lines: Iterator[bytes], *, expected: str) -> Recorded:
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
