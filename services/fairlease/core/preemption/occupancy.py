"""Who holds what in a pool, as a step sees it: every attempt with what losing it would cost.

Made once for a step. Placement asks it which hosts a blocked pick could claim, preemption which
attempts must leave, the calendar when they will have to.
"""

from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

import msgspec

from fairlease.core.departures import Departure
from fairlease.core.fleet import MAX_LANE_GPUS
from fairlease.core.job import Attempt, Job, replace
from fairlease.core.placement.fit import Room
from fairlease.core.placement.shape import Shape
from fairlease.core.placement.sides import Sizes, asked
from fairlease.core.preemption.licence import Permit
from fairlease.core.stay import Kind, Stay
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


MayLeave = Callable[[Tenant | Kind], bool]
"""Whether one may go: asked of a tenant, or of all tenants of a kind at once."""


def tenant_order(tenant: Tenant) -> tuple[int, bool, AttemptId]:
    """Who is asked to leave first.

    1. the least GPU-time lost, so that the eviction is cheap;
    2. idle work before budgeted work;
    3. the attempt id, so that the order is the same everywhere.
    """
    return (tenant.lost_gpu_ms, not tenant.is_idle, tenant.attempt)


class Occupancy:
    """The tenants of one pool.

    The slow model: weigh every tenant, and sort those of each host, before anything is asked. This one weighs those
    of a host when somebody asks for that host, and answers whether a claim could ever have room by kinds and sets.
    """

    def __init__(self, policy: Policy, now_ms: int, tenants: Iterable[Tenant]) -> None:
        self.policy = policy
        self.now_ms = now_ms
        self._on: dict[HostId, list[Tenant]] = {}
        self._tenants: dict[AttemptId, Tenant] = {}
        self._barred: dict[Hashable, int] = {}
        self._able: dict[Hashable, int] = {}
        self._room: Room | None = None
        self._room_version = 0
        for tenant in sorted(tenants, key=tenant_order):
            self._tenants[tenant.attempt] = tenant
            for host in tenant.gpus_on:
                self._on.setdefault(host, []).append(tenant)
        self._leaves = tuple(sorted({tenant.leaf for tenant in self._tenants.values() if not tenant.is_idle}))

    @property
    def leaves(self) -> tuple[BudgetId, ...]:
        """Leaves with budgeted work here, by id."""
        return self._leaves

    def at(self, host: HostId) -> list[Tenant]:
        """Who holds something there, the cheapest to evict first. Not to be written to."""
        return self._on.get(host, [])

    def everybody(self) -> Iterator[Tenant]:
        """Every tenant once."""
        yield from self._tenants.values()

    def admit(self, job: Job) -> None:
        """The job was granted its last attempt in this step: it stands there too."""
        self._add(tenant_of(self.policy, job, job.attempts[-1], self.now_ms))

    def _add(self, tenant: Tenant) -> None:
        self._tenants[tenant.attempt] = tenant
        for host in tenant.gpus_on:
            insort(self._on.setdefault(host, []), tenant, key=tenant_order)
        if not tenant.is_idle and tenant.leaf not in self._leaves:
            self._leaves = tuple(sorted((*self._leaves, tenant.leaf)))

    def spend(self, attempts: set[AttemptId]) -> None:
        """These are asked to leave by now: nobody is asked twice."""
        for name in attempts:
            tenant = self._tenants.get(name)
            if tenant is not None:
                told = self._tenants[name] = replace(tenant, is_stopping=True)
                for host in tenant.gpus_on:
                    tenants = self._on[host]
                    tenants[tenants.index(tenant)] = told

    def able(
        self, room: Room, shape: Shape, rule: Hashable, may_leave: MayLeave, *, is_all: bool = False
    ) -> int | None:
        """The places where one part of a gang that asks for GPUs alone fits once all that `may_leave` are gone.

        Open hosts, or with `is_all` also those that are kept, promised or closed. What those hold who may not leave is
        barred, all over the pool at once. None when sums cannot tell: then it takes a look at each host. `rule`
        names all that `may_leave` depends on: answers are kept by it while room and tenants are as they are.
        """
        if not room.is_told_by_gpus(shape) or not self._is_summed():
            return None
        if room is not self._room or room.version != self._room_version:
            self._able.clear()
            self._room, self._room_version = room, room.version
        key = (rule, shape.gpus_per_host, shape.hosts > 1, is_all)
        found = self._able.get(key)
        if found is None:
            barred = self._barred.get(rule)
            if barred is None:
                barred = self._barred[rule] = self._bars(rule, may_leave)
            places = room.places(shape, is_all=is_all)
            found = self._able[key] = room.frame.with_room(barred, shape.gpus_per_host, places)
        return found

    def _is_summed(self) -> bool:
        """Whether it is known what tenants of each kind hold, in the lanes of the room's frame."""
        return False

    def _bars(self, _rule: Hashable, _may_leave: MayLeave) -> int:
        """What those hold, in these lanes, who may not leave. Asked where sums are known, which is never here."""
        return 0


