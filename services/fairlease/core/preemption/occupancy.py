"""Who holds what in a pool, as a step sees it: every attempt with what losing it would cost.

Made once for a step. Placement asks it which hosts a blocked pick could claim, preemption which
attempts must leave, the calendar when they will have to.
"""

from bisect import insort
from collections.abc import Iterable

import msgspec

from fairlease.core.departures import Departure, departure, exempt_until_ms, protected_until_ms
from fairlease.core.job import Attempt, Job, replace
from fairlease.core.placement.sides import Sizes, asked
from fairlease.core.preemption.licence import Permit
from fairlease.core.world import World
from fairlease_schemas.cycle import Licence
from fairlease_schemas.ids import AttemptId, BudgetId, HostId, JobId, PoolId
from fairlease_schemas.policy import Policy


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A live attempt: what it holds on each host, and what evicting it would lose.

    `sizes` is what it asked for beside GPUs. `lost_gpu_ms` is GPUs x (time since the last confirmed
    checkpoint, or the grant, plus its own start-up, which the next attempt pays again). `is_stopping` ones
    leave anyway.
    """

    attempt: AttemptId
    job: JobId
    leaf: BudgetId
    gpus_on: dict[HostId, int]
    sizes: Sizes
    lost_gpu_ms: int
    grace_ms: int
    is_idle: bool
    is_lane: bool
    is_past: bool
    is_exempt: bool
    is_stopping: bool
    leaves: Departure
    checkpoint_due_ms: int
    start_up_ms: int

    @property
    def gpus(self) -> int:
        return sum(self.gpus_on.values())


def tenant_order(tenant: Tenant) -> tuple[int, bool, AttemptId]:
    """Who is asked to leave first.

    1. the least GPU-time lost, so that the eviction is cheap;
    2. idle work before budgeted work;
    3. the attempt id, so that the order is the same everywhere.
    """
    return (tenant.lost_gpu_ms, not tenant.is_idle, tenant.attempt)


class Occupancy:
    """The tenants of one pool by host, cheapest first; `leaves` are those with budgeted work there."""

    def __init__(self, policy: Policy, now_ms: int, tenants: Iterable[Tenant]) -> None:
        self.policy = policy
        self.now_ms = now_ms
        self.on: dict[HostId, list[Tenant]] = {}
        self.tenants = sorted(tenants, key=tenant_order)
        for tenant in self.tenants:
            for host in tenant.gpus_on:
                self.on.setdefault(host, []).append(tenant)
        self.leaves = tuple(sorted({tenant.leaf for tenant in self.tenants if not tenant.is_idle}))

    def admit(self, tenant: Tenant) -> None:
        """One that was granted in this step stands there too."""
        for host in tenant.gpus_on:
            insort(self.on.setdefault(host, []), tenant, key=tenant_order)
        if not tenant.is_idle and tenant.leaf not in self.leaves:
            self.leaves = tuple(sorted((*self.leaves, tenant.leaf)))

    def spend(self, attempts: set[AttemptId]) -> None:
        """These are asked to leave by now: nobody is asked twice."""
        for tenants in self.on.values():
            for index, tenant in enumerate(tenants):
                if tenant.attempt in attempts:
                    tenants[index] = replace(tenant, is_stopping=True)


def occupancy(world: World, policy: Policy, pool: PoolId, now_ms: int) -> Occupancy:
    """Everybody who holds something in the pool now."""
    live = ((world.jobs[name], world.jobs[name].live) for name in world.live.values())
    return Occupancy(
        policy,
        now_ms,
        (tenant_of(policy, job, attempt, now_ms) for job, attempt in live if attempt and attempt.pool == pool),
    )


def tenant_of(policy: Policy, job: Job, attempt: Attempt, now_ms: int) -> Tenant:
    """A live attempt as a step weighs it."""
    since_ms = now_ms - attempt.saved_ms
    start_up_ms = attempt.started_ms - attempt.granted_ms if attempt.started_ms is not None else 0
    protected_ms = protected_until_ms(policy, job, attempt)
    interval_ms = job.request.checkpoint_interval_ms
    last_ms = max(attempt.started_ms or attempt.granted_ms, attempt.checkpoint_ms)
    return Tenant(
        attempt=attempt.id,
        job=job.id,
        leaf=job.budget,
        gpus_on={part.host: len(part.gpus) for part in attempt.parts},
        sizes=asked(job.request),
        lost_gpu_ms=attempt.gpus * (since_ms + start_up_ms),
        grace_ms=job.request.grace_ms,
        is_idle=job.is_idle_work,
        is_lane=attempt.licence is Licence.DEBUG,
        is_past=now_ms >= protected_ms,
        is_exempt=exempt_until_ms(policy, job) > max(now_ms, attempt.granted_ms + attempt.window_ms),
        is_stopping=attempt.ending is not None or attempt.is_stillborn,
        leaves=departure(policy, job, attempt, now_ms),
        checkpoint_due_ms=last_ms + interval_ms if interval_ms else 0,
        start_up_ms=start_up_ms,
    )


def is_licensed(permit: Permit, tenant: Tenant) -> bool:
    """Whether the claim may ask this tenant to leave, were its window over (6.2)."""
    if tenant.is_stopping:
        return True
    if tenant.is_idle:
        return permit.may_evict_idle
    if permit.licence is Licence.DEBUG and tenant.is_lane:
        return False
    return permit.over(tenant.leaf)


def is_evictable(permit: Permit, tenant: Tenant) -> bool:
    """Whether it may be asked to leave now: within the licence, and idle or past its window (5.1)."""
    if tenant.is_stopping:
        return False
    return is_licensed(permit, tenant) and (tenant.is_idle or tenant.is_past)
