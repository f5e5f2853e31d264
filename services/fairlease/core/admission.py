"""Admission: contracts become jobs, reports become a job's life (scope `intake`).

Messages of one record are decided one after another on a *stage*: copies of the jobs they touch,
evolved by the events so far, so that a second message sees what the first did. After the messages
come the house duties that log time has made due: time-outs, ends of backoffs, stillborn attempts.
"""

from fairlease.core import job as jobs
from fairlease.core.budget import refuse_unreadable
from fairlease.core.contract_rules import check, effective_request
from fairlease.core.decision import Decision, decision_ms, is_owed
from fairlease.core.job import Attempt, Job, Phase
from fairlease.core.world import NEVER_MS, World
from fairlease_schemas import commands, reports
from fairlease_schemas.envelope import Address, Answer, Event, Misshapen, Submitted, Unreadable
from fairlease_schemas.ids import JobId, job_id, job_of
from fairlease_schemas.job import (
    AttemptEnded,
    AttemptEnding,
    AttemptStarted,
    CheckpointConfirmed,
    CommandRefused,
    End,
    JobAdmitted,
    JobCancelled,
    JobFailed,
    JobRefused,
    JobReleased,
    JobRequeued,
    JobSucceeded,
    JobTimedOut,
    PartGone,
    Problem,
)
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan, ReasonEnded

MAX_DUTIES_PER_RECORD = 200
MAX_STEP = 10**15
EXIT_CODES = range(-(1 << 31), 1 << 32)
"""What a process can end with anywhere; another number is a slip, and a snapshot could not hold it."""


class Stage:
    """The jobs as they stand after the events that this record has gathered so far."""

    def __init__(self, world: World, policy: Policy, now_ms: int) -> None:
        self.world = world
        self.policy = policy
        self.now_ms = now_ms
        self.events: list[Event] = []
        self.causes: set[Address] = set()
        self._touched: dict[JobId, Job] = {}

    def job(self, name: JobId) -> Job | None:
        return self._touched.get(name) or self.world.jobs.get(name)

    def admit(self, event: JobAdmitted) -> None:
        address = Address(self.world.epoch, self.world.position + 1, len(self.events))
        self._touched[event.job] = jobs.begin(event, address, self.now_ms)
        self.events.append(event)

    def emit(self, job: Job, event: jobs.JobEvent) -> Job:
        """Record the event and stage what it makes of the job."""
        self.events.append(event)
        if job.id in self.world.jobs:
            self.causes.add(job.admitted)
            if job.live is not None:
                self.causes.add(job.live.token)
        changed = self._touched[job.id] = jobs.evolve(job, event, self.now_ms)
        return changed


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """One record for these messages and all that is due; None before the log has a policy."""
    if world.policy is None:
        return None
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
        events=tuple(stage.events),
        causes=tuple(sorted(stage.causes)),
        answers=answers,
    )


def due_ms(world: World) -> int | None:
    """The next time-out or end of a backoff."""
    next_ms = world.next_due_ms()
    return None if next_ms == NEVER_MS else next_ms


def _answer(stage: Stage, answer: Answer) -> None:
    match answer.said:
        case Submitted():
            _submit(stage, answer, answer.said)
        case Misshapen():
            said = answer.said
            name = job_id(answer.who, said.budget, said.request_id)
            stage.events.append(JobRefused(job=name, account=answer.who, seq=answer.seq, problems=said.problems))
        case Unreadable():
            stage.events.append(refuse_unreadable(answer, answer.said))
        case commands.CancelJob():
            _cancel(stage, answer, answer.said)
        case reports.RunStarted():
            _started(stage, answer.who, answer.said)
        case reports.CheckpointDone():
            _checkpoint(stage, answer.who, answer.said)
        case reports.RunGone():
            _gone(stage, answer.who, answer.said)
        case _:
            pass


def _submit(stage: Stage, answer: Answer, said: Submitted) -> None:
    name = job_id(answer.who, said.budget, said.request_id)
    known = stage.job(name)
    if known is not None:
        if known.digest != said.digest:
            problem = Problem(
                field="request_id",
                rule="1.14",
                value=f"body {said.digest[:12]}",
                limit=f"body {known.digest[:12]}, as first submitted",
                way_out="use a new request id, or submit the first body again",
            )
            stage.events.append(JobRefused(job=name, account=answer.who, seq=answer.seq, problems=(problem,)))
        return
    stage.causes.add(stage.world.policy_address)
    request = effective_request(stage.world, stage.policy, said.request)
    problems, advice = check(stage.world, stage.policy, said.budget, request)
    if problems:
        stage.events.append(JobRefused(job=name, account=answer.who, seq=answer.seq, problems=problems))
        return
    stage.admit(
        JobAdmitted(
            job=name,
            account=answer.who,
            budget=said.budget,
            request_id=said.request_id,
            digest=said.digest,
            request=request,
            advice=advice,
        )
    )


