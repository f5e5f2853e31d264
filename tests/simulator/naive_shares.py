"""Budgets by a slow, plain simulator that shares nothing with the product: who goes first when nobody may be evicted.

All jobs keep to their windows, so that none is ever past its own, and no promises are made. At each instant at which a
job ends or comes everybody who waits is looked at anew: from the root down the child with the least of used + promised
over entitled, in a leaf who came first, and jobs that ask the same of the same leaf wait together once one has no room.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from tests.simulator.naive_sim import Job as Plain
from tests.simulator.naive_sim import Outcome, place

HOUR_MS = 3_600_000
LOOKBACK_MS, FLOOR_MS = 7 * 24 * HOUR_MS, 24 * HOUR_MS


class Job(NamedTuple):
    """A job of a leaf; it ends before its window does."""

    plain: Plain
    leaf: str
    window_ms: int


class Held(NamedTuple):
    """GPUs that a job has from its start to its end."""

    leaf: str
    gpus: int
    start_ms: int
    end_ms: int
    window_ms: int
    parts: list[tuple[int, int]]


class Tree:
    """Weights by node, children by parent; ids in order."""

    def __init__(self, weights: dict[str, tuple[str, int]]) -> None:
        self.weights = weights

    def children(self, parent: str) -> list[str]:
        return sorted(name for name, (above, _) in self.weights.items() if above == parent)

    def path(self, name: str) -> list[str]:
        return [name, *self.path(self.weights[name][0])] if name else []

    def parts(self, amount: int, parent: str = "") -> dict[str, int]:
        """The amount down the tree: of n siblings the first k have, rounded down, what their weights say of it."""
        found: dict[str, int] = {}
        children = self.children(parent)
        whole, upto = sum(self.weights[name][1] for name in children), 0
        for name in children:
            before, upto = amount * upto // whole, upto + self.weights[name][1]
            found[name] = amount * upto // whole - before
            found |= self.parts(found[name], name)
        return found


def spent(tree: Tree, held: list[Held], granted: list[Held], now: int) -> dict[str, int]:
    """Used in the lookback, and promised: the rest of each window, whole for those granted at this instant."""
    total = dict.fromkeys(tree.weights, 0)
    for one in held:
        used = min(one.end_ms, now) - max(one.start_ms, now - LOOKBACK_MS)
        rest = one.start_ms + one.window_ms - now if one.end_ms > now and one not in granted else 0
        for name in tree.path(one.leaf):
            total[name] += one.gpus * (max(0, used) + max(0, rest))
    for one in granted:
        for name in tree.path(one.leaf):
            total[name] += one.gpus * one.window_ms
    return total


def least(tree: Tree, wanting: set[str], sums: dict[str, int], entitled: dict[str, int]) -> str:
    """The leaf whose turn it is."""
    node = ""
    while children := [name for name in tree.children(node) if any(name in tree.path(leaf) for leaf in wanting)]:
        node = min(children, key=lambda name: (Fraction(sums[name], entitled[name]), -tree.weights[name][1], name))
    return node


def budgets(tree: Tree, jobs: list[Job], hosts: int, size: int) -> list[Outcome]:
    """Run to the end: every job's start and end."""
    free, held, done = [size] * hosts, list[Held](), list[Outcome]()
    waiting = sorted(jobs, key=lambda job: (job.plain.submit_ms, job.plain.number))
    for now in _instants(waiting, held):
        for one in held:
            if one.end_ms == now:
                for host, gpus in one.parts:
                    free[host] += gpus
        amount = hosts * size * min(now, LOOKBACK_MS)
        floors = tree.parts(hosts * size * FLOOR_MS)
        entitled = {name: max(part, floors[name]) for name, part in tree.parts(amount).items()}
        here = [job for job in waiting if job.plain.submit_ms <= now]
        granted: list[Held] = []
        while here:
            leaf = least(tree, {job.leaf for job in here}, spent(tree, held, granted, now), entitled)
            job = next(job for job in here if job.leaf == leaf)
            parts = place(free, size, job.plain.gpus)
            if parts is None:
                here = [one for one in here if _asks(one) != _asks(job)]
                continue
            for host, gpus in parts:
                free[host] -= gpus
            end_ms = now + job.plain.duration_ms
            one = Held(leaf, sum(gpus for _, gpus in parts), now, end_ms, job.window_ms, parts)
            held.append(one)
            granted.append(one)
            done.append(Outcome(job.plain, now, end_ms))
            here.remove(job)
            waiting.remove(job)
    return sorted(done)


def _asks(job: Job) -> tuple[str, int, int]:
    return (job.leaf, job.plain.gpus, job.window_ms)


def _instants(waiting: list[Job], held: list[Held]) -> Iterator[int]:
    """Every instant at which a job comes or ends; both lists change while it yields."""
    now = -1
    while True:
        coming = [job.plain.submit_ms for job in waiting] + [one.end_ms for one in held]
        later = [at for at in coming if at > now]
        if not later:
            return
        now = min(later)
        yield now
