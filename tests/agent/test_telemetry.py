"""Samples on their way: of real devices only, again and again, and lost without harm."""

import asyncio
from collections.abc import Iterable

import msgspec
import pytest

from fairlease.agent import telemetry
from fairlease.agent.devices import SimulatedDevices
from fairlease_schemas.codec import canonical
from fairlease_schemas.host import Inventory
from fairlease_schemas.telemetry import GPUS, GpuSample, GpusSampled
from tests.agent.bench import until


class Real:
    """A host with one GPU that gets warmer with every look."""

    host = "gpu-7"
    temperature_c = 0

    def inventory(self) -> Inventory:
        return msgspec.structs.replace(SimulatedDevices(1, 1).inventory(), is_simulated=False)

    def environment(self, gpus: Iterable[str]) -> dict[str, str]:
        return {}

    def samples(self) -> tuple[GpuSample, ...]:
        self.temperature_c += 1
        return (GpuSample(gpu="GPU-0", temperature_c=self.temperature_c),)


class Ear:
    """Where samples arrive, unless it is deaf."""

    def __init__(self) -> None:
        self.is_there = asyncio.Event()
        self.is_deaf = False
        self.heard: list[tuple[str, str, int | None]] = []

    async def hear(self, host: str, kind: str, body: bytes) -> None:
        if self.is_deaf:
            raise OSError("the pipe is broken")
        (gpu,) = msgspec.json.decode(body, type=GpusSampled).gpus
        self.heard.append((host, kind, gpu.temperature_c))


@pytest.mark.asyncio
async def test_samples_come_again_and_again_and_what_is_lost_is_not_sent_again() -> None:
    ear, real = Ear(), Real()
    task = asyncio.create_task(telemetry.tell(ear.hear, [SimulatedDevices(1, 8), real], ear.is_there, 0.01))
    try:
        await asyncio.sleep(0.05)
        assert real.temperature_c == 0, "it was sampled before anybody could hear"
        ear.is_there.set()
        await until(lambda: len(ear.heard) >= 2, "two samples are heard")
        assert ear.heard[:2] == [("gpu-7", GPUS, 1), ("gpu-7", GPUS, 2)]
        ear.is_deaf, lost = True, real.temperature_c + 3
        await until(lambda: real.temperature_c > lost, "samples are lost")
        ear.is_deaf, heard = False, len(ear.heard)
        await until(lambda: len(ear.heard) > heard, "the next one is heard")
        assert (ear.heard[heard][2] or 0) > lost - 1
    finally:
        task.cancel()


@pytest.mark.asyncio
async def test_of_simulated_devices_nothing_is_said() -> None:
    ear = Ear()
    ear.is_there.set()
    await asyncio.wait_for(telemetry.tell(ear.hear, [SimulatedDevices(1, 8)], ear.is_there, 0.01), 5)
    assert ear.heard == []


def test_a_sample_of_a_lost_gpu_holds_nothing_that_was_not_measured() -> None:
    body = canonical(GpusSampled(gpus=(GpuSample(gpu="GPU-0", problem="GPU is lost"),)))
    assert msgspec.json.decode(body) == {
        "type": "gpus-sampled",
        "gpus": [{"gpu": "GPU-0", "problem": "GPU is lost"}],
    }
