"""What would happen to a request now: the steps' own functions, asked about one job.

Used by `plan`, by `why` and by the queue's start times. It assumes that the job were the next to be
tried; who is really next is the rank's business. Nothing here decides, and nothing here is recorded.
"""

import msgspec

from fairlease.core.departures import needs_ms
from fairlease.core.fairshare.next_pick import Pick
from fairlease.core.fairshare.rank import request_class
from fairlease.core.fairshare.scales import Scales
from fairlease.core.fairshare.standing import standings
from fairlease.core.job import Job
from fairlease.core.line import WaitingClass
from fairlease.core.placement.fit import Room
from fairlease.core.placement.limits import Caps
from fairlease.core.placement.verdict import Verdicts
from fairlease.core.preemption.licence import Permit, permit_for
from fairlease.core.preemption.occupancy import Tenant, occupancy
from fairlease.core.preemption.promise import soonest
from fairlease.core.preemption.victims import plan_now
from fairlease.core.world import World
from fairlease_schemas.cycle import Licence, PoolRank
from fairlease_schemas.ids import PoolId
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Evidence, Reason

NOW, AFTER_EVICTIONS, PROMISED, LATER = "now", "after-evictions", "promised", "later"
_BEST_FIRST = (NOW, AFTER_EVICTIONS, PROMISED, LATER)


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """When the job would start in one pool, by which hosts, whom that costs, and what stands in the way."""

    when: str
    pool: PoolId
    start_by_ms: int | None = None
    hosts: tuple[str, ...] = ()
    victims: tuple[Tenant, ...] = ()
    code: Reason | None = None
    evidence: Evidence = Evidence()

    @property
    def lost_gpu_ms(self) -> int:
        return sum(victim.lost_gpu_ms for victim in self.victims)


class Outlooks:
    """Outlooks of one fold; what is common to all jobs of a pool is made once."""

    def __init__(self, world: World, policy: Policy) -> None:
        self._world = world
        self._policy = policy
        self._now_ms = world.log_time_ms
        self._pools: dict[PoolId, tuple[Room, Scales, Verdicts]] = {}
        self._caps: dict[PoolId, Caps] = {}

    def best(self, job: Job) -> Outlook | None:
        """The soonest outlook over the pools that the job accepts, in their order; None when it accepts none."""
        found = [self.of(job, pool) for pool in job.pools if pool in self._world.fleet.pools()]
        return min(found, key=_soonness, default=None)

    def of(self, job: Job, pool: PoolId) -> Outlook:
        """The outlook in one pool."""
        room, scales, verdicts = self._pool(pool)
        policy, now_ms = self._policy, self._now_ms
        shape = room.shape(job)
        owed = [o for o in (self._world.promises.get(job.id), self._world.reservations.get(job.id)) if o is not None]
        permit = permit_now(policy, scales, job, is_counted=any(o.pool == pool for o in owed))
        capped = None if owed or job.is_idle_work else self._caps[pool].refuses(_pick(job, permit), is_counted=False)
        if capped is not None:
            return Outlook(when=LATER, pool=pool, code=capped[0], evidence=capped[1])
        parts = room.find(shape, job.id, needs_ms(policy, job, now_ms), permit.licence)
        if parts is not None:
            return Outlook(when=NOW, pool=pool, start_by_ms=now_ms, hosts=tuple(part.host for part in parts))
        tenants = verdicts.occupancy
        plan = plan_now(tenants, room, shape, permit, job.id) if permit.may_evict_idle else None
        code = verdicts.code(shape, job.id, permit)
        evidence = verdicts.evidence(code, shape, job.id, permit)
        if plan is not None:
            start_ms = plan.free_by_ms(policy, now_ms)
            return Outlook(
                when=AFTER_EVICTIONS,
                pool=pool,
                start_by_ms=start_ms,
                hosts=plan.hosts,
                victims=plan.victims,
                code=code,
                evidence=evidence,
            )
        proof = soonest(tenants, room, shape, permit, job.id)
        if proof is None:
            return Outlook(when=LATER, pool=pool, code=code, evidence=evidence)
        return Outlook(
            when=PROMISED, pool=pool, start_by_ms=proof.start_ms, hosts=proof.hosts, code=code, evidence=evidence
        )

    def _pool(self, pool: PoolId) -> tuple[Room, Scales, Verdicts]:
        if pool not in self._pools:
            room = Room(self._world, pool, self._now_ms)
            tenants = occupancy(self._world, self._policy, pool, self._now_ms)
            scales = Scales(standings(self._world, pool, self._now_ms))
            self._pools[pool] = (room, scales, Verdicts(room, tenants))
            largest_host = max(room.size.values(), default=0)
            self._caps[pool] = Caps(self._world, self._policy, pool_rank(self._world, pool), room, largest_host)
        return self._pools[pool]


def pool_rank(world: World, pool: PoolId) -> PoolRank:
    """What caps read of a rank: how large the pool is, and who waits for it."""
    meter = world.fleet.schedulable.get(pool)
    waiting = (w for w in world.line.classes.values() if pool in w.sample.pools)
    leaves = tuple(request_class(w) for w in waiting if not w.sample.is_idle_work)
    return PoolRank(pool=pool, schedulable_gpus=meter.value if meter else 0, nodes=(), leaves=leaves)


def _pick(job: Job, permit: Permit) -> Pick:
    return Pick(job.id, request_class(WaitingClass("", job)), permit.licence)


def permit_now(policy: Policy, scales: Scales, job: Job, *, is_counted: bool) -> Permit:
    """The licence that a rank would give the job now; its window is new unless it `is_counted` as promised."""
    if job.is_idle_work:
        licence = Licence.IDLE
    elif job.request.lane:
        licence = Licence.DEBUG
    else:
        is_under = any(node.is_under for node in scales.path(job.budget))
        licence = Licence.UNDER_SHARE if is_under else Licence.OVER_SHARE
    window_gpu_ms = job.gpus * job.window_ms
    return permit_for(policy, scales, job.budget, licence, window_gpu_ms, is_counted=is_counted)


def _soonness(outlook: Outlook) -> tuple[int, int]:
    """Which pool is best: the surest kind of start, then the earliest."""
    return _BEST_FIRST.index(outlook.when), outlook.start_by_ms or 0
