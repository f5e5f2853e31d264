"""Every live attempt as the steps of a cycle weigh it, kept between steps: an index that can be made again.

What a step asks of an attempt (when its window ends, what it loses, whose it is) follows from its job, the policy and
the instant. Jobs are frozen values, so a stay holds for as long as the fold holds the same job under the same policy,
and only what moves with time is asked anew. The slow model: make all of it again in every step.
"""

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final, NamedTuple

from fairlease.core.departures import Departure, departure, exempt_until_ms, protected_until_ms
from fairlease.core.dues import NEVER_MS
from fairlease.core.fleet import Frame
from fairlease.core.job import Attempt, Job
from fairlease.core.state import State
from fairlease_schemas.cycle import Licence
from fairlease_schemas.ids import AttemptId, BudgetId, HostId, PoolId, job_of
from fairlease_schemas.policy import Policy


class Kind(NamedTuple):
    """All that a licence asks of an attempt (5.1, 6.2): attempts of one kind may leave for the same claims."""

    leaf: BudgetId
    is_idle: bool
    is_lane: bool
    is_stopping: bool
    is_past: bool
    is_exempt: bool


_NOBODY = Kind(leaf="", is_idle=True, is_lane=False, is_stopping=True, is_past=True, is_exempt=False)


class Stay:
    """One live attempt. `at` is the kind it has at an instant; `unsaved_ms` is since when its work would be lost.

    `until_ms` is when that kind ends. `held` is what it holds of the frame's hosts; `is_apart` when it holds something
    of another.
    """

    __slots__ = (
        "_from_ms",
        "_leaves",
        "_window_ms",
        "attempt",
        "exempt_ms",
        "frame",
        "gpus",
        "gpus_on",
        "held",
        "is_apart",
        "is_counted",
        "is_stopping",
        "job",
        "kind",
        "protected_ms",
        "start_up_ms",
        "unsaved_ms",
        "until_ms",
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
        self._from_ms = self.until_ms = 0
        self._leaves = departure(policy, job, attempt, 0)
        self.kind = _NOBODY
        self.frame: Frame | None = None
        self.held = 0
        self.is_apart = self.is_counted = False

    def at(self, now_ms: int) -> Kind:
        """Its kind then."""
        if not self._from_ms <= now_ms < self.until_ms:
            self._settle(now_ms)
        return self.kind

    def leaves(self, now_ms: int) -> Departure:
        """When it will have to go, as `departure` says it then."""
        known = self._leaves
        if now_ms <= known.end_ms or self.attempt.ending is not None:
            return known
        return Departure(now_ms, known.grace_ms)

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
        self._from_ms, self.until_ms = now_ms, min(turns, default=NEVER_MS)


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


MAX_RULES: Final = 4096


class Reach:
    """Which kinds may leave by which rule, as bits by kind; kept for as long as the same leaves hold something.

    A rule is named by all that its answer depends on but the kind: a licence over these leaves, or a side.
    """

    def __init__(self, leaves: tuple[BudgetId, ...]) -> None:
        self.leaves = leaves
        self._bits: dict[Kind, int] = {}
        self._rules: dict[Hashable, tuple[int, int]] = {}

    def bit(self, kind: Kind) -> int:
        """The kind, as a bit."""
        bit = self._bits.get(kind)
        if bit is None:
            bit = self._bits[kind] = 1 << len(self._bits)
        return bit

    def of(self, rule: Hashable, may_leave: Callable[[Kind], bool]) -> int:
        """The bits of all kinds known so far that may leave by that rule. Each is asked once."""
        asked, found = self._rules.get(rule, (0, 0))
        if asked < len(self._bits):
            for kind, bit in islice(self._bits.items(), asked, None):
                found |= bit if may_leave(kind) else 0
            if len(self._rules) >= MAX_RULES:
                self._rules.clear()
            self._rules[rule] = (len(self._bits), found)
        return found


class Tenure:
    """The stays of one pool, with what steps ask of all of them, kept up as they come, turn and go.

    `held` is what those of each kind hold of the frame's hosts, `apart` how many of them hold something elsewhere.
    `weighed` and `there` are for whoever weighs them at the present instant: by attempt, and by host in order.
    They forget whoever comes and goes, and everybody at another instant.
    """

    def __init__(self) -> None:
        self.stays: dict[AttemptId, Stay] = {}
        self.weighed: dict[AttemptId, Any] = {}
        self.there: dict[HostId, list[Any]] = {}
        self._reach = Reach(())
        self.gpus = 0
        self.apart = 0
        self.held: dict[Kind, int] = {}
        self._budgeted: dict[BudgetId, int] = {}
        self._protected: dict[BudgetId, tuple[int, int]] = {}
        self._turns: list[tuple[int, AttemptId]] = []
        self._frame: Frame | None = None
        self._now_ms = 0
        self._leaves: tuple[BudgetId, ...] | None = None

    @property
    def leaves(self) -> tuple[BudgetId, ...]:
        """Leaves whose budgeted work holds something here, by id; the same value until they are others."""
        if self._leaves is None:
            self._leaves = tuple(sorted(self._budgeted))
        return self._leaves

    def reach(self, leaves: tuple[BudgetId, ...]) -> Reach:
        """What rules over these leaves say of kinds, as far as it is known."""
        if self._reach.leaves != leaves:
            self._reach = Reach(leaves)
        return self._reach

    def promised_gpu_ms(self) -> Iterator[tuple[BudgetId, int]]:
        """By leaf, GPUs x what is left of its running windows and exemptions (2.5)."""
        for leaf, (gpus, gpus_until_ms) in self._protected.items():
            yield leaf, gpus_until_ms - gpus * self._now_ms

    def come(self, stay: Stay) -> None:
        """One more; it counts from the next `settle`."""
        self.stays[stay.attempt.id] = stay
        self.gpus += stay.gpus
        self._forget(stay)
        if not stay.job.is_idle_work:
            leaf = stay.job.budget
            self._budgeted[leaf] = self._budgeted.get(leaf, 0) + 1
            self._leaves = None if self._budgeted[leaf] == 1 else self._leaves
        heappush(self._turns, (0, stay.attempt.id))

    def go(self, stay: Stay) -> None:
        """One less."""
        del self.stays[stay.attempt.id]
        self.gpus -= stay.gpus
        self._forget(stay)
        if not stay.job.is_idle_work:
            leaf = stay.job.budget
            self._budgeted[leaf] -= 1
            if not self._budgeted[leaf]:
                del self._budgeted[leaf]
                self._leaves = None
        if stay.is_counted:
            self._count(stay, -1)

    def settle(self, frame: Frame, now_ms: int) -> None:
        """Everybody as he is at that instant on these hosts."""
        if frame is not self._frame or now_ms < self._now_ms:
            self.held, self._protected, self.apart = {}, {}, 0
            self._turns = [(0, name) for name in self.stays]
            for stay in self.stays.values():
                stay.is_counted = False
        if frame is not self._frame or now_ms != self._now_ms:
            self.weighed, self.there = {}, {}
        self._frame, self._now_ms = frame, now_ms
        while self._turns and self._turns[0][0] <= now_ms:
            at_ms, name = heappop(self._turns)
            if name not in self.stays:
                continue
            stay = self.stays[name]
            if stay.is_counted and stay.until_ms != at_ms:
                continue
            if stay.is_counted:
                self._count(stay, -1)
            stay.at(now_ms)
            stay.place(frame)
            self._count(stay, 1)
            if stay.until_ms < NEVER_MS:
                heappush(self._turns, (stay.until_ms, name))

    def _forget(self, stay: Stay) -> None:
        self.weighed.pop(stay.attempt.id, None)
        for host in stay.gpus_on:
            self.there.pop(host, None)

    def _count(self, stay: Stay, sign: int) -> None:
        stay.is_counted = sign > 0
        self.apart += sign * stay.is_apart
        left = self.held.get(stay.kind, 0) + sign * stay.held
        if left:
            self.held[stay.kind] = left
        else:
            self.held.pop(stay.kind, None)
        if not stay.kind.is_past and not stay.kind.is_idle:
            leaf = stay.kind.leaf
            gpus, until_ms = self._protected.get(leaf, (0, 0))
            gpus, until_ms = gpus + sign * stay.gpus, until_ms + sign * stay.gpus * stay.protected_ms
            if gpus:
                self._protected[leaf] = (gpus, until_ms)
            else:
                self._protected.pop(leaf, None)


class Stays:
    """The stays of a fold's live attempts, by pool. The world says whose attempt changed, and they are made anew."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._policy: Policy | None = None
        self._known: dict[AttemptId, Stay] = {}
        self._pools: dict[PoolId, Tenure] = {}
        self._changed: dict[AttemptId, None] = {}

    def changed(self, name: AttemptId) -> None:
        """The attempt came, changed or went."""
        self._changed[name] = None

    def of(self, policy: Policy, pool: PoolId, frame: Frame, now_ms: int) -> Tenure:
        """Those in the pool, as they are at that instant under that policy. Not to be written to."""
        if policy is not self._policy:
            self._changed = dict.fromkeys((*self._known, *self._changed))
            self._policy = policy
        for name in self._changed:
            before = self._known.pop(name, None)
            if before is not None:
                self._pools[before.attempt.pool].go(before)
            job = self._state.jobs.get(job_of(name))
            if job is not None and job.live is not None and job.live.id == name:
                self._known[name] = stay = Stay(policy, job, job.live)
                self._pools.setdefault(job.live.pool, Tenure()).come(stay)
        self._changed.clear()
        tenure = self._pools.setdefault(pool, Tenure())
        tenure.settle(frame, now_ms)
        return tenure
