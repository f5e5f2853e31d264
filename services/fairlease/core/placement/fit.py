"""Room in one pool, and where a request fits in it.

Below one host: best fit, on the fullest host that takes it. A gang takes whole hosts, inside the
smallest topology block that has enough of them, else over as few blocks as possible. Every choice
ends in the host id. Hosts with a hold, and hosts kept for someone else, have no room.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable

import msgspec

from fairlease.core.host import FAULT_KINDS
from fairlease.core.world import Promise, World
from fairlease_schemas.cycle import Part
from fairlease_schemas.ids import HostId, JobId, PoolId
from fairlease_schemas.reasons import Evidence, Reason


class Shape(msgspec.Struct, frozen=True):
    """What a gang asks for: `hosts` x `gpus_per_host`; more than one host means whole hosts (1.2)."""

    hosts: int
    gpus_per_host: int

    @property
    def gpus(self) -> int:
        return self.hosts * self.gpus_per_host


class Room:
    """Free GPUs of a pool while a step decides; taking room is private to the step.

    Hosts kept for another job, or claimed by a better pick (4.2), take nobody. Promised hosts take only
    what is gone before the promise begins: contract backfill (6.3).
    """

    def __init__(self, world: World, pool: PoolId, now_ms: int) -> None:
        self.pool = pool
        self.now_ms = now_ms
        self.version = 0
        self.free: dict[HostId, list[int]] = {}
        self.size: dict[HostId, int] = {}
        self.block: dict[HostId, str] = {}
        self.held_out: list[HostId] = []
        self.has_faults = False
        self._by_free: dict[int, list[HostId]] = {}
        self._verdicts: dict[Shape, tuple[Reason, Evidence]] = {}
        self._kept: dict[HostId, JobId] = {}
        self._closed: dict[JobId, int] = {}
        self._reserved: dict[JobId, int] = {}
        self._keeping: dict[JobId, tuple[HostId, ...]] = {}
        for reservation in world.reservations.values():
            if reservation.pool == pool and now_ms < reservation.expires_ms:
                self._reserved[reservation.job] = reservation.expires_ms
                self._keeping[reservation.job] = reservation.hosts
                for name in reservation.hosts:
                    self._kept[name] = reservation.job
        self._promised: dict[HostId, Promise] = {}
        for promise in world.promises.values():
            if promise.pool == pool:
                self._keeping.setdefault(promise.job, promise.hosts)
                for name in promise.hosts:
                    self._promised[name] = promise
        for host in sorted(world.fleet.in_pool(pool), key=lambda h: h.id):
            self.size[host.id] = host.gpus
            self.block[host.id] = host.inventory.block
            if host.holds:
                self.held_out.append(host.id)
                self.has_faults = self.has_faults or any(hold.kind in FAULT_KINDS for hold in host.holds)
                continue
            self.free[host.id] = world.fleet.free_gpus(host.id)
            if self.is_open(host.id):
                self._by_free.setdefault(len(self.free[host.id]), []).append(host.id)

    def find(self, shape: Shape, job: JobId, needs_ms: int) -> tuple[Part, ...] | None:
        """The parts that the gang would get, in rank order of its hosts; None when it does not fit.

        1. Hosts reserved for the job or promised to it, by themselves, when they are free;
        2. open hosts: best fit, or the smallest block;
        3. open and promised hosts together, where `needs_ms` (protection, grace and stop margin) is
           over before the promise begins.
        """
        own = self._keeping.get(job)
        if own:
            found = self._fit(shape, [h for h in own if h in self.free])
            if found is not None:
                return found
        if shape.hosts == 1:
            host = self._fullest(shape.gpus_per_host) or self._hole(shape.gpus_per_host, needs_ms)
            return None if host is None else (self._part(host, shape),)
        whole = self._whole_hosts(shape.gpus_per_host)
        if len(whole) < shape.hosts:
            whole = sorted(whole + [h for h in self._holes(shape.gpus_per_host, needs_ms) if self._is_whole(h, shape)])
        if len(whole) < shape.hosts:
            return None
        return tuple(self._part(host, shape) for host in self.by_block(whole, shape.hosts))

    def take(self, parts: Iterable[Part]) -> None:
        """The parts are granted."""
        self._verdicts.clear()
        self.version += 1
        for part in parts:
            self._unlist(part.host)
            taken = set(part.gpus)
            self.free[part.host] = [index for index in self.free[part.host] if index not in taken]
            self._list(part.host)

    def close(self, hosts: Iterable[HostId], claim: JobId, until_ms: int = 0) -> None:
        """Nobody gets anything on these hosts for the rest of this step: a better pick claims them until then."""
        self._verdicts.clear()
        self.version += 1
        for host in hosts:
            self._unlist(host)
            self._kept[host] = claim
        self._closed[claim] = until_ms

    def can_take(self, shape: Shape) -> bool:
        """Whether the hosts without a hold could take the gang, were they empty (2.10)."""
        return sum(takes(self.size[host], shape) for host in self.free) >= shape.hosts

    def is_open(self, host: HostId) -> bool:
        """Whether anybody may be placed there at any length: no hold, not kept, not promised, not closed."""
        return host in self.free and host not in self._kept and host not in self._promised

    def is_promisable(self, host: HostId, job: JobId) -> bool:
        """Whether the host may be promised to the job: open, or its own by promise already."""
        promise = self._promised.get(host)
        return host in self.free and host not in self._kept and (promise is None or promise.job == job)

    def promise_to(self, job: JobId) -> Promise | None:
        """What the job is promised here, if anything."""
        return next((promise for promise in self._promised.values() if promise.job == job), None)

    def only(self, hosts: Iterable[HostId]) -> "Room":
        """A view of these hosts alone, all of them open, for a claim whose hosts they are."""
        view = object.__new__(Room)
        view.__dict__.update(self.__dict__)
        view.free = {host: self.free[host] for host in hosts if host in self.free}
        view._kept, view._promised = {}, {}
        return view

    def verdict(self, shape: Shape, job: JobId) -> tuple[Reason, Evidence]:
        """Why the gang does not fit here, with the numbers (decisions.md 9.1)."""
        if job in self._reserved:
            return self._verdict(shape, job)
        found = self._verdicts.get(shape)
        if found is None:
            found = self._verdicts[shape] = self._verdict(shape, job)
        return found

    def _verdict(self, shape: Shape, job: JobId) -> tuple[Reason, Evidence]:
        fitting = [h for h, size in self.size.items() if takes(size, shape)]
        open_free = [len(self.free[h]) for h in self.free if self.is_open(h)]
        whole = sum(1 for h in self.free if self.is_open(h) and len(self.free[h]) == self.size[h])
        evidence = Evidence(
            pool=self.pool,
            needed_gpus=shape.gpus,
            needed_hosts=shape.hosts,
            free_gpus=sum(open_free),
            whole_free_hosts=whole,
            largest_hole_gpus=max(open_free, default=0),
            reserved_hosts=len(self._kept.keys() | self._promised.keys()),
            held_gpus=sum(self.size[h] for h in self.held_out),
        )
        if len(fitting) < shape.hosts:
            return Reason.CONSTRAINT_CONFLICT, evidence
        if len([h for h in fitting if h not in self.held_out]) < shape.hosts:
            return (Reason.HOST_FAULT if self.has_faults else Reason.HOST_MAINTENANCE), evidence
        if job in self._reserved:
            for_ms = self._reserved[job] - self.now_ms
            return Reason.RESERVATION, msgspec.structs.replace(evidence, claim=job, for_ms=for_ms)
        if self._with_all_open(shape):
            return Reason.RESERVATION, self.kept_for(evidence)
        return (Reason.FRAGMENTATION if sum(open_free) >= shape.gpus else Reason.CAPACITY), evidence

    def by_block(self, hosts: list[HostId], wanted: int) -> list[HostId]:
        """`wanted` of these hosts, from the smallest block that has enough, else from the fullest blocks first."""
        blocks: dict[str, list[HostId]] = {}
        for host in hosts:
            blocks.setdefault(self.block[host], []).append(host)
        enough = [(len(members), name) for name, members in blocks.items() if len(members) >= wanted]
        if enough:
            return blocks[min(enough)[1]][:wanted]
        chosen: list[HostId] = []
        for _, name in sorted((-len(members), name) for name, members in blocks.items()):
            chosen.extend(blocks[name][: wanted - len(chosen)])
        return chosen

    def _fit(self, shape: Shape, hosts: list[HostId]) -> tuple[Part, ...] | None:
        """The gang on these hosts alone, in their order."""
        able = [h for h in hosts if len(self.free[h]) >= shape.gpus_per_host]
        if shape.hosts > 1:
            able = [h for h in able if self._is_whole(h, shape)]
        if len(able) < shape.hosts:
            return None
        return tuple(self._part(host, shape) for host in able[: shape.hosts])

    def _is_whole(self, host: HostId, shape: Shape) -> bool:
        return len(self.free[host]) == self.size[host] == shape.gpus_per_host

    def _holes(self, gpus: int, needs_ms: int) -> list[HostId]:
        """Promised hosts with so many free GPUs, where that length is over in time; fullest first, then by id."""
        ends_ms = self.now_ms + needs_ms
        able = [
            (len(self.free[host]), host)
            for host, promise in self._promised.items()
            if ends_ms <= promise.start_ms and host not in self._kept and len(self.free.get(host, ())) >= gpus
        ]
        return [host for _, host in sorted(able)]

    def _hole(self, gpus: int, needs_ms: int) -> HostId | None:
        return next(iter(self._holes(gpus, needs_ms)), None)

    def _fullest(self, gpus: int) -> HostId | None:
        for free in sorted(self._by_free):
            if free >= gpus and (listed := self._by_free[free]):
                begun = next((host for host in listed if self.size[host] != free), None)
                return begun or self._of_smallest_block(listed)
        return None

    def _of_smallest_block(self, empty: list[HostId]) -> HostId:
        """The first of these hosts in the block that has fewest of them: larger blocks stay whole for gangs (4.3)."""
        counts = Counter(map(self.block.__getitem__, empty))
        smallest = min((count, name) for name, count in counts.items())[1]
        return next(host for host in empty if self.block[host] == smallest)

    def _whole_hosts(self, gpus: int) -> list[HostId]:
        return [h for h in self._by_free.get(gpus, ()) if self.size[h] == gpus]

    def _part(self, host: HostId, shape: Shape) -> Part:
        return Part(host=host, gpus=tuple(self.free[host][: shape.gpus_per_host]))

    def _with_all_open(self, shape: Shape) -> bool:
        """Whether the gang would fit if no host were kept, promised or closed."""
        if not self._kept and not self._promised:
            return False
        able = [h for h in self.free if len(self.free[h]) >= shape.gpus_per_host]
        return len(able if shape.hosts == 1 else [h for h in able if self._is_whole(h, shape)]) >= shape.hosts

    def kept_for(self, evidence: Evidence) -> Evidence:
        """The evidence with the one that comes first of those the hosts are kept for, and for how long at most."""
        ends = {(promise.start_ms, promise.job) for promise in self._promised.values()}
        ends |= {(self._reserved.get(claim) or self._closed.get(claim, 0), claim) for claim in self._kept.values()}
        until_ms, claim = min(ends, default=(0, ""))
        return msgspec.structs.replace(evidence, claim=claim, for_ms=max(0, until_ms - self.now_ms))

    def _list(self, host: HostId) -> None:
        if self.is_open(host):
            insort(self._by_free.setdefault(len(self.free[host]), []), host)

    def _unlist(self, host: HostId) -> None:
        listed = self._by_free.get(len(self.free.get(host, ())), [])
        at = bisect_left(listed, host)
        if at < len(listed) and listed[at] == host:
            del listed[at]


def takes(size: int, shape: Shape) -> bool:
    """Whether a host of `size` GPUs could take one host's part of the shape when empty."""
    return size >= shape.gpus_per_host if shape.hosts == 1 else size == shape.gpus_per_host


def is_feasible(world: World, pool: PoolId, shape: Shape) -> bool:
    """Whether the pool's registered hosts could take the gang if they were empty and had no hold (1.3)."""
    able = 0
    for host in world.fleet.in_pool(pool):
        able += takes(host.gpus, shape)
        if able >= shape.hosts:
            return True
    return False
