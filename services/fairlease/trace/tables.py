"""The three formats of other people's traces that come as CSV, and their traps.

- philly (Jeon et al., USENIX ATC 2019): a local wall clock, unsorted with many ties; seconds as text with a point;
`gpu_time` is the product of two columns, so it tells a torn row; no id, user or outcome. - helios (Hu et al., SC 2021):
`submit_time` in microseconds, all other times in seconds; `#` lines are comments. - muri (SIGCOMM 2022): all times in
milliseconds; no team, user or outcome.

The times of helios and muri are whole seconds at their source. A file written in another unit has some that are not,
and that tells a slip of units, which no single number would.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Final, NamedTuple

from fairlease.trace.cells import Cells
from fairlease.trace.recorded import Outcome, RecordedJob
from fairlease_schemas.units import MAX_LENGTH_MS, SECOND_MS

_SECOND_US: Final = 1_000_000
_LATEST_US: Final = 4_102_444_800 * _SECOND_US  # the year 2100
_OUTCOMES: Final = {
    "COMPLETED": Outcome.SUCCEEDED,
    "FAILED": Outcome.FAILED,
    "NODE_FAIL": Outcome.FAILED,
    "CANCELED": Outcome.CANCELLED,
}


class Format(NamedTuple):
    """How one kind of table is read.

    `notes` are the rules that meet each of its rows. `arrival` and `duration` are columns of time with the unit that
    a number a thousand times too large would be in; an `arrival` that is a date has none.
    """

    name: str
    columns: tuple[str, ...]
    gpus_column: str
    id_column: str
    has_outcomes: bool
    read: Callable[[Cells], RecordedJob]
    notes: tuple[str, ...]
    duration: tuple[str, str]
    arrival: tuple[str, str]


def _philly(row: Cells) -> RecordedJob:
    gpus = row.gpus("num_gpus")
    duration_ms = row.seconds_ms("duration")
    product = Decimal(duration_ms * gpus) / SECOND_MS
    gpu_time = row.decimal("gpu_time")
    if row.is_sound and abs(gpu_time - product) > max(Decimal(1), product / 1_000):
        row.complain("gpu_time", f"is not duration x num_gpus = {product}: the row was torn, correct it")
    return RecordedJob(
        row=row.row,
        request_id=f"philly-{row.row}",
        team=row.text("cluster"),
        user="",
        gpus=gpus,
        arrive_ms=row.instant_ms("timestamp"),
        duration_ms=duration_ms,
        limit_ms=duration_ms,
        outcome=Outcome.SUCCEEDED,
    )


def _helios(row: Cells) -> RecordedJob:
    status = row.text("final_status")
    if status and status not in _OUTCOMES:
        row.complain("final_status", f"is none of {', '.join(_OUTCOMES)}: write one of them")
    submit_us = row.whole("submit_time", _LATEST_US, "is it in nanoseconds? divide the column by 1000")
    if submit_us % _SECOND_US:
        row.complain(
            "submit_time", "is no whole second in microseconds: is it in milliseconds or seconds? write microseconds"
        )
    row.gpus("num_nodes")
    return RecordedJob(
        row=row.row,
        request_id=f"helios-{row.id('job_id')}",
        team=row.text("tenant"),
        user=row.text("user"),
        gpus=row.gpus("num_chips"),
        arrive_ms=submit_us // 1_000,
        duration_ms=row.seconds_ms("duration_s"),
        limit_ms=row.seconds_ms("walltime_limit_s"),
        outcome=_OUTCOMES.get(status, Outcome.SUCCEEDED),
    )


def _muri_ms(row: Cells, column: str) -> int:
    way_out = "it is more than a year of milliseconds, is it in microseconds? divide the column by 1000"
    length_ms = row.whole(column, MAX_LENGTH_MS, way_out)
    if length_ms % SECOND_MS:
        row.complain(column, "is no whole second in milliseconds: is it in seconds? multiply the column by 1000")
    return length_ms


def _muri(row: Cells) -> RecordedJob:
    duration_ms = _muri_ms(row, "duration")
    return RecordedJob(
        row=row.row,
        request_id=f"muri-{row.id('job_id')}",
        team="",
        user="",
        gpus=row.gpus("num_gpu"),
        arrive_ms=_muri_ms(row, "submit_time"),
        duration_ms=duration_ms,
        limit_ms=duration_ms,
        outcome=Outcome.SUCCEEDED,
    )


_NO_USER: Final = "the trace has no users"
FORMATS: Final = (
    Format(
        "philly",
        ("timestamp", "duration", "num_gpus", "gpu_time", "cluster"),
        "num_gpus",
        "",
        has_outcomes=False,
        read=_philly,
        notes=("submission is a local wall clock, read without zones or summer time", _NO_USER),
        duration=("duration", "milliseconds"),
        arrival=("timestamp", ""),
    ),
    Format(
        "helios",
        (
            *("job_id", "user", "tenant", "submit_time", "num_chips", "num_nodes"),
            *("duration_s", "walltime_limit_s", "final_status"),
        ),
        "num_chips",
        "job_id",
        has_outcomes=True,
        read=_helios,
        notes=(
            "submission is in microseconds, durations in seconds",
            "the number of nodes is not used: it follows from the GPUs and the hosts that there are",
        ),
        duration=("duration_s", "milliseconds"),
        arrival=("submit_time", "nanoseconds"),
    ),
    Format(
        "muri",
        ("job_id", "num_gpu", "submit_time", "duration", "interval"),
        "num_gpu",
        "job_id",
        has_outcomes=False,
        read=_muri,
        notes=("all times are in milliseconds", "the trace has no teams", _NO_USER),
        duration=("duration", "microseconds"),
        arrival=("submit_time", "microseconds"),
    ),
)
