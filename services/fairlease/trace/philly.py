"""The Philly format: `timestamp, duration, num_gpus, gpu_time, cluster` (Jeon et al., USENIX ATC 2019).

A row has no id, no user and no outcome. The file need not be sorted and has many ties; rows of one
second stay in the order of the file. `gpu_time` is the product of two other columns, so it says whether
a row was torn.
"""

from decimal import Decimal
from typing import Final

from fairlease.trace.recorded import Outcome, RecordedJob
from fairlease.trace.table import MAX_GPUS, Row

NAME: Final = "philly"
COLUMNS: Final = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
GPUS_COLUMN: Final = "num_gpus"
HAS_OUTCOMES: Final = False


def read_row(row: Row, number: int) -> RecordedJob:
    """Row `number` (from 1) of the file; its number is its id."""
    gpus = row.whole("num_gpus", MAX_GPUS)
    product = row.number("duration") * gpus
    if abs(row.number("gpu_time") - product) > max(Decimal(1), product / 1_000):
        row.complain("gpu_time", f"is not duration x num_gpus = {product}")
    duration_ms = row.seconds_ms("duration")
    return RecordedJob(
        line=row.line,
        request_id=f"philly-{number}",
        team=row.text("cluster"),
        user="",
        gpus=gpus,
        arrive_ms=row.instant_ms("timestamp"),
        duration_ms=duration_ms,
        limit_ms=duration_ms,
        outcome=Outcome.SUCCEEDED,
    )
