"""The pyramid's lower levels, pool by pool: installed, schedulable and held GPU-time, and why GPUs stood free (M1).

The slow model looks at every GPU of every host at every instant. This one keeps for each host what it adds
to its pool, and moves the pool's sums by the difference when something happens there. Surprising: work on a
host with a fault holds its GPUs to the end (2.4) and is charged for them, and yet neither the host is
schedulable nor such work counts as held here. So every level is a part of the one below it.
"""

from collections.abc import Callable, Iterable

import msgspec

from fairlease.core.host import FAULT_KINDS, Host
from fairlease.core.job import Attempt
from fairlease.core.metrics.demand import Demand, Sum
from fairlease.core.metrics.integral import Integral
from fairlease.core.state import Promise, Reservation
from fairlease_schemas.ids import AttemptId, BudgetId, HostId, JobId, PoolId

OnHeld = Callable[[BudgetId, PoolId, int], None]


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """GPU-time of the period. What is held and budgeted is the scope's, all other numbers are of whole pools.

    `everybody_gpu_ms` is held by anyone; schedulable = everybody + reserved + fragmentation + no demand. What is
    reserved stood free on hosts kept for a job that waits; of the rest fragmentation is as much as others waited for
    in vain.
    """

    installed_gpu_ms: int = 0
    schedulable_gpu_ms: int = 0
    everybody_gpu_ms: int = 0
    held_gpu_ms: int = 0
    budgeted_gpu_ms: int = 0
    reserved_gpu_ms: int = 0
    fragmentation_gpu_ms: int = 0
    no_demand_gpu_ms: int = 0


class Tenancy(msgspec.Struct, frozen=True):
    """An attempt that has GPUs, as the figures see it: whose it is, and whether the scope counts it."""

    budget: BudgetId
    pool: PoolId
    is_budgeted: bool
    is_mine: bool
    is_stillborn: bool


class _Pool:
    """One pool's numbers now, and their integrals."""

    __slots__ = ("budgeted", "everybody", "free", "held", "installed", "kept", "rest", "schedulable", "wanted")

    def __init__(self, wanted: Sum) -> None:
        self.wanted = wanted
        self.installed, self.schedulable, self.everybody = Integral(), Integral(), Integral()
        self.held, self.budgeted = Integral(), Integral()
        self.kept, self.free, self.rest = Integral(), Integral(), Integral()

    def tell_apart(self, at_ms: int) -> None:
        """What stands free: `rest` is what of it nobody keeps, `free` as much of that as somebody waits for."""
        rest = self.schedulable.value - self.everybody.value - self.kept.value
        rest = max(rest, 0)
        if rest != self.rest.value:
            self.rest.set(at_ms, rest)
        free = min(self.wanted.within, rest)
        if free != self.free.value:
            self.free.set(at_ms, free)


class _Host:
    """What one host adds to its pool."""

    __slots__ = ("busy", "gpus", "has_faults", "has_holds", "keepers", "kept", "on", "pool", "schedulable", "shown")

    def __init__(self) -> None:
        self.pool = ""
        self.gpus = 0
        self.has_holds = self.has_faults = False
        self.on: dict[AttemptId, tuple[Tenancy, int]] = {}
        self.busy = 0
        self.keepers = 0
        self.shown = self.schedulable = self.kept = 0


