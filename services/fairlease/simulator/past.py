"""A cell's past, read off its own log: what people and hosts said and when, and how much work jobs turned out to be.

What people asked for and could, and what befell hosts, is taken as it was. What the scheduler made of it is not: that
is to be decided again. What runs said is not either, but how much they worked is: of an attempt that was cut short only
what it had saved, of one that ended by itself all of it. Whatever a log cannot tell is a rule, told with its count.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from fairlease.core.host import FAULT, FAULT_KINDS
from fairlease.core.job import Attempt, Job
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.meter import Meter
from fairlease.core.metrics.quantile import spread
from fairlease.core.metrics.waiting import life
from fairlease.core.world import World
from fairlease.figures.report import report_of
from fairlease.simulator.machines import WATCHMAN, Stopping, Work
from fairlease.simulator.series import Course
from fairlease_schemas import commands, reports
from fairlease_schemas.budget import BudgetChanged
from fairlease_schemas.envelope import Record, Said, Submitted
from fairlease_schemas.host import HostHeld, HostHoldCleared
from fairlease_schemas.ids import HostId, JobId
from fairlease_schemas.job import CommandRefused, End, JobAdmitted, RefusalsGathered
from fairlease_schemas.policy import Policy, PolicyChanged
from fairlease_schemas.units import SECOND_MS

Data = dict[str, Any]

_SAID_AGAIN: Final = (
    *(commands.CancelJob, commands.HoldJob, commands.ReleaseJob),
    *(commands.CordonHost, commands.ReturnHost, commands.RequestDrain, commands.UndrainHost, reports.HostUp),
)
_ENDED_BY_ITSELF: Final = frozenset((End.SUCCEEDED, End.FAILED))
_STOPPING: Final = Stopping(stop_ms=5 * SECOND_MS, save_ms=60 * SECOND_MS)
_PERMILLE: Final = 1000
BREAKS, RETURNS, STRIKES = "breaks", "returns", "strikes"


class Heard(msgspec.Struct, frozen=True):
    """What somebody said, so many ms after the log began."""

    after_ms: int
    who: str
    said: Said


class Befell(msgspec.Struct, frozen=True):
    """A host broke at this time, took work again, or a fault struck what ran there and left the host as it was."""

    after_ms: int
    host: HostId
    what: str


class InForce(msgspec.Struct, frozen=True):
    """A policy from this time on."""

    after_ms: int
    name: str
    policy: Policy


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is played again. `report` is of what was, `waits` by job how long it waited for its grant."""

    began_ms: int
    length_ms: int
    heard: tuple[Heard, ...]
    befell: tuple[Befell, ...]
    policies: tuple[InForce, ...]
    work: dict[JobId, Work]
    budgets: dict[JobId, str]
    stopping: Stopping
    rules: tuple[Data, ...]
    report: Data
    waits: dict[JobId, int]


class Reading:
    """Gathers the past of a log of this period, record by record."""

    def __init__(self, period: Period) -> None:
        self._period = period
        self._began_ms = period.since_ms + 1
        self._meter = Meter(period)
        self._course = Course(self._meter, period)
        self._heard: list[Heard] = []
        self._befell: list[Befell] = []
        self._policies: list[InForce] = []
        self._admitted: set[JobId] = set()
        self._requests: set[tuple[str, str, str]] = set()
        self._refused = 0

    def take(self, world: World, record: Record, stored_ms: int | None) -> None:
        """The record is folded into the world."""
        self._course.passes(world.log_time_ms)
        self._meter.take(world, record, stored_ms)
        self._course.follow(world, record)
        after_ms = max(0, record.at_ms - self._began_ms)
        for event in record.events:
            match event:
                case JobAdmitted():
                    self._admitted.add(event.job)
                    whole = event.request_id if event.request.array is None else event.request_id.rpartition("/")[0]
                    self._requests.add((event.account, event.budget, whole))
                case BudgetChanged():  # by whatever way: at once, or by a proposal that was accepted
                    self._heard.append(Heard(after_ms, event.author, _asked(event)))
                case PolicyChanged():
                    self._policies.append(InForce(after_ms, event.name, event.policy))
                case HostHeld() if event.kind in FAULT_KINDS or event.reason == FAULT:
                    self._befell.append(Befell(after_ms, event.host, BREAKS))
                case HostHoldCleared() if event.kind in FAULT_KINDS or event.owner == WATCHMAN:
                    self._befell.append(Befell(after_ms, event.host, RETURNS))
                case _:
                    pass
        refused = set(_refused(record))
        for answer in record.answers:
            if isinstance(answer.said, Submitted):
                self._heard.append(Heard(after_ms, answer.who, answer.said))
            elif isinstance(answer.said, _SAID_AGAIN) and answer.who != WATCHMAN:
                if (answer.who, answer.seq) in refused:
                    self._refused += 1
                else:
                    self._heard.append(Heard(after_ms, answer.who, answer.said))
            elif isinstance(answer.said, reports.RunGone) and answer.said.end is End.FAULT:
                self._befell.append(Befell(after_ms, answer.who, STRIKES))

    def past(self, world: World) -> Past:
        """The past, given the world behind the last record."""
        jobs = [world.jobs[name] for name in sorted(self._admitted) if name in world.jobs]
        length_ms = self._period.until_ms - self._began_ms
        saves_permille, stopping = _leaving(jobs)
        series = self._course.result(world, self._period.until_ms)
        known = [heard for heard in self._heard if not isinstance(heard.said, Submitted) or self._is_known(heard)]
        return Past(
            began_ms=self._began_ms,
            length_ms=length_ms,
            heard=tuple(known),
            befell=tuple(self._befell),
            policies=tuple(self._policies),
            work={job.id: _work(job, length_ms, saves_permille) for job in jobs},
            budgets={job.id: job.budget for job in jobs},
            stopping=stopping,
            rules=tuple(_rules(jobs, len(self._heard) - len(known), self._refused, self._befell, saves_permille)),
            report={
                "policy": world.policy_name,
                "seed": None,
                **report_of(self._meter.report(world)),
                "digest": world.digest(),
                "series": msgspec.to_builtins(series),
            },
            waits={job.id: life(job, self._period.until_ms).wait_ms for job in jobs},
        )

    def _is_known(self, heard: Heard) -> bool:
        assert isinstance(heard.said, Submitted)
        return (heard.who, heard.said.budget, heard.said.request_id) in self._requests


