"""Demand: who waits for GPUs of a pool, by class of equal requests, as far as the pool could ever serve it (M2).

A class is counted in every pool that it competes in (8.3) and whose hosts without a hold could take it were they
empty (2.10). One that waits as `budget-cap` or `protected-cap` is above its caps and is counted apart: placement has
said so itself, so caps are not computed a second time. Whether a class fits is asked again when the pool's hosts
changed, and only once time has passed: hosts come and go in bursts. What asks for nothing but GPUs is answered by
the number of hosts of each size, and where no such answer changed no class is looked at.
"""

from collections.abc import Callable
from typing import TypeVar

from fairlease.core.constraint import host_takes
from fairlease.core.host import Host
from fairlease.core.job import Job, Phase
from fairlease.core.line import class_key
from fairlease.core.placement.blocks import most_together
from fairlease_schemas.ids import BudgetId, HostId, JobId, PoolId
from fairlease_schemas.job import Request
from fairlease_schemas.reasons import Reason

CAPS = frozenset((Reason.BUDGET_CAP, Reason.PROTECTED_CAP))

Key = TypeVar("Key", str, tuple[str, str])
Plain = tuple[int, int]


class Sum:
    """Waiting GPUs: `within` their caps, and `capped` above them."""

    __slots__ = ("capped", "within")

    def __init__(self) -> None:
        self.within = 0
        self.capped = 0


class _Class:
    """Equal requests that wait. `fits` are the pools that could take one of them, `sums` where they are counted."""

    __slots__ = ("budget", "count", "fits", "gpus", "is_capped", "is_idle", "is_plain", "pools", "request", "sums")

    def __init__(self, job: Job) -> None:
        self.budget = job.budget
        self.request = job.request
        self.pools = job.pools
        self.is_plain = is_plain(job.request)
        self.gpus = job.gpus
        self.is_idle = job.is_idle_work
        self.is_capped = False
        self.count = 0
        self.fits: tuple[PoolId, ...] = ()
        self.sums: tuple[Sum, ...] = ()


def is_plain(request: Request) -> bool:
    """Whether it asks of hosts for GPUs alone."""
    return request.constraints is None and not request.has_sizes


