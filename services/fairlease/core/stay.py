"""Every live attempt as the steps of a cycle weigh it, kept between steps: an index that can be made again.

What a step asks of an attempt (when its window ends, what it loses, whose it is) follows from its job, the policy and
the instant. Jobs are frozen values, so a stay holds for as long as the fold holds the same job under the same policy,
and only what moves with time is asked anew. The slow model: make all of it again in every step.
"""

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from fairlease.core.departures import exempt_until_ms, protected_until_ms
from fairlease.core.dues import NEVER_MS
from fairlease.core.fleet import Frame
from fairlease.core.job import Attempt, Job
from fairlease.core.state import State
from fairlease_schemas.cycle import Licence
from fairlease_schemas.ids import AttemptId, BudgetId, JobId, job_of
from fairlease_schemas.policy import Policy


class Kind(NamedTuple):
    """All that a licence asks of an attempt (5.1, 6.2): attempts of one kind may leave for the same claims."""

    leaf: BudgetId
    is_idle: bool
    is_lane: bool
    is_stopping: bool
    is_past: bool
    is_exempt: bool


class Stay:
    """One live attempt. `at` is the kind it has at an instant; `unsaved_ms` is since when its work would be lost.

    `held` is what it holds of the frame's hosts; `is_apart` when it holds something of another.
    """

    __slots__ = (
        "_from_ms",
        "_until_ms",
        "_window_ms",
        "attempt",
        "exempt_ms",
        "frame",
        "gpus",
        "gpus_on",
        "held",
        "is_apart",
        "is_stopping",
        "job",
        "kind",
        "protected_ms",
        "start_up_ms",
        "unsaved_ms",
    )

    def __init__(self, policy: Policy, job: Job, attempt: Attempt) -> None:
        self.job = job
        self.attempt = attempt
        self.gpus_on = {part.host: len(part.gpus) for part in attempt.parts}
        self.gpus = sum(self.gpus_on.values())
        self.start_up_ms = attempt.started_ms - attempt.granted_ms if attempt.started_ms is not None else 0
        self.unsaved_ms = attempt.saved_ms - self.start_up_ms
        self.exempt_ms = exempt_until_ms(policy, job)
        self.protected_ms = protected_until_ms(policy, job, attempt)
        self.is_stopping = attempt.ending is not None or attempt.is_stillborn
        self._window_ms = attempt.granted_ms + attempt.window_ms
        self._from_ms = self._until_ms = 0
        self.kind = Kind(job.budget, job.is_idle_work, False, False, False, False)
        self.frame: Frame | None = None
        self.held = 0
        self.is_apart = False

    def at(self, now_ms: int) -> Kind:
        """Its kind then."""
        if not self._from_ms <= now_ms < self._until_ms:
            self._settle(now_ms)
        return self.kind

    def place(self, frame: Frame) -> None:
        """Note what it holds of these hosts, once for a frame."""
        if self.frame is frame:
            return
        there = [(host, gpus) for host, gpus in self.gpus_on.items() if host in frame.places]
        self.frame, self.is_apart = frame, len(there) < len(self.gpus_on)
        self.held = sum(frame.held(host, gpus) for host, gpus in there)

    def _settle(self, now_ms: int) -> None:
        job, attempt = self.job, self.attempt
        is_exempt = self.exempt_ms > max(now_ms, self._window_ms)
        self.kind = Kind(
            leaf=job.budget,
            is_idle=job.is_idle_work,
            is_lane=attempt.licence is Licence.DEBUG,
            is_stopping=self.is_stopping,
            is_past=now_ms >= self.protected_ms,
            is_exempt=is_exempt,
        )
        turns = [at_ms for at_ms in (self._window_ms, self.exempt_ms, self.protected_ms) if at_ms > now_ms]
        self._from_ms, self._until_ms = now_ms, min(turns, default=NEVER_MS)


class Turns:
    """When the protections of live attempts end, as an index over the jobs: it can be made again from them.

    An entry is never taken back: one that is no longer its attempt's end is passed over.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._heap: list[tuple[int, AttemptId]] = []

    def arm(self, job: Job) -> None:
        """The job's live attempt is protected until an instant, if it is."""
        until_ms = self._until_ms(job)
        if until_ms is not None and job.live is not None:
            heappush(self._heap, (until_ms, job.live.id))

    def forget(self) -> None:
        """Other numbers are in force: everybody is armed anew."""
        self._heap.clear()

    def next_ms(self, after_ms: int) -> int:
        """The first end after `after_ms`, which is not before that of an earlier question; beyond all when none is."""
        while self._heap and not self._is_due(*self._heap[0], after_ms):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER_MS

    def _is_due(self, at_ms: int, name: AttemptId, after_ms: int) -> bool:
        job = self._state.jobs[job_of(name)]
        return at_ms > after_ms and job.live is not None and job.live.id == name and self._until_ms(job) == at_ms

    def _until_ms(self, job: Job) -> int | None:
        """Until when the live attempt may not be asked to leave; None when it is leaving, or has no protection."""
        attempt, policy = job.live, self._state.policy
        if attempt is None or policy is None or attempt.ending is not None or job.is_idle_work:
            return None
        return protected_until_ms(policy, job, attempt)


class Stays:
    """The stays of a fold's live attempts, by grant."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._position = -1
        self._known: dict[AttemptId, Stay] = {}

    def of(
        self, policy: Policy, position: int, live: Mapping[AttemptId, JobId], jobs: Mapping[JobId, Job]
    ) -> dict[AttemptId, Stay]:
        """All of them behind the record at `position`; not to be written to."""
        if self._position == position and self._policy is policy:
            return self._known
        before = self._known if self._policy is policy else {}
        known: dict[AttemptId, Stay] = {}
        for name, owner in live.items():
            job = jobs[owner]
            stay = before.get(name)
            if stay is None or stay.job is not job:
                attempt = job.live
                if attempt is None:
                    continue
                stay = Stay(policy, job, attempt)
            known[name] = stay
        self._policy, self._position, self._known = policy, position, known
        return known