class Living(Occupancy):
    """The occupancy of a fold: everybody who holds something in the pool now.

    Who was weighed at this instant by the step before is not weighed again; only who came or was told to leave in
    this step is its own.
    """

    def __init__(self, world: World, policy: Policy, pool: PoolId, now_ms: int) -> None:
        super().__init__(policy, now_ms, ())
        self._fleet = world.fleet
        self._frame = world.fleet.frame(pool)
        self._tenure = tenure = world.tenure(policy, pool, now_ms)
        self._stays: Mapping[AttemptId, Stay] = tenure.stays
        self._weighed: dict[AttemptId, Tenant] = tenure.weighed
        self._there: dict[HostId, list[Tenant]] = tenure.there
        self._held = tenure.held
        self._numbered: list[tuple[int, int]] | None = None
        self._reach = tenure.reach(tenure.leaves)
        self._is_told_by_sums: bool | None = None
        self._leaves = tenure.leaves
        self._newcomers: list[Job] = []

    def at(self, host: HostId) -> list[Tenant]:
        """Who holds something there, the cheapest to evict first. Not to be written to."""
        if self._newcomers:
            self._let_in()
        found = self._on.get(host)
        if found is None:
            found = self._there.get(host)
        if found is None:
            names = [name for name in self._fleet.attempts_on(host) if name in self._stays]
            found = self._there[host] = sorted([self._known(name) for name in names], key=tenant_order)
        return found

    def everybody(self) -> Iterator[Tenant]:
        """Every tenant once."""
        if self._newcomers:
            self._let_in()
        for name in self._stays:
            yield self._tenants.get(name) or self._known(name)

    def admit(self, job: Job) -> None:
        """The job was granted its last attempt in this step: it stands there too, as soon as anybody asks."""
        self._newcomers.append(job)

    @property
    def leaves(self) -> tuple[BudgetId, ...]:
        """Leaves with budgeted work here, by id."""
        if self._newcomers:
            self._let_in()
        return self._leaves

    def _let_in(self) -> None:
        newcomers, self._newcomers = self._newcomers, []
        self._check_sums()
        self._stays = dict(self._stays)
        for job in newcomers:
            stay = Stay(self.policy, job, job.attempts[-1])
            self._stays[stay.attempt.id] = stay
            stay.place(self._frame)
            self._hold(stay.at(self.now_ms), stay.held)
            for host in stay.gpus_on:
                self._on[host] = list(self.at(host))
            self._add(_weighed(stay, self.now_ms))
        self._reach = self._tenure.reach(self._leaves)

    def spend(self, attempts: set[AttemptId]) -> None:
        """These are asked to leave by now: nobody is asked twice."""
        if self._newcomers:
            self._let_in()
        for name in attempts:
            stay = self._stays.get(name)
            before = self._tenants.get(name) or (self._known(name) if stay is not None else None)
            if stay is None or before is None or before.is_stopping:
                continue
            told = self._tenants[name] = replace(before, is_stopping=True)
            for host in stay.gpus_on:
                self._on[host] = [told if tenant is before else tenant for tenant in self.at(host)]
            kind = stay.at(self.now_ms)
            self._hold(kind, -stay.held)
            self._hold(kind._replace(is_stopping=True), stay.held)

    def _hold(self, kind: Kind, held: int) -> None:
        """Those of the kind hold so much more in this step."""
        if self._held is self._tenure.held:
            self._held = dict(self._held)
        self._held[kind] = self._held.get(kind, 0) + held
        self._numbered = None
        self._barred.clear()
        self._able.clear()

    def _is_summed(self) -> bool:
        if self._newcomers:
            self._let_in()
        return self._check_sums()

    def _bars(self, rule: Hashable, may_leave: MayLeave) -> int:
        held = self._numbered
        if held is None:
            held = self._numbered = [(self._reach.bit(kind), gpus) for kind, gpus in self._held.items()]
        leaving = self._reach.of(rule, may_leave)
        return sum([gpus for bit, gpus in held if not leaving & bit])

    def _check_sums(self) -> bool:
        """Whether the tenants hold all that is held in the pool.

        Not where a host came into it with work of another pool, or came back with fewer GPUs.
        """
        if self._is_told_by_sums is None:
            frame = self._frame
            free = sum([len(self._fleet.free_gpus(host)) for host in frame.hosts])
            is_whole = not self._tenure.apart and self._tenure.gpus == sum(frame.sizes) - free
            self._is_told_by_sums = is_whole and max(frame.sizes, default=0) <= MAX_LANE_GPUS
        return self._is_told_by_sums

    def _known(self, name: AttemptId) -> Tenant:
        """The tenant as the fold has it."""
        tenant = self._weighed.get(name)
        if tenant is None:
            tenant = self._weighed[name] = _weighed(self._stays[name], self.now_ms)
        return tenant


