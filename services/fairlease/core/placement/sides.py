"""CPU, memory and disk of a pool's hosts, beside the GPUs (decisions.md 1.2).

Every attempt holds what its contract asks for per host, or by default its GPUs' part of the host,
rounded down. While nobody asks by number the GPUs say everything: the parts never add up to more than
the host. So a host is counted only when a request asks, or somebody on it asked.
"""

from collections.abc import Iterable

from fairlease.core.host import Host
from fairlease.core.job import Job
from fairlease.core.world import World
from fairlease_schemas.ids import HostId, PoolId
from fairlease_schemas.job import Request

Sizes = tuple[int, int, int]
"""CPU cores, memory MiB, disk MiB of one host; as asked for, 0 is the GPUs' part."""

NONE: Sizes = (0, 0, 0)


def asked(request: Request) -> Sizes:
    """What a request asks for by number on each of its hosts."""
    return (request.cpu_per_host, request.memory_per_host_mib, request.disk_per_host_mib)


class Sides:
    """What is free of them on each host while a step decides; taking is private to the step."""

    def __init__(self, world: World, pool: PoolId) -> None:
        self._world = world
        self._free: dict[HostId, Sizes] = {}
        self._asked_on: set[HostId] = set()
        self._taken: dict[HostId, list[tuple[int, Sizes]]] = {}
        for name in world.sized.values():
            self._note(world.jobs[name], pool)

    @property
    def are_asked(self) -> bool:
        """Whether anybody who holds a part of a host asked for them by number."""
        return bool(self._asked_on)

    def matter(self, host: HostId, sizes: Sizes) -> bool:
        """Whether they could stand in the way there, when the GPUs do not."""
        return sizes != NONE or host in self._asked_on

    def part(self, host: HostId, gpus: int, sizes: Sizes) -> Sizes:
        """What somebody with so many GPUs holds on the host: as asked for, else the GPUs' part."""
        has = _all_of(self._world.fleet.hosts[host])
        cores, memory, disk = (
            size or there * gpus // self._world.fleet.hosts[host].gpus for size, there in zip(sizes, has, strict=True)
        )
        return cores, memory, disk

    def lack(self, host: HostId, gpus: int, sizes: Sizes) -> Sizes:
        """What is missing for such a part; none is below zero."""
        cores, memory, disk = (
            max(0, needed - free) for needed, free in zip(self.part(host, gpus, sizes), self._left(host), strict=True)
        )
        return cores, memory, disk

    def take(self, host: HostId, gpus: int, sizes: Sizes) -> None:
        """Somebody has a part of the host from here on."""
        if host in self._free:
            self._change(host, self.part(host, gpus, sizes), -1)
        else:
            self._taken.setdefault(host, []).append((gpus, sizes))
        if sizes != NONE:
            self._asked_on.add(host)

    def give(self, host: HostId, gpus: int, sizes: Sizes) -> None:
        """Somebody's part is free again."""
        self._change(host, self.part(host, gpus, sizes), 1)

    def copy(self) -> "Sides":
        """The same, to be changed without changing this one."""
        other = object.__new__(Sides)
        other._world, other._free, other._asked_on = self._world, dict(self._free), set(self._asked_on)
        other._taken = {host: list(taken) for host, taken in self._taken.items()}
        return other

    def _note(self, job: Job, pool: PoolId) -> None:
        attempt = job.live
        if attempt is not None and attempt.pool == pool:
            self._asked_on.update(part.host for part in attempt.parts)

    def _change(self, host: HostId, part: Iterable[int], sign: int) -> None:
        cores, memory, disk = (free + sign * size for free, size in zip(self._left(host), part, strict=True))
        self._free[host] = (cores, memory, disk)

    def _left(self, host: HostId) -> Sizes:
        """What nobody holds; counted from the attempts there when first asked for."""
        if host not in self._free:
            self._free[host] = _all_of(self._world.fleet.hosts[host])
            for name in self._world.fleet.attempts_on(host):
                found = self._world.attempt(name)
                if found is not None:
                    gpus = next(len(part.gpus) for part in found[1].parts if part.host == host)
                    self._change(host, self.part(host, gpus, asked(found[0].request)), -1)
            for gpus, sizes in self._taken.pop(host, ()):
                self._change(host, self.part(host, gpus, sizes), -1)
        return self._free[host]


def _all_of(host: Host) -> Sizes:
    return (host.inventory.cpu_cores, host.inventory.host_memory_mib, host.inventory.disk_mib)
