"""Admission: contracts become jobs, reports become a job's life (scope `intake`).

Messages of one record are decided one after another on a *stage* (stage.py). After the messages
come the house duties that log time and other jobs have made due: attempts whose grant and cancel did
not know of each other (stillborn when the cancel came first, overtaken when the grant did), jobs that
waited for others, time-outs, ends of backoffs. A record holds so many events; the next takes up the rest.
"""

from collections.abc import Sequence
from typing import assert_never

from fairlease.core import faults
from fairlease.core import job as jobs
from fairlease.core.budget import refuse_unreadable
from fairlease.core.decision import Decision, decision_ms, is_owed
from fairlease.core.dependency import Fate
from fairlease.core.dues import NEVER_MS
from fairlease.core.evaluation import record
from fairlease.core.flood import gathered
from fairlease.core.hold import NOBODY, cancel, hold, release
from fairlease.core.job import Attempt, Job, Phase
from fairlease.core.policy_rules import RESTART
from fairlease.core.stage import Stage
from fairlease.core.submission import submit
from fairlease.core.world import World
from fairlease_schemas import commands, reports
from fairlease_schemas.address import is_address
from fairlease_schemas.envelope import Answer, LeasesRead, Misshapen, Submitted, TimerFired, Unreadable
from fairlease_schemas.ids import AttemptId, HostId, is_digest, job_id, job_of
from fairlease_schemas.job import (
    AttemptEnded,
    AttemptEnding,
    AttemptStarted,
    CheckpointConfirmed,
    End,
    JobCancelled,
    JobFailed,
    JobHeld,
    JobRefused,
    JobReleased,
    JobRequeued,
    JobSucceeded,
    JobTimedOut,
    JobUnblocked,
    Mismatch,
    PartGone,
    PartReady,
    Rendezvous,
)
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Evidence, Reason

MAX_ADMITTED_PER_RECORD = 200
"""From here on no further message is answered: the next record goes on. One array may be as large."""

MAX_EVENTS_PER_RECORD = 400
"""From here on no duty is done any more in this record."""

MAX_DUTIES_PER_RECORD = 200
MAX_STEP = 10**15
MAX_DETAIL = 300
MAX_MISMATCHES, MAX_VALUE = 8, 120
MAX_FAULTS_TOLD = 8
PORTS = range(1, 1 << 16)
LEASE_LOST = "its host's lease was lost"
REQUEUE_ME = 85
"""What a process leaves with that has saved its state and wants to go on later (1.8)."""
SHORTEST_TURN_MS = 60_000
"""So long an attempt held its GPUs that may go on later though nobody knows that it came further."""
EXIT_CODES = range(-(1 << 31), 1 << 32)
"""What a process can end with anywhere; another number is a slip, and a snapshot could not hold it."""


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """One record for these messages and all that is due; None before the log has a policy."""
    if world.policy is None:
        return None
    answers = _for_one_record(answers)
    now_ms = decision_ms(world, answers)
    stage = Stage(world, world.policy, now_ms)
    for answer in answers:
        _answer(stage, answer)
    _duties(stage)
    if not stage.events and not any(map(is_owed, answers)):
        return None
    return Decision(
        kind="jobs",
        at_ms=now_ms,
        events=gathered(answers, stage.events),
        causes=tuple(sorted(stage.causes)),
        answers=answers,
    )


def due_ms(world: World) -> int | None:
    """The next time-out or end of a backoff."""
    next_ms = world.dues.next_ms()
    return None if next_ms == NEVER_MS else next_ms


def _for_one_record(answers: tuple[Answer, ...]) -> tuple[Answer, ...]:
    """The first of these messages, until the jobs they could make are as many as one record admits.

    Judged from the messages alone and before anything is decided, so that the record's time is theirs.
    """
    jobs_asked = 0
    for place, answer in enumerate(answers):
        if jobs_asked >= MAX_ADMITTED_PER_RECORD:
            return answers[:place]
        if isinstance(answer.said, Submitted):
            array = answer.said.request.array
            jobs_asked += array.count if array is not None else 1
    return answers


