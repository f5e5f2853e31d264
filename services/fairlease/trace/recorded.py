"""A job as a trace recorded it, whatever the format: who, how large, when, how long, how it ended.

Nothing is dropped in silence: what a reader changes or leaves out is a sentence with the number of rows it met, and a
result that rests on the trace carries them all.
"""

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

from fairlease_schemas.budget import BudgetChanged
from fairlease_schemas.job import Request
from fairlease_schemas.policy import Policy


class Outcome(StrEnum):
    """How the recorded job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence on how the trace was read, and how many jobs (or rows, or gaps) it met."""

    rule: str
    count: int


def met(stated: Sequence[tuple[str, int]]) -> tuple[Rule, ...]:
    """The sentences that met anything, in their order."""
    return tuple(Rule(rule=rule, count=count) for rule, count in stated if count)


class RecordedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One row, or one job of a log. `row` is the line of the file, from 1.

    `arrive_ms` counts from the first arrival; `limit_ms` is the wall limit of an attempt, else the duration. `team` and
    `user` are empty where the trace has none. `asked` is what a log says of the job's contract; a table has none.
    """

    row: int
    request_id: str
    team: str
    user: str
    gpus: int
    arrive_ms: int
    duration_ms: int
    limit_ms: int
    outcome: Outcome
    asked: Request | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A whole trace, jobs by arrival, those of one instant in the order of the file.

    `zero_ms` is the instant of the first arrival in ms since 1970, None where the trace counts from nowhere.
    `gpus_column` is where the size of a job stands. `budgets` (parents first) and `policy` are a log's own, as they
    were at its end; `sha256` is the file's as it lies on disk.
    """

    file: str
    format: str
    has_outcomes: bool
    gpus_column: str
    jobs: tuple[RecordedJob, ...]
    rules: tuple[Rule, ...]
    sha256: str = ""
    zero_ms: int | None = None
    budgets: tuple[BudgetChanged, ...] = ()
    policy: tuple[str, Policy] | None = None


def by_arrival(rows: Sequence[RecordedJob]) -> tuple[tuple[RecordedJob, ...], int, tuple[Rule, ...]]:
    """The rows that ask for a GPU, by arrival (a stable sort), counted from the first; that one's instant; the rules.

    Without such a row there is no job, and the instant is 0.
    """
    kept = [row for row in rows if row.gpus]
    ordered = sorted(kept, key=lambda row: row.arrive_ms)
    first_ms = ordered[0].arrive_ms if ordered else 0
    late = sum(before.arrive_ms > after.arrive_ms for before, after in pairwise(kept))
    rules = met(
        (
            ("rows without a GPU are left out", len(rows) - len(kept)),
            ("rows earlier than the row before them are sorted into their place, stably", late),
        )
    )
    return from_zero(ordered, first_ms), first_ms, rules


def from_zero(jobs: Sequence[RecordedJob], zero_ms: int) -> tuple[RecordedJob, ...]:
    """The same jobs with their arrivals counted from that instant."""
    return tuple(msgspec.structs.replace(job, arrive_ms=job.arrive_ms - zero_ms) for job in jobs)
