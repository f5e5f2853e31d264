"""What is kept of an attempt that did not end well (8.4): its last words, and what its host was like then.

The body lies beside the log, on `fl.<cell>.evidence.<host>.<digest>`, and may be erased: the log holds its
digest alone. Nothing here decides anything: times, lines and facts are the agent's word.
"""

from typing import Final

import msgspec

from fairlease_schemas.ids import AttemptId, HostId
from fairlease_schemas.job import End
from fairlease_schemas.telemetry import GpuSample

MAX_BYTES: Final = 16 * 1024
"""A body in canonical form; of more than that the oldest lines are left out."""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a host had left. `load_permille` is the load of the last minute, a thousand for each task; None: unknown."""

    load_permille: int | None = None
    free_memory_mib: int | None = None
    free_disk_mib: int | None = None
    uptime_ms: int | None = None


class FailureEvidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="failure-evidence"):
    """One host's part of the attempt. `lines` are the last it printed, oldest first, with secrets taken out.

    `at_ms` is when this was gathered, by the host's clock; `gpus` are those of the part, without hardware none.
    """

    attempt: AttemptId
    host: HostId
    end: End
    at_ms: int
    exit_code: int | None = None
    detail: str = ""
    lines: tuple[str, ...] = ()
    facts: HostFacts = HostFacts()
    gpus: tuple[GpuSample, ...] = ()
