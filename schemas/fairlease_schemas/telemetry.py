"""What devices do, as agents sample it (subject `telemetry`, kind by kind).

Kept for days, lost without harm, and never an input of a decision: what a decision needs is an event.
The time of a sample is the bus's, as for every message. A field that is absent was not to be had: the
driver lacks the function, or the device does not measure it.
"""

from typing import Final

import msgspec

from fairlease_schemas.ids import GpuUuid

GPUS: Final = "gpus"
"""The kind, last token of the subject, whose body is `GpusSampled`."""


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that computes on a GPU, by its id on the host."""

    pid: int
    memory_mib: int | None = None


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU at one moment. `problem` is why nothing could be read of it, in the driver's words.

    `ecc_uncorrected` counts memory errors that could not be corrected since the driver was loaded.
    """

    gpu: GpuUuid
    busy_permille: int | None = None
    memory_busy_permille: int | None = None
    memory_used_mib: int | None = None
    power_mw: int | None = None
    temperature_c: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    problem: str = ""
    ecc_uncorrected: int | None = None


class GpusSampled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="gpus-sampled"):
    """The GPUs of a host, in the order of its inventory."""

    gpus: tuple[GpuSample, ...]
