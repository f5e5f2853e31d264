"""The three formats of other people's traces that come as CSV, and their traps.

- philly (Jeon et al., USENIX ATC 2019): a local wall clock, unsorted with many ties; seconds as text with a point;
`gpu_time` is the product of two columns, so it tells a torn row; no user and no outcome. - helios (Hu et al., SC
2021): `submit_time` in microseconds, all other times in seconds; `#` lines are comments. - muri (SIGCOMM 2022): all
times in milliseconds; no team, user or outcome.

The times of helios and muri are whole seconds at their source. A file written in another unit has some that are not,
and that tells a slip of units, which no single number would.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Final, NamedTuple

from fairlease.simulator.traces.cells import Cells
from fairlease.simulator.traces.row import Ending, Recorded
from fairlease_schemas.units import MAX_LENGTH_MS, SECOND_MS

_SECOND_US: Final = 1_000_000
_LATEST_US: Final = 4_102_444_800 * _SECOND_US  # the year 2100
_ENDINGS: Final = {
    "COMPLETED": Ending.SUCCEEDED,
    "FAILED": Ending.FAILED,
    "NODE_FAIL": Ending.FAILED,
    "CANCELED": Ending.CANCELLED,
}


class Format(NamedTuple):
    """How one kind of table is read; `notes` are the rules that meet each of its rows."""

    name: str
    columns: tuple[str, ...]
    gpus_column: str
    id_column: str
    read: Callable[[Cells], Recorded]
    notes: tuple[str, ...]


def _philly(row: Cells) -> Recorded:
    gpus = row.gpus("num_gpus")
    duration_ms = row.seconds_ms("duration")
    product = Decimal(duration_ms * gpus) / SECOND_MS
    gpu_time = row.decimal("gpu_time")
    if row.is_sound and abs(gpu_time - product) > max(Decimal(1), product / 1_000):
        row.complain("gpu_time", f"is not duration x num_gpus = {product}: the row was torn, correct it")
    return Recorded(
        row.row,
        f"philly-{row.row}",
        row.instant_ms("timestamp"),
        duration_ms,
        gpus,
        row.text("cluster"),
        "",
        Ending.SUCCEEDED,
    )


def _helios(row: Cells) -> Recorded:
    status = row.text("final_status")
    if status and status not in _ENDINGS:
        row.complain("final_status", f"is none of {', '.join(_ENDINGS)}: write one of them")
    submit_us = row.whole("submit_time", _LATEST_US, "is it in nanoseconds?")
    if submit_us % _SECOND_US:
        row.complain("submit_time", "is no whole second in microseconds: is it in milliseconds or seconds?")
    row.gpus("num_nodes")
    return Recorded(
        row.row,
        f"helios-{row.text('job_id')}",
        submit_us // 1_000,
        row.seconds_ms("duration_s"),
        row.gpus("num_chips"),
        row.text("tenant"),
        row.text("user"),
        _ENDINGS.get(status, Ending.SUCCEEDED),
    )


def _muri_ms(row: Cells, column: str) -> int:
    length_ms = row.whole(column, MAX_LENGTH_MS, "is more than a year of milliseconds, is it in microseconds?")
    if length_ms % 1_000:
        row.complain(column, "is no whole second in milliseconds: is it in seconds?")
    return length_ms


def _muri(row: Cells) -> Recorded:
    return Recorded(
        row.row,
        f"muri-{row.text('job_id')}",
        _muri_ms(row, "submit_time"),
        _muri_ms(row, "duration"),
        row.gpus("num_gpu"),
        "",
        "",
        Ending.SUCCEEDED,
    )


_NO_USER: Final = "the trace has no users"
_NO_OUTCOME: Final = "the trace has no outcomes: every job succeeds"
FORMATS: Final = (
    Format(
        "philly",
        ("timestamp", "duration", "num_gpus", "gpu_time", "cluster"),
        "num_gpus",
        "",
        _philly,
        ("submission is a local wall clock, read without zones or summer time", _NO_USER, _NO_OUTCOME),
    ),
    Format(
        "helios",
        ("job_id", "user", "tenant", "submit_time", "num_chips", "num_nodes", "duration_s", "final_status"),
        "num_chips",
        "job_id",
        _helios,
        ("submission is in microseconds, durations in seconds", "FAILED and NODE_FAIL are both failed jobs"),
    ),
    Format(
        "muri",
        ("job_id", "num_gpu", "submit_time", "duration", "interval"),
        "num_gpu",
        "job_id",
        _muri,
        ("all times are in milliseconds", "the trace has no teams", _NO_USER, _NO_OUTCOME),
    ),
)
