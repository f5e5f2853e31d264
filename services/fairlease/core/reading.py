"""What may be read of a cell at one position of its log: views of the state and of what is derived from it.

The other half, how a record changes it, is the world (world.py), which is one of these and their only writer. A view is
never a copy: read it between two records.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from fairlease.core import job as lives
from fairlease.core.budget import Piece, Tree, Uncharged
from fairlease.core.change import Proposal
from fairlease.core.dependency import Dependents
from fairlease.core.dues import Dues
from fairlease.core.fairshare.usage import Lumps, Meter
from fairlease.core.fleet import Fleet
from fairlease.core.line import Line
from fairlease.core.membership import Members
from fairlease.core.outcome import Evaluations
from fairlease.core.starts import Starts
from fairlease.core.state import Cycle, OpenReason, Promise, PromiseBook, Reservation, State
from fairlease.core.stay import Stays, Tenure, Turns
from fairlease.core.waits import Reasons
from fairlease_schemas.envelope import Address
from fairlease_schemas.ids import AttemptId, BudgetId, HostId, JobId, PoolId, job_of
from fairlease_schemas.policy import Policy

_NOTHING_HELD: Final = Meter()
_NO_LUMPS: Final = Lumps()


class Reading:
    """One cell at one position of its log, to be looked at."""

    def __init__(self, state: State | None = None) -> None:
        self._s = state if state is not None else State()
        self.fleet = Fleet(self._s.hosts, self._s.schedulable)
        self.line = Line()
        self.dependents = Dependents(self._s.jobs)
        self.evaluations = Evaluations(self._s.jobs, self._s.outcomes)
        self.dues = Dues(self._s.jobs)
        self.turns = Turns(self._s)
        self._reasons = Reasons(self._s.reasons)
        self._live: dict[AttemptId, JobId] = {}
        self._stillborn: dict[AttemptId, JobId] = {}
        self._overtaken: dict[AttemptId, JobId] = {}
        self._lane: dict[AttemptId, int] = {}
        self._sized: dict[AttemptId, JobId] = {}
        self._stays = Stays(self._s)

    @property
    def epoch(self) -> int:
        return self._s.epoch

    @property
    def position(self) -> int:
        return self._s.position

    @property
    def log_time_ms(self) -> int:
        return self._s.log_time_ms

    @property
    def began_ms(self) -> int:
        """Log time of the first record; 0 before it."""
        return self._s.began_ms

    @property
    def log_digest(self) -> str:
        """SHA-256 of the digest before the last record and that record's id, in hex; empty before the first."""
        return self._s.log_digest

    @property
    def proposals(self) -> Mapping[str, Proposal]:
        """Open proposals of changes, by name (10.1)."""
        return self._s.proposals

    @property
    def changed_position(self) -> int:
        """The last position that changed the policy or the tree."""
        return max(self._s.policy_address, self._s.tree_address).position

    @property
    def starts(self) -> Starts:
        """How long jobs waited for their first start lately, by kind."""
        return self._s.starts

    @property
    def policy_name(self) -> str:
        return self._s.policy_name

    @property
    def policy(self) -> Policy | None:
        """The numbers in force; None only before the log's first record."""
        return self._s.policy

    @property
    def policy_address(self) -> Address:
        return self._s.policy_address

    @property
    def jobs(self) -> Mapping[JobId, lives.Job]:
        return self._s.jobs

    @property
    def live(self) -> Mapping[AttemptId, JobId]:
        """Attempts that hold GPUs, with their jobs, by grant."""
        return self._live

    @property
    def sized(self) -> Mapping[AttemptId, JobId]:
        """Live attempts whose contracts ask for CPU, memory or disk by number, with their jobs."""
        return self._sized

    @property
    def stillborn(self) -> Mapping[AttemptId, JobId]:
        """Live attempts that never run: their jobs were over, or held, before the grant."""
        return self._stillborn

    @property
    def overtaken(self) -> Mapping[AttemptId, JobId]:
        """Live attempts that nobody has asked to stop, of jobs that a cancel has ended or a hold has taken."""
        return self._overtaken

    @property
    def longest_lease_ms(self) -> int:
        """The longest lease that any policy so far gave to hosts."""
        return self._s.longest_lease_ms

    @property
    def breaker(self) -> Mapping[PoolId, int]:
        """When the circuit breaker of a pool last stopped a hold (7.3)."""
        return self._s.breaker

    @property
    def lost(self) -> Mapping[AttemptId, Sequence[HostId]]:
        """Live attempts with parts on hosts whose leases were lost, with those hosts, in the order of the losses."""
        return self._s.lost

    @property
    def lane(self) -> Mapping[AttemptId, int]:
        """Live attempts of the debug lane, with their GPUs."""
        return self._lane

    def tenure(self, policy: Policy, pool: PoolId, now_ms: int) -> Tenure:
        """The live attempts of a pool as a step under that policy weighs them then."""
        return self._stays.of(policy, pool, self.fleet.frame(pool), now_ms)

    @property
    def tree(self) -> Tree:
        return self._s.pieces[-1].tree if self._s.pieces else Tree()

    @property
    def pieces(self) -> Sequence[Piece]:
        return self._s.pieces

    @property
    def cycle(self) -> Cycle:
        return self._s.cycle

    @property
    def reservations(self) -> Mapping[JobId, Reservation]:
        return self._s.reservations

    @property
    def promises(self) -> Mapping[JobId, Promise]:
        return self._s.promises

    @property
    def promise_book(self) -> PromiseBook:
        return self._s.promise_book

    @property
    def closed_ms(self) -> int:
        """Log time at which the last cycle was closed."""
        return self._s.closed_ms

    @property
    def tree_address(self) -> Address:
        """The event that last changed the tree."""
        return self._s.tree_address

    @property
    def members(self) -> Members:
        """Roles by budget and account (1.1)."""
        return self._s.members

    @property
    def uncharged(self) -> Mapping[AttemptId, Uncharged]:
        return self._s.uncharged

    @property
    def ordered(self) -> Mapping[HostId, int]:
        """Per host the position that last changed what it shall run."""
        return self._s.ordered

    def scope_position(self, scope: str) -> int:
        """The position of the scope's last record; 0 before the first."""
        return self._s.scopes.get(scope, 0)

    def cursor(self, service: str, stream: str) -> int:
        """The greatest sequence of a stream that the service has answered; 0 before the first."""
        return self._s.cursors.get(service, {}).get(stream, 0)

    def reasons_of(self, service: str) -> Mapping[str, OpenReason]:
        """Reasons in force by that service: subject to reason."""
        return self._reasons.of(service)

    def has_reasons(self, service: str) -> bool:
        """Whether the service has any reason in force."""
        return bool(self._reasons.of(service))

    def next_turn_ms(self, after_ms: int) -> int:
        """The first instant after `after_ms` at which time alone gives a cycle something to weigh; else beyond all.

        A live attempt's protection ends then, or what a reason said to wait for is due.
        """
        return min(self.turns.next_ms(after_ms), self._reasons.next_end_ms(after_ms))

    def reason(self, service: str, subject: str) -> OpenReason | None:
        return self._s.reasons.get(f"{service}:{subject}")

    def held(self, budget: BudgetId, pool: PoolId) -> Meter:
        """GPUs that the leaf's budgeted attempts hold in the pool, over time. Not to be written to."""
        return self._s.held.get(f"{budget}/{pool}", _NOTHING_HELD)

    def lumps(self, budget: BudgetId, pool: PoolId) -> Lumps:
        """Surcharges less credits of the leaf in the pool. Not to be written to."""
        return self._s.lumps.get(f"{budget}/{pool}", _NO_LUMPS)

    def attempt(self, attempt: AttemptId) -> tuple[lives.Job, lives.Attempt] | None:
        """A live attempt with its job."""
        job = self._s.jobs.get(job_of(attempt))
        if job is None or job.live is None or job.live.id != attempt:
            return None
        return job, job.live
