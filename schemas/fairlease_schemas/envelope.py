"""The record: one message of the log, one decision (log.md L2).

Addresses are (epoch, position, index): the log's epoch, the record's stream sequence, the event's
place in it. They compare by that order and are written `e-p-i` where a token is needed.
"""

from typing import Final

import msgspec

from fairlease_schemas import budget, change, commands, cycle, evaluation, host, job, policy, reasons, reports

RECORD_VERSION: Final = 1
MAX_RECORD_BYTES: Final = 256 * 1024


class Address(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Where an event stands; also the fencing token of a grant."""

    epoch: int
    position: int
    index: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.position}-{self.index}"


def parse_address(text: str) -> Address:
    """The address written `e-p-i`; ValueError for anything else."""
    parts = text.split("-")
    if len(parts) != 3 or not all(p.isascii() and p.isdigit() and len(p) <= 18 for p in parts):
        raise ValueError(f"{text[:60]!r} is not an address: write epoch-position-index, for example 1-42-0")
    return Address(*map(int, parts))


class Submitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="submitted"):
    """What admission read of a readable `submit-job`: scheduling fields and digest, never the command line."""

    budget: str
    request_id: str
    digest: str
    request: job.Request


class Misshapen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="misshapen"):
    """A `submit-job` that could be read but is not a contract; the problems were found at the edge."""

    budget: str
    request_id: str
    problems: tuple[job.Problem, ...]


class Unreadable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="unreadable"):
    """A message that is no command or report at all; `field` is what of its CloudEvent is wrong, else empty."""

    size: int
    sha256: str
    error: str
    field: str = ""


class TimerFired(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="timer-fired"):
    """The bus's own word that this instant has passed."""

    due_ms: int


class LeasesRead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="leases-read"):
    """The bus's word that this instant has passed, with what health then read of hosts' leases (7.6).

    `renewed` is by host the bus's timestamp of its last renewal in ms, 0 when there never was one, `leases_ms` the
    length that the renewal says its agent keeps to. They are observations: a replay takes them as they stand.
    """

    due_ms: int
    renewed: dict[str, int] = {}
    leases_ms: dict[str, int] = {}


Said = (
    Submitted
    | Misshapen
    | Unreadable
    | TimerFired
    | LeasesRead
    | commands.CancelJob
    | commands.HoldJob
    | commands.ReleaseJob
    | commands.RecordEvaluation
    | commands.ChangeBudget
    | commands.ChangeMember
    | commands.ChangePolicy
    | commands.ProposeChange
    | commands.ReportChange
    | commands.AcceptChange
    | commands.CordonHost
    | commands.ReturnHost
    | commands.RequestDrain
    | commands.UndrainHost
    | reports.HostUp
    | reports.RunStarted
    | reports.RunGone
    | reports.CheckpointDone
    | reports.RunReady
)

Event = (
    job.JobAdmitted
    | job.JobRefused
    | job.CommandRefused
    | job.MessageRefused
    | job.RefusalsGathered
    | job.PartReady
    | job.AttemptStarted
    | job.AttemptEnding
    | job.CheckpointConfirmed
    | job.PartGone
    | job.AttemptEnded
    | job.JobRequeued
    | job.JobReleased
    | job.JobUnblocked
    | job.JobHeld
    | job.JobHoldCleared
    | job.JobSucceeded
    | job.JobFailed
    | job.JobCancelled
    | job.JobTimedOut
    | budget.BudgetChanged
    | budget.BudgetMemberChanged
    | budget.AttemptCharged
    | policy.PolicyChanged
    | change.ChangeProposed
    | change.ChangeSimulated
    | change.ChangeForced
    | change.ChangeAccepted
    | change.ChangeWithdrawn
    | host.HostRegistered
    | host.HostHeld
    | host.HostHoldCleared
    | host.LeaseLost
    | host.BreakerTripped
    | host.DrainPlanned
    | host.DrainProgress
    | host.DrainCompleted
    | host.DrainCancelled
    | cycle.CycleRanked
    | cycle.GangGranted
    | cycle.CyclePlaced
    | cycle.EvictionOrdered
    | cycle.ReservationMade
    | cycle.ReservationEnded
    | cycle.PromiseMade
    | cycle.PromiseEnded
    | cycle.CycleClosed
    | cycle.CycleAbandoned
    | reasons.ReasonBegan
    | reasons.ReasonEnded
    | evaluation.EvaluationRecorded
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A message this record answers, and the part of it that the decision read.

    `time_ms` is the bus's timestamp of the message, `who` the account, host or service that the
    stream and subject name as its sender.
    """

    stream: str
    seq: int
    time_ms: int
    who: str
    said: Said


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One decision. `id` is the SHA-256 of the canonical record without `id`.

    `at_ms` is log time, `basis` the position whose fold the decision saw, `causes` what it rests on,
    `policy` the name in force there. A record has no position in it: the stream gives that.
    """

    v: int
    at_ms: int
    by: str
    epoch: int
    basis: int
    policy: str
    causes: tuple[Address, ...]
    answers: tuple[Answer, ...]
    events: tuple[Event, ...]
    id: str = ""
