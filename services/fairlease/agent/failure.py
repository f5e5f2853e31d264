"""What is kept of a run that did not end well (8.4): its last lines, its host and its GPUs, soon after the end.

Gathered once and noted in the run's directory, so that a repeated report names the same body. Best effort in
every part: a disk or a driver that hangs costs that part of the evidence and a few seconds, never the report
of the end. Runs that end together share one look at the GPUs, and while that hangs nobody begins another.
"""

import asyncio
import hashlib
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from fairlease.agent import layout
from fairlease.agent.devices import Devices
from fairlease.agent.output import CUT, read_log
from fairlease.agent.record import Gone
from fairlease.agent.runs import Run
from fairlease.agent.stores import aside
from fairlease.runtime.redaction import redacted
from fairlease_schemas.codec import Unreadable, canonical, nfc, understood
from fairlease_schemas.failure import MAX_BYTES, FailureEvidence, HostFacts
from fairlease_schemas.job import End
from fairlease_schemas.telemetry import GpuSample

log = logging.getLogger("fairlease.agent")
_T = TypeVar("_T")

KIND: Final = "evidence"
"""By which the outbox knows a body of evidence among reports."""
TRIES: Final = 3
"""So often a bus that is there may refuse a body; then the report of the end goes without it."""
PATIENCE_S: Final = 3.0
"""How long the disk and the driver may take, each."""
MAX_LINES: Final = 50
MAX_LINE: Final = 500
MAX_PROCESSES: Final = 8
_TAIL_BYTES: Final = 64 * 1024
_MIB: Final = 1024 * 1024
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_ENDS: Final = frozenset((End.FAILED, End.START_FAILED, End.LOST, End.FAULT, End.RESUME_REFUSED))
_STOPS: Final = frozenset((str(End.TIMED_OUT), str(End.START_FAILED)))
"""What a run may have been stopped for that is no wish of anybody's."""


def is_failure(gone: Gone) -> bool:
    """Whether evidence is kept of such an end."""
    return gone.end in _ENDS or (gone.end is End.CANCELLED and gone.detail in _STOPS)


class Witness:
    """Gathers the evidence of one host's runs."""

    def __init__(self, devices: Devices, home: Path) -> None:
        self._devices = devices
        self._home = home
        self._looking: asyncio.Task[tuple[GpuSample, ...]] | None = None

    async def evidence(self, run: Run, gone: Gone) -> tuple[str, bytes]:
        """The body and its digest, made once for a run; both empty when nothing could be gathered."""
        path = run.directory.path / layout.EVIDENCE
        kept = await _within(lambda: aside(lambda: _kept(path)), b"")
        if not kept:
            kept = await self._gathered(run, gone)
            try:
                layout.write_whole(str(path), kept, is_durable=False)
            except OSError as error:
                log.warning("%s: its evidence is not kept here: %s", run.attempt, error)
        return (hashlib.sha256(kept).hexdigest(), kept) if kept else ("", b"")

    async def _gathered(self, run: Run, gone: Gone) -> bytes:
        nothing: tuple[GpuSample, ...] = ()
        samples = await _within(self._samples, nothing)
        found = FailureEvidence(
            attempt=run.attempt,
            host=self._devices.host,
            end=gone.end,
            at_ms=time.time_ns() // 1_000_000,
            exit_code=gone.exit_code,
            detail=_plain(redacted(gone.detail))[:MAX_LINE],
            lines=await _within(lambda: aside(lambda: last_lines(str(run.directory.path))), ()),
            facts=await _within(lambda: aside(lambda: host_facts(self._home)), HostFacts()),
            gpus=tuple(_small(one) for one in samples if one.gpu in run.facts.gpus),
        )
        return bounded(found)

    async def _samples(self) -> tuple[GpuSample, ...]:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(aside(self._devices.samples))
        return await asyncio.shield(self._looking)

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()


async def _within(call: Callable[[], Awaitable[_T]], otherwise: _T) -> _T:
    """The answer, or the other one when it does not come in time or is an error."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await call()
    except Exception as error:  # noqa: BLE001 - a part of the evidence is missing, whatever the driver or the disk said
        log.warning("a part of the evidence is missing: %s: %s", type(error).__name__, error)
        return otherwise


def _kept(path: Path) -> bytes:
    """What was gathered before; nothing when there is none, or it was spoiled."""
    try:
        data = layout.content(str(path), MAX_BYTES)
        understood(data, FailureEvidence)
    except (FileNotFoundError, layout.Spoiled, Unreadable):
        return b""
    return data


def bounded(found: FailureEvidence) -> bytes:
    """The canonical bytes, at most `MAX_BYTES`: first the oldest lines go, then the GPUs' processes, then GPUs."""
    data = canonical(found)
    while len(data) > MAX_BYTES and found.lines:
        found = msgspec.structs.replace(found, lines=found.lines[1 + len(found.lines) // 8 :])
        data = canonical(found)
    if len(data) > MAX_BYTES:
        bare = tuple(msgspec.structs.replace(gpu, processes=None) for gpu in found.gpus)
        found = msgspec.structs.replace(found, gpus=bare)
        data = canonical(found)
    while len(data) > MAX_BYTES and found.gpus:
        found = msgspec.structs.replace(found, gpus=found.gpus[: len(found.gpus) // 2])
        data = canonical(found)
    return data


def last_lines(directory: str) -> tuple[str, ...]:
    """The last lines that a run printed, oldest first, as text without controls and without secrets.

    A line of which the beginning is not there is left out: half a secret has no form to be known by.
    """
    _, _, total = read_log(directory, 1 << 62, 1)
    data, _, _ = read_log(directory, max(0, total - _TAIL_BYTES), _TAIL_BYTES)
    text = data.decode(errors="replace")
    _, cut, behind = text.rpartition(CUT)
    if cut or total > _TAIL_BYTES:
        text = behind.partition("\n")[2].partition("\n")[2] if cut else text.partition("\n")[2]
    lines = _plain(redacted(_plain(text))).split("\n")
    return tuple(line[:MAX_LINE] for line in lines if line.strip())[-MAX_LINES:]


def _plain(text: str) -> str:
    """Lines of text: no escapes, every control left out; what a progress bar overwrote is a line of its own."""
    return nfc(_CONTROLS.sub("", "\n".join(_ESCAPES.sub("", text).splitlines())))


def host_facts(home: Path) -> HostFacts:
    """What this machine has left now; the disk is that of the state directory."""
    memory = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    disk = os.statvfs(home)
    return HostFacts(
        load_permille=round(os.getloadavg()[0] * 1000),
        free_memory_mib=int(memory[1]) // 1024 if memory else None,
        free_disk_mib=disk.f_bavail * disk.f_frsize // _MIB,
        uptime_ms=layout.boot_ms(),
    )


def _small(sample: GpuSample) -> GpuSample:
    processes = sample.processes[:MAX_PROCESSES] if sample.processes else None
    return msgspec.structs.replace(sample, processes=processes, problem=_plain(sample.problem)[:MAX_LINE])