def _answer(stage: Stage, answer: Answer) -> None:
    match answer.said:
        case Submitted():
            submit(stage, answer, answer.said)
        case Misshapen():
            said = answer.said
            name = job_id(answer.who, said.budget, said.request_id)
            stage.events.append(JobRefused(job=name, account=answer.who, seq=answer.seq, problems=said.problems))
        case Unreadable():
            stage.events.append(refuse_unreadable(answer, answer.said))
        case commands.CancelJob():
            cancel(stage, answer, answer.said)
        case commands.HoldJob():
            hold(stage, answer, answer.said)
        case commands.ReleaseJob():
            release(stage, answer, answer.said)
        case commands.RecordEvaluation():
            record(stage, answer, answer.said)
        case reports.RunReady():
            _ready(stage, answer.who, answer.said)
        case reports.RunStarted():
            _started(stage, answer.who, answer.said)
        case reports.CheckpointDone():
            _checkpoint(stage, answer.who, answer.said)
        case reports.RunGone():
            _gone(stage, answer.who, answer.said)
        case TimerFired() | LeasesRead():
            pass  # what is due is a duty
        case (
            commands.ChangeBudget()
            | commands.ChangeMember()
            | commands.ChangePolicy()
            | commands.ProposeChange()
            | commands.ReportChange()
            | commands.AcceptChange()
            | commands.CordonHost()
            | commands.ReturnHost()
            | commands.RequestDrain()
            | commands.UndrainHost()
            | reports.HostUp()
        ):
            pass  # for another service
        case _:
            assert_never(answer.said)


def _reported(stage: Stage, host: str, attempt_id: str, token: str) -> tuple[Job, Attempt] | None:
    """The live attempt that this host may report on: it has a part there, and the token is its grant's."""
    job = stage.job(job_of(attempt_id))
    if job is None or job.live is None or job.live.id != attempt_id:
        return None
    attempt = job.live
    if str(attempt.token) != token or host not in attempt.hosts:
        return None
    return job, attempt


def _ready(stage: Stage, host: str, said: reports.RunReady) -> None:
    """A part of a gang may begin (1.15). The first host must say where they meet, or it is not ready."""
    found = _reported(stage, host, said.attempt, said.token)
    if found is None:
        return
    job, attempt = found
    is_first = host == attempt.hosts[0]
    if len(attempt.parts) == 1 or host in attempt.ready or any(part.host == host for part in attempt.gone):
        return
    if is_first and not (said.rendezvous is not None and _can_meet(said.rendezvous)):
        return
    stage.emit(job, PartReady(attempt=attempt.id, host=host, rendezvous=said.rendezvous if is_first else None))


def _can_meet(at: Rendezvous) -> bool:
    return is_address(at.address) and at.port in PORTS


def _started(stage: Stage, host: str, said: reports.RunStarted) -> None:
    found = _reported(stage, host, said.attempt, said.token)
    if found is None:
        return
    job, attempt = found
    if host not in attempt.started and all(part.host != host for part in attempt.gone):
        stage.emit(job, AttemptStarted(attempt=attempt.id, host=host))


def _checkpoint(stage: Stage, host: str, said: reports.CheckpointDone) -> None:
    """A manifest arrived: from now on lost GPU-time is measured from here (8.2)."""
    found = _reported(stage, host, said.attempt, said.token)
    if found is not None:
        step = said.step if 0 <= said.step <= MAX_STEP else 0
        stage.emit(found[0], CheckpointConfirmed(attempt=said.attempt, step=step, is_bound=said.is_bound))


def _gone(stage: Stage, host: str, said: reports.RunGone) -> None:
    found = _reported(stage, host, said.attempt, said.token)
    if found is None:
        return
    job, attempt = found
    if any(part.host == host for part in attempt.gone):
        return
    exit_code = said.exit_code if said.exit_code is not None and said.exit_code in EXIT_CODES else None
    event = PartGone(
        attempt=attempt.id,
        host=host,
        end=End.RESUME_REFUSED if said.mismatches else said.end,
        exit_code=exit_code,
        detail=said.detail[:MAX_DETAIL],
        mismatches=tuple(map(_bounded, said.mismatches[:MAX_MISMATCHES])),
        evidence=said.evidence if is_digest(said.evidence) else "",
    )
    _part_gone(stage, job, event)


def _bounded(mismatch: Mismatch) -> Mismatch:
    return Mismatch(
        field=mismatch.field[:MAX_VALUE], wanted=mismatch.wanted[:MAX_VALUE], found=mismatch.found[:MAX_VALUE]
    )


def _part_gone(stage: Stage, job: Job, event: PartGone) -> Job:
    """Nothing is left on that host; the attempt ends with its last part, and else its other parts are told to stop."""
    job = stage.emit(job, event)
    attempt = job.attempts[-1]
    if len(attempt.gone) == len(attempt.parts):
        return _end(stage, job, attempt)
    if event.end is not End.SUCCEEDED and attempt.ending is None:
        return stage.emit(job, AttemptEnding(attempt=attempt.id, end=event.end, grace_ms=job.request.grace_ms))
    return job


