"""Real bindings, fake library: NVIDIA's own `pynvml` loads a libnvidia-ml.so.1 that is built here."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlease.runtime import api
from fairlease_schemas.subjects import Subjects
from tests.house.tree import ROOT
from tests.live.witness import as_witness

SOURCE = ROOT / "tests/data/nvml-fake/nvml.c"
PATIENCE_S = 60.0
GPU_IS_LOST, DRIVER_NOT_LOADED, MISMATCH = 15, 9, 18

LOOK = """
import json, logging, sys
import msgspec
logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stderr)
from pathlib import Path
from fairlease.agent.devices import Machine, NoGpus, Site
from fairlease.agent.nvml import open_gpus
def show(value): print(msgspec.json.encode(value).decode(), flush=True)
try:
    devices = open_gpus(Site(host="gpu-7", block="row-a/rack-2", labels={"zone": "a"}), Machine(96, 1000, 2000))
except NoGpus as none:
    show({"none": str(none), "mend": none.mend})
    sys.exit()
show(devices.inventory())
for line in sys.stdin:
    if line.strip() == "close":
        break
    show(devices.samples())
devices.close()
"""


def build(folder: Path, *flags: str) -> Path:
    """A folder with the library in it."""
    folder.mkdir()
    made = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags, "-o", str(made), str(SOURCE)]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    return folder


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml") / "whole")


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("-DWITHOUT_POWER", "-DWITHOUT_MIG", "-DWITHOUT_TEMPERATURE")
    return build(tmp_path_factory.mktemp("nvml") / "old", *flags)


def environment(library: Path, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("FAIRLEASE_", "FAKE_"))}
    paths = f"{ROOT / 'schemas'}{os.pathsep}{ROOT / 'services'}"
    return {**kept, "PYTHONPATH": paths, "LD_LIBRARY_PATH": str(library), **more}


class Look:
    """A process that opens the GPUs, says what it found, and samples them when asked."""

    def __init__(self, library: Path, **more: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", LOOK],
            env=environment(library, **more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.found = self._line()

    def _line(self) -> Any:  # noqa: ANN401 - the JSON that the process prints
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            pytest.fail(self._process.communicate(timeout=PATIENCE_S)[1])
        return json.loads(line)

    def samples(self) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        samples: list[dict[str, Any]] = self._line()
        return samples

    def end(self) -> list[str]:
        """What it said on the way, line by line; it must have ended well, and without a trace."""
        _, said = self._process.communicate("close\n" if self._process.poll() is None else None, timeout=PATIENCE_S)
        assert self._process.returncode == 0, said
        assert "Traceback" not in said
        return said.splitlines()


def run(library: Path, home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command of ours with the fake library in reach."""
    env = environment(library, FAIRLEASE_HOME=str(home), **more)
    command = [sys.executable, "-m", "fairlease", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_eight_gpus_are_an_inventory_and_samples(library: Path) -> None:
    look = Look(library)
    assert look.found == {
        "pool": "h100",
        "gpus": [f"GPU-fake-{k:04d}" for k in range(8)],
        "model": "NVIDIA H100 80GB HBM3 (fake)",
        "memory_mib": 81_559,
        "cpu_cores": 96,
        "host_memory_mib": 1000,
        "disk_mib": 2000,
        "block": "row-a/rack-2",
        "labels": {"driver": "580.65.06", "zone": "a"},
    }
    samples = look.samples()
    assert samples[0] == {
        "gpu": "GPU-fake-0000",
        "busy_permille": 900,
        "memory_busy_permille": 400,
        "memory_used_mib": 1000,
        "power_mw": 512_345,
        "temperature_c": 61,
        "processes": [{"pid": 4242, "memory_mib": 900}],
        "ecc_uncorrected": 3,
    }
    assert [sample["processes"] for sample in samples[1:]] == [[]] * 7
    assert look.end() == []


def test_no_gpu_is_one_line(library: Path) -> None:
    look = Look(library, FAKE_NVML_GPUS="0")
    assert look.found == {"none": "the NVIDIA driver sees no GPU that can be used", "mend": ""}
    assert look.end() == []


def test_no_library_is_one_line(tmp_path: Path) -> None:
    """A file that is no library stands before any real one: this machine may have a driver."""
    (tmp_path / "libnvidia-ml.so.1").touch()
    look = Look(tmp_path)
    assert look.found == {"none": "there is no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded", "mend": ""}
    assert look.end() == []


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"),
        (MISMATCH, "the NVIDIA driver and its library are of different versions"),
        (999, "the NVIDIA driver does not answer: Unknown Error"),
    ],
)
def test_a_driver_that_does_not_answer_is_one_line(library: Path, code: int, text: str) -> None:
    look = Look(library, FAKE_NVML_INIT=str(code))
    assert look.found["none"] == text
    assert look.end() == []


