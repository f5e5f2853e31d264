"""Who is next: the three partitions of decisions.md 3, walked while placing.

The slow model: after every grant, charge the path, rank all candidates again, take the first. This
one keeps the candidates of each leaf in a heap and walks from the root down the child with the least
standing that still has a candidate, in a leaf that is due more as long as there is one. A block
removes the whole class and charges nobody (3.2, 4.4).
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from fairlease.core.fairshare.scales import BY_STANDING, Node, Scales
from fairlease_schemas.cycle import Licence, PoolRank, RequestClass
from fairlease_schemas.ids import BudgetId, JobId

Members = Callable[[str], list[tuple[Any, JobId]]]
"""A class's key to its waiting jobs with what sorts them: one kind of place within a leaf."""


class Pick(msgspec.Struct, frozen=True):
    """One claim to try: a job of a class, and the licence of the partition that ranked it."""

    job: JobId
    of: RequestClass
    licence: Licence


class _Queue:
    """Classes in order of the first submission still to be tried in each."""

    def __init__(self, classes: tuple[RequestClass, ...], members: Members) -> None:
        self._heap: list[tuple[Any, JobId, int]] = []
        self._classes = [(of, members(of.key)) for of in classes]
        self._next = [0] * len(classes)
        for index, (_, waiting) in enumerate(self._classes):
            if waiting:
                self._heap.append((*waiting[0], index))
        heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def peek(self) -> tuple[JobId, RequestClass]:
        _, job, index = self._heap[0]
        return job, self._classes[index][0]

    def drop_class(self) -> None:
        """The first class cannot be placed now: none of its members is tried again."""
        heappop(self._heap)

    def next_member(self) -> bool:
        """The first class goes on with its next member; False when that was its last at the rank."""
        _, _, index = heappop(self._heap)
        of, waiting = self._classes[index]
        self._next[index] += 1
        at = self._next[index]
        if at < len(waiting) and at < of.count:
            heappush(self._heap, (*waiting[at], index))
            return True
        return False


class Picker:
    """Hands out picks of one pool in rank order; told after each whether it was granted or blocked.

    `members(key)` gives the jobs of a class that wait now in their leaf's own order, `by_submission`
    the same by first submission, as lane and idle work go (`members` itself when absent). A job that
    was taken elsewhere in the meantime is passed over by calling `skip`. A leaf that stands below
    `due_first_permille` comes before all that do not, whatever stands above them (3.2).
    """

    def __init__(
        self,
        rank: PoolRank,
        members: Members,
        by_submission: Members | None = None,
        *,
        due_first_permille: int = 0,
    ) -> None:
        by_submission = by_submission or members
        self._due_first_permille = due_first_permille
        self._lane = _Queue(rank.lane, by_submission)
        self._idle = _Queue(rank.idle, by_submission)
        self.scales = Scales(rank.nodes)
        by_leaf: dict[BudgetId, list[RequestClass]] = {}
        for of in rank.leaves:
            if of.budget in self.scales.nodes:
                by_leaf.setdefault(of.budget, []).append(of)
        self._leaves = {name: _Queue(tuple(classes), members) for name, classes in by_leaf.items()}
        self._due_more: dict[BudgetId, int] = {}
        self._ordered: dict[BudgetId, list[Node]] = {}
        for name, queue in self._leaves.items():
            self._count(name, len(queue))
        self._version = self.scales.version
        self._at: _Queue | None = None
        self._pick: Pick | None = None

    def next(self) -> Pick | None:
        """The next claim to try; the same again until it was granted, blocked or skipped."""
        licence: Licence
        if self._lane:
            self._at, licence = self._lane, Licence.DEBUG
        elif (leaf := self._least()) is not None:
            self._at = self._leaves[leaf.name]
            licence = Licence.OVER_SHARE
            for node in self.scales.path(leaf.name):
                # Below 1 at any level: the level that counts is the victim's business (3.6).
                if node.spent < node.entitled:
                    licence = Licence.UNDER_SHARE
                    break
        elif self._idle:
            self._at, licence = self._idle, Licence.IDLE
        else:
            self._pick = None
            return None
        job, of = self._at.peek()
        self._pick = Pick(job, of, licence)
        return self._pick

    def granted(self, *, is_counted: bool = False) -> None:
        """The last pick got its GPUs: its path is charged with the new window, unless it counts already (3.2)."""
        pick, queue = self._current()
        of = pick.of
        if pick.licence is not Licence.IDLE and not is_counted:
            self.charge(of.budget, of.hosts * of.gpus_per_host * of.window_ms)
        if not queue.next_member():
            self._used_up(queue, of)

    def charge(self, leaf: BudgetId, gpu_ms: int) -> None:
        """The leaf's whole path has spent so much more; it may not be due more any longer."""
        node = self.scales.nodes.get(leaf)
        self.scales.charge(leaf, gpu_ms)
        if node is not None and not node.is_below(self._due_first_permille):
            self._set_due_more(leaf, 0)

    def blocked(self) -> None:
        """The last pick's class cannot be placed in this cycle; nobody is charged."""
        pick, queue = self._current()
        queue.drop_class()
        self._used_up(queue, pick.of)

    def skip(self) -> None:
        """The last pick no longer waits; the next of its class is tried."""
        pick, queue = self._current()
        if not queue.next_member():
            self._used_up(queue, pick.of)

    def _current(self) -> tuple[Pick, _Queue]:
        assert self._pick is not None and self._at is not None, "ask for a pick first"  # noqa: PT018 - one condition: next() was called
        return self._pick, self._at

    def _least(self) -> Node | None:
        """From the root down the child with the least standing, among those with candidates; None when none has.

        Among those with a candidate in a leaf that is due more, as long as there is one.
        """
        if self._version != self.scales.version:
            self._version = self.scales.version
            self._ordered.clear()
        level, above = self.scales.roots, ""
        is_due_first = any(node.due_more for node in level)
        least: Node | None = None
        while level:
            ordered = self._ordered.get(above)
            if ordered is None:
                ordered = self._ordered[above] = sorted(level, key=BY_STANDING)
            for node in ordered:
                if node.due_more if is_due_first else node.candidates:
                    least = node
                    break
            else:
                break
            level, above = least.children, least.name
        return least

    def _used_up(self, queue: _Queue, of: RequestClass) -> None:
        if queue is self._leaves.get(of.budget):
            self._count(of.budget, -1)

    def _count(self, name: BudgetId, delta: int) -> None:
        for node in self.scales.path(name):
            node.candidates += delta
        if self.scales.nodes[name].is_below(self._due_first_permille):
            self._set_due_more(name, len(self._leaves[name]))

    def _set_due_more(self, leaf: BudgetId, candidates: int) -> None:
        """So many candidates of the leaf come before those of leaves that have their due, from now on."""
        delta = candidates - self._due_more.get(leaf, 0)
        if delta:
            self._due_more[leaf] = candidates
            for node in self.scales.path(leaf):
                node.due_more += delta
