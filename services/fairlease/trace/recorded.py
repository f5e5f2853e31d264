"""A job as a trace recorded it, whatever the format: who, how large, when, how long, how it ended."""

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """How the recorded job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RecordedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `arrive_ms` counts from the first arrival; `limit_ms` is the wall limit, else the duration."""

    line: int
    request_id: str
    team: str
    user: str
    gpus: int
    arrive_ms: int
    duration_ms: int
    limit_ms: int
    outcome: Outcome


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A whole trace, jobs in the order of their arrival, rows of one instant in the order of the file.

    `left_out` counts the rows without a GPU; `gpus_column` is where the size of a job stands.
    """

    format: str
    has_outcomes: bool
    gpus_column: str
    jobs: tuple[RecordedJob, ...]
    left_out: int
    sha256: str


def from_first_arrival(jobs: list[RecordedJob]) -> tuple[RecordedJob, ...]:
    """The jobs by arrival (a stable sort), counted from the first of them."""
    ordered = sorted(jobs, key=lambda job: job.arrive_ms)
    first_ms = ordered[0].arrive_ms if ordered else 0
    return tuple(msgspec.structs.replace(job, arrive_ms=job.arrive_ms - first_ms) for job in ordered)
