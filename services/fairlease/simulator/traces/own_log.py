"""A cell's own log as a trace: what people asked for and how long it took, without what the scheduler made of it.

A job's duration is the time that its attempts ran. What an attempt lost at an eviction is not known to the log's
reader as lost, so it counts as work; that makes the simulated load a little heavier than the true one, never lighter.
"""

from fairlease.simulator.traces.cells import Problem, TraceWrong
from fairlease.simulator.traces.row import Ending, Recorded
from fairlease.trace.workload import Rule
from fairlease_schemas import codec
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

_ENDINGS = {
    JobSucceeded: Ending.SUCCEEDED,
    JobFailed: Ending.FAILED,
    JobCancelled: Ending.CANCELLED,
    JobTimedOut: Ending.TIMED_OUT,
}


class _Life:
    """What the log says of one job."""

    def __init__(self, row: int, at_ms: int, event: JobAdmitted) -> None:
        self.row = row
        self.submit_ms = at_ms
        self.event = event
        self.ran_ms = 0
        self.has_run = False
        self.end: Ending | None = None


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
    """The fold: what is known of each job so far."""

    def __init__(self) -> None:
        self.lives: dict[str, _Life] = {}
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
                attempt = self._attempts.pop(event.attempt)
                if attempt.since_ms is not None:
                    life = self.lives[attempt.job]
                    life.ran_ms += max(0, at_ms - attempt.since_ms)
                    life.has_run = True
            case JobSucceeded() | JobFailed() | JobCancelled() | JobTimedOut():
                self.lives[event.job].end = _ENDINGS[type(event)]
            case _:
                pass  # what the scheduler and the hosts did otherwise is not what people asked for


def read_log(file: str, raw: bytes) -> tuple[list[Recorded], tuple[Rule, ...]]:
    """The jobs of a log, one record a line; those that tell no duration are left out and counted.

    TraceWrong for a line that is no record, and for one that speaks of a job which no earlier line admits.
    """
    log = _Log()
    for row, line in enumerate(raw.splitlines(), start=1):
        try:
            record = codec.read_record(line)
        except codec.Unreadable as error:
            text = f"is no record of a log ({error}): write the file anew with `fairlease replay --live --save FILE`"
            raise TraceWrong(file, [Problem(row, "", line[:80].decode(errors="replace"), text)]) from error
        for event in record.events:
            try:
                log.take(row, record.at_ms, event)
            except _Joined as error:
                text = "is admitted by an earlier record: two logs were joined, name one of them"
                raise TraceWrong(file, [Problem(row, "events", str(error), text)]) from error
            except KeyError as error:
                text = "is not begun by an earlier record: the log was cut, save it from its first record on"
                raise TraceWrong(file, [Problem(row, "events", str(error.args[0]), text)]) from error
    told = [life for life in log.lives.values() if life.end is not None and life.has_run]
    rules = (
        ("jobs that were not over when the log ends are left out", sum(one.end is None for one in log.lives.values())),
        (
            "jobs that ended without having run are left out",
            sum(one.end is not None and not one.has_run for one in log.lives.values()),
        ),
        ("a duration is the time in which all parts of the job's attempts ran, also what was lost", len(told)),
    )
    return [_recorded(life, life.end) for life in told if life.end], tuple(
        Rule(rule=rule, count=count) for rule, count in rules if count
    )


def _recorded(life: _Life, end: Ending) -> Recorded:
    event = life.event
    gpus = event.request.hosts * event.request.gpus_per_host
    return Recorded(
        life.row,
        event.job,
        life.submit_ms,
        life.ran_ms,
        gpus,
        event.budget,
        event.account,
        end,
        event.request.hosts if gpus else 0,
    )
