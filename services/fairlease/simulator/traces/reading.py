"""A trace file, packed or not, whichever of the known formats it is, fitted to a cluster."""

import gzip
import hashlib
import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fairlease.simulator.traces.cells import Problem, TraceWrong, header_of, rows_of
from fairlease.simulator.traces.own_log import read_log
from fairlease.simulator.traces.row import Recorded, Trace, fitted, fitting_rules
from fairlease.simulator.traces.tables import FORMATS, Format
from fairlease.trace.workload import Rule

MAX_BYTES: Final = 256 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"


def read_trace(path: Path, hosts: int, gpus_per_host: int) -> Trace:
    """The jobs of a file, for a cluster of `hosts` x `gpus_per_host`.

    OSError when the file cannot be read; TraceWrong, with every problem found, when it is no trace, and for each job
    that is larger than the cluster: a job that never starts would hold a strict queue for ever.
    """
    packed = _read(path)
    raw = _unpacked(path.name, packed)
    name, recorded, notes, gpus_column = _parsed(path.name, raw)
    too_large = [
        Problem(
            row.row, gpus_column, str(row.gpus), f"does not fit on {hosts} x {gpus_per_host}: name a larger cluster"
        )
        for row in recorded
        if not _has_room(row.shape(gpus_per_host), hosts, gpus_per_host)
    ]
    if too_large:
        raise TraceWrong(path.name, too_large)
    jobs = fitted(recorded, gpus_per_host)
    if not jobs:
        raise TraceWrong(path.name, [Problem(1, "", "", _nothing_left(notes, recorded))])
    return Trace(
        format=name,
        jobs=jobs,
        rules=(*notes, *fitting_rules(recorded, jobs)),
        sha256=hashlib.sha256(packed).hexdigest(),
    )


def _has_room(shape: tuple[int, int], hosts: int, gpus_per_host: int) -> bool:
    return shape[0] <= hosts and shape[1] <= gpus_per_host


def _nothing_left(notes: Sequence[Rule], recorded: list[Recorded]) -> str:
    told = "; ".join(f"{rule.rule}: {rule.count}" for rule in (*notes, *fitting_rules(recorded, ())))
    return f"begins a file without a job to run: name another ({told or 'it has no rows'})"


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    return _bounded(path.name, raw)


def _unpacked(file: str, raw: bytes) -> bytes:
    """The text of the file; a packed one is read no further than the bound, however much it would grow to."""
    if not raw.startswith(_GZIP):
        return raw
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as unpacked:
            text = unpacked.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceWrong(
            file, [Problem(1, "", "", f"is packed and cannot be unpacked ({error}): copy it again")]
        ) from error
    return _bounded(file, text)


def _bounded(file: str, raw: bytes) -> bytes:
    if len(raw) > MAX_BYTES:
        raise TraceWrong(file, [Problem(1, "", "", f"begins a file of more than {MAX_BYTES} bytes: cut it")])
    return raw


def _parsed(file: str, raw: bytes) -> tuple[str, list[Recorded], tuple[Rule, ...], str]:
    if raw.startswith(b"{"):
        recorded, notes = read_log(file, raw)
        return "log", recorded, notes, "gpus"
    try:
        lines = raw.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        row = raw[: error.start].count(b"\n") + 1
        raise TraceWrong(file, [Problem(row, "", "", "is not UTF-8 text: a trace is CSV or a log")]) from error
    format_ = _format_of(file, *header_of(lines))
    problems: list[Problem] = []
    recorded = [format_.read(row) for row in rows_of(lines, problems)]
    problems += _repeated(recorded, format_)
    if problems:
        raise TraceWrong(file, problems)
    notes = tuple(Rule(rule=note, count=len(recorded)) for note in format_.notes if recorded)
    return format_.name, recorded, notes, format_.gpus_column


def _format_of(file: str, row: int, header: Sequence[str]) -> Format:
    """The format that shares the most columns with this header; TraceWrong names those it lacks."""
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


def _repeated(recorded: Sequence[Recorded], format_: Format) -> list[Problem]:
    """Every row whose id an earlier row has."""
    first: dict[str, int] = {}
    return [
        Problem(row.row, format_.id_column, row.name.partition("-")[2], f"stands in row {before} already: keep one")
        for row in recorded
        if (before := first.setdefault(row.name, row.row)) != row.row
    ]
