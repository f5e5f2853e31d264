"""The fleet: every host with who holds each of its GPUs, and each pool's schedulable GPU-time.

A GPU is schedulable while its host has no hold, or while an attempt from before the hold still has
it (2.2). Occupancy is an index over the live attempts: it can be made again from them.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from fairlease.core.fairshare.usage import Meter
from fairlease.core.host import Host
from fairlease_schemas.cycle import Part
from fairlease_schemas.ids import AttemptId, HostId, PoolId

LANE_BITS: Final = 16
MAX_LANE_GPUS: Final = (1 << LANE_BITS - 1) - 1


class Frame:
    """A pool's hosts by id, each a lane of one large number: so that all are counted and compared at once.

    The highest bit of a lane stands for the host in a set; the bits below count GPUs there, of which a host has fewer
    than they can hold. Made anew when any host changes.
    """

    __slots__ = ("_limits", "bits", "by_size", "hosts", "places", "sizes", "whole")

    def __init__(self, hosts: list[Host]) -> None:
        self.hosts = tuple(host.id for host in hosts)
        self.places = {name: place for place, name in enumerate(self.hosts)}
        self.sizes = tuple(host.gpus for host in hosts)
        self.bits = tuple(1 << place * LANE_BITS + LANE_BITS - 1 for place in range(len(hosts)))
        self.by_size: dict[int, int] = {}
        self._limits: dict[int, int] = {}
        self.whole = sum(self.bits)
        for bit, size in zip(self.bits, self.sizes, strict=True):
            self.by_size[size] = self.by_size.get(size, 0) | bit

    def held(self, host: HostId, gpus: int) -> int:
        """So many GPUs of the host, as a number that adds up with others."""
        return gpus << self.places[host] * LANE_BITS

    def with_room(self, held: int, wanted: int, among: int) -> int:
        """Those `among` these hosts, none smaller than `wanted`, that have so many GPUs beside what is held of them.

        Every lane begins with its highest bit set, and a host where too much is held has lost it after one subtraction.
        """
        limits = self._limits.get(wanted)
        if limits is None:
            lanes = enumerate(zip(self.bits, self.sizes, strict=True))
            limits = sum(bit | max(0, size - wanted) << place * LANE_BITS for place, (bit, size) in lanes)
            self._limits[wanted] = limits
        return (limits - held) & among

    def names(self, bits: int) -> Iterator[HostId]:
        """The hosts of a set, by id."""
        while bits:
            low = bits & -bits
            yield self.hosts[low.bit_length() // LANE_BITS - 1]
            bits ^= low


class Shelf:
    """A pool's room as the hosts alone leave it, kept between steps: whose it is, a step knows.

    `free` are the free GPUs of every host without a hold, by id. Of those that no drain empties, `begun` are the ones
    with work by free GPUs, `empty` the others by size and outermost block; ids ascending. Not to be written to.
    """

    def __init__(self, hosts: Iterable[Host], free_gpus: Callable[[HostId], list[int]]) -> None:
        self._free_gpus = free_gpus
        self.free: dict[HostId, list[int]] = {}
        self.size: dict[HostId, int] = {}
        self.block: dict[HostId, str] = {}
        self.held: list[HostId] = []
        self.closing: dict[HostId, int] = {}
        self.begun: dict[int, list[HostId]] = {}
        self.empty: dict[int, dict[str, list[HostId]]] = {}
        self._moved: dict[HostId, None] = {}
        for host in hosts:
            self.size[host.id] = host.gpus
            self.block[host.id] = host.inventory.block
            if host.holds:
                self.held.append(host.id)
                continue
            self.free[host.id] = free_gpus(host.id)
            if host.closes_ms is not None:
                self.closing[host.id] = host.closes_ms
            else:
                self._listed(host.id).append(host.id)

    def moved(self, host: HostId) -> None:
        """Somebody came or went there."""
        self._moved[host] = None

    def settle(self) -> None:
        """Put the hosts where somebody came or went to where they belong now."""
        for host in self._moved:
            if host not in self.free:
                continue
            if host in self.closing:
                self.free[host] = self._free_gpus(host)
                continue
            before = self._listed(host)
            before.remove(host)
            if not before and len(self.free[host]) == self.size[host]:
                del self.empty[self.size[host]][outermost(self.block[host])]
            self.free[host] = self._free_gpus(host)
            insort(self._listed(host), host)
        self._moved.clear()

    def _listed(self, host: HostId) -> list[HostId]:
        return listed(self.begun, self.empty, len(self.free[host]), self.size[host], self.block[host])


Begun = dict[int, list[HostId]]
Empty = dict[int, dict[str, list[HostId]]]


def listed(begun: Begun, empty: Empty, free: int, size: int, block: str) -> list[HostId]:
    """The list a host belongs on: of begun ones by free GPUs, of empty ones by size and outermost block."""
    return begun.setdefault(free, []) if free != size else empty.setdefault(free, {}).setdefault(outermost(block), [])


def outermost(block: str) -> str:
    """The first part of a host's label."""
    return block.partition("/")[0]


