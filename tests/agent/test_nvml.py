"""The agent's reading of NVML, against bindings that are a stub; tests/peers has the real ones."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from fairlease.agent.devices import Machine, NoGpus, Site
from fairlease.agent.nvml import MAX_PROCESSES, NvmlDevices, host_name, open_gpus, pool_of
from fairlease_schemas.ids import is_name
from fairlease_schemas.telemetry import GpuProcess, GpuSample

CODES = {
    "UNINITIALIZED": 1,
    "NOT_SUPPORTED": 3,
    "DRIVER_NOT_LOADED": 9,
    "LIBRARY_NOT_FOUND": 12,
    "FUNCTION_NOT_FOUND": 13,
    "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16,
    "LIB_RM_VERSION_MISMATCH": 18,
}
H100 = "NVIDIA H100 80GB HBM3"


class Refusal(Exception):
    """As `pynvml.NVMLError`: a number, and its text."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.value = CODES[name]


class Stub(ModuleType):
    """Bindings for GPUs of these models. `says[function]` is the error a function ends with, for all GPUs or one."""

    NVMLError = Refusal
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0

    def __init__(self, models: list[str]) -> None:
        super().__init__("pynvml")
        self.models = models
        self.says: dict[str, str] = {}
        self.mig: list[int] = []
        self.calls: list[str] = []
        for name, value in CODES.items():
            setattr(self, f"NVML_ERROR_{name}", value)
        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "580.65.06",
            "nvmlDeviceGetCount": lambda: len(self.models),
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: int(uuid.rpartition("-")[2]),
            "nvmlDeviceGetUUID": lambda index: f"GPU-{index}",
            "nvmlDeviceGetName": lambda index: self.models[index],
            "nvmlDeviceGetMigMode": lambda index: [int(index in self.mig)] * 2,
            "nvmlDeviceGetMemoryInfo": lambda index: SimpleNamespace(total=(100 + index) << 20, used=7 << 20),
            "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=55, memory=20),
            "nvmlDeviceGetPowerUsage": lambda _: 300_000,
            "nvmlDeviceGetTemperature": lambda *_: 50,
            "nvmlDeviceGetTemperatureV": lambda *_: 51,
            "nvmlDeviceGetTotalEccErrors": lambda *_: 2,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [
                SimpleNamespace(pid=9, usedGpuMemory=None),
                SimpleNamespace(pid=3, usedGpuMemory=5 << 20),
            ],
        }
        for function, answer in answers.items():
            setattr(self, function, self._function(function, answer))

    def _function(self, function: str, answer: object) -> object:
        def call(*arguments: object) -> object:
            self.calls.append(function)
            about = f"{function} {arguments[0]}" if arguments else function
            for key in (function, about, f"any {arguments[0]}" if arguments else ""):
                if key in self.says:
                    raise Refusal(self.says[key])
            return answer(*arguments)  # type: ignore[operator]  # a lambda of the table above

        return call


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    bindings = Stub([H100] * 2)
    monkeypatch.setitem(sys.modules, "pynvml", bindings)
    return bindings


def opened() -> NvmlDevices:
    return open_gpus(Site(host="gpu-7"), Machine(96, 1000, 2000))


def refused() -> NoGpus:
    with pytest.raises(NoGpus) as refusal:
        opened()
    assert "\n" not in str(refusal.value)
    return refusal.value


def test_an_inventory_is_what_was_measured_and_what_was_told(stub: Stub) -> None:
    site = Site(host="gpu-7", pool="big", block="a/b", labels={"zone": "a", "driver": "mine"})
    inventory = open_gpus(site, Machine(96, 1000, 2000)).inventory()
    assert (inventory.gpus, inventory.model, inventory.memory_mib) == (("GPU-0", "GPU-1"), H100, 100)
    assert (inventory.cpu_cores, inventory.host_memory_mib, inventory.disk_mib) == (96, 1000, 2000)
    assert (inventory.pool, inventory.block, inventory.is_simulated) == ("big", "a/b", False)
    assert inventory.labels == {"driver": "mine", "zone": "a"}


def test_a_host_without_anything_told_has_a_name_a_pool_and_its_drivers_version(stub: Stub) -> None:
    devices = open_gpus(Site(), Machine(1, 1, 1))
    assert devices.host == host_name()
    assert is_name(devices.host)
    assert (devices.inventory().pool, devices.inventory().labels) == ("h100", {"driver": "580.65.06"})


def test_a_job_sees_the_uuids_it_was_granted_and_nothing_else(stub: Stub) -> None:
    assert opened().environment(("GPU-1",)) == {"CUDA_VISIBLE_DEVICES": "GPU-1", "NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    assert opened().environment(()) == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(
    ("model", "pool"),
    [
        (H100, "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA Graphics Device", "gpu"),
        ("", "gpu"),
    ],
)
def test_a_pool_is_named_by_the_model(model: str, pool: str) -> None:
    assert pool_of(model) == pool


@pytest.mark.parametrize("name", ["Gpu_Node7.example.org", "-", "x" * 80, "a" * 62 + "_b"])
def test_a_machines_name_becomes_an_id(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: name)
    assert is_name(host_name())


