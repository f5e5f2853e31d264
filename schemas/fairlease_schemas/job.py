"""A job's life, as admission records it (scope `intake`)."""

from enum import StrEnum
from typing import Final

import msgspec

from fairlease_schemas.ids import AccountId, AttemptId, BudgetId, HostId, JobId, PoolId
from fairlease_schemas.reasons import Reason


class End(StrEnum):
    """How an attempt ended (decisions.md 8.4)."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"
    START_FAILED = "start-failed"
    PREEMPTED = "preempted"
    FAULT = "fault"
    LOST = "lost"
    RESUME_REFUSED = "resume-refused"


class Constraints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every host of the gang must be (1.3); a field at its default rules nothing out.

    `gpu_models` is any of these, `labels` are equal on the host, `is_same_block` keeps the gang in one block.
    """

    gpu_models: tuple[str, ...] = ()
    min_gpu_memory_mib: int = 0
    labels: dict[str, str] = {}
    is_same_block: bool = False


class After(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that must be over first (1.11): `when` is `ok` (it must have succeeded) or `any`."""

    job: JobId
    when: str = "ok"


class Array(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job's place among `count` like jobs, `index` from 0; absent in what was submitted (1.11).

    At most `parallel` of them compete or run at a time, 0 for all.
    """

    count: int
    parallel: int = 0
    index: int | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduling fields of a contract: all that a decision reads of it.

    `min_runtime_ms` is the window, 0 for idle work. `on_timeout` is `fail` or `requeue`.
    `lane` is empty or `debug`. CPU, memory and disk are per host, 0 for the GPUs' proportional part.
    `start_limit_ms` is how long a gang may take to start (1.15), 0 for what the policy says.
    `state_digest` is the SHA-256 of what a resumed run must match (1.9), empty when nothing was said.
    """

    hosts: int
    gpus_per_host: int
    pools: tuple[PoolId, ...]
    min_runtime_ms: int
    timeout_ms: int
    grace_ms: int
    is_resumable: bool
    on_timeout: str = "fail"
    max_retries: int = 0
    lane: str = ""
    checkpoint_interval_ms: int = 0
    cpu_per_host: int = 0
    memory_per_host_mib: int = 0
    disk_per_host_mib: int = 0
    constraints: Constraints | None = None
    start_limit_ms: int = 0
    after: tuple[After, ...] = ()
    array: Array | None = None
    state_digest: str = ""
    evaluation: str = ""

    @property
    def has_sizes(self) -> bool:
        """Whether it asks for CPU, memory or disk by number."""
        return bool(self.cpu_per_host or self.memory_per_host_mib or self.disk_per_host_mib)


ADMISSION: Final = "admission"
"""The field of the one problem that is not its sender's: no new work is taken now, and the same may be sent later."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing wrong with what was asked: the field, the rule of decisions.md, the limit, the value, the way out."""

    field: str
    rule: str
    value: str = ""
    limit: str = ""
    way_out: str = ""


class Advice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the submitter could do better; never a reason to refuse."""

    field: str
    rule: str
    text: str


class JobAdmitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-admitted"):
    """A contract became a job. `digest` is the SHA-256 of the canonical contract body, kept outside the log.

    `is_blocked` when it waits for other jobs first (1.11).
    """

    job: JobId
    account: AccountId
    budget: BudgetId
    request_id: str
    digest: str
    request: Request
    advice: tuple[Advice, ...] = ()
    is_blocked: bool = False


class JobRefused(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-refused"):
    """The submission at `seq` of the account's inbox was refused; a job that already had this id is not touched."""

    job: JobId
    account: AccountId
    seq: int
    problems: tuple[Problem, ...]


class CommandRefused(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="command-refused"):
    """A well-formed command or report, at `seq` of its sender's stream, that the domain says no to."""

    account: AccountId
    verb: str
    seq: int
    problems: tuple[Problem, ...]


class MessageRefused(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message-refused"):
    """A message nobody can read. Its bytes are not kept, only their size and SHA-256.

    `field` is the header or key of a CloudEvent that is wrong, and empty where it is the message itself.
    """

    stream: str
    seq: int
    size: int
    sha256: str
    error: str
    field: str = ""


class RefusalsGathered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="refusals-gathered"):
    """More messages of this inbox than are told one by one were refused in one record: those at `seqs`.

    `problems` are what was wrong with the first of them.
    """

    account: AccountId
    stream: str
    seqs: tuple[int, ...]
    problems: tuple[Problem, ...]


class Rendezvous(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ranks of a gang meet: the address of its first host, and a port that was free there (1.15)."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class PartReady(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="part-ready"):
    """The part of a gang on this host could begin now; it waits until every part is ready (1.15).

    `rendezvous` is said by the gang's first host, for all of them.
    """

    attempt: AttemptId
    host: HostId
    rendezvous: Rendezvous | None = None


class AttemptStarted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="attempt-started"):
    """The part of an attempt on one host runs; the attempt runs when every part does."""

    attempt: AttemptId
    host: HostId


class AttemptEnding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="attempt-ending"):
    """The attempt is asked to stop, on every host, with this end to come; by `account` when not by its owner.

    `detail` says more in words where there is more to say: which hosts were not ready when the start limit came.
    """

    attempt: AttemptId
    end: End
    grace_ms: int
    account: AccountId = ""
    detail: str = ""


