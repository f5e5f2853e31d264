"""The GPUs of this machine, by NVIDIA's own bindings (`pynvml`, of the package nvidia-ml-py).

Owns the one NVML session of the process. The bindings are imported when GPUs are looked for, so that
a simulated host never needs them. That there is no driver or no GPU is ordinary and told in one line
(`NoGpus`); so is a function that this NVML lacks: what it would have said is left out. A GPU that is
lost later stays in the inventory, because grants name it, and its samples say so until it is back.
Offered are whole GPUs of one model, which is what an inventory can say: MIG is refused, and GPUs of
another model than most are left out by name. What a fault means for jobs is health's business.
"""

import importlib
import logging
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Final

from fairlease.agent.devices import Machine, NoGpus, Site, visible
from fairlease_schemas.host import Inventory
from fairlease_schemas.ids import GpuUuid, HostId, is_name
from fairlease_schemas.telemetry import GpuProcess, GpuSample

log = logging.getLogger("fairlease.agent")

DRIVER_LABEL: Final = "driver"
"""The label under which a host says the version of its driver."""
MAX_PROCESSES: Final = 64
"""Processes of one GPU in a sample; the lowest ids, so that a sample stays a small message."""

_MIB: Final = 1024 * 1024
_BRANDS: Final = frozenset(("nvidia", "tesla", "quadro", "geforce", "graphics", "device"))
_SERIES: Final = frozenset(("rtx", "gtx", "titan"))


class _Gpu:
    """One GPU offered; `handle` is None while it is away, `problem` why."""

    def __init__(self, uuid: GpuUuid, handle: object, model: str, memory_mib: int) -> None:
        self.uuid = uuid
        self.handle: object | None = handle
        self.model = model
        self.memory_mib = memory_mib
        self.problem = ""


class NvmlDevices:
    """The real GPUs of this host, from `open_gpus`."""

    def __init__(self, nvml: ModuleType, gpus: list[_Gpu], host: HostId, inventory: Inventory) -> None:
        self._nvml = nvml
        self._gpus = gpus
        self._host = host
        self._inventory = inventory
        self._is_open = True
        self._lacking: set[str] = set()
        self._turn = threading.Lock()
        self._away = _values(nvml, "UNINITIALIZED", "DRIVER_NOT_LOADED", "GPU_IS_LOST", "RESET_REQUIRED")

    @property
    def host(self) -> HostId:
        return self._host

    def inventory(self) -> Inventory:
        return self._inventory

    def environment(self, gpus: Iterable[GpuUuid]) -> dict[str, str]:
        return visible(gpus)

    def samples(self) -> tuple[GpuSample, ...]:
        """One sample per GPU, in the order of the inventory; several threads take turns."""
        with self._turn:
            if not self._is_open:
                self._reopen()
            return tuple(self._sample(gpu) for gpu in self._gpus)

    def close(self) -> None:
        """Ends the NVML session."""
        _end(self._nvml)

    def _reopen(self) -> None:
        """A driver that was taken away and came back knows neither us nor the handles it gave."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError:
            return  # the samples say it, per GPU
        self._is_open = True

    def _sample(self, gpu: _Gpu) -> GpuSample:
        try:
            if gpu.handle is None:
                gpu.handle = self._nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
            said = self._read(gpu.handle)
        except self._nvml.NVMLError as error:
            self._is_open = self._is_open and error.value not in _values(self._nvml, "UNINITIALIZED")
            gpu.handle = None
            self._note(gpu, str(error))
            return GpuSample(gpu=gpu.uuid, problem=gpu.problem)
        self._note(gpu, "")
        return GpuSample(gpu=gpu.uuid, **said)

    def _read(self, handle: object) -> dict[str, Any]:
        """All that can be read of a GPU; an NVMLError only when the GPU or the driver is away."""
        said: dict[str, Any] = {}
        for what, read in _READINGS.items():
            try:
                said |= read(self._nvml, handle)
            except self._nvml.NVMLError as error:
                if error.value in self._away:
                    raise
                if what not in self._lacking:
                    self._lacking.add(what)
                    log.info("%s: %s is not sampled: %s", self._host, what, error)
        return said

    def _note(self, gpu: _Gpu, problem: str) -> None:
        """One line when a GPU goes, and one when it is back."""
        if problem and not gpu.problem:
            log.warning("%s: %s is away: %s", self._host, gpu.uuid, problem)
        elif gpu.problem and not problem:
            log.info("%s: %s is back", self._host, gpu.uuid)
        gpu.problem = problem


def open_gpus(site: Site, machine: Machine) -> NvmlDevices:
    """The GPUs of this machine as one host; NoGpus, in one line, when there is none to serve."""
    nvml = _begin()
    try:
        gpus = _offered(nvml)
        driver = _asked(nvml, "nvmlSystemGetDriverVersion")
    except BaseException:
        _end(nvml)
        raise
    inventory = Inventory(
        pool=site.pool or pool_of(gpus[0].model),
        gpus=tuple(gpu.uuid for gpu in gpus),
        model=gpus[0].model,
        memory_mib=min(gpu.memory_mib for gpu in gpus),
        cpu_cores=machine.cpu_cores,
        host_memory_mib=machine.memory_mib,
        block=site.block,
        disk_mib=machine.disk_mib,
        labels={**({DRIVER_LABEL: str(driver)} if driver else {}), **site.labels},
    )
    return NvmlDevices(nvml, gpus, site.host or host_name(), inventory)


def pool_of(model: str) -> str:
    """The pool that a model joins when nobody names one: `NVIDIA H100 80GB HBM3` is `h100`.

    The first word that is no brand, with the next one after a series (`rtx-4090`); `gpu` when none is left.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", model.lower()) if word and word not in _BRANDS]
    pool = "-".join(words[: 2 if words[:1] and words[0] in _SERIES else 1])[:63]
    return pool if is_name(pool) else "gpu"