@pytest.mark.parametrize(
    ("error", "text", "is_ordinary"),
    [
        ("LIBRARY_NOT_FOUND", "there is no NVIDIA driver", True),
        ("DRIVER_NOT_LOADED", "the NVIDIA driver is not loaded", True),
        ("LIB_RM_VERSION_MISMATCH", "of different versions", False),
        ("NOT_SUPPORTED", "does not answer: NOT_SUPPORTED", False),
    ],
)
def test_a_driver_that_does_not_answer_is_one_line(stub: Stub, error: str, text: str, is_ordinary: bool) -> None:
    stub.says["nvmlInit"] = error
    refusal = refused()
    assert text in str(refusal)
    assert (not refusal.mend) == is_ordinary


def test_bindings_that_are_not_there_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "bindings are not installed" in str(refused())


def test_no_gpu_and_mig_are_refused_and_the_session_is_ended(stub: Stub) -> None:
    stub.mig = [1]
    refusal = refused()
    assert "GPU 1 (GPU-1) has MIG enabled" in str(refusal)
    assert refusal.mend == "switch it off: nvidia-smi -i 1 -mig 0"
    stub.models = []
    assert "sees no GPU" in str(refused())
    assert stub.calls.count("nvmlInit") == stub.calls.count("nvmlShutdown") == 2


def test_the_fewer_gpus_of_another_model_are_left_out_by_name(stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    stub.models = ["NVIDIA T400", H100, H100]
    assert opened().inventory().gpus == ("GPU-1", "GPU-2")
    assert caplog.messages == [f"GPU-0 (NVIDIA T400) is left out: a host offers one model, here {H100}"]


def test_what_an_inventory_cannot_learn_is_left_open(stub: Stub) -> None:
    lacking = ("nvmlDeviceGetMigMode", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlSystemGetDriverVersion")
    stub.says = dict.fromkeys(lacking, "NOT_SUPPORTED")
    inventory = opened().inventory()
    assert (inventory.model, inventory.memory_mib, inventory.pool) == ("unknown", 0, "unknown")
    assert inventory.labels == {}


def test_a_sample_has_all_that_the_driver_says(stub: Stub) -> None:
    assert opened().samples()[1] == GpuSample(
        gpu="GPU-1",
        busy_permille=550,
        memory_busy_permille=200,
        memory_used_mib=7,
        power_mw=300_000,
        temperature_c=50,
        processes=(GpuProcess(pid=3, memory_mib=5), GpuProcess(pid=9)),
        ecc_uncorrected=2,
    )


def test_the_newer_function_for_temperature_is_used_where_the_older_is_gone(stub: Stub) -> None:
    stub.says["nvmlDeviceGetTemperature"] = "FUNCTION_NOT_FOUND"
    assert opened().samples()[0].temperature_c == 51


def test_a_gpu_with_many_processes_makes_a_small_sample(stub: Stub) -> None:
    many = [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in range(1000, 0, -1)]
    stub.nvmlDeviceGetComputeRunningProcesses = lambda _: many
    processes = opened().samples()[0].processes
    assert processes is not None
    assert [process.pid for process in processes] == list(range(1, MAX_PROCESSES + 1))


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND"])
def test_what_cannot_be_sampled_is_told_once(stub: Stub, caplog: pytest.LogCaptureFixture, error: str) -> None:
    stub.says["nvmlDeviceGetPowerUsage"] = error
    devices = opened()
    with caplog.at_level("INFO"):
        samples = (*devices.samples(), *devices.samples())
    assert {sample.power_mw for sample in samples} == {None}
    assert {sample.temperature_c for sample in samples} == {50}
    assert caplog.messages == [f"gpu-7: power is not sampled: {error}"]


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "RESET_REQUIRED"])
def test_a_gpu_that_goes_and_comes_back_is_told_twice(stub: Stub, caplog: pytest.LogCaptureFixture, error: str) -> None:
    devices = opened()
    with caplog.at_level("INFO"):
        whole = devices.samples()
        stub.says = {"any 1": error, "nvmlDeviceGetHandleByUUID GPU-1": error}
        away = [devices.samples(), devices.samples()]
        stub.says = {}
        assert devices.samples() == whole
    assert away == [(whole[0], GpuSample(gpu="GPU-1", problem=error))] * 2
    assert caplog.messages == [f"gpu-7: GPU-1 is away: {error}", "gpu-7: GPU-1 is back"]
    assert devices.inventory().gpus == ("GPU-0", "GPU-1")


def test_a_driver_that_was_taken_away_is_opened_again(stub: Stub) -> None:
    devices = opened()
    whole = devices.samples()
    stub.says = dict.fromkeys(("any 0", "any 1", "nvmlDeviceGetHandleByUUID", "nvmlInit"), "UNINITIALIZED")
    for _ in range(2):
        assert [sample.problem for sample in devices.samples()] == ["UNINITIALIZED"] * 2
    stub.says = {}
    assert devices.samples() == whole
    assert stub.calls.count("nvmlInit") == 3
