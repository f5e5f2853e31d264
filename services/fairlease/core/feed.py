"""What a record means to people outside: answers to their commands, steps of their jobs, news of hosts.

A projection: the same record on the same fold gives the same messages, so it can be made again at
any time. The world handed in has folded the record already.
"""

from collections.abc import Iterator

from fairlease.core.flood import MAX_TOLD, is_inbox, problems_of
from fairlease.core.view import as_of, drain_view, holds_told
from fairlease.core.world import World
from fairlease_schemas import host as host_events
from fairlease_schemas import job as job_events
from fairlease_schemas.commands import (
    CancelJob,
    ChangeBudget,
    ChangeMember,
    CordonHost,
    HoldJob,
    ReleaseJob,
    RequestDrain,
    ReturnHost,
    UndrainHost,
)
from fairlease_schemas.cycle import EvictionOrdered, GangGranted
from fairlease_schemas.envelope import Answer, Event, Misshapen, Record, Submitted, Unreadable
from fairlease_schemas.explain import CommandAnswer, FeedEvent, HostEvent
from fairlease_schemas.ids import JobId, job_id, job_of
from fairlease_schemas.job import CommandRefused, JobAdmitted, JobRefused, MessageRefused, Problem, RefusalsGathered

_STEPS = (
    JobAdmitted,
    GangGranted,
    EvictionOrdered,
    job_events.AttemptStarted,
    job_events.AttemptEnding,
    job_events.AttemptEnded,
    job_events.JobRequeued,
    job_events.JobReleased,
    job_events.JobUnblocked,
    job_events.JobHeld,
    job_events.JobHoldCleared,
    job_events.JobSucceeded,
    job_events.JobFailed,
    job_events.JobCancelled,
    job_events.JobTimedOut,
)

_HOST_NEWS = (
    host_events.HostRegistered,
    host_events.HostHeld,
    host_events.HostHoldCleared,
    host_events.LeaseLost,
    host_events.DrainPlanned,
    host_events.DrainProgress,
    host_events.DrainCompleted,
    host_events.DrainCancelled,
)


def answers_of(world: World, record: Record) -> Iterator[CommandAnswer]:
    """The answer to every command that the record answers, in their order."""
    admitted: set[JobId] = {event.job for event in record.events if isinstance(event, JobAdmitted)}
    for answer in record.answers:
        if not _is_command(answer):
            continue
        problems = _problems(record, answer)
        name = _job(answer)
        first = _first_job(answer)
        job = world.jobs.get(first)
        outcome = "refused" if problems else "accepted" if _has_done(world, record, answer) else "unchanged"
        if not problems and isinstance(answer.said, Submitted):
            outcome = "accepted" if first in admitted else "repeated"
            admitted.discard(first)
        yield CommandAnswer(
            account=answer.who,
            seq=answer.seq,
            verb=_verb(answer),
            outcome=outcome,
            job=name,
            state=str(job.phase) if job is not None else "",
            problems=problems,
            advice=next((e.advice for e in record.events if isinstance(e, JobAdmitted) and e.job == first), ()),
            as_of=as_of(world),
            drain=drain_view(world, answer.said.host) if isinstance(answer.said, RequestDrain | UndrainHost) else None,
        )


def steps_of(world: World, record: Record) -> Iterator[tuple[int, str, FeedEvent]]:
    """Every step of a job in the record: the event's index, the job's budget, and the message."""
    for index, event in enumerate(record.events):
        if not isinstance(event, _STEPS):
            continue
        name = event.job if hasattr(event, "job") else job_of(event.attempt)
        job = world.jobs.get(name)
        if job is None:
            continue
        attempt = job.attempts[-1] if job.attempts else None
        yield (
            index,
            job.budget,
            FeedEvent(
                job=name,
                event=str(event.__struct_config__.tag),
                state=str(job.phase),
                at_ms=world.log_time_ms,
                attempt=attempt.id if attempt else "",
                hosts=attempt.hosts if attempt else (),
                end=str(job.end) if job.end else "",
                exit_code=job.exit_code,
                as_of=as_of(world),
            ),
        )


def hosts_of(world: World, record: Record) -> Iterator[tuple[int, HostEvent]]:
    """Everything in the record that happened to a host: the event's index, and the message."""
    for index, event in enumerate(record.events):
        host = world.fleet.hosts.get(event.host) if isinstance(event, _HOST_NEWS) else None
        if host is not None:
            yield (
                index,
                HostEvent(
                    host=host.id,
                    event=str(event.__struct_config__.tag),
                    at_ms=world.log_time_ms,
                    holds=holds_told(host),
                    drain=drain_view(world, host.id),
                    as_of=as_of(world),
                ),
            )


def _has_done(world: World, record: Record, answer: Answer) -> bool:
    """Whether the record has an event about what the command names; without one it was so already.

    Of two commands about one thing in one record the second is said to have done what the first did.
    """
    said = answer.said
    if isinstance(said, CancelJob | HoldJob | ReleaseJob):
        jobs = {said.job, *world.dependents.named(said.job)}
        return any(_job_of(event) in jobs for event in record.events)
    if isinstance(said, CordonHost | ReturnHost | RequestDrain | UndrainHost):
        return any(getattr(event, "host", "") == said.host for event in record.events)
    if isinstance(said, ChangeBudget | ChangeMember):
        return any(getattr(event, "budget", "") == said.budget for event in record.events)
    return True


def _job_of(event: Event) -> JobId:
    """The job that the event is about; empty for none."""
    job: JobId = getattr(event, "job", "")
    return job or job_of(getattr(event, "attempt", ""))


def _is_command(answer: Answer) -> bool:
    """Whether a client account sent it: agents and timers are told nothing."""
    return is_inbox(answer.stream)


def _job(answer: Answer) -> JobId:
    said = answer.said
    if isinstance(said, Submitted | Misshapen):
        return job_id(answer.who, said.budget, said.request_id)
    return str(getattr(said, "job", ""))


def _first_job(answer: Answer) -> JobId:
    """The job that speaks for the command: of an array the first, else the one it names."""
    said = answer.said
    if isinstance(said, Submitted) and said.request.array is not None:
        return job_id(answer.who, said.budget, f"{said.request_id}/0")
    return _job(answer)


def _verb(answer: Answer) -> str:
    said = answer.said
    if isinstance(said, Submitted | Misshapen):
        return "submit-job"
    return "" if isinstance(said, Unreadable) else str(said.__struct_config__.tag)


def _problems(record: Record, answer: Answer) -> tuple[Problem, ...]:
    """What the record says against this message; empty when it was not refused."""
    for event in record.events:
        if isinstance(event, JobRefused | CommandRefused):
            if (event.account, event.seq) == (answer.who, answer.seq):
                return event.problems
        elif isinstance(event, MessageRefused):
            if (event.stream, event.seq) == (answer.stream, answer.seq):
                return problems_of(event)
        elif isinstance(event, RefusalsGathered) and event.stream == answer.stream and answer.seq in event.seqs:
            return (_one_of_many(event), *event.problems)
    return ()


def _one_of_many(event: RefusalsGathered) -> Problem:
    return Problem(
        field="message",
        rule="L2",
        value=f"one of {len(event.seqs)} messages that were refused at a time",
        limit=f"{MAX_TOLD} are told one by one",
        way_out="what follows is wrong with the first of them: send fewer at a time to be told of each",
    )
