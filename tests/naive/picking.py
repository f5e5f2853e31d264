"""Who is next, the slow way (decisions.md 3.1-3.3): after every answer all candidates are ranked again.

Classes and members come as the rank names them; nothing is kept between two picks but who was granted or blocked.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from fairlease_schemas.cycle import Licence, NodeStanding, PoolRank, RequestClass


class Entry(NamedTuple):
    """One job that could be tried, in its partition."""

    partition: int
    place: Any
    job: str
    of: RequestClass


class SlowPicker:
    """Hands out picks of one pool in rank order."""

    def __init__(
        self, rank: PoolRank, members: Callable[[str], list[tuple[Any, str]]], due_first_permille: int = 0
    ) -> None:
        self.due_first_permille = due_first_permille
        self.nodes: dict[str, NodeStanding] = {node.budget: node for node in rank.nodes}
        self.charged = dict.fromkeys(self.nodes, 0)
        self.entries: list[Entry] = []
        for partition, classes in enumerate((rank.lane, rank.leaves, rank.idle)):
            for of in classes:
                if partition != 1 or of.budget in self.nodes:
                    waiting = members(of.key)[: of.count]
                    self.entries += [Entry(partition, place, job, of) for place, job in waiting]

    def next(self) -> tuple[str, str, Licence] | None:
        """Job, class and licence of the first of all that are left."""
        for partition in range(3):
            left = [entry for entry in self.entries if entry.partition == partition]
            if left and partition == 1:
                leaf = self._least(left)
                first = self._first([entry for entry in left if entry.of.budget == leaf])
                is_under = any(self._spent(name) < self.nodes[name].entitled_gpu_ms for name in self._path(leaf))
                return first.job, first.of.key, Licence.UNDER_SHARE if is_under else Licence.OVER_SHARE
            if left:
                first = self._first(left)
                return first.job, first.of.key, (Licence.DEBUG, Licence.OVER_SHARE, Licence.IDLE)[partition]
        return None

    def granted(self, *, is_counted: bool) -> None:
        """The first got its GPUs: its whole path is charged, unless its window counts already."""
        entry = self._drop_first()
        if entry.partition != 2 and not is_counted:
            of = entry.of
            for name in self._path(of.budget):
                self.charged[name] += (
                    of.hosts * of.gpus_per_host * (of.min_runtime_ms if of.rest_ms is None else of.rest_ms)
                )

    def blocked(self) -> None:
        """Nobody of the first's class is tried again in its partition; nobody is charged."""
        entry = self._drop_first()
        self.entries = [e for e in self.entries if (e.partition, e.of.key) != (entry.partition, entry.of.key)]

    def skip(self) -> None:
        self._drop_first()

    def _drop_first(self) -> Entry:
        found = self.next()
        assert found is not None
        partition = min(entry.partition for entry in self.entries)
        entry = next(e for e in self.entries if (e.partition, e.job, e.of.key) == (partition, found[0], found[1]))
        self.entries.remove(entry)
        return entry

    def _first(self, entries: list[Entry]) -> Entry:
        """The first member that is left of each class; of these the first by place, then id."""
        heads: dict[str, Entry] = {}
        for entry in entries:
            heads.setdefault(entry.of.key, entry)
        return min(heads.values(), key=lambda e: (e.place, e.job))

    def _least(self, left: list[Entry]) -> str:
        """From the root down the child with the least standing that has somebody to try, who is due more if one is."""
        waiting = {entry.of.budget for entry in left}
        due_more = {leaf for leaf in waiting if self._is_due_more(leaf)}
        alive = {name for leaf in due_more or waiting for name in self._path(leaf)}
        at = ""
        while True:
            below = [n for n in alive if self._parent(n) == at]
            if not below:
                return at
            at = min(below, key=self._order)

    def _is_due_more(self, leaf: str) -> bool:
        return self._spent(leaf) * 1000 < self.nodes[leaf].entitled_gpu_ms * self.due_first_permille

    def _order(self, name: str) -> tuple[bool, Fraction, int, str]:
        """Entitled before not; then spent over entitled; then the heavier; then the id."""
        node = self.nodes[name]
        entitled = node.entitled_gpu_ms
        ratio = Fraction(self._spent(name), entitled) if entitled else Fraction(0)
        return entitled == 0, ratio, -node.weight, name

    def _spent(self, name: str) -> int:
        return self.nodes[name].used_gpu_ms + self.nodes[name].promised_gpu_ms + self.charged[name]

    def _parent(self, name: str) -> str:
        parent = self.nodes[name].parent
        return parent if parent in self.nodes else ""

    def _path(self, name: str) -> list[str]:
        return [name, *self._path(self._parent(name))] if name else []
