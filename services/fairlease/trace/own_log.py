"""A cell's own log as a trace: what people asked for and how long it took, without what the scheduler made of it.

A job's duration is the time that its attempts ran. What an attempt lost at an eviction is not known to the log's
reader as lost, so it counts as work; that makes the simulated load a little heavier than the true one, never lighter.
Contracts, the budget tree and the policy are the log's own: nothing has to be added to it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from fairlease.trace.cells import Problem, TraceWrong
from fairlease.trace.recorded import Outcome, Recorded, RecordedJob, by_arrival, met
from fairlease_schemas import codec
from fairlease_schemas.budget import BudgetChanged
from fairlease_schemas.cycle import GangGranted
from fairlease_schemas.envelope import Event
from fairlease_schemas.job import (
    AttemptEnded,
    AttemptStarted,
    JobAdmitted,
    JobCancelled,
    JobFailed,
    JobSucceeded,
    JobTimedOut,
)
from fairlease_schemas.policy import Policy, PolicyChanged

_OUTCOMES: Final = {
    JobSucceeded: Outcome.SUCCEEDED,
    JobFailed: Outcome.FAILED,
    JobCancelled: Outcome.CANCELLED,
    JobTimedOut: Outcome.TIMED_OUT,
}
_LAST_MS: Final = 4_102_444_800_000  # the year 2100


class _Life:
    """What the log says of one job."""

    def __init__(self, row: int, at_ms: int, event: JobAdmitted) -> None:
        self.row = row
        self.submit_ms = at_ms
        self.event = event
        self.ran_ms = 0
        self.has_run = False
        self.end: Outcome | None = None


class _Attempt:
    """A granted gang: it runs once every part has started."""

    def __init__(self, job: str, parts: int) -> None:
        self.job = job
        self.parts = parts
        self.started: set[str] = set()
        self.since_ms: int | None = None


class _Joined(Exception):
    """A job that is admitted twice: no cell writes that into one log."""


class _Log:
    """The fold: what is known of each job so far, the tree, and the policy in force."""

    def __init__(self) -> None:
        self.lives: dict[str, _Life] = {}
        self.budgets: dict[str, BudgetChanged] = {}
        self.policy: tuple[str, Policy] | None = None
        self._attempts: dict[str, _Attempt] = {}

    def take(self, row: int, at_ms: int, event: Event) -> None:
        """One event; KeyError for a job or an attempt that no earlier event began, _Joined for a job begun twice."""
        match event:
            case JobAdmitted():
                if event.job in self.lives:
                    raise _Joined(event.job)
                self.lives[event.job] = _Life(row, at_ms, event)
            case GangGranted():
                self._attempts[event.attempt] = _Attempt(self.lives[event.job].event.job, len(event.parts))
            case AttemptStarted():
                attempt = self._attempts[event.attempt]
                attempt.started.add(event.host)
                if attempt.since_ms is None and len(attempt.started) == attempt.parts:
                    attempt.since_ms = at_ms
            case AttemptEnded():
                self._ended(self._attempts.pop(event.attempt), at_ms)
            case JobSucceeded() | JobFailed() | JobCancelled() | JobTimedOut():
                self.lives[event.job].end = _OUTCOMES[type(event)]
            case BudgetChanged():
                self.budgets[event.budget] = event
            case PolicyChanged():
                self.policy = (event.name, event.policy)
            case _:
                pass  # what the scheduler and the hosts did otherwise is not what people asked for

    def _ended(self, attempt: _Attempt, at_ms: int) -> None:
        if attempt.since_ms is not None:
            life = self.lives[attempt.job]
            life.ran_ms += max(0, at_ms - attempt.since_ms)
            life.has_run = True


def read_log(file: str, lines: Iterable[bytes]) -> Recorded:
    """The jobs of a log, one record a line; those that tell no duration are left out and counted.

    TraceWrong for a line that is no record, for one that speaks of a job which no earlier line admits, and for a log
    without a job that ran.
    """
    log = _Log()
    for row, line in enumerate(lines, start=1):
        _take(file, log, row, line)
    lives = log.lives.values()
    ran = [life for life in lives if life.end is not None and life.has_run]
    jobs, zero_ms, sorting = by_arrival([_recorded(life, life.end) for life in ran if life.end])
    untold = sum(life.end is not None and not life.has_run for life in lives)
    rules = met(
        (
            ("jobs that were not over when the log ends are left out", sum(life.end is None for life in lives)),
            ("jobs that ended without having run are left out", untold),
            ("a duration is the time in which all parts of the job's attempts ran, also what was lost", len(ran)),
        )
    )
    if not jobs:
        found = "; ".join(f"{rule.rule}: {rule.count}" for rule in rules) or "it has no jobs"
        raise TraceWrong(file, [Problem(1, "", "", f"begins a file without a job to run: name another ({found})")])
    return Recorded(
        file=file,
        format="log",
        has_outcomes=True,
        gpus_column="events",
        jobs=jobs,
        rules=(*rules, *sorting),
        zero_ms=zero_ms,
        budgets=_parents_first(log.budgets),
        policy=log.policy,
    )


def _take(file: str, log: _Log, row: int, line: bytes) -> None:
    shown = line[:80].decode(errors="replace")
    try:
        record = codec.read_record(line)
    except codec.Unreadable as error:
        text = f"is no record of a log ({error}): write the file anew with `fairlease replay --live --save FILE`"
        raise TraceWrong(file, [Problem(row, "", shown, text)]) from error
    if not 0 <= record.at_ms < _LAST_MS:
        text = "is not between 1970 and 2100 in milliseconds: is it in microseconds? save the log anew"
        raise TraceWrong(file, [Problem(row, "at_ms", str(record.at_ms), text)])
    for event in record.events:
        try:
            log.take(row, record.at_ms, event)
        except _Joined as error:
            text = "is admitted by an earlier record: two logs were joined, name one of them"
            raise TraceWrong(file, [Problem(row, "events", str(error), text)]) from error
        except KeyError as error:
            text = "is not begun by an earlier record: the log was cut, save it from its first record on"
            raise TraceWrong(file, [Problem(row, "events", str(error.args[0]), text)]) from error


def _parents_first(budgets: Mapping[str, BudgetChanged]) -> tuple[BudgetChanged, ...]:
    """The nodes of the tree, each after the one that it hangs on; of siblings the one made first."""
    levels: dict[str, int] = {}
    for name in budgets:
        depth, above = 0, budgets[name].parent
        while above in budgets and depth < len(budgets):
            depth, above = depth + 1, budgets[above].parent
        levels[name] = depth
    return tuple(sorted(budgets.values(), key=lambda node: levels[node.budget]))


def _recorded(life: _Life, end: Outcome) -> RecordedJob:
    event = life.event
    request = event.request
    return RecordedJob(
        row=life.row,
        request_id=event.job,
        team=event.budget,
        user=event.account,
        gpus=request.hosts * request.gpus_per_host,
        arrive_ms=life.submit_ms,
        duration_ms=life.ran_ms,
        limit_ms=request.timeout_ms,
        outcome=end,
        asked=request,
    )