class Fleet:
    """Hosts by id in the order of their registration, with one writer: the World."""

    def __init__(self, hosts: dict[HostId, Host], schedulable: dict[PoolId, Meter]) -> None:
        self.hosts = hosts
        self.schedulable = schedulable
        self._occupants: dict[HostId, list[AttemptId]] = {h.id: [""] * h.gpus for h in hosts.values()}
        self._counted: dict[HostId, int] = {}
        self._draining: dict[HostId, None] = {h.id: None for h in hosts.values() if h.drain is not None}
        self._changed: dict[HostId, None] = {h.id: None for h in hosts.values() if h.changed is not None}
        self._frames: dict[PoolId, Frame] = {}
        self._shelves: dict[PoolId, Shelf] = {}
        self._free: dict[HostId, list[int]] = {}
        self._present: dict[HostId, list[AttemptId]] = {}

    def recount(self) -> None:
        """After loading: remember what each host contributes to its pool, without a new step."""
        self._counted = {name: self._schedulable_gpus(name) for name in self.hosts}

    def pools(self) -> list[PoolId]:
        """Every pool that has a host, by id."""
        return sorted({host.inventory.pool for host in self.hosts.values()})

    def draining(self) -> list[Host]:
        """Hosts with a drain that was not returned, by id."""
        return [self.hosts[name] for name in sorted(self._draining)] if self._draining else []

    def changed(self) -> list[Host]:
        """Hosts held for devices that changed under work, of which nothing is left by now; by id."""
        return [self.hosts[name] for name in sorted(self._changed) if not any(self._occupants[name])]

    def in_pool(self, pool: PoolId) -> Iterator[Host]:
        return (host for host in self.hosts.values() if host.inventory.pool == pool)

    def gpus_in(self, pool: PoolId) -> int:
        """GPUs of all registered hosts of the pool, held or not."""
        return sum(host.gpus for host in self.in_pool(pool))

    def occupants(self, host: HostId) -> list[AttemptId]:
        """Who holds GPU 0, 1, …; empty text for a free one. Not to be written to."""
        return self._occupants[host]

    def frame(self, pool: PoolId) -> Frame:
        """The pool's hosts by id."""
        frame = self._frames.get(pool)
        if frame is None:
            frame = self._frames[pool] = Frame(sorted(self.in_pool(pool), key=lambda host: host.id))
        return frame

    def shelf(self, pool: PoolId) -> Shelf:
        """The pool's free GPUs as they are now."""
        shelf = self._shelves.get(pool)
        if shelf is None:
            hosts = (self.hosts[name] for name in self.frame(pool).hosts)
            shelf = self._shelves[pool] = Shelf(hosts, self.free_gpus)
        shelf.settle()
        return shelf

    def free_gpus(self, host: HostId) -> list[int]:
        """Indexes of the GPUs nobody holds, ascending. Not to be written to."""
        free = self._free.get(host)
        if free is None:
            free = [index for index, occupant in enumerate(self._occupants[host]) if not occupant]
            self._free[host] = free
        return free

    def attempts_on(self, host: HostId) -> list[AttemptId]:
        """Attempts that hold something on the host, by id. Not to be written to."""
        found = self._present.get(host)
        if found is None:
            found = self._present[host] = sorted({occupant for occupant in self._occupants[host] if occupant})
        return found

    # one writer ------------------------------------------------------------------------------------
    def put_host(self, host: Host, at_ms: int, *, forget_before_ms: int) -> None:
        """A host registered, or its holds changed."""
        before = self.hosts.get(host.id)
        if before is not None and before.inventory.pool != host.inventory.pool:
            self._count(before.inventory.pool, host.id, 0, at_ms, forget_before_ms)
        self.hosts[host.id] = host
        self._frames.clear()
        self._shelves.clear()
        if host.drain is not None:
            self._draining[host.id] = None
        else:
            self._draining.pop(host.id, None)
        if host.changed is not None:
            self._changed[host.id] = None
        else:
            self._changed.pop(host.id, None)
        if before is None or before.gpus != host.gpus:
            self._occupants[host.id] = [""] * host.gpus
            self._free.pop(host.id, None)
            self._present.pop(host.id, None)
        self._recount_host(host.id, at_ms, forget_before_ms)

    def occupy(self, parts: Iterable[Part], attempt: AttemptId) -> None:
        """Mark the GPUs as held. The decision made sure that they were free; a fold does not choose."""
        for part in parts:
            occupants = self._occupants[part.host]
            for index in part.gpus:
                occupants[index] = attempt
            self._moved(part.host)

    def release(self, parts: Iterable[Part], attempt: AttemptId, at_ms: int, *, forget_before_ms: int) -> None:
        """Free what the attempt holds."""
        for part in parts:
            occupants = self._occupants[part.host]
            for index in part.gpus:
                if index < len(occupants) and occupants[index] == attempt:
                    occupants[index] = ""
            self._moved(part.host)
            self._recount_host(part.host, at_ms, forget_before_ms)

    def _moved(self, host: HostId) -> None:
        self._free.pop(host, None)
        self._present.pop(host, None)
        shelf = self._shelves.get(self.hosts[host].inventory.pool)
        if shelf is not None:
            shelf.moved(host)

    def _schedulable_gpus(self, name: HostId) -> int:
        host = self.hosts[name]
        return sum(1 for o in self._occupants[name] if o) if host.holds else host.gpus

    def _recount_host(self, name: HostId, at_ms: int, forget_before_ms: int) -> None:
        self._count(self.hosts[name].inventory.pool, name, self._schedulable_gpus(name), at_ms, forget_before_ms)

    def _count(self, pool: PoolId, name: HostId, gpus: int, at_ms: int, forget_before_ms: int) -> None:
        delta = gpus - self._counted.get(name, 0)
        self._counted[name] = gpus
        if delta or pool not in self.schedulable:
            meter = self.schedulable.setdefault(pool, Meter())
            meter.add(at_ms, delta, forget_before_ms=forget_before_ms)
