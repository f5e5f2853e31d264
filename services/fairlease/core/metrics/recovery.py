"""Preemption and recovery: who was told to leave and why, what it cost, and whether the rules of it held (M4).

Two counts must be 0: window breaks outside the named exception, and loops. The slow model of a loop looks at all
pairs of evictions; here each job remembers by leaf when somebody last left for it, so that an eviction back is
known by one look. Such an eviction is a *turn* when the job had run a whole window since, else a loop (5.3).
"""

import msgspec

from fairlease.core.departures import protected_until_ms
from fairlease.core.job import Attempt, Job, replace
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.progress import Cut, cut_of, has_run_before
from fairlease_schemas.cycle import EvictionOrdered, Licence
from fairlease_schemas.ids import AttemptId, BudgetId, JobId
from fairlease_schemas.job import End
from fairlease_schemas.policy import Policy

CLAIM, PROMISE, DRAIN, DEADLINE, MOVE = "claim", "promise", "drain", "deadline", "move"
_FAULTS = frozenset((End.FAULT, End.LOST))
_REFUSED = frozenset((End.START_FAILED, End.RESUME_REFUSED, End.FAILED, *_FAULTS))
"""Ends of an attempt before it ran by which a resume has failed; who is told to leave before that failed at nothing."""


class Cost(msgspec.Struct, frozen=True):
    """How often, and GPU-milliseconds: lost since the last checkpoint, and from grant to running afterwards."""

    count: int = 0
    lost_gpu_ms: int = 0
    restart_gpu_ms: int = 0


