"""Standings the slow way (decisions.md 2.2-2.8): the whole log is read again, and every piece is added up.

A *moment* is what stood after a record: each host's GPUs, holds and who held what, and the tree. Nothing is
kept between two questions. Amounts are integers, comparisons are fractions.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from fairlease.core.world import World
from fairlease_schemas import codec
from fairlease_schemas.budget import AttemptCharged, BudgetChanged
from fairlease_schemas.cycle import GangGranted
from fairlease_schemas.host import HostHeld, HostHoldCleared, HostRegistered
from fairlease_schemas.job import AttemptEnded
from fairlease_schemas.policy import Policy

Tree = dict[str, tuple[str, int]]
"""Node to parent and weight."""


class Moment(NamedTuple):
    """What stood from `at_ms` on: GPUs that are schedulable by pool, and the tree, last changed at `tree_ms`."""

    at_ms: int
    schedulable: dict[str, int]
    tree: Tree
    tree_ms: int


class Number(NamedTuple):
    """One node's numbers in GPU-milliseconds."""

    entitled: int
    used: int
    promised: int

    @property
    def spent(self) -> int:
        return self.used + self.promised


class History:
    """The log as the moments it made, and the lumps that it charged; fed record by record."""

    def __init__(self, records: Iterable[bytes] = ()) -> None:
        self.moments: list[Moment] = []
        self.lumps: list[tuple[int, str, str, int]] = []
        self._pool: dict[str, str] = {}
        self._gpus: dict[str, int] = {}
        self._holds: dict[str, list[tuple[str, str]]] = {}
        self._taken: dict[str, dict[str, int]] = {}
        self._ended_ms: dict[str, int] = {}
        self._tree: Tree = {}
        self._tree_ms = self._now_ms = 0
        for data in records:
            self.add(data)

    def add(self, data: bytes) -> None:
        """One more record."""
        record = codec.read_record(data)
        self._now_ms = max(self._now_ms, record.at_ms)
        for event in record.events:
            self._see(event)
        moment = Moment(self._now_ms, self._schedulable(), dict(self._tree), self._tree_ms)
        if not self.moments or self.moments[-1][1:] != moment[1:]:
            if self.moments and self.moments[-1].at_ms == moment.at_ms:
                self.moments.pop()
            self.moments.append(moment)

    def _see(self, event: Any) -> None:  # noqa: ANN401 - any event
        match event:
            case HostRegistered():
                self._pool[event.host], self._gpus[event.host] = event.inventory.pool, len(event.inventory.gpus)
                self._taken.setdefault(event.host, {})
            case HostHeld():
                self._holds.setdefault(event.host, []).append((event.owner, event.kind))
            case HostHoldCleared():
                self._holds[event.host] = [h for h in self._holds[event.host] if h != (event.owner, event.kind)]
            case GangGranted():
                for part in event.parts:
                    self._taken[part.host][event.attempt] = len(part.gpus)
            case AttemptEnded():
                self._ended_ms[event.attempt] = self._now_ms
                for taken in self._taken.values():
                    taken.pop(event.attempt, None)
            case BudgetChanged():
                self._tree[event.budget], self._tree_ms = (event.parent, event.weight), self._now_ms
            case AttemptCharged():
                lump = event.surcharge_gpu_ms - event.credit_gpu_ms
                self.lumps.append((self._ended_ms[event.attempt], event.budget, event.pool, lump))
            case _:
                pass

    def _schedulable(self) -> dict[str, int]:
        """M1: a GPU of a held host counts only while an attempt has it."""
        total: dict[str, int] = {}
        for host, gpus in self._gpus.items():
            counted = sum(self._taken[host].values()) if self._holds.get(host) else gpus
            total[self._pool[host]] = total.get(self._pool[host], 0) + counted
        return total


def children(tree: Tree, parent: str) -> list[str]:
    """Siblings by id."""
    return sorted(name for name, (above, _) in tree.items() if above == parent)


def path(tree: Tree, name: str) -> list[str]:
    """The node and all above it."""
    return [] if name not in tree else [name, *path(tree, tree[name][0])]


