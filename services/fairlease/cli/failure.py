"""What is kept of an attempt that did not end well (8.4): read beside the log, checked by its digest, shown.

The explainer names digests; the bodies are read from their store, of the last attempt that has any and of a few
of its hosts. One that is gone, because it was erased or is older than 30 days, is said to be gone.
"""

import contextlib
import hashlib
from typing import Any, Final, NamedTuple

import msgspec
import nats.errors

from fairlease.cli.link import Link
from fairlease.cli.table import printable
from fairlease.cli.wording import length
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.explain import JobView
from fairlease_schemas.failure import FailureEvidence, HostFacts
from fairlease_schemas.subjects import VERBS
from fairlease_schemas.telemetry import GpuSample

MAX_HOSTS: Final = 4
FEW_LINES: Final = 20
"""How many of the last lines are told by `submit --wait`."""
_GIB: Final = 1024
_PATIENCE_S: Final = 5.0


class Kept(NamedTuple):
    """The evidence of one host's part; `body` and `found` are absent where it is not there any more."""

    attempt: str
    host: str
    digest: str
    body: bytes | None
    found: FailureEvidence | None


async def evidence(link: Link, view: JobView) -> list[Kept]:
    """What is kept of the last attempt that has evidence, at most of `MAX_HOSTS` hosts, the first to end first."""
    attempt = next((one for one in reversed(view.attempts) if one.evidence), None)
    if attempt is None:
        return []
    parts = list(attempt.evidence.items())[:MAX_HOSTS]
    return [await _read(link, attempt.attempt, host, digest) for host, digest in parts]


async def _read(link: Link, attempt: str, host: str, digest: str) -> Kept:
    try:
        subject = link.subjects.evidence(host, digest)
        request = f"{VERBS}.DIRECT.GET.{link.subjects.evidence_stream}.{subject}"
        body = (await link.client.request(request, b"", timeout=_PATIENCE_S)).data
        if hashlib.sha256(body).hexdigest() != digest:
            return Kept(attempt, host, digest, None, None)
        return Kept(attempt, host, digest, body, understood(body, FailureEvidence))
    except (nats.errors.Error, Unreadable):
        return Kept(attempt, host, digest, None, None)


def with_evidence(raw: bytes, kept: list[Kept]) -> bytes:
    """The view as data, with the bodies under `evidence`; untouched where there are none."""
    if not kept:
        return raw
    view: dict[str, Any] = msgspec.json.decode(raw)
    view["evidence"] = [{"attempt": one.attempt, "host": one.host, "digest": one.digest} | _data(one) for one in kept]
    return msgspec.json.encode(view)


def _data(one: Kept) -> dict[str, Any]:
    """The body as data; what nests so deep that it fits in no view is not there."""
    with contextlib.suppress(Unreadable):
        return {"is_there": True, **understood(one.body, dict[str, Any])} if one.body else {"is_there": False}
    return {"is_there": False}


def page(kept: list[Kept]) -> str:
    """The evidence as a person reads it: by host its facts, its GPUs, the last lines."""
    return "".join(f"\n{text}" for one in kept for text in ("\n".join(_part(one)) + "\n",))


def last_lines(kept: list[Kept]) -> list[str]:
    """The last few lines of the part that ended first, for a terminal; nothing where it printed nothing."""
    found = next((one.found for one in kept if one.found is not None and one.found.lines), None)
    return [printable(line) for line in found.lines[-FEW_LINES:]] if found is not None else []


def _part(one: Kept) -> list[str]:
    if one.found is None:
        return [f"{one.attempt} on {one.host}: what was kept of its end is not there any more"]
    lines = [f"{one.attempt} on {one.host}", *(f"  {text}" for text in _facts(one.found.facts))]
    lines += [f"  {_gpu(gpu)}" for gpu in one.found.gpus]
    lines += [f"  | {printable(line)}" for line in one.found.lines]
    return lines


def _facts(facts: HostFacts) -> list[str]:
    told = []
    if facts.load_permille is not None:
        told.append(f"load {facts.load_permille // 1000}.{facts.load_permille % 1000 // 10:02}")
    if facts.free_memory_mib is not None:
        told.append(f"{_size(facts.free_memory_mib)} of memory free")
    if facts.free_disk_mib is not None:
        told.append(f"{_size(facts.free_disk_mib)} of disk free")
    if facts.uptime_ms is not None:
        told.append(f"up {length(facts.uptime_ms)}")
    return [", ".join(told)] if told else []


def _gpu(gpu: GpuSample) -> str:
    told = [f"problem: {printable(gpu.problem)}"] if gpu.problem else []
    if gpu.temperature_c is not None:
        told.append(f"{gpu.temperature_c} °C")
    if gpu.memory_used_mib is not None:
        told.append(f"{_size(gpu.memory_used_mib)} used")
    if gpu.ecc_uncorrected is not None:
        told.append(f"{gpu.ecc_uncorrected} uncorrected memory errors")
    return f"{printable(gpu.gpu)}: {', '.join(told) or 'nothing was to be had'}"


def _size(mib: int) -> str:
    return f"{mib // _GIB} GiB" if mib >= _GIB else f"{mib} MiB"