class CheckpointConfirmed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="checkpoint-confirmed"):
    """The attempt has saved its state: lost GPU-time is measured from the log time of this record (8.2).

    With `is_bound` it can be read in no other pool, and the job keeps to the attempt's (8.3).
    """

    attempt: AttemptId
    step: int = 0
    is_bound: bool = False


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that does not fit: what the contract or the host says, and what the manifest says."""

    field: str
    wanted: str
    found: str


class PartGone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="part-gone"):
    """Nothing of the attempt is left on this host.

    `exit_code` is absent where no process gave one; `detail` is then what the agent says about it, `mismatches`
    what of a checkpoint does not fit when it was not resumed (8.3). `evidence` is the SHA-256 of what is kept of it
    outside the log: last lines, host and GPU facts (8.4).
    """

    attempt: AttemptId
    host: HostId
    end: End
    exit_code: int | None = None
    detail: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    evidence: str = ""


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="attempt-ended"):
    """Every part is gone: the only event that releases GPUs. `exit_code` is that of the part that decided the end."""

    attempt: AttemptId
    end: End
    exit_code: int | None = None


class JobRequeued(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-requeued"):
    """The job waits again, at its first submission's place, after `backoff_ms` (0: at once).

    `rest_ms` is what a fault left of its window, and the window of its next attempt (7.7); absent for a whole one.
    """

    job: JobId
    end: End
    backoff_ms: int = 0
    counts_as_retry: bool = False
    rest_ms: int | None = None


class JobReleased(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-released"):
    """A backoff is over: the job competes again."""

    job: JobId


class JobUnblocked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-unblocked"):
    """What the job waited for is over (1.11): it competes from now on."""

    job: JobId


class JobHeld(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-held"):
    """Somebody keeps the job from competing until the hold is cleared."""

    job: JobId
    account: AccountId
    reason: str = ""


class JobHoldCleared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-hold-cleared"):
    """The hold is gone. The job competes, or waits on: for other jobs, or for the rest of its backoff."""

    job: JobId
    account: AccountId
    is_blocked: bool = False
    backoff_ms: int = 0


class JobSucceeded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-succeeded"):
    """The job is done; its exit code was 0."""

    job: JobId


class JobFailed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-failed"):
    """The job is over without success: its own failure, a start that failed, or an attempt that was lost."""

    job: JobId
    end: End
    exit_code: int | None = None


class JobCancelled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-cancelled"):
    """The job is over by the wish of `account`, or for `reason`: the job `cause` did not end as it had to (1.11)."""

    job: JobId
    account: AccountId
    reason: Reason | None = None
    cause: JobId = ""


class JobTimedOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="job-timed-out"):
    """The job's last attempt reached its wall limit, and the contract says that this ends the job."""

    job: JobId
