"""Cost: GPU-time and money by job, budget, person, evaluation or pool, with what their successes cost (M5).

All attempts of a job count towards it: retries and lost work are part of what a success cost, and so are the
jobs of a group that did not succeed. Money is whole millionths of the caller's unit; a group that held GPUs of a
pool without a price has none. Whether an evaluation was passed is not in the log: its cost is that of all its
jobs, and of those that succeeded.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from fairlease.core.budget import Tree
from fairlease.core.job import Job, Phase
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.progress import cut_of, is_set_aside
from fairlease.core.metrics.scope import Scope
from fairlease_schemas.ids import PoolId
from fairlease_schemas.units import HOUR_MS

Prices = Mapping[PoolId, int]
"""By pool the price of a GPU-hour in millionths."""


class By(StrEnum):
    """What costs are told by."""

    JOB = "job"
    BUDGET = "budget"
    PERSON = "person"
    EVALUATION = "evaluation"
    POOL = "pool"


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """One row: GPU-milliseconds held and lost in the period, and money in millionths where every pool has a price.

    `jobs` held something in the period; `succeeded` are those of them that succeeded by its end. `lost` is restarts
    and what no checkpoint had. The numbers per success are absent where there is none.
    """

    key: str
    jobs: int
    succeeded: int
    held_gpu_ms: int
    lost_gpu_ms: int
    money_ppm: int | None
    gpu_ms_per_success: int | None
    money_ppm_per_success: int | None


class _Row:
    __slots__ = ("held", "jobs", "lost", "succeeded")

    def __init__(self) -> None:
        self.held: dict[PoolId, int] = {}
        self.lost = 0
        self.jobs = 0
        self.succeeded = 0


def costs(
    jobs: Iterable[Job], tree: Tree, period: Period, by: By, scope: Scope, prices: Prices
) -> tuple[tuple[Spent, ...], Spent]:
    """The rows, the dearest first (by GPU-time where there is no money, then by key), and their total.

    Jobs without an evaluation are in no row of `evaluation`, and not in its total.
    """
    rows: dict[str, _Row] = {}
    total = _Row()
    for job in jobs:
        if not scope.has_job(tree, job) or (by is By.EVALUATION and not job.request.evaluation):
            continue
        held, lost = _held(job, period, scope)
        if not held:
            continue
        is_success = job.phase is Phase.SUCCEEDED
        keys = held if by is By.POOL else (_key(job, by),)
        for key in keys:
            row = rows.setdefault(key, _Row())
            mine = {key: held[key]} if by is By.POOL else held
            _add(row, mine, sum(lost[pool] for pool in mine), is_success=is_success)
        _add(total, held, sum(lost.values()), is_success=is_success)
    spent = [_spent(key, row, prices) for key, row in rows.items()]
    spent.sort(key=lambda one: (-(one.money_ppm or 0), -one.held_gpu_ms, one.key))
    return tuple(spent), _spent("", total, prices)


def _key(job: Job, by: By) -> str:
    match by:
        case By.BUDGET:
            return job.budget
        case By.PERSON:
            return job.account
        case By.EVALUATION:
            return job.request.evaluation
        case _:
            return job.id


def _held(job: Job, period: Period, scope: Scope) -> tuple[dict[PoolId, int], dict[PoolId, int]]:
    """By pool what the job held in the period, and what of it was lost."""
    held: dict[PoolId, int] = {}
    lost: dict[PoolId, int] = {}
    for place, attempt in enumerate(job.attempts):
        if attempt.is_stillborn or not scope.has_pool(attempt.pool):
            continue
        until_ms = attempt.ended_ms if attempt.is_over else period.until_ms
        gpu_ms = attempt.gpus * period.length_ms(attempt.granted_ms, until_ms)
        if gpu_ms:
            held[attempt.pool] = held.get(attempt.pool, 0) + gpu_ms
            lost.setdefault(attempt.pool, 0)
            if attempt.is_over:
                lost[attempt.pool] += lost_gpu_ms(job, place, period)
    return held, lost


def lost_gpu_ms(job: Job, place: int, period: Period) -> int:
    """What of an attempt that is over no checkpoint has: until it ran again, and since it last saved itself.

    All of it, where what it saved was set aside (8.3).
    """
    cut = cut_of(job, place)
    saved_ms = cut.works_ms if is_set_aside(job, place) else cut.saved_ms
    length_ms = period.length_ms(cut.granted_ms, cut.works_ms) + period.length_ms(saved_ms, cut.ended_ms)
    return job.attempts[place].gpus * length_ms


def _add(row: _Row, held: Mapping[PoolId, int], lost: int, *, is_success: bool) -> None:
    for pool, gpu_ms in held.items():
        row.held[pool] = row.held.get(pool, 0) + gpu_ms
    row.lost += lost
    row.jobs += 1
    row.succeeded += is_success


def _spent(key: str, row: _Row, prices: Prices) -> Spent:
    has_prices = bool(prices) and all(pool in prices for pool in row.held)
    money = sum(gpu_ms * prices[pool] for pool, gpu_ms in row.held.items()) // HOUR_MS if has_prices else None
    held = sum(row.held.values())
    return Spent(
        key=key,
        jobs=row.jobs,
        succeeded=row.succeeded,
        held_gpu_ms=held,
        lost_gpu_ms=row.lost,
        money_ppm=money,
        gpu_ms_per_success=held // row.succeeded if row.succeeded else None,
        money_ppm_per_success=money // row.succeeded if row.succeeded and money is not None else None,
    )