def divided(tree: Tree, amount: int, parent: str = "") -> dict[str, int]:
    """Rule 2.2: child i gets floor(A(w1+…+wi)/W) - floor(A(w1+…+w(i-1))/W), all the way down."""
    parts: dict[str, int] = {}
    below = children(tree, parent)
    total = sum(tree[name][1] for name in below)
    for index, name in enumerate(below):
        upto = sum(tree[one][1] for one in below[: index + 1])
        parts[name] = amount * upto // total - amount * (upto - tree[name][1]) // total
        parts |= divided(tree, parts[name], name)
    return parts


@cache
def weight(age: int) -> int:
    """Floor of 2^32 x 2^(-age/64), found as an integer root (2.8)."""
    if age > 32 * 64:
        return 0
    power, low, high = 1 << (32 * 64 - age), 0, 1 << 33
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**64 <= power else (low, middle)
    return low


def faded(policy: Policy, now_ms: int, pieces: Iterable[tuple[int, int, int]]) -> int:
    """Sum of value x length over (from, to, value) within the lookback; each fade step rounded down by itself."""
    begin_ms = now_ms - policy.lookback_ms
    step_ms = max(1, policy.half_life_ms // 64) if policy.half_life_ms else 0
    by_step: dict[int, int] = {}
    for from_ms, to_ms, value in pieces:
        at_ms, until_ms = max(from_ms, begin_ms), min(to_ms, now_ms)
        while at_ms < until_ms:
            step = at_ms // step_ms if step_ms else 0
            end_ms = min(until_ms, (step + 1) * step_ms) if step_ms else until_ms
            by_step[step] = by_step.get(step, 0) + value * (end_ms - at_ms)
            at_ms = end_ms
    if not step_ms:
        return sum(by_step.values())
    return sum(amount * weight(now_ms // step_ms - step) >> 32 for step, amount in by_step.items())


def entitled(history: History, policy: Policy, pool: str, now_ms: int) -> dict[str, int]:
    """Rules 2.2 and 2.3 for the nodes of the present tree."""
    moments = history.moments
    tree = moments[-1].tree
    total = dict.fromkeys(tree, 0)
    index = 0
    while index < len(moments):
        same = index
        while same < len(moments) and moments[same].tree_ms == moments[index].tree_ms:
            same += 1
        pieces = []
        for at in range(index, same):
            until_ms = moments[at + 1].at_ms if at + 1 < len(moments) else now_ms
            pieces.append((moments[at].at_ms, until_ms, moments[at].schedulable.get(pool, 0)))
        for name, part in divided(moments[index].tree, faded(policy, now_ms, pieces)).items():
            if name in total:
                total[name] += part
        index = same
    # Rule 2.3: the floor, but never more than a share that always stood would have: the lookback, or what fades to
    # h / ln 2, written as 1.443 h.
    most_ms = [policy.entitlement_floor_ms, policy.lookback_ms]
    most_ms += [policy.half_life_ms * 1443 // 1000] * bool(policy.half_life_ms)
    floor = divided(tree, moments[-1].schedulable.get(pool, 0) * min(most_ms))
    return {name: max(total[name], floor[name]) for name in tree}


def used(history: History, world: World, policy: Policy, pool: str, now_ms: int) -> dict[str, int]:
    """Rules 2.4 and 2.6 by leaf: GPUs x time from grant to release, surcharges less credits."""
    held: dict[str, dict[int, int]] = {}
    for job in world.jobs.values():
        for attempt in job.attempts:
            if attempt.pool == pool and job.request.min_runtime_ms and not attempt.is_stillborn:
                end_ms = attempt.ended_ms if attempt.end is not None else now_ms
                changes = held.setdefault(job.budget, {})
                changes[attempt.granted_ms] = changes.get(attempt.granted_ms, 0) + attempt.gpus
                changes[end_ms] = changes.get(end_ms, 0) - attempt.gpus
    total = {leaf: faded(policy, now_ms, _pieces(changes)) for leaf, changes in held.items()}
    step_ms = max(1, policy.half_life_ms // 64) if policy.half_life_ms else 0
    for at_ms, leaf, where, amount in history.lumps:
        if where == pool and now_ms - policy.lookback_ms < at_ms <= now_ms and amount:
            part = amount * weight(now_ms // step_ms - at_ms // step_ms) >> 32 if step_ms else amount
            total[leaf] = total.get(leaf, 0) + part
    return total


def _pieces(changes: dict[int, int]) -> list[tuple[int, int, int]]:
    times = sorted(changes)
    return [(a, b, sum(changes[t] for t in times if t <= a)) for a, b in pairwise(times)]


def exempt_until_ms(policy: Policy, job: Any) -> int:  # noqa: ANN401 - a job, as data
    """Rule 5.7: after N preemptions within the span, until the span after the first of them; 0 for never."""
    told = list(job.preemptions_ms)[-policy.brake_count :] if policy.brake_count else []
    if len(told) < policy.brake_count or not told or job.request.min_runtime_ms == 0:
        return 0
    return told[0] + policy.brake_span_ms if told[-1] - told[0] <= policy.brake_span_ms else 0


def window_ms(job: Any) -> int:  # noqa: ANN401 - a job, as data
    """Rule 7.7: the next attempt's window, found by going back over the attempts since the last whole one."""
    ran_ms = 0
    for attempt in reversed([one for one in job.attempts if not one.is_stillborn]):
        is_whole = attempt.end != "fault" or attempt.ending == "preempted" or not job.request.is_resumable
        if is_whole:
            break
        ran_ms += attempt.ended_ms - attempt.granted_ms
    whole_ms: int = job.request.min_runtime_ms
    return max(0, whole_ms - ran_ms)


def pools(job: Any) -> tuple[str, ...]:  # noqa: ANN401 - a job, as data
    """Rule 8.3: where the job may go: the pool of its last confirmed checkpoint, if that can be read nowhere else."""
    accepted: tuple[str, ...] = job.request.pools
    return (job.bound_to,) if job.bound_to and job.request.is_resumable else accepted


def promised(world: World, policy: Policy, pool: str, now_ms: int) -> dict[str, int]:
    """Rule 2.5 by leaf."""
    total: dict[str, int] = {}
    for job in world.jobs.values():
        live = job.attempts[-1] if job.attempts and job.attempts[-1].end is None else None
        if job.request.min_runtime_ms == 0:
            continue
        if live is not None:
            if live.pool == pool and not live.is_stillborn:
                until_ms = max(live.granted_ms + live.window_ms, exempt_until_ms(policy, job))
                total[job.budget] = total.get(job.budget, 0) + live.gpus * max(0, until_ms - now_ms)
            continue
        kept = world.promises.get(job.id) or world.reservations.get(job.id)
        if kept is not None and kept.pool == pool:
            total[job.budget] = total.get(job.budget, 0) + job.gpus * window_ms(job)
    return total


def standings(history: History, world: World, policy: Policy, pool: str, now_ms: int) -> dict[str, Number]:
    """Every node's numbers; parents are the sums of their leaves."""
    tree = history.moments[-1].tree
    shares = entitled(history, policy, pool, now_ms)
    spent = used(history, world, policy, pool, now_ms)
    owed = promised(world, policy, pool, now_ms)
    return {
        name: Number(
            shares[name],
            sum(amount for leaf, amount in spent.items() if name in path(tree, leaf)),
            sum(amount for leaf, amount in owed.items() if name in path(tree, leaf)),
        )
        for name in tree
    }


def sides(tree: Tree, claimant: str, victim: str) -> tuple[str, str] | None:
    """X and Y of rule 5.2; None where one is above the other or both are one."""
    ours, theirs = path(tree, claimant)[::-1], path(tree, victim)[::-1]
    for our, their in zip(ours, theirs, strict=False):
        if our != their:
            return our, their
    return None


def counted_ms(ours: Number, window_gpu_ms: int, window_permille: int) -> int:
    """How much of a new window rule 5.2 counts: all of it, or at most so much of what the side is entitled to."""
    return min(window_gpu_ms, ours.entitled * window_permille // 1000) if window_permille else window_gpu_ms


def outweighs(ours: Number, theirs: Number, window_gpu_ms: int, margin_permille: int) -> bool:
    """Rule 5.2 as it is written."""
    if ours.entitled == 0:
        return False
    if theirs.entitled == 0:
        return True
    left = Fraction(ours.spent + window_gpu_ms, ours.entitled) + Fraction(margin_permille, 1000)
    return left < Fraction(theirs.spent, theirs.entitled)
