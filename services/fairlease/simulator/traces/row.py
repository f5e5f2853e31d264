"""A job as a trace tells it, whatever the format, and the rules by which it was read.

Nothing is dropped in silence: what a reader changes or leaves out is a sentence with the number of rows it met, and a
result that rests on the trace can carry them all.
"""

from collections.abc import Iterable
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import msgspec

from fairlease.trace.workload import Rule


class Ending(StrEnum):
    """How the recorded job ended; a failed job fails at its recorded duration."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"


class TraceJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job. `submit_ms` counts from the first arrival; `gpus` was asked for, `hosts` x `gpus_per_host` is the gang.

    `row` is the line of the file, from 1; `user` is empty where the trace has none, `team` likewise.
    """

    row: int
    name: str
    submit_ms: int
    duration_ms: int
    gpus: int
    hosts: int
    gpus_per_host: int
    team: str
    user: str
    end: Ending


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A whole trace, jobs by arrival, those of one instant in the order of the file. `sha256` is the file's."""

    format: str
    jobs: tuple[TraceJob, ...]
    rules: tuple[Rule, ...]
    sha256: str


class Recorded(NamedTuple):
    """What a row says before it is fitted to a cluster; `submit_ms` from any zero.

    `hosts` is the shape that was asked for, evenly divided; 0 where the trace tells the number of GPUs alone.
    """

    row: int
    name: str
    submit_ms: int
    duration_ms: int
    gpus: int
    team: str
    user: str
    end: Ending
    hosts: int = 0

    def shape(self, gpus_per_host: int) -> tuple[int, int]:
        """(hosts, GPUs on each), as asked for, or else by `split`."""
        return (self.hosts, self.gpus // self.hosts) if self.hosts else split(self.gpus, gpus_per_host)


def split(gpus: int, gpus_per_host: int) -> tuple[int, int]:
    """(hosts, GPUs on each): as asked for up to one host, whole hosts above, rounded up (12 on hosts of 8: 2 x 8)."""
    return (1, gpus) if gpus <= gpus_per_host else (-(-gpus // gpus_per_host), gpus_per_host)


def fitted(recorded: Iterable[Recorded], gpus_per_host: int) -> tuple[TraceJob, ...]:
    """The rows that ask for a GPU, by arrival (a stable sort), counted from the first of them."""
    ordered = sorted((row for row in recorded if row.gpus), key=lambda row: row.submit_ms)
    first_ms = ordered[0].submit_ms if ordered else 0
    return tuple(
        TraceJob(
            row=row.row,
            name=row.name,
            submit_ms=row.submit_ms - first_ms,
            duration_ms=max(1, row.duration_ms),
            gpus=row.gpus,
            hosts=row.shape(gpus_per_host)[0],
            gpus_per_host=row.shape(gpus_per_host)[1],
            team=row.team,
            user=row.user,
            end=row.end,
        )
        for row in ordered
    )


def _gangs(jobs: tuple[TraceJob, ...]) -> list[TraceJob]:
    return [job for job in jobs if job.hosts > 1]


def fitting_rules(recorded: list[Recorded], jobs: tuple[TraceJob, ...]) -> tuple[Rule, ...]:
    """What `fitted` did, rule by rule; a rule that met nothing is not told."""
    kept = [row for row in recorded if row.gpus]
    late = sum(before.submit_ms > after.submit_ms for before, after in pairwise(kept))
    told = (
        ("rows without a GPU are left out", len(recorded) - len(kept)),
        ("rows earlier than the row before them are sorted into their place, stably", late),
        ("jobs above one host are gangs of whole hosts", 0 if kept[:1] and kept[0].hosts else len(_gangs(jobs))),
        ("gangs are rounded up to whole hosts", sum(job.hosts * job.gpus_per_host > job.gpus for job in jobs)),
        ("jobs of no length run for one millisecond", sum(row.duration_ms == 0 for row in kept)),
    )
    return tuple(Rule(rule=rule, count=count) for rule, count in told if count)
