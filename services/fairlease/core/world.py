"""The world: the fold of the log up to a position, and the one place that applies events.

`apply` is the only writer; the steps read, by the views of reading.py. State is kept in insertion-ordered dicts and
replaced in place, because copying it for each cycle would cost more than deciding. What can be derived (the line,
occupancy, dues) is an index, left out of `dump` and made again by `load`; so the digest of a dump is the digest of the
fold, however it was reached. Log time is the greatest `at_ms` so far.
"""

import hashlib
from typing import assert_never

import msgspec
from msgspec.structs import replace

from fairlease.core import host as facts
from fairlease.core import job as lives
from fairlease.core.budget import Piece, node_of, owed
from fairlease.core.change import proposed, with_force, with_report
from fairlease.core.fairshare.usage import Lumps, Meter
from fairlease.core.faults import free_for, sound
from fairlease.core.reading import Reading
from fairlease.core.starts import Start, started
from fairlease.core.state import (
    IDLE,
    PLACED,
    RANKED,
    OpenReason,
    Reservation,
    State,
    promise_of,
    use_of,
)
from fairlease_schemas import budget as budget_events
from fairlease_schemas import change as change_events
from fairlease_schemas import cycle as cycle_events
from fairlease_schemas import host as host_events
from fairlease_schemas import job as job_events
from fairlease_schemas import reasons
from fairlease_schemas.envelope import Address, Event, Record
from fairlease_schemas.evaluation import EvaluationRecorded
from fairlease_schemas.ids import JobId, job_of
from fairlease_schemas.policy import PolicyChanged
from fairlease_schemas.subjects import SCOPES

_RareEvent = (
    cycle_events.CycleAbandoned
    | cycle_events.ReservationMade
    | cycle_events.ReservationEnded
    | cycle_events.PromiseMade
    | cycle_events.PromiseEnded
    | facts.HostEvent
    | host_events.LeaseLost
    | host_events.BreakerTripped
    | budget_events.BudgetChanged
    | budget_events.BudgetMemberChanged
    | PolicyChanged
    | job_events.JobRefused
    | job_events.CommandRefused
    | job_events.MessageRefused
    | job_events.RefusalsGathered
    | EvaluationRecorded
    | change_events.ChangeProposed
    | change_events.ChangeSimulated
    | change_events.ChangeForced
    | change_events.ChangeAccepted
    | change_events.ChangeWithdrawn
)
STEPS = ("placement", "preemption")
_STATES = msgspec.msgpack.Decoder(State)