def occupancy(world: World, policy: Policy, pool: PoolId, now_ms: int) -> Occupancy:
    """Everybody who holds something in the pool now."""
    return Living(world, policy, pool, now_ms)


def tenant_of(policy: Policy, job: Job, attempt: Attempt, now_ms: int) -> Tenant:
    """A live attempt as a step weighs it."""
    return _weighed(Stay(policy, job, attempt), now_ms)


def _weighed(stay: Stay, now_ms: int) -> Tenant:
    job, attempt, kind = stay.job, stay.attempt, stay.at(now_ms)
    interval_ms = job.request.checkpoint_interval_ms
    last_ms = max(attempt.started_ms or attempt.granted_ms, attempt.checkpoint_ms)
    return Tenant(
        attempt=attempt.id,
        job=job.id,
        leaf=job.budget,
        gpus_on=stay.gpus_on,
        sizes=asked(job.request),
        lost_gpu_ms=stay.gpus * (now_ms - stay.unsaved_ms),
        grace_ms=job.request.grace_ms,
        is_idle=kind.is_idle,
        is_lane=kind.is_lane,
        is_past=kind.is_past,
        is_exempt=kind.is_exempt,
        is_stopping=kind.is_stopping,
        leaves=stay.leaves(now_ms),
        checkpoint_due_ms=last_ms + interval_ms if interval_ms else 0,
        start_up_ms=stay.start_up_ms,
    )


def is_licensed(permit: Permit, tenant: Tenant | Kind) -> bool:
    """Whether the claim may ask this tenant to leave, were its window over (6.2)."""
    if tenant.is_stopping:
        return True
    if tenant.is_idle:
        return permit.may_evict_idle
    if permit.licence is Licence.DEBUG and tenant.is_lane:
        return False
    return permit.over(tenant.leaf)


def is_evictable(permit: Permit, tenant: Tenant | Kind) -> bool:
    """Whether it may be asked to leave now: within the licence, and idle or past its window (5.1)."""
    if tenant.is_stopping or not (tenant.is_idle or tenant.is_past):
        return False
    return is_licensed(permit, tenant)
