"""KAI's time-based fair share: what is deserved first, then the surplus by weight corrected by what was used.

Surplus goes by priority, in rounds among those not yet satisfied: `P = max(0, W' + k (W' - U'))`, share = surplus x P
/ sum of P, capped at what is asked for. W' is the weight among the unsatisfied; U' is the part of the cluster's GPU-
time in the window that the queue used. With k at most 1 a queue can keep a cluster-sized job waiting for a whole
window (the turn comes at U' = W' (1 + k) / k), which is why this is a policy to compare with and not the one to run.
Source: KAI-Scheduler d5bc503, `plugins/proportion/resource_division/resource_division.go`.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple


class Queue(NamedTuple):
    """One of several sibling queues, GPUs in whole numbers; the place in the sequence is the age, oldest first.

    `limit` bounds what is asked for (None: no bound); `used` is U', a part of the whole from 0 on.
    """

    name: str
    deserved: int
    weight: int
    asked: int
    used: Fraction = Fraction(0)
    priority: int = 0
    limit: int | None = None


class Position(NamedTuple):
    """What the order of queues reads; `with_job` is the share that is held once the waiting job runs.

    `share` and `with_job` are parts of the whole in the resource that is scarcest for the queue.
    """

    name: str
    fair: Fraction
    quota: Fraction
    share: Fraction
    with_job: Fraction
    priority: int
    allocatable: int
    created_ms: int


def used_part(used_gpu_ms: int, gpus: int, window_ms: int) -> Fraction:
    """U': GPU-time used of the GPU-time that the cluster had in the window; 0 for no cluster or no window."""
    return Fraction(used_gpu_ms, gpus * window_ms) if gpus * window_ms else Fraction(0)


def turning_point(weight: Fraction, k: Fraction) -> Fraction | None:
    """The U' at which the holder's P becomes 0, W' being its part of the weights; None where it never does (k = 0)."""
    return weight * (1 + k) / k if k > 0 else None


def exact_shares(capacity: int, queues: Sequence[Queue], k: Fraction) -> tuple[Fraction, ...]:
    """The fair share of each queue before it is made whole, in their order. A k below 0 counts as 0: no history."""
    wants = [_want(queue) for queue in queues]
    shares = [Fraction(min(queue.deserved, want)) for queue, want in zip(queues, wants, strict=True)]
    left = capacity - sum(shares, Fraction(0))
    for priority in sorted({queue.priority for queue in queues}, reverse=True):
        open_ = [at for at, queue in enumerate(queues) if queue.priority == priority and shares[at] < wants[at]]
        while left > 0 and open_:
            parts = _parts([queues[at] for at in open_], max(k, Fraction(0)))
            if not any(parts):
                break
            given = [min(left * part, wants[at] - shares[at]) for at, part in zip(open_, parts, strict=True)]
            for at, amount in zip(open_, given, strict=True):
                shares[at] += amount
            left -= sum(given, Fraction(0))
            was_open, open_ = open_, [at for at in open_ if shares[at] < wants[at]]
            if len(open_) == len(was_open):
                break
    return tuple(shares)


def _want(queue: Queue) -> int:
    return queue.asked if queue.limit is None else min(queue.asked, queue.limit)


def _parts(queues: Sequence[Queue], k: Fraction) -> list[Fraction]:
    """P of each, as parts of their sum; all 0 where nobody has weight or all have used far too much."""
    weights = sum(queue.weight for queue in queues)
    if weights == 0:
        return [Fraction(0)] * len(queues)
    drawn = [_drawn(Fraction(queue.weight, weights), queue.used, k) for queue in queues]
    total = sum(drawn, Fraction(0))
    return [one / total for one in drawn] if total else drawn


def _drawn(weight: Fraction, used: Fraction, k: Fraction) -> Fraction:
    return max(Fraction(0), weight + k * (weight - used))


def whole_shares(capacity: int, queues: Sequence[Queue], k: Fraction) -> tuple[int, ...]:
    """Fair shares in whole GPUs: rounded down, and what that leaves is given out one each.

    The leftover goes to 1. the larger part that was cut off, 2. the older queue.
    """
    exact = exact_shares(capacity, queues, k)
    whole = [int(share) for share in exact]
    cut = sorted(
        (at for at, share in enumerate(exact) if share != whole[at]), key=lambda at: (whole[at] - exact[at], at)
    )
    leftover = int(sum(exact, Fraction(0)) - sum(whole))
    for at in cut[:leftover]:
        whole[at] += 1
    return tuple(whole)


def queue_order(queue: Position) -> tuple[bool, bool, int, bool, Fraction, Fraction, int, int, str]:
    """Which queue is served next.

    1. not over its fair share; 2. within its quota once the job runs; 3. the higher priority; 4. not one that uses
    without having a share; 5. the smaller share with the job, of its fair share; 6. the same without the job; 7. the
    smaller allocatable; 8. the older; 9. the name.
    """
    has_no_share = queue.fair == 0
    return (
        queue.share > queue.fair,
        queue.with_job > queue.quota,
        -queue.priority,
        has_no_share and queue.share > 0,
        queue.with_job if has_no_share else queue.with_job / queue.fair,
        queue.share if has_no_share else queue.share / queue.fair,
        queue.allocatable,
        queue.created_ms,
        queue.name,
    )
