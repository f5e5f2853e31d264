"""The orders that ask nobody's share: by arrival, by a stated priority, by how much is left.

All of them end in arrival and then in `number`, the place in the trace: many jobs of real traces come in one second,
and results are compared to the hundredth of one.
"""

from enum import IntEnum
from typing import NamedTuple


class Priority(IntEnum):
    """The priorities of the reference workload, the higher first. Nobody is evicted for one."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


class Waiting(NamedTuple):
    """A job in the queue. `left_ms` is what it has still to run; `number` its place in the trace."""

    number: int
    submit_ms: int
    duration_ms: int
    left_ms: int
    gpus: int
    priority: Priority = Priority.NORMAL


def fifo(job: Waiting) -> tuple[int, int]:
    """First come, first served."""
    return (job.submit_ms, job.number)


def static_priority(job: Waiting) -> tuple[int, int, int]:
    """The higher stated priority, then first come; running jobs are let be."""
    return (-job.priority, job.submit_ms, job.number)


def sjf(job: Waiting) -> tuple[int, int, int]:
    """The shortest job first, by its whole duration; running jobs are let be."""
    return (job.duration_ms, job.submit_ms, job.number)


def srtf(job: Waiting) -> tuple[int, int, int]:
    """The shortest remaining time first; a running job yields."""
    return (job.left_ms, job.submit_ms, job.number)


def srsf(job: Waiting) -> tuple[int, int, int]:
    """The shortest remaining service (time x GPUs) first; a running job yields."""
    return (job.left_ms * job.gpus, job.submit_ms, job.number)