def host_name() -> HostId:
    """This machine's name as the id of a host: its first part, in `a-z 0-9 -`."""
    name = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")[:63].strip("-")
    return name or "host"


def _values(nvml: ModuleType, *names: str) -> frozenset[int]:
    """The numbers of these errors, of those that the bindings know."""
    return frozenset(getattr(nvml, f"NVML_ERROR_{name}", -1) for name in names)


def _begin() -> ModuleType:
    """The bindings with a session begun; NoGpus when there is no driver that answers."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise NoGpus(f"NVIDIA's bindings are not installed: {error}", "pip install nvidia-ml-py") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if error.value in _values(nvml, "LIBRARY_NOT_FOUND"):
            raise NoGpus("there is no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded") from None
        if error.value in _values(nvml, "DRIVER_NOT_LOADED"):
            raise NoGpus("the NVIDIA driver is not loaded") from None
        if error.value in _values(nvml, "LIB_RM_VERSION_MISMATCH"):
            raise NoGpus(
                "the NVIDIA driver and its library are of different versions",
                "restart the machine, or load the new driver",
            ) from None
        raise NoGpus(f"the NVIDIA driver does not answer: {error}", "see what `nvidia-smi` says") from None
    return nvml


def _end(nvml: ModuleType) -> None:
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        log.debug("NVML does not shut down: %s", error)


def _count(nvml: ModuleType) -> int:
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise NoGpus(f"the NVIDIA driver does not count its GPUs: {error}", "see what `nvidia-smi` says") from None


def _offered(nvml: ModuleType) -> list[_Gpu]:
    """The GPUs that are served, in the driver's order; NoGpus when that is none."""
    gpus = _alike([gpu for index in range(_count(nvml)) if (gpu := _look(nvml, index))])
    if not gpus:
        raise NoGpus("the NVIDIA driver sees no GPU that can be used")
    return gpus


def _look(nvml: ModuleType, index: int) -> _Gpu | None:
    """The GPU at this index; None, with a line, when it cannot be named. NoGpus when it is cut into parts."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = str(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:
        log.warning("GPU %d is left out: %s", index, error)
        return None
    mode = _asked(nvml, "nvmlDeviceGetMigMode", handle)
    if mode and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE:
        raise NoGpus(
            f"GPU {index} ({uuid}) has MIG enabled, and only whole GPUs are served",
            f"switch it off: nvidia-smi -i {index} -mig 0",
        )
    model = _asked(nvml, "nvmlDeviceGetName", handle)
    memory = _asked(nvml, "nvmlDeviceGetMemoryInfo", handle)
    return _Gpu(uuid, handle, str(model or "unknown"), memory.total // _MIB if memory else 0)


def _asked(nvml: ModuleType, function: str, *arguments: object) -> Any:  # noqa: ANN401 - whatever that function returns
    """What a function says that may be lacking; None, with a line, when it says nothing."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError as error:
        log.info("%s: %s", function, error)
        return None


def _alike(gpus: list[_Gpu]) -> list[_Gpu]:
    """The GPUs of the model that most are of, of the first such one; each other is left out with a line."""
    counts = Counter(gpu.model for gpu in gpus)
    model = max(counts, key=lambda name: counts[name], default="")
    for gpu in gpus:
        if gpu.model != model:
            log.warning("%s (%s) is left out: a host offers one model, here %s", gpu.uuid, gpu.model, model)
    return [gpu for gpu in gpus if gpu.model == model]


# what is read of a GPU -------------------------------------------------------------------------------
def _activity(nvml: ModuleType, handle: object) -> dict[str, int]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"busy_permille": rates.gpu * 10, "memory_busy_permille": rates.memory * 10}


def _memory(nvml: ModuleType, handle: object) -> dict[str, int]:
    return {"memory_used_mib": nvml.nvmlDeviceGetMemoryInfo(handle).used // _MIB}


def _power(nvml: ModuleType, handle: object) -> dict[str, int]:
    return {"power_mw": nvml.nvmlDeviceGetPowerUsage(handle)}


def _temperature(nvml: ModuleType, handle: object) -> dict[str, int]:
    """The older function first: a newer driver may have dropped it, an older one never had the other."""
    try:
        celsius = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    except nvml.NVMLError as error:
        if error.value not in _values(nvml, "FUNCTION_NOT_FOUND", "DEPRECATED"):
            raise
        celsius = nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU)
    return {"temperature_c": celsius}


def _processes(nvml: ModuleType, handle: object) -> dict[str, tuple[GpuProcess, ...]]:
    found = [
        GpuProcess(pid=process.pid, memory_mib=None if process.usedGpuMemory is None else process.usedGpuMemory // _MIB)
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    ]
    return {"processes": tuple(sorted(found, key=lambda process: process.pid)[:MAX_PROCESSES])}


def _memory_errors(nvml: ModuleType, handle: object) -> dict[str, int]:
    found = nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    return {"ecc_uncorrected": int(found)}


_READINGS: Final[Mapping[str, Callable[[ModuleType, object], Mapping[str, Any]]]] = {
    "activity": _activity,
    "memory": _memory,
    "power": _power,
    "temperature": _temperature,
    "processes": _processes,
    "memory errors": _memory_errors,
}
