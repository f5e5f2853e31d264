"""A job and its attempts: what happened to them so far, and how each event changes that.

`evolve` writes down and never refuses: whether a step is allowed was decided by whoever wrote it.
The surprising choice: a grant may reach a job that is over already, or was held meanwhile (log.md L3);
such an attempt is *stillborn*: it is never ordered, and the next admission record releases it.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

import msgspec

from fairlease_schemas.cycle import EvictionOrdered, GangGranted, Licence, Part
from fairlease_schemas.envelope import Address
from fairlease_schemas.ids import AccountId, AttemptId, BudgetId, HostId, JobId, PoolId, job_of
from fairlease_schemas.job import (
    AttemptEnded,
    AttemptEnding,
    AttemptStarted,
    CheckpointConfirmed,
    End,
    JobAdmitted,
    JobCancelled,
    JobFailed,
    JobHeld,
    JobHoldCleared,
    JobReleased,
    JobRequeued,
    JobSucceeded,
    JobTimedOut,
    JobUnblocked,
    PartGone,
    PartReady,
    Rendezvous,
    Request,
)

replace = msgspec.structs.replace


class Phase(StrEnum):
    """Where a job is. `dependent` waits for other jobs, `held` for a person; the last four are terminal."""

    WAITING = "waiting"
    DEPENDENT = "dependent"
    HELD = "held"
    BACKOFF = "backoff"
    GRANTED = "granted"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"


TERMINAL = frozenset((Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.TIMED_OUT))
KEPT_PREEMPTIONS = 32
MAX_HOSTS_TOLD = 4
"""So many of the hosts that a gang waits for are named, the first in rank order; of the others their number."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a job. `token` is the address of its grant, `parts` its GPUs, one part per host.

    `checkpoint_ms` is when its last checkpoint was confirmed, 0 for never; `caused_gpu_ms` what its victims
    lost when they left for it (2.6). `ending` is the end that was asked for, by `stopped_by` if not its owner,
    `stop_for` the claim it makes room for, `drained_from` the host that drains, with `is_credited` at its
    deadline, `is_moved` for a move (5.8); `gone` are the parts that have left, in the order of their reports.
    `ready` are the hosts whose parts may begin, `rendezvous` is where they meet (1.15); `detail` says more about
    the end that was asked for. `is_clean` when it resumes nothing. `from_step` is the newest step that any attempt
    before it is known to have saved, 0 for none.
    """

    id: AttemptId
    number: int
    pool: PoolId
    parts: tuple[Part, ...]
    token: Address
    granted_ms: int
    window_ms: int
    licence: Licence
    is_stillborn: bool = False
    started: tuple[HostId, ...] = ()
    started_ms: int | None = None
    gone: tuple[PartGone, ...] = ()
    ending: End | None = None
    ending_ms: int = 0
    grace_ms: int = 0
    stop_for: JobId = ""
    checkpoint_ms: int = 0
    caused_gpu_ms: int = 0
    end: End | None = None
    exit_code: int | None = None
    ended_ms: int = 0
    stopped_by: AccountId = ""
    start_limit_ms: int = 0
    drained_from: HostId = ""
    is_credited: bool = False
    ready: tuple[HostId, ...] = ()
    rendezvous: Rendezvous | None = None
    detail: str = ""
    is_clean: bool = False
    from_step: int = 0
    is_moved: bool = False

    @property
    def is_go(self) -> bool:
        """Whether its parts may begin: each can, or there is but one. Once so it stays so."""
        return len(self.parts) == 1 or len(self.ready) == len(self.parts)

    @property
    def not_ready(self) -> tuple[HostId, ...]:
        """The hosts that a gang waits for before it begins, in rank order."""
        if self.is_go:
            return ()
        ready = frozenset(self.ready)
        return tuple(host for host in self.hosts if host not in ready)

    @property
    def gpus(self) -> int:
        return sum(len(part.gpus) for part in self.parts)

    @property
    def hosts(self) -> tuple[HostId, ...]:
        return tuple(part.host for part in self.parts)

    @property
    def is_over(self) -> bool:
        return self.end is not None

    def held_gpu_ms(self, now_ms: int) -> int:
        """GPUs x (release or now - grant) in log time."""
        return self.gpus * ((self.ended_ms if self.is_over else now_ms) - self.granted_ms)

    @property
    def saved_ms(self) -> int:
        """From when on its work is not saved: its last confirmed checkpoint, or its grant."""
        return max(self.granted_ms, self.checkpoint_ms)


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A contract once admitted. `admitted` is its place in line, which a preempted job keeps (3.2).

    `preemptions_ms` are the last instants at which it was told to leave for somebody (5.7), and
    `caused_gpu_ms` what victims have lost for its claim so far, handed to its next attempt. `held_by` is who
    holds it, `cancelled_for` the job whose end ended it (1.11), `rest_ms` what a fault left of its window (7.7).
    `bound_to` is the pool that its last checkpoint can be read in, empty for any, and `is_clean` says that what it
    has saved does not fit and nothing has been saved since: its next attempt begins anew (8.3). `step` is the
    newest that it is known to have saved and not set aside, 0 where nobody said one.
    """

    id: JobId
    account: AccountId
    budget: BudgetId
    request_id: str
    digest: str
    request: Request
    admitted: Address
    submitted_ms: int
    phase: Phase = Phase.WAITING
    attempts: tuple[Attempt, ...] = ()
    retries: int = 0
    waiting_since_ms: int = 0
    backoff_until_ms: int = 0
    preemptions_ms: tuple[int, ...] = ()
    caused_gpu_ms: int = 0
    end: End | None = None
    exit_code: int | None = None
    ended_ms: int = 0
    held_by: AccountId = ""
    held_for: str = ""
    cancelled_for: JobId = ""
    rest_ms: int | None = None
    bound_to: PoolId = ""
    is_clean: bool = False
    step: int = 0

    @property
    def live(self) -> Attempt | None:
        """The attempt that holds GPUs now, if any."""
        return self.attempts[-1] if self.attempts and not self.attempts[-1].is_over else None

    @property
    def gpus(self) -> int:
        return self.request.hosts * self.request.gpus_per_host

    @property
    def is_apart(self) -> bool:
        """Whether it is over or held: an attempt that it may still have is no business of it any more."""
        return self.is_terminal or self.phase is Phase.HELD

    @property
    def pools(self) -> tuple[PoolId, ...]:
        """Where it competes: the pools that it accepts, in order, or the one that its checkpoint keeps it to (8.3)."""
        return (self.bound_to,) if self.bound_to else self.request.pools

    @property
    def window_ms(self) -> int:
        """The window of its next attempt: a whole one, or what a fault left of the last."""
        return self.request.min_runtime_ms if self.rest_ms is None else self.rest_ms

    @property
    def is_idle_work(self) -> bool:
        """Unbudgeted, preemptible at once (1.4)."""
        return self.request.min_runtime_ms == 0

    @property
    def is_terminal(self) -> bool:
        return self.phase in TERMINAL