class _Tally:
    """A cost that grows."""

    __slots__ = ("count", "lost_gpu_ms", "restart_gpu_ms")

    def __init__(self) -> None:
        self.count = self.lost_gpu_ms = self.restart_gpu_ms = 0

    def frozen(self) -> Cost:
        return Cost(self.count, self.lost_gpu_ms, self.restart_gpu_ms)


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The period's figures. `evicted` counts by reason, then by licence; `held_gpu_ms` is of all attempts.

    `retries` are the job's own failures that were tried again. A resume is a later attempt of a job with a
    checkpoint, and succeeded when all of its parts ran.
    """

    evicted: dict[str, dict[str, int]]
    preempted: Cost
    faults: Cost
    retries: Cost
    held_gpu_ms: int
    window_breaks: int
    loops: int
    turns: int
    resumes: int
    resumed: int
    checkpoints: int

    @property
    def evictions(self) -> int:
        return sum(sum(by_licence.values()) for by_licence in self.evicted.values())


class Evictions:
    """Follows evictions, ends and starts of attempts; told of those that the scope counts alone, but for claims."""

    def __init__(self, period: Period) -> None:
        self._period = period
        self._evicted: dict[str, dict[str, int]] = {}
        self._costs = {"preempted": _Tally(), "faults": _Tally(), "retries": _Tally()}
        self._counts = dict.fromkeys(("window_breaks", "loops", "turns", "resumes", "resumed", "checkpoints"), 0)
        self._told: dict[AttemptId, None] = {}
        self._left_for: dict[JobId, dict[BudgetId, int]] = {}

    def evicted(
        self, event: EvictionOrdered, job: Job, claim: Job | None, policy: Policy, at_ms: int, *, is_promised: bool
    ) -> None:
        """Somebody was told to leave; `job` is as the eviction left it. Who was leaving already is not told again."""
        attempt = job.live
        if attempt is None or attempt.ending is not End.PREEMPTED or attempt.id in self._told:
            return
        self._told[attempt.id] = None
        is_counted = self._period.holds(at_ms)
        is_turn = is_loop = False
        if claim is not None:
            is_turn, is_loop = self._returns(job, claim, at_ms)
            self._left_for.setdefault(claim.id, {})[job.budget] = at_ms
        if not is_counted:
            return
        reason = (DEADLINE if event.is_deadline else DRAIN) if event.drain else PROMISE if is_promised else CLAIM
        reason = MOVE if event.licence is Licence.MOVE else reason
        by_licence = self._evicted.setdefault(reason, {})
        by_licence[str(event.licence)] = by_licence.get(str(event.licence), 0) + 1
        self._costs["preempted"].count += 1
        self._counts["window_breaks"] += not event.is_deadline and is_protected(policy, event, job, attempt, at_ms)
        self._counts["turns"] += is_turn
        self._counts["loops"] += is_loop

    def runs(self, job: Job, attempt: Attempt, at_ms: int) -> None:
        """Every part of the job's last attempt runs."""
        if not has_run_before(job):
            return
        is_counted = self._period.holds(at_ms)
        self._restarted(job, attempt, at_ms)
        if _has_saved(job) and is_counted:
            self._counts["resumes"] += 1
            self._counts["resumed"] += 1

    def ended(self, job: Job, attempt: Attempt, cut: Cut) -> None:
        """The job's last attempt is over, and its pieces are these."""
        self._told.pop(attempt.id, None)
        at_ms = attempt.ended_ms
        if attempt.started_ms is None and has_run_before(job):
            self._restarted(job, attempt, at_ms)
            if _has_saved(job) and attempt.end in _REFUSED and self._period.holds(at_ms):
                self._counts["resumes"] += 1
        cost = self._cost_of(attempt)
        if cost is None:
            return
        if cost is not self._costs["preempted"] and self._period.holds(at_ms):
            cost.count += 1
        cost.lost_gpu_ms += attempt.gpus * self._period.length_ms(cut.saved_ms, at_ms)

    def retried(self, job: Job, at_ms: int) -> None:
        """The job's own failure is tried again; what the last attempt had not saved is burned."""
        cost = self._costs["retries"]
        cost.count += self._period.holds(at_ms)
        cut = cut_of(job)
        cost.lost_gpu_ms += job.attempts[-1].gpus * self._period.length_ms(cut.saved_ms, cut.ended_ms)

    def saved(self, at_ms: int) -> None:
        self._counts["checkpoints"] += self._period.holds(at_ms)

    def over(self, job: JobId) -> None:
        """The job is over: nobody is evicted for it or from it any more."""
        self._left_for.pop(job, None)

    def result(self, held: int) -> Recovery:
        evicted = {reason: dict(sorted(found.items())) for reason, found in sorted(self._evicted.items())}
        return Recovery(
            evicted=evicted,
            held_gpu_ms=held,
            preempted=self._costs["preempted"].frozen(),
            faults=self._costs["faults"].frozen(),
            retries=self._costs["retries"].frozen(),
            window_breaks=self._counts["window_breaks"],
            loops=self._counts["loops"],
            turns=self._counts["turns"],
            resumes=self._counts["resumes"],
            resumed=self._counts["resumed"],
            checkpoints=self._counts["checkpoints"],
        )

    def _returns(self, job: Job, claim: Job, at_ms: int) -> tuple[bool, bool]:
        """(turn, loop): whether the job leaves for a leaf of which somebody left for it, and had its window since."""
        debts = self._left_for.get(job.id)
        since_ms = debts.pop(claim.budget, None) if debts else None
        if since_ms is None:
            return False, False
        has_run = has_run_window(job, since_ms, at_ms)
        return has_run, not has_run

    def _restarted(self, job: Job, attempt: Attempt, at_ms: int) -> None:
        before = next((job.attempts[k] for k in range(len(job.attempts) - 2, -1, -1) if _was(job.attempts[k])), None)
        cost = self._cost_of(before) if before is not None else None
        if before is not None and cost is None and before.end in (End.FAILED, End.TIMED_OUT):
            cost = self._costs["retries"]
        if cost is not None:
            cost.restart_gpu_ms += attempt.gpus * self._period.length_ms(attempt.granted_ms, at_ms)

    def _cost_of(self, attempt: Attempt) -> _Tally | None:
        if attempt.end is End.PREEMPTED:
            return self._costs["preempted"]
        return self._costs["faults"] if attempt.end in _FAULTS else None


def is_protected(policy: Policy, event: EvictionOrdered, job: Job, attempt: Attempt, at_ms: int) -> bool:
    """Whether the eviction fell into the window or exemption of budgeted work, as it was before it."""
    if job.is_idle_work:
        return False
    if not event.drain and job.preemptions_ms:  # this eviction is among them by now, and must not excuse itself
        job = replace(job, preemptions_ms=job.preemptions_ms[:-1])
    return at_ms < protected_until_ms(policy, job, attempt)


def has_run_window(job: Job, since_ms: int, at_ms: int) -> bool:
    """Whether an attempt granted since then has run the whole window that it was granted."""
    for place in range(len(job.attempts) - 1, -1, -1):
        attempt = job.attempts[place]
        if attempt.granted_ms < since_ms:
            return False
        if not attempt.is_stillborn and (attempt.ended_ms or at_ms) - attempt.granted_ms >= attempt.window_ms:
            return True
    return False


def _was(attempt: Attempt) -> bool:
    return not attempt.is_stillborn


def _has_saved(job: Job) -> bool:
    """Whether an attempt before the last has a checkpoint that the last could go on from; a clean one does not."""
    if not job.request.is_resumable or job.attempts[-1].is_clean:
        return False
    return any(job.attempts[k].checkpoint_ms > 0 for k in range(len(job.attempts) - 2, -1, -1))
