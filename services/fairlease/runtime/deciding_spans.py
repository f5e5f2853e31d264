"""The spans of a service that decides: one for each record of its own and each job that the record names.

A rank names classes and no jobs. Its span is told when the cycle's next record says which jobs it came to, so a
line of ten thousand jobs costs nothing while it waits. Only the replica whose append was stored tells of a record.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from fairlease.runtime.spans import SUBMITTED, Attributes, Spans
from fairlease_schemas.cycle import CyclePlaced, CycleRanked, EvictionOrdered
from fairlease_schemas.envelope import Event, Record
from fairlease_schemas.ids import JobId, job_of
from fairlease_schemas.job import JobAdmitted

_MS: Final = 1_000_000
_KEPT: Final = 32
"""Own records folded and not yet known to be ours: those of another replica stay so."""
MOST_JOBS: Final = 50_000
"""So many of the jobs named last are known by their last step; one that comes again after them links to its first."""


class Told(NamedTuple):
    """A record of ours that is stored: where, of which kind, and when it was decided and stored."""

    position: int
    kind: str
    times_ns: tuple[int, int]


def jobs_in(event: Event) -> tuple[JobId, ...]:
    """The jobs that an event names, in its order."""
    match event:
        case CyclePlaced(claims=claims, blocked=blocked):
            return tuple(claim.job for claim in (*claims, *blocked))
        case EvictionOrdered(attempt=attempt, claim=claim):
            return (job_of(attempt), claim) if claim else (job_of(attempt),)
        case _:
            named = getattr(event, "job", "") or job_of(getattr(event, "attempt", ""))
            return (named,) if named else ()


def steps_in(record: Record) -> dict[JobId, list[str]]:
    """The jobs that a record names, each with the tags of the events that name it, in their order."""
    steps: dict[JobId, list[str]] = {}
    for event in record.events:
        for job in dict.fromkeys(jobs_in(event)):
            steps.setdefault(job, []).append(str(event.__struct_config__.tag))
    return steps


class DecidingSpans:
    """`folded` is told of every record, `stored` of each of our own after it was folded. Nothing, when they are off."""

    def __init__(self, spans: Spans, service: str) -> None:
        self._spans = spans
        self._service = service
        self._last: dict[JobId, int] = {}
        self._own: dict[int, tuple[Record, dict[JobId, str]]] = {}
        self._ranked_at = 0
        self._rank: Told | None = None
        self._owed: dict[JobId, str] | None = None

    def folded(self, position: int, record: Record) -> None:
        """Keep where each job was last named, and tell of our rank to the jobs that its cycle came to."""
        if not self._spans.is_on:
            return
        steps = steps_in(record)
        before = {job: self._before(job) for job in steps}
        for event in record.events:
            if isinstance(event, CycleRanked):
                self._ranked_at, self._rank, self._owed = position, None, None
            elif isinstance(event, CyclePlaced):
                self._placed(before)
        if record.by == self._service:
            self._own[position] = (record, before)
            if len(self._own) > _KEPT:
                del self._own[min(self._own)]
        for job in steps:
            self._last.pop(job, None)
            self._last[job] = position
        while len(self._last) > MOST_JOBS:
            del self._last[next(iter(self._last))]

    def _placed(self, before: dict[JobId, str]) -> None:
        """The cycle's rank came before its placement, for each job that it names and that waited by then."""
        rank, self._rank = self._rank, None
        waited = {job: led for job, led in before.items() if self._last.get(job, 0) < self._ranked_at}
        before |= dict.fromkeys(waited, str(self._ranked_at))
        if rank is not None:
            self._tell_rank(rank, waited)
        elif self._ranked_at in self._own:
            self._owed = waited  # placement was quicker than the acknowledgement of our rank

    def _tell_rank(self, rank: Told, jobs: Mapping[JobId, str]) -> None:
        for job, led in jobs.items():
            self._tell(job, rank, led, {"fairlease.events": "cycle-ranked"})

    def stored(self, told: Told) -> None:
        """Tell of a record of ours. What it follows was noted when it was folded."""
        if told.position not in self._own:
            return
        record, before = self._own.pop(told.position)
        if told.position == self._ranked_at and any(isinstance(event, CycleRanked) for event in record.events):
            self._rank = told if self._owed is None else None
            self._tell_rank(told, self._owed or {})
            self._owed = None
        for event in record.events:
            if isinstance(event, JobAdmitted):
                sent_ns = min(record.at_ms * _MS, told.times_ns[0])
                self._spans.add(event.job, "submitted", SUBMITTED, (sent_ns, told.times_ns[1]))
        for job, tags in steps_in(record).items():
            more: Attributes = {"fairlease.events": " ".join(dict.fromkeys(tags)), "fairlease.basis": record.basis}
            self._tell(job, told, before[job], more)

    def _before(self, job: JobId) -> str:
        position = self._last.get(job, 0)
        return str(position) if position else SUBMITTED

    def _tell(self, job: JobId, told: Told, before: str, more: Attributes) -> None:
        attributes: Attributes = {
            "fairlease.service": self._service,
            "fairlease.position": told.position,
            "fairlease.kind": told.kind,
            **more,
        }
        self._spans.add(job, f"{self._service} {told.kind}", str(told.position), told.times_ns, [before], attributes)