class World(Reading):
    """One cell at one position of its log."""

    def __init__(self, state: State | None = None) -> None:
        super().__init__(state)
        for job in sorted(self._s.jobs.values(), key=_index_order):
            self._index(job)
        self.fleet.recount()
        self._by = ""
        self._basis = 0

    # the one writer --------------------------------------------------------------------------------
    def apply(self, record: Record, position: int) -> None:
        """Fold one record that stands at `position`."""
        state = self._s
        state.position = position
        state.epoch = record.epoch
        state.log_time_ms = now_ms = max(state.log_time_ms, record.at_ms)
        state.began_ms = state.began_ms or now_ms
        state.log_digest = hashlib.sha256(f"{state.log_digest}{record.id}".encode()).hexdigest()
        state.scopes[SCOPES[record.by]] = position
        self._by, self._basis = record.by, record.basis
        if record.by in STEPS and len(record.events) > 1:  # more than the frame of a step
            state.cycle.is_quiet = False
        for index, event in enumerate(record.events):
            self._evolve(event, Address(record.epoch, position, index), now_ms)
        if record.answers:
            cursors = state.cursors.setdefault(record.by, {})
            for answer in record.answers:
                cursors[answer.stream] = max(answer.seq, cursors.get(answer.stream, 0))

    def dump(self) -> bytes:
        """The state in canonical MessagePack: the same log gives the same bytes everywhere."""
        return msgspec.msgpack.encode(self._s)

    def digest(self) -> str:
        """SHA-256, in hex, of the dump without the log's own digest: also where records were folded that have no id."""
        return hashlib.sha256(msgspec.msgpack.encode(replace(self._s, log_digest=""))).hexdigest()

    @classmethod
    def load(cls, data: bytes) -> "World":
        """The world that was dumped; msgspec.ValidationError for anything else."""
        return cls(_STATES.decode(data))

    def _evolve(self, event: Event, address: Address, now_ms: int) -> None:
        """Write down what happened: one case for each event that there is, the commonest first."""
        match event:
            case cycle_events.CycleRanked():
                self._cycle_ranked(event, address, now_ms)
            case cycle_events.CyclePlaced():
                self._cycle_placed(event, address, now_ms)
            case cycle_events.CycleClosed():
                self._s.closed_ms = now_ms
                self._end_cycle(now_ms)
            case reasons.ReasonBegan():
                self._reasons.began(self._by, event.subject, OpenReason(event.code, event.evidence, now_ms, address))
            case reasons.ReasonEnded():
                self._reasons.ended(self._by, event.subject)
            case job_events.JobAdmitted():
                self._job_admitted(event, address, now_ms)
            case cycle_events.GangGranted():
                self._gang_granted(event, address, now_ms)
            case cycle_events.EvictionOrdered():
                self._eviction_ordered(event, now_ms)
            case job_events.AttemptEnded():
                self._attempt_ended(event, address, now_ms)
            case budget_events.AttemptCharged():
                self._attempt_charged(event, now_ms)
            case (
                job_events.PartReady()
                | job_events.AttemptStarted()
                | job_events.CheckpointConfirmed()
                | job_events.AttemptEnding()
                | job_events.PartGone()
                | job_events.JobRequeued()
                | job_events.JobReleased()
                | job_events.JobUnblocked()
                | job_events.JobHeld()
                | job_events.JobHoldCleared()
                | job_events.JobSucceeded()
                | job_events.JobFailed()
                | job_events.JobCancelled()
                | job_events.JobTimedOut()
            ):
                self._job_changed(event, address, now_ms)
            case _:
                self._evolve_rarely(event, address, now_ms)

    def _evolve_rarely(self, event: _RareEvent, address: Address, now_ms: int) -> None:
        match event:
            case cycle_events.CycleAbandoned():
                self._s.cycle.is_quiet = False
                self._end_cycle(now_ms)
                self._news()
            case cycle_events.ReservationMade():
                self._reservation_made(event, address, now_ms)
            case cycle_events.ReservationEnded():
                self._reservation_ended(event)
            case cycle_events.PromiseMade():
                self._promise_made(event, address, now_ms)
            case cycle_events.PromiseEnded():
                self._promise_ended(event)
            case (
                host_events.HostRegistered()
                | host_events.HostHeld()
                | host_events.HostHoldCleared()
                | host_events.DrainPlanned()
                | host_events.DrainProgress()
                | host_events.DrainCompleted()
                | host_events.DrainCancelled()
            ):
                self._host_changed(event, now_ms)
            case host_events.LeaseLost():
                self._lease_lost(event, now_ms)
            case host_events.BreakerTripped():
                self._s.breaker[event.pool] = now_ms
            case budget_events.BudgetChanged():
                self._budget_changed(event, address, now_ms)
            case budget_events.BudgetMemberChanged():
                self._member_changed(event)
            case PolicyChanged():
                self._policy_changed(event, address)
            case change_events.ChangeProposed():
                self._s.proposals[event.proposal] = proposed(event, now_ms)
            case change_events.ChangeSimulated() | change_events.ChangeForced():
                self._change_backed(event, now_ms)
            case change_events.ChangeAccepted() | change_events.ChangeWithdrawn():
                self._s.proposals.pop(event.proposal, None)
            case EvaluationRecorded():
                self.evaluations.recorded(event, now_ms)
            case job_events.JobRefused() | job_events.CommandRefused():
                pass  # a refusal changes no state; the cursor moves with the record
            case job_events.MessageRefused() | job_events.RefusalsGathered():
                pass  # a refusal changes no state; the cursor moves with the record
            case _:
                assert_never(event)

    # jobs --------------------------------------------------------------------------------------------
    def _index(self, job: lives.Job) -> None:
        """Put a job into the derived indexes."""
        attempt = job.live
        if attempt is not None:
            self._occupy(job, attempt)
            self.turns.arm(job)
        elif job.phase is lives.Phase.WAITING:
            self.line.add(job)
        self.dues.arm(job)

    def _job_admitted(self, event: job_events.JobAdmitted, address: Address, now_ms: int) -> None:
        job = self._s.jobs[event.job] = lives.begin(event, address, now_ms)
        self.dependents.admitted(job)
        self.evaluations.admitted(job)
        if job.phase is lives.Phase.WAITING:
            self.line.add(job)
            self._news()

    def _job_changed(self, event: lives.JobEvent, address: Address, now_ms: int) -> None:
        job = self._s.jobs.get(lives.subject_of(event))
        if job is None:
            return
        changed = lives.evolve(job, event, now_ms)
        self._s.jobs[job.id] = changed
        attempt = job.live or changed.live
        if attempt is not None:
            self._stays.changed(attempt.id)
        if changed.phase is not job.phase:
            self.dependents.changed(changed)
            if job.phase is lives.Phase.WAITING:
                self.line.remove(job)
                self._news()
            if changed.phase is lives.Phase.WAITING:
                self.line.add(changed)
                self._news()
            if changed.live is not None:
                self._touch(changed.live)
        elif changed.live is not None and (
            isinstance(event, job_events.AttemptEnding) or lives.has_got_its_go(job, changed)
        ):
            self._touch(changed.live)
        if changed.live is not None:
            self._mark_overtaken(changed, changed.live)
        if isinstance(event, job_events.JobRequeued) and event.end is job_events.End.FAULT:
            self._reserve_after_fault(changed, address, now_ms)
        if isinstance(event, job_events.PartGone):
            self._s.ordered[event.host] = self._s.position  # the part is no longer ordered there
        if lives.due_ms(changed) != lives.due_ms(job):
            self.dues.arm(changed)

    def _gang_granted(self, event: cycle_events.GangGranted, address: Address, now_ms: int) -> None:
        job = self._s.jobs[event.job]
        if job.phase is lives.Phase.WAITING:
            self.line.remove(job)
        job = self._s.jobs[event.job] = lives.grant(job, event, address, now_ms)
        attempt = job.attempts[-1]
        self._occupy(job, attempt)
        kept = self._s.reservations.pop(event.job, None)
        if kept is not None or event.job in self._s.promises:
            self._news()  # what is left of the hosts that were kept is room for others
        self._use_promise(event.job, now_ms)
        if attempt.number == 1 and not job.is_idle_work and not job.request.lane:
            start = Start(now_ms, now_ms - job.waiting_since_ms)
            started(self._s.starts, job.gpus, job.request.min_runtime_ms, start)
        if not job.is_idle_work and not attempt.is_stillborn:
            self._hold(job, attempt, attempt.gpus, now_ms)
        self._touch(attempt)
        self.dues.arm(job)
        self.turns.arm(job)

    def _occupy(self, job: lives.Job, attempt: lives.Attempt) -> None:
        """Index a live attempt."""
        self._live[attempt.id] = job.id
        self._stays.changed(attempt.id)
        if attempt.is_stillborn:
            self._stillborn[attempt.id] = job.id
        if job.request.has_sizes:
            self._sized[attempt.id] = job.id
        if attempt.licence is cycle_events.Licence.DEBUG:
            self._lane[attempt.id] = attempt.gpus
        self.fleet.occupy(attempt.parts, attempt.id)
        self._mark_overtaken(job, attempt)

    def _mark_overtaken(self, job: lives.Job, attempt: lives.Attempt) -> None:
        """Index a live attempt whose job a cancel or hold took without knowing of the grant, until told to stop."""
        if job.is_apart and attempt.ending is None and not attempt.is_stillborn:
            self._overtaken[attempt.id] = job.id
        else:
            self._overtaken.pop(attempt.id, None)

    def _hold(self, job: lives.Job, attempt: lives.Attempt, gpus: int, now_ms: int) -> None:
        key = f"{job.budget}/{attempt.pool}"
        meter = self._s.held.setdefault(key, Meter())
        meter.add(now_ms, gpus, forget_before_ms=self._forget_before_ms())

    def _eviction_ordered(self, event: cycle_events.EvictionOrdered, now_ms: int) -> None:
        job = self._s.jobs.get(job_of(event.attempt))
        if job is None or job.live is None:
            return
        is_first = job.live.ending is None  # one that was stopping already loses nothing for this claim
        job = self._s.jobs[job.id] = lives.preempt(job, event, now_ms)
        self._stays.changed(event.attempt)
        self._mark_overtaken(job, job.attempts[-1])
        self._touch(job.attempts[-1])
        claim = self._s.jobs.get(event.claim)
        if claim is not None and not claim.is_terminal and is_first:
            caused_gpu_ms = claim.caused_gpu_ms + event.lost_gpu_ms
            self._s.jobs[claim.id] = lives.replace(claim, caused_gpu_ms=caused_gpu_ms)

    def _attempt_ended(self, event: job_events.AttemptEnded, address: Address, now_ms: int) -> None:
        found = self.attempt(event.attempt)
        if found is None:
            return
        job, attempt = found
        job = self._s.jobs[job.id] = lives.evolve(job, event, now_ms)
        over = job.attempts[-1]
        self._stays.changed(over.id)
        for index in (self._live, self._stillborn, self._overtaken, self._lane, self._sized):
            index.pop(over.id, None)
        self.fleet.release(over.parts, over.id, now_ms, forget_before_ms=self._forget_before_ms())
        is_budgeted = not job.is_idle_work
        if is_budgeted and not over.is_stillborn:
            self._hold(job, over, -over.gpus, now_ms)
        self._s.uncharged[over.id] = owed(job, over, address)
        self._s.lost.pop(over.id, None)
        self._touch(attempt)
        self._news()

    def _touch(self, attempt: lives.Attempt) -> None:
        """What these hosts shall run changed here."""
        for part in attempt.parts:
            self._s.ordered[part.host] = self._s.position

    def _news(self) -> None:
        self._s.cycle.news_position = self._s.position

    # budgets, policy, hosts --------------------------------------------------------------------------
    def _forget_before_ms(self) -> int:
        """What no lookback can reach any more; twice the present one, in case it is made longer."""
        policy = self._s.policy
        return self._s.log_time_ms - 2 * (policy.lookback_ms if policy else 0)

    def _budget_changed(self, event: budget_events.BudgetChanged, address: Address, now_ms: int) -> None:
        tree = self.tree.with_node(event.budget, node_of(event))
        self._s.tree_address = address
        pieces = self._s.pieces
        if pieces and pieces[-1].from_ms == now_ms:
            pieces.pop()
        pieces.append(Piece(now_ms, tree))
        forget_before_ms = self._forget_before_ms()
        while len(pieces) > 1 and pieces[1].from_ms <= forget_before_ms:
            pieces.pop(0)
        self._news()

    def _member_changed(self, event: budget_events.BudgetMemberChanged) -> None:
        roles = self._s.members.setdefault(event.budget, {})
        roles.pop(event.account, None)
        if event.role:
            roles[event.account] = event.role

    def _attempt_charged(self, event: budget_events.AttemptCharged, now_ms: int) -> None:
        self._s.uncharged.pop(event.attempt, None)
        lump = event.surcharge_gpu_ms - event.credit_gpu_ms
        if lump:
            # At the attempt's end, however late the ledger writes, so that it leaves the lookback with the attempt.
            job = self._s.jobs.get(job_of(event.attempt))
            ended_ms = next((a.ended_ms for a in (job.attempts if job else ()) if a.id == event.attempt), now_ms)
            lumps = self._s.lumps.setdefault(f"{event.budget}/{event.pool}", Lumps())
            lumps.add(ended_ms, lump, forget_before_ms=self._forget_before_ms())

    def _policy_changed(self, event: PolicyChanged, address: Address) -> None:
        before = self._s.policy
        after = event.policy
        if before is None or (before.lease_ms, before.stop_margin_ms) != (after.lease_ms, after.stop_margin_ms):
            self._s.ordered |= dict.fromkeys(self._s.hosts, self._s.position)  # their orders say these lengths
        self._s.longest_lease_ms = max(self._s.longest_lease_ms, event.policy.lease_ms)
        self._s.policy_name = event.name
        self._s.policy = event.policy
        self._s.policy_address = address
        self.turns.forget()
        for name in self._live.values():
            self.turns.arm(self._s.jobs[name])
        self._news()

    def _change_backed(self, event: change_events.ChangeSimulated | change_events.ChangeForced, now_ms: int) -> None:
        proposals = self._s.proposals
        found = proposals.get(event.proposal)
        if found is None:  # such a record nobody writes; a fold takes any
            return
        if isinstance(event, change_events.ChangeSimulated):
            proposals[event.proposal] = with_report(found, event, now_ms)
        else:
            proposals[event.proposal] = with_force(found, event)

    def _lease_lost(self, event: host_events.LeaseLost, now_ms: int) -> None:
        host = self._s.hosts.get(event.host)
        if host is not None:
            self._s.hosts[host.id] = lives.replace(host, fault_ms=now_ms)
        for name in event.attempts:
            if name in self._live:
                self._s.lost[name] = (*self._s.lost.get(name, ()), event.host)

    def _host_changed(self, event: facts.HostEvent, now_ms: int) -> None:
        before = self._s.hosts.get(event.host)
        host = facts.evolve(before, event, now_ms)
        if host is not None:
            self.fleet.put_host(host, now_ms, forget_before_ms=self._forget_before_ms())
            self._s.ordered.setdefault(host.id, self._s.position)  # a first order says how long its lease is
            if before is not None and before.incarnation != host.incarnation:
                self._s.ordered[host.id] = self._s.position  # its order says for which boot it is
            self._news()

    # the cycle -----------------------------------------------------------------------------------------
    def _cycle_ranked(self, event: cycle_events.CycleRanked, address: Address, now_ms: int) -> None:
        cycle = self._s.cycle
        cycle.number, cycle.stage, cycle.stage_ms, cycle.ranked_ms = event.cycle, RANKED, now_ms, now_ms
        cycle.ranked_basis = self._basis
        cycle.ranked, cycle.placed, cycle.address = event, None, address
        cycle.is_cut, cycle.looked_up_to, cycle.is_quiet = event.is_cut, Address(0, 0, 0), True
        if event.is_cut:
            looked_at = self.line.in_order()[: event.first_class + event.classes]
            cycle.looked_up_to = looked_at[-1].head[0] if looked_at else cycle.looked_up_to

    def _cycle_placed(self, event: cycle_events.CyclePlaced, address: Address, now_ms: int) -> None:
        cycle = self._s.cycle
        cycle.stage, cycle.stage_ms, cycle.placed, cycle.address = PLACED, now_ms, event, address
        if event.is_cut:
            cycle.is_cut, cycle.looked_up_to = True, Address(0, 0, 0)

    def _end_cycle(self, now_ms: int) -> None:
        cycle = self._s.cycle
        cycle.stage, cycle.stage_ms, cycle.ranked, cycle.placed = IDLE, now_ms, None, None

    def _reservation_made(self, event: cycle_events.ReservationMade, address: Address, now_ms: int) -> None:
        expires_ms = now_ms + event.for_ms
        self._s.reservations[event.job] = Reservation(event.job, event.pool, event.hosts, expires_ms, address)

    def _reserve_after_fault(self, job: lives.Job, address: Address, now_ms: int) -> None:
        """Hosts of the job's last attempt that the fault spared stay kept for it (7.7), but what is another's."""
        if not job.attempts:  # such a record nobody writes; a fold takes any
            return
        last, policy = job.attempts[-1], self._s.policy
        kept = [one for one in self._s.reservations.values() if now_ms < one.expires_ms]
        hosts = free_for(job.id, sound(last), (*kept, *self._s.promises.values()))
        if hosts and policy is not None and policy.fault_reserve_ms and job.phase is lives.Phase.WAITING:
            until_ms = now_ms + policy.fault_reserve_ms
            self._s.reservations[job.id] = Reservation(job.id, last.pool, hosts, until_ms, address, is_part=True)

    def _reservation_ended(self, event: cycle_events.ReservationEnded) -> None:
        self._s.reservations.pop(event.job, None)
        self._news()

    def _promise_made(self, event: cycle_events.PromiseMade, address: Address, now_ms: int) -> None:
        self._s.promise_book.made += 1
        self._s.promises[event.job] = promise_of(event, address, now_ms)

    def _promise_ended(self, event: cycle_events.PromiseEnded) -> None:
        if self._s.promises.pop(event.job, None) is not None:
            self._s.promise_book.count_end(event.why)
            self._news()

    def _use_promise(self, job: JobId, now_ms: int) -> None:
        """A grant uses the job's promise up: kept when it came by the time promised, void after an outage (6.4)."""
        promise = self._s.promises.pop(job, None)
        if promise is not None:
            margin_ms = self._s.policy.stop_margin_ms if self._s.policy else 0
            self._s.promise_book.count_use(use_of(promise, now_ms, self._s.closed_ms, margin_ms))


def _index_order(job: lives.Job) -> Address:
    """The order in which a fold fills its indexes: live attempts by their grants."""
    return job.live.token if job.live is not None else job.admitted