JobEvent = (
    PartReady
    | AttemptStarted
    | CheckpointConfirmed
    | AttemptEnding
    | PartGone
    | AttemptEnded
    | JobRequeued
    | JobReleased
    | JobUnblocked
    | JobHeld
    | JobHoldCleared
    | JobSucceeded
    | JobFailed
    | JobCancelled
    | JobTimedOut
)


def subject_of(event: JobEvent) -> JobId:
    """The job that the event is about."""
    match event:
        case PartReady() | AttemptStarted() | CheckpointConfirmed() | AttemptEnding() | PartGone() | AttemptEnded():
            return job_of(event.attempt)
        case _:
            return event.job


def begin(event: JobAdmitted, address: Address, at_ms: int) -> Job:
    """The job that an admission makes."""
    return Job(
        id=event.job,
        account=event.account,
        budget=event.budget,
        request_id=event.request_id,
        digest=event.digest,
        request=event.request,
        admitted=address,
        submitted_ms=at_ms,
        waiting_since_ms=at_ms,
        phase=Phase.DEPENDENT if event.is_blocked else Phase.WAITING,
    )


def grant(job: Job, event: GangGranted, address: Address, at_ms: int) -> Job:
    """The job with a new attempt; stillborn when the job was over, or held, before the grant."""
    is_stillborn = job.is_apart
    attempt = Attempt(
        id=event.attempt,
        number=event.number,
        pool=event.pool,
        parts=event.parts,
        token=address,
        granted_ms=at_ms,
        window_ms=event.window_ms,
        licence=event.licence,
        is_stillborn=is_stillborn,
        caused_gpu_ms=job.caused_gpu_ms,
        start_limit_ms=event.start_limit_ms,
        is_clean=job.is_clean,
        from_step=job.step,
    )
    phase = job.phase if is_stillborn else Phase.GRANTED
    return replace(job, attempts=(*job.attempts, attempt), phase=phase, caused_gpu_ms=0)


