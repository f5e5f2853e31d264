"""Cost: GPU-time and money by job, budget, person, evaluation or pool, with what their successes cost (M5).

All attempts of a job count towards it: retries and lost work are part of what a success cost, and so are the
jobs of a group that did not succeed. Money is whole millionths of the caller's unit; a group that held GPUs of a
pool without a price has none. What a passed evaluation costs is what all evaluations cost, those that failed or were
never recorded too, over those that passed.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from fairlease.core.budget import Tree
from fairlease.core.job import Job, Phase
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.progress import cut_of, is_set_aside
from fairlease.core.metrics.scope import Scope
from fairlease.core.outcome import Evaluations
from fairlease_schemas.evaluation import Outcome
from fairlease_schemas.ids import BudgetId, PoolId
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
    and what no checkpoint had. The numbers per success are absent where there is none. Of an evaluation `outcome` is
    what was recorded last, if anything; `passed` counts those that were passed, and the numbers per pass are theirs.
    """

    key: str
    jobs: int
    succeeded: int
    held_gpu_ms: int
    lost_gpu_ms: int
    money_micros: int | None
    gpu_ms_per_success: int | None
    money_per_success_micros: int | None
    outcome: Outcome | None = None
    passed: int = 0
    gpu_ms_per_pass: int | None = None
    money_per_pass_micros: int | None = None


class _Row:
    __slots__ = ("budgets", "held", "jobs", "lost_gpu_ms", "succeeded")

    def __init__(self) -> None:
        self.held: dict[PoolId, int] = {}
        self.lost_gpu_ms = 0
        self.jobs = 0
        self.succeeded = 0
        self.budgets: set[BudgetId] = set()


def costs(
    jobs: Iterable[Job],
    tree: Tree,
    period: Period,
    by: By,
    scope: Scope,
    prices: Prices,
    *,
    evaluations: Evaluations | None = None,
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
            row.budgets.add(job.budget)
        _add(total, held, sum(lost.values()), is_success=is_success)
    spent = [_spent(key, row, prices) for key, row in rows.items()]
    whole = _spent("", total, prices)
    if by is By.EVALUATION and evaluations is not None:
        outcomes = {key: outcome_in(evaluations, key, row.budgets) for key, row in rows.items()}
        spent = [_judged(one, outcomes[one.key], int(outcomes[one.key] is Outcome.PASSED)) for one in spent]
        whole = _judged(whole, None, sum(one.passed for one in spent))
    spent.sort(key=lambda one: (-(one.money_micros or 0), -one.held_gpu_ms, one.key))
    return tuple(spent), whole


def outcome_in(evaluations: Evaluations, evaluation: str, budgets: Iterable[BudgetId]) -> Outcome | None:
    """The outcome recorded last in any of these budgets: by log time, then by the budget's name; None without one."""
    found = evaluations.outcomes(evaluation)
    newest = max(((found[name].at_ms, name) for name in budgets if name in found), default=None)
    return None if newest is None else found[newest[1]].outcome


def _judged(row: Spent, outcome: Outcome | None, passed: int) -> Spent:
    """The row with what became of its evaluations, and what one that passed cost, failures and all."""
    return msgspec.structs.replace(
        row,
        outcome=outcome,
        passed=passed,
        gpu_ms_per_pass=row.held_gpu_ms // passed if passed else None,
        money_per_pass_micros=row.money_micros // passed if passed and row.money_micros is not None else None,
    )


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
    row.lost_gpu_ms += lost
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
        lost_gpu_ms=row.lost_gpu_ms,
        money_micros=money,
        gpu_ms_per_success=held // row.succeeded if row.succeeded else None,
        money_per_success_micros=money // row.succeeded if row.succeeded and money is not None else None,
    )