def _cancel(stage: Stage, answer: Answer, said: commands.CancelJob) -> None:
    job = stage.job(said.job)
    if job is None or job.account != answer.who:
        problem = Problem(
            field="job", rule="1.1", value=said.job[:80], limit="a job of this account", way_out="see `fairlease queue`"
        )
        stage.events.append(CommandRefused(account=answer.who, verb="cancel-job", seq=answer.seq, problems=(problem,)))
        return
    if job.is_terminal:
        return
    attempt = job.live
    if attempt is None:
        _end_backoff(stage, job)
        stage.emit(job, JobCancelled(job=job.id, account=answer.who))
    elif attempt.ending is not End.CANCELLED:
        stage.emit(job, AttemptEnding(attempt=attempt.id, end=End.CANCELLED, grace_ms=job.request.grace_ms))


def _reported(stage: Stage, host: str, attempt_id: str, token: str) -> tuple[Job, Attempt] | None:
    """The live attempt that this host may report on: it has a part there, and the token is its grant's."""
    job = stage.job(job_of(attempt_id))
    if job is None or job.live is None or job.live.id != attempt_id:
        return None
    attempt = job.live
    if str(attempt.token) != token or host not in attempt.hosts:
        return None
    return job, attempt


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
        stage.emit(found[0], CheckpointConfirmed(attempt=said.attempt, step=step))


def _gone(stage: Stage, host: str, said: reports.RunGone) -> None:
    found = _reported(stage, host, said.attempt, said.token)
    if found is None:
        return
    job, attempt = found
    if any(part.host == host for part in attempt.gone):
        return
    exit_code = said.exit_code if said.exit_code is not None and said.exit_code in EXIT_CODES else None
    job = stage.emit(job, PartGone(attempt=attempt.id, host=host, end=said.end, exit_code=exit_code))
    attempt = job.attempts[-1]
    if len(attempt.gone) == len(attempt.parts):
        _end(stage, job, attempt)
    elif said.end is not End.SUCCEEDED and attempt.ending is None:
        stage.emit(job, AttemptEnding(attempt=attempt.id, end=said.end, grace_ms=job.request.grace_ms))


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


def _end(stage: Stage, job: Job, attempt: Attempt) -> None:
    """All parts are gone: release, then the terminal event of the job."""
    end, exit_code = outcome(attempt)
    job = stage.emit(job, AttemptEnded(attempt=attempt.id, end=end, exit_code=exit_code))
    if job.is_terminal:
        return
    terminal = _terminal(stage.policy, job, end, exit_code, attempt)
    stage.emit(job, terminal)
    if isinstance(terminal, JobRequeued) and terminal.backoff_ms:
        evidence = Evidence(for_ms=terminal.backoff_ms)
        stage.events.append(ReasonBegan(subject=job.id, code=Reason.RETRY_BACKOFF, evidence=evidence))


def _end_backoff(stage: Stage, job: Job) -> None:
    """The job no longer waits for its backoff, if it did."""
    if job.phase is Phase.BACKOFF:
        stage.events.append(ReasonEnded(subject=job.id, code=Reason.RETRY_BACKOFF))


def _terminal(policy: Policy, job: Job, end: End, exit_code: int | None, attempt: Attempt) -> jobs.JobEvent:
    """What becomes of the job (1.5, 1.8, 8.4). A cancel that was asked for stands whatever the end was."""
    if end is End.SUCCEEDED:
        return JobSucceeded(job=job.id)
    if attempt.ending is End.CANCELLED:
        return JobCancelled(job=job.id, account=job.account)
    if end is End.PREEMPTED:
        return JobRequeued(job=job.id, end=end)
    if end is End.TIMED_OUT:
        return JobRequeued(job=job.id, end=end) if job.request.on_timeout == "requeue" else JobTimedOut(job=job.id)
    if attempt.ending is End.PREEMPTED:
        return JobRequeued(job=job.id, end=End.PREEMPTED)
    if end is not End.START_FAILED and job.retries < job.request.max_retries:
        doubled_ms = policy.retry_backoff_ms << min(job.retries, 30)
        backoff_ms = min(doubled_ms, policy.retry_backoff_cap_ms)
        return JobRequeued(job=job.id, end=end, backoff_ms=backoff_ms, counts_as_retry=True)
    return JobFailed(job=job.id, end=end, exit_code=exit_code)


def _duties(stage: Stage) -> None:
    """What log time has made due: stillborn attempts, then time-outs and ends of backoffs."""
    for attempt_id, name in list(stage.world.stillborn.items())[:MAX_DUTIES_PER_RECORD]:
        job = stage.job(name)
        if job is not None and job.live is not None and job.live.id == attempt_id:
            stage.emit(job, AttemptEnded(attempt=attempt_id, end=End.CANCELLED))
    for name in stage.world.dues_until(stage.now_ms)[:MAX_DUTIES_PER_RECORD]:
        job = stage.job(name)
        if job is None:
            continue
        if job.phase is Phase.BACKOFF:
            if job.backoff_until_ms <= stage.now_ms:  # it may have begun in this record, where its time-out was due
                _end_backoff(stage, job)
                stage.emit(job, JobReleased(job=job.id))
        elif job.live is not None and job.live.ending is None:
            stage.emit(job, AttemptEnding(attempt=job.live.id, end=End.TIMED_OUT, grace_ms=job.request.grace_ms))