def preempt(job: Job, event: EvictionOrdered, at_ms: int) -> Job:
    """The job with its live attempt told to leave; for a drain the brake does not count it."""
    is_first = job.live is not None and job.live.ending is None
    job = stop(job, End.PREEMPTED, event.grace_ms, at_ms, claim=event.claim)
    if event.drain:
        attempt = job.live
        if attempt is None or not is_first:
            return job
        told = replace(attempt, drained_from=event.drain, is_credited=event.is_deadline)
        return replace(job, attempts=(*job.attempts[:-1], told))
    if event.licence is Licence.MOVE and job.live is not None and is_first:
        job = replace(job, attempts=(*job.attempts[:-1], replace(job.live, is_moved=True)))
    if job.is_idle_work or not is_first:
        return job
    return replace(job, preemptions_ms=(*job.preemptions_ms[1 - KEPT_PREEMPTIONS :], at_ms))


def stop(
    job: Job, end: End, grace_ms: int, at_ms: int, *, claim: JobId = "", by: AccountId = "", detail: str = ""
) -> Job:
    """The job with its live attempt asked to stop; the first ask stands, its end too unless this is a cancel.

    An eviction decided before a cancel or a failure was known comes after it in the log (log.md L3).
    """
    attempt = job.live
    if attempt is None:
        return job
    first = attempt.ending is None
    stopping = replace(
        attempt,
        ending=end if first or end is End.CANCELLED else attempt.ending,
        ending_ms=at_ms if first else attempt.ending_ms,
        grace_ms=grace_ms if first else attempt.grace_ms,
        stop_for=claim or attempt.stop_for,
        stopped_by=by or attempt.stopped_by,
        detail=detail if first else attempt.detail,
    )
    phase = job.phase if job.is_apart or attempt.is_stillborn else Phase.STOPPING
    return replace(job, attempts=(*job.attempts[:-1], stopping), phase=phase)


def evolve(job: Job, event: JobEvent, at_ms: int) -> Job:
    """The job after the event. Total: an event about a state that is past changes nothing it should not."""
    match event:
        case PartReady():
            return _part_ready(job, event)
        case AttemptStarted():
            return _part_started(job, event, at_ms)
        case CheckpointConfirmed():
            attempt = job.live
            if attempt is None:
                return job
            return replace(
                job,
                attempts=(*job.attempts[:-1], replace(attempt, checkpoint_ms=at_ms)),
                bound_to=attempt.pool if event.is_bound and job.request.is_resumable else "",
                is_clean=False,
                step=max(job.step, event.step),
            )
        case AttemptEnding():
            return stop(job, event.end, event.grace_ms, at_ms, by=event.account, detail=event.detail)
        case PartGone():
            attempt = job.live
            if attempt is None:
                return job
            return replace(job, attempts=(*job.attempts[:-1], replace(attempt, gone=(*attempt.gone, event))))
        case AttemptEnded():
            attempt = job.live
            if attempt is None:
                return job
            over = replace(attempt, end=event.end, exit_code=event.exit_code, ended_ms=at_ms)
            return replace(job, attempts=(*job.attempts[:-1], over))
        case JobRequeued():
            return _requeued(job, event, at_ms)
        case JobReleased():
            return replace(job, phase=Phase.WAITING, backoff_until_ms=0)
        case JobUnblocked():
            return replace(job, phase=Phase.WAITING, waiting_since_ms=at_ms)
        case JobHeld():
            return replace(job, phase=Phase.HELD, held_by=event.account, held_for=event.reason)
        case JobHoldCleared():
            return _hold_cleared(job, event, at_ms)
        case JobSucceeded():
            return replace(job, phase=Phase.SUCCEEDED, end=End.SUCCEEDED, exit_code=0, ended_ms=at_ms)
        case JobFailed():
            return replace(job, phase=Phase.FAILED, end=event.end, exit_code=event.exit_code, ended_ms=at_ms)
        case JobCancelled():
            return replace(
                job,
                phase=Phase.CANCELLED,
                end=End.CANCELLED,
                ended_ms=at_ms,
                cancelled_for=event.cause,
                held_by="",
                held_for="",
            )
        case JobTimedOut():
            return replace(job, phase=Phase.TIMED_OUT, end=End.TIMED_OUT, ended_ms=at_ms)
        case _:
            assert_never(event)


