"""The fleet: every host with who holds each of its GPUs, and each pool's schedulable GPU-time.

A GPU is schedulable while its host has no hold, or while an attempt from before the hold still has
it (2.2). Occupancy is an index over the live attempts: it can be made again from them.
"""

from collections.abc import Iterable, Iterator

from fairlease.core.fairshare.usage import Meter
from fairlease.core.host import Host
from fairlease_schemas.cycle import Part
from fairlease_schemas.ids import AttemptId, HostId, PoolId


class Fleet:
    """Hosts by id in the order of their registration, with one writer: the World."""

    def __init__(self, hosts: dict[HostId, Host], schedulable: dict[PoolId, Meter]) -> None:
        self.hosts = hosts
        self.schedulable = schedulable
        self._occupants: dict[HostId, list[AttemptId]] = {h.id: [""] * h.gpus for h in hosts.values()}
        self._counted: dict[HostId, int] = {}
        self._draining: dict[HostId, None] = {h.id: None for h in hosts.values() if h.drain is not None}
        self._changed: dict[HostId, None] = {h.id: None for h in hosts.values() if h.changed is not None}

    def recount(self) -> None:
        """After loading: remember what each host contributes to its pool, without a new step."""
        self._counted = {name: self._schedulable_gpus(name) for name in self.hosts}

    def pools(self) -> list[PoolId]:
        """Every pool that has a host, by id."""
        return sorted({host.inventory.pool for host in self.hosts.values()})

    def draining(self) -> list[Host]:
        """Hosts with a drain that was not returned, by id."""
        return [self.hosts[name] for name in sorted(self._draining)]

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

    def free_gpus(self, host: HostId) -> list[int]:
        """Indexes of the GPUs nobody holds, ascending."""
        return [index for index, occupant in enumerate(self._occupants[host]) if not occupant]

    def attempts_on(self, host: HostId) -> list[AttemptId]:
        """Attempts that hold something on the host, by id."""
        return sorted({occupant for occupant in self._occupants[host] if occupant})

    # one writer ------------------------------------------------------------------------------------
    def put_host(self, host: Host, at_ms: int, *, forget_before_ms: int) -> None:
        """A host registered, or its holds changed."""
        before = self.hosts.get(host.id)
        if before is not None and before.inventory.pool != host.inventory.pool:
            self._count(before.inventory.pool, host.id, 0, at_ms, forget_before_ms)
        self.hosts[host.id] = host
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
        self._recount_host(host.id, at_ms, forget_before_ms)

    def occupy(self, parts: Iterable[Part], attempt: AttemptId) -> None:
        """Mark the GPUs as held. The decision made sure that they were free; a fold does not choose."""
        for part in parts:
            occupants = self._occupants[part.host]
            for index in part.gpus:
                occupants[index] = attempt

    def release(self, parts: Iterable[Part], attempt: AttemptId, at_ms: int, *, forget_before_ms: int) -> None:
        """Free what the attempt holds."""
        for part in parts:
            occupants = self._occupants[part.host]
            for index in part.gpus:
                if index < len(occupants) and occupants[index] == attempt:
                    occupants[index] = ""
            self._recount_host(part.host, at_ms, forget_before_ms)

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
