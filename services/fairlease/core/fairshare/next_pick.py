"""Who is next: the three partitions of decisions.md 3, walked while placing.

The slow model: after every grant, charge the path, rank all candidates again, take the first. This
one keeps the candidates of each leaf in a heap and walks from the root down the child with the least
standing that still has a candidate. A block removes the whole class and charges nobody (3.2, 4.4).
"""

from collections.abc import Callable
from functools import cmp_to_key
from heapq import heapify, heappop, heappush

import msgspec

from fairlease_schemas.cycle import Licence, NodeStanding, PoolRank, RequestClass
from fairlease_schemas.envelope import Address
from fairlease_schemas.ids import BudgetId, JobId

Members = Callable[[str], list[tuple[Address, JobId]]]


class Pick(msgspec.Struct, frozen=True):
    """One claim to try: a job of a class, and the licence of the partition that ranked it."""

    job: JobId
    of: RequestClass
    licence: Licence


class _Node:
    """A node while picking: its numbers, and how many classes below it may still be picked."""

    __slots__ = ("candidates", "children", "entitled", "name", "parent", "spent", "weight")

    def __init__(self, standing: NodeStanding) -> None:
        self.name = standing.budget
        self.parent = standing.parent
        self.weight = standing.weight
        self.entitled = standing.entitled_gpu_ms
        self.spent = standing.used_gpu_ms + standing.promised_gpu_ms
        self.children: list[_Node] = []
        self.candidates = 0


def compare_standing(a: _Node, b: _Node) -> int:
    """Negative when `a` goes first.

    1. nodes entitled to something before nodes entitled to nothing;
    2. the smaller spent/entitled, by cross-multiplication;
    3. the heavier weight;
    4. the id.
    """
    if (a.entitled == 0) != (b.entitled == 0):
        return 1 if a.entitled == 0 else -1
    left, right = a.spent * b.entitled, b.spent * a.entitled
    if left != right:
        return -1 if left < right else 1
    if a.weight != b.weight:
        return -1 if a.weight > b.weight else 1
    return -1 if a.name < b.name else 1


_BY_STANDING = cmp_to_key(compare_standing)


class _Queue:
    """Classes in order of the first submission still to be tried in each."""

    def __init__(self, classes: tuple[RequestClass, ...], members: Members) -> None:
        self._heap: list[tuple[Address, JobId, int]] = []
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

    `members(key)` gives the jobs of a class that wait now, first submission first. A job that was
    taken elsewhere in the meantime is passed over by calling `skip`.
    """

    def __init__(self, rank: PoolRank, members: Members) -> None:
        self._lane = _Queue(rank.lane, members)
        self._idle = _Queue(rank.idle, members)
        self._nodes = {standing.budget: _Node(standing) for standing in rank.nodes}
        self._roots: list[_Node] = []
        for node in self._nodes.values():
            above = self._nodes.get(node.parent)
            (above.children if above else self._roots).append(node)
        by_leaf: dict[BudgetId, list[RequestClass]] = {}
        for of in rank.leaves:
            if of.budget in self._nodes:
                by_leaf.setdefault(of.budget, []).append(of)
        self._leaves = {name: _Queue(tuple(classes), members) for name, classes in by_leaf.items()}
        for name, queue in self._leaves.items():
            self._count(name, len(queue))
        self._at: _Queue | None = None
        self._pick: Pick | None = None

    def next(self) -> Pick | None:
        """The next claim to try; the same again until it was granted, blocked or skipped."""
        if self._lane:
            self._at, licence = self._lane, Licence.DEBUG
        elif self._roots and any(root.candidates for root in self._roots):
            leaf = self._least()
            self._at = self._leaves[leaf.name]
            licence = Licence.UNDER_SHARE if leaf.spent < leaf.entitled else Licence.OVER_SHARE
        elif self._idle:
            self._at, licence = self._idle, Licence.IDLE
        else:
            self._pick = None
            return None
        job, of = self._at.peek()
        self._pick = Pick(job, of, licence)
        return self._pick

    def granted(self) -> None:
        """The last pick got its GPUs: its path is charged with the new window (3.2)."""
        pick, queue = self._current()
        of = pick.of
        if pick.licence is not Licence.IDLE:
            gpu_ms = of.hosts * of.gpus_per_host * of.min_runtime_ms
            for node in self._path(of.budget):
                node.spent += gpu_ms
        if not queue.next_member():
            self._used_up(queue, of)

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

    def _least(self) -> _Node:
        """From the root down the child with the least standing, among those with candidates."""
        level = self._roots
        while True:
            node = min((n for n in level if n.candidates), key=_BY_STANDING)
            if not any(child.candidates for child in node.children):
                return node
            level = node.children

    def _path(self, name: BudgetId) -> list[_Node]:
        path = []
        node = self._nodes.get(name)
        while node is not None:
            path.append(node)
            node = self._nodes.get(node.parent)
        return path

    def _used_up(self, queue: _Queue, of: RequestClass) -> None:
        if queue is self._leaves.get(of.budget):
            self._count(of.budget, -1)

    def _count(self, name: BudgetId, delta: int) -> None:
        for node in self._path(name):
            node.candidates += delta
