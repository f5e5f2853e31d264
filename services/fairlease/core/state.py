"""What the fold of a log is made of: the plain records that a snapshot holds and a digest covers.

Nothing here decides or folds: `World` alone writes to a `State`, and hands it out for reading. Values
that many may hold (a promise, a reservation, a reason) are frozen; the state itself is replaced in
place. What can be derived is not in it.
"""

from enum import StrEnum

import msgspec

from fairlease.core.budget import Piece, Uncharged
from fairlease.core.change import Proposal
from fairlease.core.fairshare.usage import Lumps, Meter
from fairlease.core.host import Host
from fairlease.core.job import Job
from fairlease.core.outcome import Recorded
from fairlease.core.starts import Start
from fairlease_schemas import cycle as cycle_events
from fairlease_schemas import reasons
from fairlease_schemas.envelope import Address
from fairlease_schemas.ids import AccountId, AttemptId, BudgetId, HostId, JobId, PoolId
from fairlease_schemas.policy import Policy

IDLE, RANKED, PLACED = "idle", "ranked", "placed"


class Cycle(msgspec.Struct, kw_only=True):
    """The open or last cycle. `stage` is `idle`, `ranked` or `placed`; `stage_ms` when it began.

    `news_position` is the last position that changed demand, room, standing or policy;
    `ranked_basis` the fold that the last rank saw: the first above the second asks for a new cycle.
    `looked_up_to` is the first submission in the last class that a cut rank named. `is_quiet` while its steps have
    decided nothing.
    """

    number: int = 0
    stage: str = IDLE
    stage_ms: int = 0
    ranked_ms: int = 0
    ranked_basis: int = 0
    news_position: int = 0
    is_cut: bool = False
    looked_up_to: Address = Address(0, 0, 0)
    ranked: cycle_events.CycleRanked | None = None
    placed: cycle_events.CyclePlaced | None = None
    address: Address = Address(0, 0, 0)
    is_quiet: bool = False


class Reservation(msgspec.Struct, frozen=True):
    """Hosts kept for one job until `expires_ms` (5.6); with `is_part` what a fault left of its gang (7.7)."""

    job: JobId
    pool: PoolId
    hosts: tuple[HostId, ...]
    expires_ms: int
    made: Address
    is_part: bool = False


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts that will be free for one job at `start_ms` (6.2)."""

    job: JobId
    pool: PoolId
    hosts: tuple[HostId, ...]
    start_ms: int
    licence: cycle_events.Licence
    made: Address


def promise_of(event: cycle_events.PromiseMade, address: Address, now_ms: int) -> Promise:
    """The promise that the event made at `now_ms`."""
    return Promise(
        job=event.job,
        pool=event.pool,
        hosts=event.hosts,
        start_ms=now_ms + event.start_in_ms,
        licence=event.licence,
        made=address,
    )


class Used(StrEnum):
    """What a promise came to when a grant used it up; the names are those of `PromiseBook`."""

    KEPT = "kept"
    VOIDED = "voided"
    BROKEN = "broken"


def use_of(promise: Promise, now_ms: int, closed_ms: int, stop_margin_ms: int) -> Used:
    """Kept when the grant came by the time promised, void after an outage: no cycle closed in the stop margin (6.4)."""
    if now_ms <= promise.start_ms:
        return Used.KEPT
    return Used.VOIDED if closed_ms < promise.start_ms - stop_margin_ms else Used.BROKEN


def is_served(kept: Reservation | None) -> bool:
    """Whether evictions for the whole of a claim are ordered by now: more than what a fault left it is kept."""
    return kept is not None and not kept.is_part


class PromiseBook(msgspec.Struct, kw_only=True):
    """How promises ended so far (6.4)."""

    made: int = 0
    kept: int = 0
    earlier: int = 0
    voided: int = 0
    broken: int = 0

    def count_end(self, why: cycle_events.PromiseEnd) -> None:
        """A promise was ended by an event."""
        self.earlier += why is cycle_events.PromiseEnd.EARLIER
        self.broken += why is cycle_events.PromiseEnd.BROKEN
        self.voided += why not in (cycle_events.PromiseEnd.EARLIER, cycle_events.PromiseEnd.BROKEN)

    def count_use(self, used: Used) -> None:
        """A grant used a promise up."""
        self.kept += used is Used.KEPT
        self.voided += used is Used.VOIDED
        self.broken += used is Used.BROKEN


class OpenReason(msgspec.Struct, frozen=True):
    """A reason in force, by the service that wrote it, for one subject."""

    code: reasons.Reason
    evidence: reasons.Evidence
    since_ms: int
    began: Address


class State(msgspec.Struct, kw_only=True):
    """Everything that cannot be derived: what a snapshot holds and a digest covers."""

    epoch: int = 1
    position: int = 0
    log_time_ms: int = 0
    scopes: dict[str, int] = {}
    cursors: dict[str, dict[str, int]] = {}
    policy_name: str = ""
    policy: Policy | None = None
    policy_address: Address = Address(0, 0, 0)
    jobs: dict[JobId, Job] = {}
    pieces: list[Piece] = []
    hosts: dict[HostId, Host] = {}
    schedulable: dict[PoolId, Meter] = {}
    held: dict[str, Meter] = {}
    lumps: dict[str, Lumps] = {}
    uncharged: dict[AttemptId, Uncharged] = {}
    cycle: Cycle = msgspec.field(default_factory=Cycle)
    reservations: dict[JobId, Reservation] = {}
    promises: dict[JobId, Promise] = {}
    promise_book: PromiseBook = msgspec.field(default_factory=PromiseBook)
    closed_ms: int = 0
    tree_address: Address = Address(0, 0, 0)
    reasons: dict[str, OpenReason] = {}
    ordered: dict[HostId, int] = {}
    members: dict[BudgetId, dict[AccountId, str]] = {}
    lost: dict[AttemptId, tuple[HostId, ...]] = {}
    breaker: dict[PoolId, int] = {}
    longest_lease_ms: int = 0
    outcomes: dict[str, dict[BudgetId, Recorded]] = {}
    began_ms: int = 0
    log_digest: str = ""
    proposals: dict[str, Proposal] = {}
    starts: dict[str, list[Start]] = {}