def _asked(event: BudgetChanged) -> commands.ChangeBudget:
    """The command that makes this change."""
    return commands.ChangeBudget(
        budget=event.budget,
        weight=event.weight,
        parent=event.parent,
        reason=event.reason,
        order=event.order,
        max_protected_permille=event.max_protected_permille,
        burst_permille=event.burst_permille,
    )


def _work(job: Job, length_ms: int, saves_permille: int) -> Work:
    """What the job has to do; one that did not end by itself works on for as long as the log."""
    request = job.request
    first = next((attempt for attempt in job.attempts if attempt.started_ms is not None), None)
    startup_ms = first.started_ms - first.granted_ms if first is not None and first.started_ms is not None else 0
    is_over = bool(job.attempts) and job.attempts[-1].end in _ENDED_BY_ITSELF and job.is_terminal
    useful_ms = sum(_useful_ms(attempt, is_resumable=request.is_resumable) for attempt in job.attempts)
    return Work(
        left_ms=max(1, useful_ms) if is_over else length_ms + 1,
        startup_ms=startup_ms,
        checkpoint_ms=request.checkpoint_interval_ms if request.is_resumable else 0,
        saves_permille=saves_permille,
        is_resumable=request.is_resumable,
    )


def _useful_ms(attempt: Attempt, *, is_resumable: bool) -> int:
    """From when all of it ran to its own end, or to the last checkpoint of one that was cut short.

    Who saves because it is told to leave saves what it had done when it was told: saving is no work.
    """
    if attempt.started_ms is None or not attempt.is_over:
        return 0
    if attempt.end in _ENDED_BY_ITSELF:
        return attempt.ended_ms - attempt.started_ms
    saved_ms = min(attempt.checkpoint_ms, attempt.ending_ms or attempt.ended_ms) if is_resumable else 0
    return max(0, saved_ms - attempt.started_ms)


def _leaving(jobs: list[Job]) -> tuple[int, Stopping]:
    """(how many of a thousand saved when told to leave, how long that takes), in the middle of what was seen."""
    told = [
        (attempt.checkpoint_ms >= attempt.ending_ms, attempt.ended_ms - attempt.ending_ms)
        for job in jobs
        for attempt in job.attempts
        if attempt.end is End.PREEMPTED and attempt.started_ms is not None and job.request.is_resumable
    ]
    saved = [length_ms for has_saved, length_ms in told if has_saved]
    stop_ms = spread(length_ms for has_saved, length_ms in told if not has_saved).p50
    save_ms = spread(saved).p50
    stop_ms = _STOPPING.stop_ms if stop_ms is None else stop_ms
    save_ms = _STOPPING.save_ms if save_ms is None else max(0, save_ms - stop_ms)
    return (len(saved) * _PERMILLE // len(told) if told else _PERMILLE), Stopping(stop_ms=stop_ms, save_ms=save_ms)


def _refused(record: Record) -> Iterator[tuple[str, int]]:
    """(account or host, number in its stream) of every command and report that the record refuses."""
    for event in record.events:
        if isinstance(event, CommandRefused):
            yield event.account, event.seq
        elif isinstance(event, RefusalsGathered):
            yield from ((event.account, seq) for seq in event.seqs)


def _rules(jobs: list[Job], unknown: int, refused: int, befell: list[Befell], saves_permille: int) -> Iterator[Data]:
    """What was assumed; a rule that met nothing is not told."""
    attempts = [attempt for job in jobs for attempt in job.attempts]
    failed = sum(job.is_terminal and bool(job.attempts) and job.attempts[-1].end is End.FAILED for job in jobs)
    met = (
        ("jobs are submitted, held, released and cancelled when they were", len(jobs)),
        ("hosts break and take work again when they did", sum(one.what != STRIKES for one in befell)),
        ("a fault of a run strikes what runs on that host then", sum(one.what == STRIKES for one in befell)),
        (
            "a job has as much work as it turned out to have, without what was lost",
            sum(_has_ended(job) for job in jobs),
        ),
        (
            "jobs that did not end by themselves work on for as long as the log",
            sum(not _has_ended(job) for job in jobs),
        ),
        ("jobs that failed end after as much work, and well", failed),
        ("each start takes as long as the job's first", sum(attempt.started_ms is not None for attempt in attempts)),
        (
            f"of those told to leave {saves_permille} of 1000 save first, as was seen; who does is drawn",
            sum(attempt.end is End.PREEMPTED for attempt in attempts),
        ),
        ("checkpoints fall at the interval of the contract", sum(job.request.is_resumable for job in jobs)),
        ("submissions that were refused, or said twice, are left out", unknown),
        ("commands that were refused are left out", refused),
    )
    return ({"rule": rule, "count": count} for rule, count in met if count)


def _has_ended(job: Job) -> bool:
    return job.is_terminal and bool(job.attempts) and job.attempts[-1].end in _ENDED_BY_ITSELF
