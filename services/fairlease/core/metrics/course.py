"""How the figures came about: the sums of a period so far, to be read at any instant of it.

Every sum only grows, so what a stretch of time added is the difference of two readings, exact and never sampled,
and stretches side by side add up to one. What an attempt lost is known when the attempt ends, and counts there.
"""

import msgspec

from fairlease.core.metrics.fairness import Shares
from fairlease.core.metrics.progress import Progress
from fairlease.core.metrics.recovery import Recovery
from fairlease.core.metrics.waiting import Promised
from fairlease_schemas.ids import BudgetId

EVICTION, FAULT, CANCELLED, FAILURE, RESTART, ABANDONED = CAUSES = (
    *("eviction", "fault", "cancelled", "failure", "restart", "abandoned"),
)
"""What GPU-time is lost by: since the last checkpoint at an eviction, a fault, the owner's own stop or a failure; from
grant to running of a later attempt; in a checkpoint that nobody went on from."""


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """From the period's beginning: held and due by budget in GPU-ms, lost GPU-ms by cause, evictions, promises."""

    held: dict[BudgetId, int]
    due: dict[BudgetId, int]
    lost: dict[str, int]
    evicted: dict[str, int]
    promised: dict[str, int]


def sums(shares: Shares, progress: Progress, recovery: Recovery, promised: Promised) -> Sums:
    """The sums of these figures, all of one instant."""
    told = recovery.preempted.lost_gpu_ms + recovery.faults.lost_gpu_ms
    held, due = shares.sums()
    return Sums(
        held=held,
        due=due,
        lost={
            EVICTION: recovery.preempted.lost_gpu_ms,
            FAULT: recovery.faults.lost_gpu_ms,
            CANCELLED: progress.stopped_gpu_ms - told,
            FAILURE: progress.failed_gpu_ms,
            RESTART: progress.restart_gpu_ms,
            ABANDONED: progress.abandoned_gpu_ms,
        },
        evicted={reason: sum(by_licence.values()) for reason, by_licence in recovery.evicted.items()},
        promised={
            "made": promised.made,
            "kept": promised.kept,
            "earlier": promised.earlier,
            "voided": sum(promised.voided.values()),
            "broken": promised.broken,
        },
    )