def _requeued(job: Job, event: JobRequeued, at_ms: int) -> Job:
    """The job waits again; one that was held while it was granted stays held, and its backoff runs meanwhile."""
    retries = job.retries + event.counts_as_retry
    until_ms = at_ms + event.backoff_ms if event.backoff_ms else 0
    job = replace(job, retries=retries, waiting_since_ms=at_ms, rest_ms=event.rest_ms, backoff_until_ms=until_ms)
    if event.end is End.RESUME_REFUSED:  # what it has saved is set aside before it begins anew
        job = replace(job, bound_to="", is_clean=True, step=0)
    if job.phase is Phase.HELD:
        return job
    return replace(job, phase=Phase.BACKOFF if event.backoff_ms else Phase.WAITING)


def _hold_cleared(job: Job, event: JobHoldCleared, at_ms: int) -> Job:
    """The job competes again, or waits on for what the event says; one that still has an attempt, for its end."""
    attempt = job.live
    if (
        attempt is not None and attempt.ending is None and not attempt.is_stillborn
    ):  # held and released at once: it stays
        return replace(
            job, phase=Phase.GRANTED if attempt.started_ms is None else Phase.RUNNING, held_by="", held_for=""
        )
    if attempt is not None:
        return replace(job, phase=Phase.STOPPING, held_by="", held_for="")
    phase = Phase.DEPENDENT if event.is_blocked else Phase.BACKOFF if event.backoff_ms else Phase.WAITING
    until_ms = at_ms + event.backoff_ms if event.backoff_ms else 0
    return replace(job, phase=phase, held_by="", held_for="", backoff_until_ms=until_ms, waiting_since_ms=at_ms)


def told_of(late: Sequence[HostId]) -> tuple[tuple[HostId, ...], int]:
    """Of hosts that a gang waits for those that are named, and how many more there are."""
    return tuple(late[:MAX_HOSTS_TOLD]), max(0, len(late) - MAX_HOSTS_TOLD)


def has_got_its_go(before: Job, after: Job) -> bool:
    """Whether the live attempt's parts may begin from here on, and could not before (1.15)."""
    old, new = before.live, after.live
    return old is not None and new is not None and new.is_go and not old.is_go


def due_ms(job: Job) -> int | None:
    """When admission has to look at the job again: its attempt's time-out or start limit, or the end of its backoff."""
    if job.phase is Phase.BACKOFF:
        return job.backoff_until_ms
    attempt = job.live
    if attempt is None or attempt.ending is not None:
        return None
    limit_ms = job.request.timeout_ms
    if attempt.started_ms is None and attempt.start_limit_ms:
        limit_ms = min(limit_ms, attempt.start_limit_ms)
    return attempt.granted_ms + limit_ms


def _part_ready(job: Job, event: PartReady) -> Job:
    """The attempt with one more host whose part may begin."""
    attempt = job.live
    if attempt is None:
        return job
    ready = replace(attempt, ready=_with(attempt, event.host), rendezvous=event.rendezvous or attempt.rendezvous)
    return replace(job, attempts=(*job.attempts[:-1], ready))


def _with(attempt: Attempt, host: HostId) -> tuple[HostId, ...]:
    """The hosts that are ready, this one too. Of one host nobody waits for another: nothing is kept."""
    if len(attempt.parts) == 1 or host in attempt.ready:
        return attempt.ready
    return (*attempt.ready, host)


def _part_started(job: Job, event: AttemptStarted, at_ms: int) -> Job:
    """The attempt with one more host running; the job runs when all do.

    What runs was ready: an agent of an earlier release knows no barrier, and the others must not wait for its word.
    """
    attempt = job.live
    if attempt is None:
        return job
    started = (*attempt.started, event.host)
    is_whole = len(started) == len(attempt.parts)
    attempt = replace(
        attempt,
        started=started,
        started_ms=at_ms if is_whole else attempt.started_ms,
        ready=_with(attempt, event.host),
    )
    phase = Phase.RUNNING if is_whole and job.phase is Phase.GRANTED else job.phase
    return replace(job, attempts=(*job.attempts[:-1], attempt), phase=phase)
