"""What a host is made of, and how a job is told which part of it is its own.

An agent asks one `Devices` per host it serves. The simulated one has facts and no hardware: it says
so in its inventory, and everything that shows a host shows that too. One agent process may serve
many simulated hosts, which is how a laptop plays a cluster; processes on them are real.
"""

import re
from collections.abc import Iterable
from typing import Final, Protocol

from fairlease_schemas.host import Inventory
from fairlease_schemas.ids import GpuUuid, HostId

SIMULATED_POOL: Final = "h100"
SIMULATED_MODEL: Final = "H100-sim"
HOSTS_PER_BLOCK: Final = 16
MAX_SIMULATED_HOSTS: Final = 4_096
MAX_SIMULATED_GPUS: Final = 16

_GPU_MEMORY_MIB: Final = 81_559
_CORES_PER_GPU: Final = 14
_HOST_MEMORY_PER_GPU_MIB: Final = 262_144
_CLUSTER: Final = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]?)")


class Devices(Protocol):
    """The devices of one host."""

    @property
    def host(self) -> HostId: ...

    def inventory(self) -> Inventory:
        """What is there now; GPU k of the host is `gpus[k]`."""

    def environment(self, gpus: Iterable[GpuUuid]) -> dict[str, str]:
        """Variables by which a job sees these GPUs and no others."""


class SimulatedDevices:
    """Host `number` (1, 2, 3 …) of a cluster that does not exist: `host-001` with so many H100s."""

    def __init__(self, number: int, gpus: int) -> None:
        self._host = f"host-{number:03d}"
        self._inventory = Inventory(
            pool=SIMULATED_POOL,
            gpus=tuple(f"GPU-sim-{self._host}-{k}" for k in range(gpus)),
            model=SIMULATED_MODEL,
            memory_mib=_GPU_MEMORY_MIB,
            cpu_cores=_CORES_PER_GPU * gpus,
            host_memory_mib=_HOST_MEMORY_PER_GPU_MIB * gpus,
            block=f"block-{(number - 1) // HOSTS_PER_BLOCK + 1:02d}",
            is_simulated=True,
        )

    @property
    def host(self) -> HostId:
        return self._host

    def inventory(self) -> Inventory:
        return self._inventory

    def environment(self, gpus: Iterable[GpuUuid]) -> dict[str, str]:
        return {**visible(gpus), "FAIRLEASE_SIMULATED": "1"}


def visible(gpus: Iterable[GpuUuid]) -> dict[str, str]:
    """The variables that CUDA and the container runtimes read, in the order given.

    By UUID: an index means another device to a program that orders devices another way.
    """
    joined = ",".join(gpus)
    return {"CUDA_VISIBLE_DEVICES": joined, "NVIDIA_VISIBLE_DEVICES": joined}


def simulated(cluster: str, first: int = 1) -> tuple[SimulatedDevices, ...]:
    """The hosts of a cluster written `4x8`: four of eight GPUs. ValueError, with the way out, for anything else.

    `first` is the number of the first of them, so that several agents can share a cluster.
    """
    found = _CLUSTER.fullmatch(cluster)
    hosts, gpus = (int(found[1]), int(found[2])) if found else (0, 0)
    if not (1 <= hosts <= MAX_SIMULATED_HOSTS and 1 <= gpus <= MAX_SIMULATED_GPUS):
        raise ValueError(
            f"{cluster[:40]!r} is not a simulated cluster: write HOSTSxGPUS, for example 4x8, "
            f"at most {MAX_SIMULATED_HOSTS} hosts of {MAX_SIMULATED_GPUS} GPUs"
        )
    return tuple(SimulatedDevices(number, gpus) for number in range(first, first + hosts))