def outcome(attempt: Attempt) -> tuple[End, int | None]:
    """How an attempt whose parts are all gone ended, and the exit code that says so.

    A part that ended by itself speaks before one that was stopped: first a failure, in the order of
    the reports; then what was asked for; then success.
    """
    for part in attempt.gone:
        if part.end not in (End.SUCCEEDED, End.CANCELLED):
            return part.end, part.exit_code
    if any(part.end is End.CANCELLED for part in attempt.gone):
        return attempt.ending or End.CANCELLED, None
    return End.SUCCEEDED, 0


def _end(stage: Stage, job: Job, attempt: Attempt) -> Job:
    """All parts are gone: release, then the terminal event of the job, and a hold after faults on many hosts (7.7)."""
    end, exit_code = outcome(attempt)
    job = stage.emit(job, AttemptEnded(attempt=attempt.id, end=end, exit_code=exit_code))
    if job.is_terminal:
        return job
    terminal = _terminal(stage.policy, job, end, exit_code, stage.now_ms)
    if not isinstance(terminal, JobRequeued):
        stage.end_reason(job)  # of one that was held in the moment of its grant
    job = stage.emit(job, terminal)
    faulty = faults.hosts_of(job, stage.now_ms - stage.policy.fault_span_ms)
    if not job.is_apart and end is End.FAULT and 0 < stage.policy.fault_hosts <= len(faulty):
        told = f"faults on {', '.join(faulty[:MAX_FAULTS_TOLD])}"
        job = stage.emit(job, JobHeld(job=job.id, account=NOBODY, reason=told))
        stage.begin_reason(job.id, Reason.JOB_HELD, Evidence())
    elif job.phase is Phase.BACKOFF and isinstance(terminal, JobRequeued):
        stage.begin_reason(job.id, Reason.RETRY_BACKOFF, Evidence(for_ms=terminal.backoff_ms))
    return job


def _terminal(policy: Policy, job: Job, end: End, exit_code: int | None, now_ms: int) -> jobs.JobEvent:
    """What becomes of the job (1.5, 1.8, 8.4). A success counts; else a cancel stands, and so does a time-out.

    Whatever the end was: a fault or a failure in the grace of either changes nothing.
    What the job did not do itself never counts as a retry: a preemption or drain, and a host's fault, also
    when the process fails while it is being stopped for one. A failure while it is stopped because it did not start
    in time is no failure of its own either: that start has failed (1.15), but where a fault explains it. Nor is it a
    retry when it saved itself and asked to go on, or is to begin anew because its checkpoint does not fit (8.3): that
    once, for a clean start resumes nothing.
    """
    attempt = job.attempts[-1]
    if end is End.SUCCEEDED:
        return JobSucceeded(job=job.id)
    if attempt.ending is End.CANCELLED:
        return JobCancelled(job=job.id, account=attempt.stopped_by or job.account)
    if End.TIMED_OUT in (attempt.ending, end):
        is_again = job.request.on_timeout == "requeue"
        return JobRequeued(job=job.id, end=End.TIMED_OUT) if is_again else JobTimedOut(job=job.id)
    if end in (End.PREEMPTED, End.FAULT):
        backoff_ms = faults.backoff_ms(policy, job, now_ms)
        return JobRequeued(job=job.id, end=end, backoff_ms=backoff_ms, rest_ms=faults.rest_ms(job, attempt))
    if attempt.ending in (End.PREEMPTED, End.FAULT):
        return JobRequeued(job=job.id, end=attempt.ending, rest_ms=faults.rest_ms(job, attempt))
    if attempt.ending is End.START_FAILED and end is End.FAILED:
        return JobFailed(job=job.id, end=End.START_FAILED, exit_code=exit_code)
    if end is End.RESUME_REFUSED and policy.on_resume_refused == RESTART and not attempt.is_clean:
        return JobRequeued(job=job.id, end=end)
    if _goes_on(job, attempt, end, exit_code):
        return JobRequeued(job=job.id, end=end, backoff_ms=policy.retry_backoff_ms)
    if end not in (End.START_FAILED, End.RESUME_REFUSED) and job.retries < job.request.max_retries:
        doubled_ms = policy.retry_backoff_ms << min(job.retries, 30)
        backoff_ms = min(doubled_ms, policy.retry_backoff_cap_ms)
        return JobRequeued(job=job.id, end=end, backoff_ms=backoff_ms, counts_as_retry=True)
    return JobFailed(job=job.id, end=end, exit_code=exit_code)


def _goes_on(job: Job, attempt: Attempt, end: End, exit_code: int | None) -> bool:
    """Whether the job left by itself to go on later from a checkpoint that this attempt is known to have made.

    Without one it would begin where this attempt began, again and again: an ordinary failure. So is a turn that came
    no step further and was over within a minute, for as many of those as the job likes would fill the log.
    """
    has_saved = job.request.is_resumable and attempt.checkpoint_ms > 0
    has_worked = job.step > attempt.from_step or attempt.ended_ms - attempt.granted_ms >= SHORTEST_TURN_MS
    return end is End.FAILED and exit_code == REQUEUE_ME and has_saved and has_worked