class Pyramid:
    """The levels of all pools. Told of hosts, grants, ends and what is kept; `now_ms` is an instant of the period."""

    def __init__(self, demand: Demand) -> None:
        self.now_ms = 0
        self.on_held: list[OnHeld] = []
        """Called when the scope's budgeted work of a leaf holds so many GPUs more in a pool."""
        self.on_schedulable: list[Callable[[PoolId], None]] = []
        self._demand = demand
        self._pools: dict[PoolId, _Pool] = {}
        self._hosts: dict[HostId, _Host] = {}
        self._tenancies: dict[AttemptId, Tenancy] = {}
        self._kept_by: dict[JobId, tuple[HostId, ...]] = {}
        demand.on_pool.append(self._tell_apart)

    @property
    def pools(self) -> Iterable[PoolId]:
        return self._pools

    def schedulable_gpus(self, pool: PoolId) -> int:
        """GPUs of the pool that are schedulable now."""
        found = self._pools.get(pool)
        return found.schedulable.value if found is not None else 0

    def schedulable_gpu_ms(self, pool: PoolId, at_ms: int) -> int:
        found = self._pools.get(pool)
        return found.schedulable.upto(at_ms) if found is not None else 0

    def installed_gpus(self, pool: PoolId) -> int:
        """GPUs of the pool's registered hosts now."""
        return sum(host.gpus for host in self._hosts.values() if host.pool == pool)

    def hosts(self, pool: PoolId) -> int:
        return sum(host.pool == pool for host in self._hosts.values())

    def levels(self, pools: Iterable[PoolId], at_ms: int) -> Levels:
        """The levels of these pools together, up to `at_ms`."""
        found = [self._pools[pool] for pool in pools if pool in self._pools]

        def total(name: str) -> int:
            return sum(getattr(pool, name).upto(at_ms) for pool in found)

        return Levels(
            installed_gpu_ms=total("installed"),
            schedulable_gpu_ms=total("schedulable"),
            everybody_gpu_ms=total("everybody"),
            held_gpu_ms=total("held"),
            budgeted_gpu_ms=total("budgeted"),
            reserved_gpu_ms=total("kept"),
            fragmentation_gpu_ms=total("free"),
            no_demand_gpu_ms=total("rest") - total("free"),
        )

    # what happens ------------------------------------------------------------------------------------
    def put_host(self, host: Host) -> None:
        """A host registered, or its holds changed."""
        found = self._hosts.get(host.id)
        if found is None:
            found = self._hosts[host.id] = _Host()
        has_faults = any(hold.kind in FAULT_KINDS for hold in host.holds)
        if has_faults != found.has_faults:
            for tenancy, gpus in found.on.values():
                self._hold(tenancy, -gpus if has_faults else gpus)
        if host.inventory.pool != found.pool:
            self._leave(found)
            found.pool = host.inventory.pool
        found.gpus, found.has_holds, found.has_faults = host.gpus, bool(host.holds), has_faults
        self._recount(found)

    def occupy(self, attempt: Attempt, tenancy: Tenancy) -> None:
        """The attempt has its GPUs from now on."""
        self._tenancies[attempt.id] = tenancy
        for part in attempt.parts:
            host = self._hosts[part.host]
            gpus = len(part.gpus)
            host.on[attempt.id] = (tenancy, gpus)
            host.busy += gpus
            self._recount(host)
        self._hold(tenancy, sum(len(p.gpus) for p in attempt.parts if not self._hosts[p.host].has_faults))

    def release(self, attempt: Attempt) -> Tenancy | None:
        """The attempt has none any more; whose it was, None when it had none."""
        tenancy = self._tenancies.pop(attempt.id, None)
        if tenancy is None:
            return None
        gpus = 0
        for part in attempt.parts:
            host = self._hosts[part.host]
            del host.on[attempt.id]
            host.busy -= len(part.gpus)
            gpus += 0 if host.has_faults else len(part.gpus)
            self._recount(host)
        self._hold(tenancy, -gpus)
        return tenancy

    def keep(self, job: JobId, reservation: Reservation | None, promise: Promise | None) -> None:
        """These are the hosts that are kept for the job from now on."""
        hosts = (*(reservation.hosts if reservation else ()), *(promise.hosts if promise else ()))
        before = self._kept_by.get(job, ())
        if hosts == before:
            return
        self._kept_by.pop(job, None)
        if hosts:
            self._kept_by[job] = hosts
        for names, more in ((before, -1), (hosts, 1)):
            for name in names:
                self._hosts[name].keepers += more
        for name in dict.fromkeys((*before, *hosts)):
            self._recount(self._hosts[name])

    # sums --------------------------------------------------------------------------------------------
    def _recount(self, host: _Host) -> None:
        """Move the pool's sums by what the host adds otherwise than before."""
        busy = host.busy
        shown = max(host.gpus, busy)  # devices may go while an attempt still has them
        schedulable = 0 if host.has_faults else busy if host.has_holds else shown
        kept = schedulable - busy if host.keepers and not host.has_faults else 0
        self._move(host, shown, schedulable, kept)

    def _leave(self, host: _Host) -> None:
        if host.pool:
            self._move(host, 0, 0, 0)

    def _move(self, host: _Host, shown: int, schedulable: int, kept: int) -> None:
        pool = self._pool(host.pool)
        if shown != host.shown:
            pool.installed.add(self.now_ms, shown - host.shown)
        if schedulable != host.schedulable:
            pool.schedulable.add(self.now_ms, schedulable - host.schedulable)
            for told in self.on_schedulable:
                told(host.pool)
        if kept != host.kept:
            pool.kept.add(self.now_ms, kept - host.kept)
        if (schedulable, kept) != (host.schedulable, host.kept):
            pool.tell_apart(self.now_ms)
        host.shown, host.schedulable, host.kept = shown, schedulable, kept

    def _hold(self, tenancy: Tenancy, gpus: int) -> None:
        """So many GPUs more of schedulable hosts are held."""
        if tenancy.is_stillborn or not gpus:
            return
        pool = self._pool(tenancy.pool)
        pool.everybody.add(self.now_ms, gpus)
        if tenancy.is_mine:
            pool.held.add(self.now_ms, gpus)
            if tenancy.is_budgeted:
                pool.budgeted.add(self.now_ms, gpus)
                for told in self.on_held:
                    told(tenancy.budget, tenancy.pool, gpus)
        pool.tell_apart(self.now_ms)

    def _pool(self, name: PoolId) -> _Pool:
        found = self._pools.get(name)
        if found is None:
            found = self._pools[name] = _Pool(self._demand.in_pool(name))
        return found

    def _tell_apart(self, pool: PoolId) -> None:
        self._pool(pool).tell_apart(self.now_ms)
