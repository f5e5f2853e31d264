"""What this host's devices do, told to whoever wants to know: one sample per host each ten seconds.

Best effort in every way: nothing is kept when the bus is away, nothing is sent again, and a driver that
hangs holds up the samples and nothing else. Simulated devices do nothing, and nothing is said of them.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import nats.errors

from fairlease.agent.devices import Devices
from fairlease.agent.stores import aside
from fairlease_schemas.codec import canonical
from fairlease_schemas.ids import HostId
from fairlease_schemas.telemetry import GPUS, GpusSampled

PERIOD_S: Final = 10.0

Send = Callable[[HostId, str, bytes], Awaitable[None]]
"""Takes a sample of a host, its kind and its body, and gets it across or not."""


async def tell(send: Send, hosts: Sequence[Devices], heard: asyncio.Event, period_s: float = PERIOD_S) -> None:
    """Samples every host that has hardware, for ever, once somebody can have `heard`; returns at once when none has."""
    real = [devices for devices in hosts if not devices.inventory().is_simulated]
    while real:
        await heard.wait()
        for devices in real:
            gpus = await aside(devices.samples)
            with contextlib.suppress(nats.errors.Error, OSError):
                await send(devices.host, GPUS, canonical(GpusSampled(gpus=gpus)))
        await asyncio.sleep(period_s)