def _duties(stage: Stage) -> None:
    """What is due.

    1. Parts on hosts whose leases were lost are gone;
    2. stillborn attempts end, overtaken ones are told to stop;
    3. jobs that waited for others go on, or never will;
    4. time-outs, and ends of backoffs.
    """
    for attempt_id, lost in list(stage.world.lost.items())[:MAX_DUTIES_PER_RECORD]:
        if len(stage.events) < MAX_EVENTS_PER_RECORD:
            _lose(stage, attempt_id, lost)
    for attempt_id, name in list(stage.world.stillborn.items())[:MAX_DUTIES_PER_RECORD]:
        job = stage.job(name)
        if job is not None and job.live is not None and job.live.id == attempt_id:
            job = stage.emit(job, AttemptEnded(attempt=attempt_id, end=End.CANCELLED))
            if not job.is_apart:  # its hold was cleared by somebody who did not know of the grant
                stage.emit(job, JobRequeued(job=job.id, end=End.CANCELLED, rest_ms=job.rest_ms))
    # By id: how a fold came to its index must not show.
    for attempt_id, name in sorted(stage.world.overtaken.items())[:MAX_DUTIES_PER_RECORD]:
        job = stage.job(name)
        if job is not None and job.live is not None and job.live.id == attempt_id and job.live.ending is None:
            end = End.CANCELLED if job.is_terminal else End.PREEMPTED
            stage.emit(job, AttemptEnding(attempt=attempt_id, end=end, grace_ms=job.request.grace_ms))
    world = stage.world
    ready = sorted(world.dependents.ready, key=lambda name: world.jobs[name].admitted) if world.dependents.ready else []
    for name in ready[:MAX_DUTIES_PER_RECORD]:
        if len(stage.events) < MAX_EVENTS_PER_RECORD:
            _unblock(stage, stage.job(name))
    for name in world.dues.until(stage.now_ms)[:MAX_DUTIES_PER_RECORD]:
        if len(stage.events) < MAX_EVENTS_PER_RECORD:
            _due(stage, stage.job(name))


def _lose(stage: Stage, attempt_id: AttemptId, hosts: Sequence[HostId]) -> None:
    """Parts of the attempt stand on hosts whose leases are lost: they are gone (7.6)."""
    for host in hosts:
        job = stage.job(job_of(attempt_id))
        if job is None or job.live is None or job.live.id != attempt_id:
            return
        if all(part.host != host for part in job.live.gone):
            _part_gone(stage, job, PartGone(attempt=attempt_id, host=host, end=End.FAULT, detail=LEASE_LOST))


def _unblock(stage: Stage, job: Job | None) -> None:
    """The job competes from now on, or is over when what it waits for cannot come any more (1.11)."""
    if job is None or job.phase is not Phase.DEPENDENT:
        return
    fate, cause = stage.waits_for(job)
    if fate is Fate.DOOMED:
        stage.doom(job, cause)
    elif fate is Fate.MET:
        stage.end_reason(job)
        stage.emit(job, JobUnblocked(job=job.id))


def _due(stage: Stage, job: Job | None) -> None:
    """A backoff is over, or an attempt has reached its wall limit, or that of its start."""
    if job is None:
        return
    if job.phase is Phase.BACKOFF:
        if job.backoff_until_ms <= stage.now_ms:  # it may have begun in this record, where its time-out was due
            stage.end_reason(job)
            stage.emit(job, JobReleased(job=job.id))
    elif job.live is not None and job.live.ending is None and not job.live.is_stillborn:
        # Before its whole time has passed it is its start that took too long: not all parts of it run (1.15).
        is_over = stage.now_ms >= job.live.granted_ms + job.request.timeout_ms
        end = End.TIMED_OUT if is_over else End.START_FAILED
        detail = "" if is_over else _what_is_missing(job.live)
        stage.emit(job, AttemptEnding(attempt=job.live.id, end=end, grace_ms=job.request.grace_ms, detail=detail))


def _what_is_missing(attempt: Attempt) -> str:
    """Which hosts an attempt that did not start in time waited for; of a large gang the first of them."""
    started = frozenset(attempt.started)
    late = attempt.not_ready or tuple(host for host in attempt.hosts if host not in started)
    named, others = jobs.told_of(late)
    more = f" and {others} more" if others else ""
    what = "never became ready" if attempt.not_ready else "never started"
    return f"{', '.join(named)}{more} {what}"