def test_functions_that_are_missing_are_told_once_and_left_out(old_library: Path) -> None:
    look = Look(old_library, FAKE_NVML_GPUS="2")
    assert len(look.found["gpus"]) == 2
    for samples in (look.samples(), look.samples()):
        assert [set(sample) for sample in samples] == [
            {"gpu", "busy_permille", "memory_busy_permille", "memory_used_mib", "processes", "ecc_uncorrected"}
        ] * 2
    assert look.end() == [
        *["nvmlDeviceGetMigMode: Function Not Found"] * 2,
        "gpu-7: power is not sampled: Function Not Found",
        "gpu-7: temperature is not sampled: Function Not Found",
    ]


def test_a_gpu_that_is_lost_says_so_until_it_is_back_and_the_others_go_on(library: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    look = Look(library, FAKE_NVML=str(state), FAKE_NVML_GPUS="3")
    whole = look.samples()
    state.write_text(f"1 {GPU_IS_LOST} 0\n")
    for _ in range(2):
        assert look.samples() == [whole[0], {"gpu": "GPU-fake-0001", "problem": "GPU is lost"}, whole[2]]
    state.write_text("")
    assert look.samples() == whole
    assert look.end() == ["gpu-7: GPU-fake-0001 is away: GPU is lost", "gpu-7: GPU-fake-0001 is back"]


def test_a_gpu_that_is_lost_before_the_agent_comes_is_left_out(library: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text(f"0 {GPU_IS_LOST} 0\n")
    look = Look(library, FAKE_NVML=str(state), FAKE_NVML_GPUS="2")
    assert look.found["gpus"] == ["GPU-fake-0001"]
    assert look.end() == ["GPU 0 is left out: GPU is lost"]


def test_a_gpu_with_mig_is_refused_in_one_line(library: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("1 0 1\n")
    seen = run(library, tmp_path / "home", "serve", "agent", FAKE_NVML=str(state))
    assert seen.returncode == 7
    assert seen.stderr.splitlines() == [
        "fairlease: GPU 1 (GPU-fake-0001) has MIG enabled, and only whole GPUs are served",
        "  switch it off: nvidia-smi -i 1 -mig 0; or simulate some: fairlease serve agent --simulate-gpus 4x8",
    ]


def test_the_doctor_sees_the_gpus(library: Path, tmp_path: Path) -> None:
    seen = run(library, tmp_path / "home", "doctor", "--json", FAIRLEASE_URL="nats://127.0.0.1:1")
    (check,) = [check for check in json.loads(seen.stdout)["checks"] if check["name"] == "devices"]
    assert (check["is_ok"], check["found"]) == (True, "8 x NVIDIA H100 80GB HBM3 (fake), driver 580.65.06")


async def test_up_serves_the_gpus_by_default_and_a_job_sees_its_own(library: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    env = environment(library, FAIRLEASE_HOME=str(home), FAKE_NVML_GPUS="4", FAIRLEASE_LABELS="net=ib")
    words = ("up", "--host", "gpu-7", "--label", "zone=a")
    up = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.live.witness", *words), env=env, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert up.stdout is not None
        said = [(await up.stdout.readline()).decode() for _ in range(3)]
        assert "4 x NVIDIA H100 80GB HBM3 (fake), host gpu-7 in pool h100" in said[2], said
        made = await asyncio.to_thread(run, library, home, "budget", "set", "a", "--weight", "1")
        assert made.returncode == 0, made.stderr
        terms = ("--budget", "a", "--gpus", "2", "--min-runtime", "15m", "--timeout", "1h", "--pool", "h100")
        asked = ("--host-label", "zone=a", "--host-label", "net=ib", "--host-label", "driver=580.65.06", "--follow")
        shown = "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES ${FAIRLEASE_SIMULATED:-real}"
        job = await asyncio.to_thread(run, library, home, "submit", *terms, *asked, "--", "sh", "-c", shown)
        assert job.returncode == 0, job.stderr
        first = "GPU-fake-0000,GPU-fake-0001"
        assert f"{first} {first} real" in job.stdout
        assert [gpu["gpu"] for gpu in (await sampled(home))["gpus"]] == [f"GPU-fake-{k:04d}" for k in range(4)]
    finally:
        up.send_signal(signal.SIGTERM)
        await asyncio.wait_for(up.communicate(), PATIENCE_S)
    assert up.returncode == 0


async def sampled(home: Path) -> Any:  # noqa: ANN401 - the JSON of a sample
    """The newest sample in the telemetry stream of the cell, once there is one."""
    subjects = Subjects("lab")
    client = await as_witness(home, "test", PATIENCE_S)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    wanted = {"last_by_subj": subjects.telemetry("gpu-7", "gpus")}
                    found = await api.request(client, f"STREAM.MSG.GET.{subjects.telemetry_stream}", wanted)
                except api.Refused:
                    await asyncio.sleep(0.1)
                else:
                    return json.loads(base64.b64decode(found["message"]["data"]))
    finally:
        await client.close()
