"""Operations: how long drains, faults, decisions and starts took (M6).

How long a decision took is told by the bus's timestamps of its records, where the reader has them. A log on disk has
none; by its own time, which moves with the messages that records answer, most decisions take nothing at all.
A trigger is the first news since the last rank that a cycle was due for: what happens while nobody waits is answered by
none, and a submission after it is its own trigger. A cycle that began only because its period was over had none.
"""

import msgspec

from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.quantile import Spread, spread
from fairlease_schemas.ids import AttemptId, HostId, JobId

News = tuple[int, int]
"""The position of a record, and when it was stored."""


class Drains(msgspec.Struct, frozen=True, kw_only=True):
    """Drains asked for in the period; of those emptied in it how long that took, and how many were in time."""

    asked: int
    emptied: int
    in_time: int
    took: Spread
    promised: Spread


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths in milliseconds. `decision`: the record that asked for a cycle to the record that closed it.

    `start`: submission to running of jobs granted by the first rank that saw them. `detection`: last renewal of a
    lease to the record that it is lost; `requeue`: that record to the job's being in line again.
    """

    drains: Drains
    detection: Spread
    requeue: Spread
    start: Spread
    decision: Spread


class Follow:
    """Follows drains, losses, cycles and first starts."""

    def __init__(self, period: Period) -> None:
        self._period = period
        self._asked = 0
        self._in_time = 0
        self._drains: dict[HostId, tuple[int, int]] = {}
        self._took: list[int] = []
        self._promised: list[int] = []
        self._detection: list[int] = []
        self._lost: dict[JobId, int] = {}
        self._requeue: list[int] = []
        self._starting: dict[AttemptId, int] = {}
        self._start: list[int] = []
        self._decision: list[int] = []
        self._first_news: News | None = None
        self._last_news: News | None = None
        self._trigger: News | None = None
        self._basis = self._basis_before = 0

    # hosts -------------------------------------------------------------------------------------------
    def drain_planned(self, host: HostId, at_ms: int, empty_in_ms: int, *, is_queued: bool) -> None:
        """The owner was told by when the host is empty; one that was queued is told again when it begins."""
        asked_ms, _ = self._drains.get(host, (at_ms, 0))
        self._asked += host not in self._drains and self._period.holds(at_ms)
        self._drains[host] = (asked_ms, 0 if is_queued else at_ms + empty_in_ms)

    def drain_over(self, host: HostId, at_ms: int, *, is_empty: bool) -> None:
        """The host is empty, or its drain was called off."""
        asked_ms, promised_ms = self._drains.pop(host, (0, 0))
        if not is_empty or not asked_ms or not self._period.holds(at_ms):
            return
        self._took.append(at_ms - asked_ms)
        self._promised.append(promised_ms - asked_ms)
        self._in_time += at_ms <= promised_ms

    def lease_lost(self, jobs: list[JobId], at_ms: int, silent_ms: int) -> None:
        if self._period.holds(at_ms):
            self._detection.append(silent_ms)
        for job in jobs:
            self._lost.setdefault(job, at_ms)

    def requeued(self, job: JobId, at_ms: int) -> None:
        """The job is in line again after a fault."""
        lost_ms = self._lost.pop(job, None)
        if lost_ms is not None and self._period.holds(at_ms):
            self._requeue.append(at_ms - lost_ms)

    # cycles ------------------------------------------------------------------------------------------
    def news(self, position: int, stored_ms: int) -> None:
        """The record asks for a new cycle."""
        self._last_news = (position, stored_ms)
        if self._first_news is None:
            self._first_news = self._last_news

    def rested(self) -> None:
        """Nothing is left that a cycle would be due for, so that what was new asks for none."""
        self._first_news = self._last_news = None

    def ranked(self, basis: int) -> None:
        """A cycle began, which saw the log up to `basis`: what came after is the next one's to answer."""
        self._basis_before, self._basis = self._basis, basis
        first, last = self._first_news, self._last_news
        self._trigger = first if first is not None and first[0] <= basis else None
        self._first_news = last if last is not None and last[0] > basis else None

    def closed(self, at_ms: int, stored_ms: int) -> None:
        """The cycle is over."""
        if self._trigger is not None and self._period.holds(at_ms):
            self._decision.append(stored_ms - self._trigger[1])
        self._trigger = None

    def abandoned(self) -> None:
        """The next cycle answers what this one did not."""
        if self._trigger is not None:
            self._first_news, self._trigger = self._trigger, None

    # starts ------------------------------------------------------------------------------------------
    def granted(self, attempt: AttemptId, submitted_ms: int, admitted_position: int) -> None:
        """A first attempt has its GPUs: it fitted when it was granted by the first rank that saw it."""
        if self._basis_before < admitted_position <= self._basis:
            self._starting[attempt] = submitted_ms

    def runs(self, attempt: AttemptId, at_ms: int) -> None:
        submitted_ms = self._starting.pop(attempt, None)
        if submitted_ms is not None and self._period.holds(at_ms):
            self._start.append(at_ms - submitted_ms)

    def ended(self, attempt: AttemptId) -> None:
        self._starting.pop(attempt, None)

    def result(self) -> Operations:
        return Operations(
            drains=Drains(
                asked=self._asked,
                emptied=len(self._took),
                in_time=self._in_time,
                took=spread(self._took),
                promised=spread(self._promised),
            ),
            detection=spread(self._detection),
            requeue=spread(self._requeue),
            start=spread(self._start),
            decision=spread(self._decision),
        )
