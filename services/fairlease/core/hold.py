"""Holding a job back and letting it go, and ending it: what its owner and the leads of its budget may do (1.1).

A hold keeps a job that waits from competing, whatever it waits for. Cleared, the job goes on as it would
have: it competes, or waits on for other jobs, for a place in its array, or for the rest of a backoff. Who leads
the budget may hold a job of others, and then its owner cannot release it.
"""

from fairlease.core.dependency import Fate
from fairlease.core.job import Job, Phase
from fairlease.core.stage import Stage
from fairlease_schemas.commands import CancelJob, HoldJob, ReleaseJob
from fairlease_schemas.envelope import Answer
from fairlease_schemas.ids import AccountId
from fairlease_schemas.job import (
    AttemptEnded,
    AttemptEnding,
    CommandRefused,
    End,
    JobCancelled,
    JobHeld,
    JobHoldCleared,
    Problem,
)
from fairlease_schemas.reasons import Evidence, Reason

NOBODY = "fairlease"
"""Who holds a job where no person does: then it is for its owner to look at."""

_REASON_CHARS = 200
_CAN_BE_HELD = frozenset((Phase.WAITING, Phase.DEPENDENT, Phase.BACKOFF))


def cancel(stage: Stage, answer: Answer, said: CancelJob) -> None:
    """End the job, or every job of an array: at once when it waits, by its grace when it runs."""
    for job in _mastered(stage, answer, said):
        attempt = job.live
        if job.is_terminal:
            continue
        if attempt is None or attempt.is_stillborn:
            stage.end_reason(job)
            stage.emit(job, JobCancelled(job=job.id, account=answer.who))
        elif attempt.ending is not End.CANCELLED:
            by = answer.who if answer.who != job.account else ""
            grace_ms = job.request.grace_ms
            stage.emit(job, AttemptEnding(attempt=attempt.id, end=End.CANCELLED, grace_ms=grace_ms, account=by))


def hold(stage: Stage, answer: Answer, said: HoldJob) -> None:
    """Keep a job that waits, or those of an array, from competing; one that has GPUs or is over is refused."""
    found = _mastered(stage, answer, said)
    waiting = [job for job in found if job.phase in _CAN_BE_HELD]
    for job in waiting:
        stage.end_reason(job)
        stage.emit(job, JobHeld(job=job.id, account=answer.who, reason=said.reason[:_REASON_CHARS]))
        stage.begin_reason(job.id, Reason.JOB_HELD, Evidence())
    if found and not waiting and all(job.phase is not Phase.HELD for job in found):
        is_over = found[0].is_terminal
        way_out = "it is over: submit it anew" if is_over else "cancel it, or hold it when it waits again"
        problem = Problem(field="job", rule="9.1", value=str(found[0].phase), limit="a job that waits", way_out=way_out)
        _refuse(stage, answer, said, problem)


def release(stage: Stage, answer: Answer, said: ReleaseJob) -> None:
    """Let a held job, or those of an array, go on."""
    held = [job for job in _mastered(stage, answer, said) if job.phase is Phase.HELD]
    barred = [job for job in held if not _may_release(stage, answer.who, job)]
    for job in held if not barred else ():
        _release(stage, answer.who, job)
    if barred:
        limit, way_out = "who held it, or a lead of its budget", f"ask {barred[0].held_by}"
        problem = Problem(field="job", rule="1.1", value=barred[0].id, limit=limit, way_out=way_out)
        _refuse(stage, answer, said, problem)


def _may_release(stage: Stage, who: AccountId, job: Job) -> bool:
    return job.held_by in (who, job.account, NOBODY) or stage.is_lead(who, job)


def _release(stage: Stage, who: AccountId, job: Job) -> None:
    """The job competes, waits on for what it waited for, or is over when that cannot come any more."""
    if job.live is not None and not job.live.is_stillborn:  # granted in the moment it was held, and still stopping
        stage.end_reason(job)
        stage.emit(job, JobHoldCleared(job=job.id, account=who))
        return
    if job.live is not None:  # held in the moment it was granted: nothing of it ever ran
        job = stage.emit(job, AttemptEnded(attempt=job.live.id, end=End.CANCELLED))
    fate, cause = stage.waits_for(job)
    if fate is Fate.DOOMED:
        stage.doom(job, cause)
        return
    stage.end_reason(job)
    rest_ms = max(0, job.backoff_until_ms - stage.now_ms)
    if fate is Fate.OPEN:
        stage.emit(job, JobHoldCleared(job=job.id, account=who, is_blocked=True))
        stage.begin_reason(job.id, Reason.DEPENDENCY, Evidence(claim=cause))
    elif rest_ms:
        stage.emit(job, JobHoldCleared(job=job.id, account=who, backoff_ms=rest_ms))
        stage.begin_reason(job.id, Reason.RETRY_BACKOFF, Evidence(for_ms=rest_ms))
    else:
        stage.emit(job, JobHoldCleared(job=job.id, account=who))


def _mastered(stage: Stage, answer: Answer, said: CancelJob | HoldJob | ReleaseJob) -> list[Job]:
    """The job or the array's jobs, when the sender may command them; else a refusal, which tells no more than that."""
    found = stage.named(said.job)
    if found and stage.is_master(answer.who, found[0]):
        return found
    limit = "a job of this account, or of a budget it leads"
    problem = Problem(field="job", rule="1.1", value=said.job[:80], limit=limit, way_out="see `fairlease queue`")
    _refuse(stage, answer, said, problem)
    return []


def _refuse(stage: Stage, answer: Answer, said: CancelJob | HoldJob | ReleaseJob, problem: Problem) -> None:
    verb = str(said.__struct_config__.tag)
    stage.events.append(CommandRefused(account=answer.who, verb=verb, seq=answer.seq, problems=(problem,)))
