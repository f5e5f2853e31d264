"""What agents say, on `fl.<cell>.report.<host>.<kind>`. The host is the subject's, never the body's.

An agent repeats a report until the bus has acknowledged it, so every reader takes each one any
number of times. What a report says about time is a claim and decides nothing.
"""

import msgspec

from fairlease_schemas.host import Inventory
from fairlease_schemas.ids import AttemptId
from fairlease_schemas.job import End, Mismatch, Rendezvous


class HostUp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="host-up"):
    """The agent serves this host, and these are its devices."""

    incarnation: str
    inventory: Inventory


class RunReady(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run-ready"):
    """The part of a gang on this host could begin now, and waits for the others (1.15).

    `rendezvous` is where the ranks shall meet, said by the gang's first host: an IP address or host name, and a
    port that is kept free there. What other hosts say of it is not read.
    """

    attempt: AttemptId
    token: str
    rendezvous: Rendezvous | None = None


class RunStarted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run-started"):
    """The part of the attempt on this host runs. `token` is the grant's address, as ordered."""

    attempt: AttemptId
    token: str


class RunGone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run-gone"):
    """Nothing of the attempt is left on this host, or ever was.

    `exit_code` is the process's own (128 + n after signal n); absent when nothing ran or nobody saw
    the end. `end` is what the agent saw: `succeeded`, `failed`, `cancelled` (stopped, or never started
    because the stop came first), `start-failed`, `fault` (of the host) or `lost`; `detail` says more in words.
    `mismatches` are there when it did not start because its checkpoint does not fit (8.3). `evidence` is the digest
    of what is kept of an end that was no good one (8.4), empty for none.
    """

    attempt: AttemptId
    token: str
    end: End
    exit_code: int | None = None
    detail: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    evidence: str = ""


class CheckpointDone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="checkpoint-done"):
    """The manifest of a checkpoint of this attempt arrived; `step` is the training step it holds.

    `digest` is the SHA-256 of the manifest's bytes, which lie beside the checkpoint. `is_bound` when its format can
    be read at no other place than one of its kind (8.3).
    """

    attempt: AttemptId
    token: str
    step: int = 0
    digest: str = ""
    is_bound: bool = False


KINDS = {
    "host-up": HostUp,
    "run-ready": RunReady,
    "run-started": RunStarted,
    "run-gone": RunGone,
    "checkpoint-done": CheckpointDone,
}
"""Kind of the subject to type of the body."""

OWNERS = {"admission": ("run-ready", "run-started", "run-gone", "checkpoint-done"), "health": ("host-up",)}
"""Which service answers which kinds."""