class Demand:
    """What waits now. Whoever is in `on_pool` and `on_leaf` is called once the sums there are other ones."""

    def __init__(self) -> None:
        self._in_pool: dict[PoolId, Sum] = {}
        self._of_leaf: dict[tuple[BudgetId, PoolId], Sum] = {}
        self._anywhere: dict[BudgetId, Sum] = {}
        self.on_pool: list[Callable[[PoolId], None]] = []
        self.on_leaf: list[Callable[[BudgetId, PoolId], None]] = []
        self._classes: dict[str, _Class] = {}
        self._key_of: dict[JobId, str] = {}
        self._capped: set[str] = set()
        self._hosts: dict[PoolId, dict[HostId, Host]] = {}
        self._pool_of: dict[HostId, PoolId] = {}
        self._sizes: dict[PoolId, dict[int, int]] = {}
        self._plain: dict[PoolId, dict[Plain, bool]] = {}
        self._choosy = 0
        self._stale: dict[PoolId, None] = {}

    def in_pool(self, pool: PoolId) -> Sum:
        """All that waits for the pool, idle work too: the sum itself, which goes on changing."""
        return _of(self._in_pool, pool)

    def of_leaf(self, budget: BudgetId, pool: PoolId) -> Sum:
        """The leaf's budgeted work that waits for the pool."""
        return _of(self._of_leaf, (budget, pool))

    def anywhere(self, budget: BudgetId) -> Sum:
        """The leaf's budgeted work that waits for any pool, counted once."""
        return _of(self._anywhere, budget)

    def look(self, job: Job) -> None:
        """The job may have begun or ceased to wait."""
        key = self._key_of.get(job.id)
        if (job.phase is Phase.WAITING) == (key is not None):
            return
        if key is not None:
            del self._key_of[job.id]
            self._count(key, self._classes[key], -1)
            return
        key = self._key_of[job.id] = class_key(job)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = _Class(job)
            self._choosy += not found.is_plain
            self._fit(found, self._takers(found))
            found.is_capped = key in self._capped
        self._count(key, found, 1)

    def reason(self, key: str, code: Reason | None) -> None:
        """Placement says why the class waits, or that it does not wait for that any more."""
        is_capped = code in CAPS
        if is_capped == (key in self._capped):
            return
        (self._capped.add if is_capped else self._capped.discard)(key)
        found = self._classes.get(key)
        if found is not None:
            self._add(found, -found.count)
            found.is_capped = is_capped
            self._add(found, found.count)

    def put_host(self, host: Host) -> None:
        """A host registered, or its holds changed; with a hold it takes nobody."""
        pool = host.inventory.pool
        before = self._pool_of.get(host.id, pool)
        self._pool_of[host.id] = pool
        known = self._hosts.setdefault(before, {}).pop(host.id, None)
        if known is not None:
            self._sizes[before][known.gpus] -= 1
        if not host.holds:
            self._hosts.setdefault(pool, {})[host.id] = host
            sizes = self._sizes.setdefault(pool, {})
            sizes[host.gpus] = sizes.get(host.gpus, 0) + 1
        is_same = known is not None and not host.holds and known.inventory == host.inventory
        if not is_same and (known is not None or not host.holds):
            self._stale[before] = self._stale[pool] = None

    @property
    def is_stale(self) -> bool:
        """Whether hosts changed since the classes were last asked for: then `settle` comes before time passes."""
        return bool(self._stale)

    def settle(self) -> None:
        """Ask again which classes the changed pools could take."""
        stale = set(self._stale)
        self._stale.clear()
        is_other = self._choosy > 0
        for pool in sorted(stale):
            known = self._plain.get(pool, {})
            for shape in known:
                can_take = self._has_whole(pool, *shape)
                is_other = is_other or can_take != known[shape]
                known[shape] = can_take
        if not is_other:
            return
        for found in self._classes.values():
            if stale.isdisjoint(found.pools):
                continue
            fits = self._takers(found)
            if fits != found.fits:
                self._add(found, -found.count)
                self._fit(found, fits)
                self._add(found, found.count)

    def _takers(self, found: _Class) -> tuple[PoolId, ...]:
        """The pools that the class competes in and whose hosts could take one of it."""
        return tuple([pool for pool in found.pools if self._can_take(pool, found.request)])

    def _fit(self, found: _Class, fits: tuple[PoolId, ...]) -> None:
        """The class counts in these pools from now on."""
        found.fits = fits
        sums = [self.in_pool(pool) for pool in fits]
        if fits and not found.is_idle:
            sums += [self.of_leaf(found.budget, pool) for pool in fits]
            sums.append(self.anywhere(found.budget))
        found.sums = tuple(sums)

    def _can_take(self, pool: PoolId, request: Request) -> bool:
        if not is_plain(request):
            return self._has_hosts(pool, request)
        known = self._plain.setdefault(pool, {})
        shape = (request.hosts, request.gpus_per_host)
        if shape not in known:
            known[shape] = self._has_whole(pool, *shape)
        return known[shape]

    def _has_whole(self, pool: PoolId, hosts: int, gpus: int) -> bool:
        """Whether the pool has hosts of the size: a gang takes whole ones, less than one host any that is as large."""
        sizes = self._sizes.get(pool, {})
        if hosts > 1:
            return sizes.get(gpus, 0) >= hosts
        return any(count and size >= gpus for size, count in sizes.items())

    def _has_hosts(self, pool: PoolId, request: Request) -> bool:
        able = {name: host for name, host in self._hosts.get(pool, {}).items() if not host_takes(request, host)}
        wanted = request.constraints
        is_same_block = request.hosts > 1 and wanted is not None and wanted.is_same_block
        blocks = {name: host.inventory.block for name, host in able.items()}
        return most_together(able, blocks, is_same_block=is_same_block) >= request.hosts

    def _count(self, key: str, found: _Class, more: int) -> None:
        found.count += more
        self._add(found, more)
        if found.count == 0:
            self._choosy -= not found.is_plain
            del self._classes[key]

    def _add(self, found: _Class, jobs: int) -> None:
        """So many jobs more of the class wait."""
        gpus = found.gpus * jobs
        if not gpus:
            return
        for one in found.sums:
            if found.is_capped:
                one.capped += gpus
            else:
                one.within += gpus
        for pool in found.fits:
            for told in self.on_pool:
                told(pool)
            for asked in () if found.is_idle else self.on_leaf:
                asked(found.budget, pool)


def _of(sums: dict[Key, Sum], key: Key) -> Sum:
    found = sums.get(key)
    if found is None:
        found = sums[key] = Sum()
    return found
