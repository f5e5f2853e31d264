"""What a host is made of, and how a job is told which part of it is its own.

An agent asks one `Devices` per host it serves: real ones are in `nvml`, the simulated ones here have
facts and no hardware. They say so in their inventory, and everything that shows a host shows that too.
One agent process may serve many simulated hosts, which is how a laptop plays a cluster; processes on
them are real. What a host is beside its GPUs is measured on the machine, and what nobody can measure
is told: pool, block, labels.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from fairlease.runtime.settings import simulated_host
from fairlease_schemas.host import Inventory
from fairlease_schemas.ids import GpuUuid, HostId
from fairlease_schemas.telemetry import GpuSample

SIMULATED_POOL: Final = "h100"
SIMULATED_MODEL: Final = "H100-sim"
HOSTS_PER_BLOCK: Final = 16
MAX_SIMULATED_HOSTS: Final = 4_096
MAX_SIMULATED_GPUS: Final = 16

_GPU_MEMORY_MIB: Final = 81_559
_CORES_PER_GPU: Final = 14
_HOST_MEMORY_PER_GPU_MIB: Final = 262_144
_MIB: Final = 1024 * 1024
_MEMINFO: Final = Path("/proc/meminfo")
_MEMORY_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_CLUSTER: Final = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]?)")


class NoGpus(Exception):
    """There is nothing to serve here; the text says why in one line. `mend` is empty where all is as it may be."""

    def __init__(self, text: str, mend: str = "") -> None:
        super().__init__(text)
        self.mend = mend


class Site(msgspec.Struct, frozen=True):
    """What is told of a host because nobody can measure it; what is empty is chosen by the devices.

    `address` is where other hosts reach it; empty for the one on the way to the bus. `users` is the file that says
    whose runs are whose there (1.16), empty for none.
    """

    host: HostId = ""
    pool: str = ""
    block: str = ""
    labels: dict[str, str] = {}
    address: str = ""
    users: str = ""


class Machine(msgspec.Struct, frozen=True):
    """What this process may use of the machine it runs on. `disk_mib` is that of the state directory's file system."""

    cpu_cores: int
    memory_mib: int
    disk_mib: int


class Devices(Protocol):
    """The devices of one host."""

    @property
    def host(self) -> HostId: ...

    def inventory(self) -> Inventory:
        """What was there when the agent came; GPU k of the host is `gpus[k]`."""

    def samples(self) -> tuple[GpuSample, ...]:
        """What the GPUs do now, in the order of the inventory; may wait for the driver. Empty without hardware."""

    def environment(self, gpus: Iterable[GpuUuid]) -> dict[str, str]:
        """Variables by which a job sees these GPUs and no others."""


class SimulatedDevices:
    """Host `number` (1, 2, 3 …) of a cluster that does not exist: `host-001` with so many H100s."""

    def __init__(self, number: int, gpus: int, site: Site | None = None, disk_mib: int = 0) -> None:
        site = site or Site()
        self._host = simulated_host(number)
        self._inventory = Inventory(
            pool=site.pool or SIMULATED_POOL,
            gpus=tuple(f"GPU-sim-{self._host}-{k}" for k in range(gpus)),
            model=SIMULATED_MODEL,
            memory_mib=_GPU_MEMORY_MIB,
            cpu_cores=_CORES_PER_GPU * gpus,
            host_memory_mib=_HOST_MEMORY_PER_GPU_MIB * gpus,
            block=site.block or f"block-{(number - 1) // HOSTS_PER_BLOCK + 1:02d}",
            is_simulated=True,
            disk_mib=disk_mib,
            labels=site.labels,
        )

    @property
    def host(self) -> HostId:
        return self._host

    def inventory(self) -> Inventory:
        return self._inventory

    def samples(self) -> tuple[GpuSample, ...]:
        return ()

    def environment(self, gpus: Iterable[GpuUuid]) -> dict[str, str]:
        return {**visible(gpus), "FAIRLEASE_SIMULATED": "1"}


def visible(gpus: Iterable[GpuUuid]) -> dict[str, str]:
    """The variables that CUDA and the container runtimes read, in the order given.

    By UUID: an index means another device to a program that orders devices another way.
    """
    joined = ",".join(gpus)
    return {"CUDA_VISIBLE_DEVICES": joined, "NVIDIA_VISIBLE_DEVICES": joined}


def simulated(
    cluster: str, first: int = 1, site: Site | None = None, disk_mib: int = 0
) -> tuple[SimulatedDevices, ...]:
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
    return tuple(SimulatedDevices(number, gpus, site, disk_mib) for number in range(first, first + hosts))


def measure(state_dir: Path) -> Machine:
    """The machine as this process may use it: cores of its affinity, memory up to its cgroup's limit, disk.

    Whole MiB, rounded down; memory is 0 where the system does not say.
    """
    return Machine(
        cpu_cores=len(os.sched_getaffinity(0)),
        memory_mib=_memory_mib(_MEMINFO, _MEMORY_LIMITS),
        disk_mib=_disk_mib(state_dir),
    )


def _memory_mib(meminfo: Path, limits: Sequence[Path]) -> int:
    sizes = []
    with contextlib.suppress(OSError):
        total = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo.read_text(encoding="ascii"), re.MULTILINE)
        sizes += [int(total[1]) // 1024] if total else []
    for limit in limits:
        with contextlib.suppress(OSError, ValueError):  # absent in the other version of cgroups, or `max`
            sizes.append(int(limit.read_text(encoding="ascii")) // _MIB)
    return min(sizes, default=0)


def _disk_mib(state_dir: Path) -> int:
    """All that could be free in the file system: its size without what is kept for root.

    Not what is free now: that changes by the minute, and a host whose facts change is another host.
    """
    there = state_dir
    while not there.exists() and there != there.parent:
        there = there.parent
    found = os.statvfs(there)
    return (found.f_blocks - found.f_bfree + found.f_bavail) * found.f_frsize // _MIB
