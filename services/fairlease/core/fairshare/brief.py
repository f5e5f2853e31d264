"""A rank that fits one record, for the cell whose rank would not (log.md L2).

The whole rank names every node of the tree in every pool, so that people can read it. Placement needs
less: the paths of the leaves that wait, by which it picks, and those of the leaves that run something
in the pool, whose sides rule 5.2 compares. Without the rest it decides the same. What still does not
fit is left out in two ways: the classes submitted last, which the next rank goes on with, and of those
who run, the leaves that stand lowest. Their work is nobody's victim in that cycle; the first to
be asked to leave are the others anyway.
"""

from collections.abc import Iterable, Mapping

import msgspec

from fairlease.core.budget import Tree
from fairlease_schemas.cycle import NodeStanding, RequestClass
from fairlease_schemas.ids import BudgetId, PoolId

MAX_RANK_BYTES = 224 * 1024
"""What a rank may take of its record's 256 KiB: the frame around it is a timer's answer and a few names."""

MAX_CLASS_BYTES = 128 * 1024
"""What its classes may take of that, with their leaves' paths: the rest is left to those who run."""

_POOL_BYTES = 256
_ENCODER = msgspec.json.Encoder()

Standings = Mapping[PoolId, tuple[NodeStanding, ...]]


def size(value: object) -> int:
    """Bytes of the value in a record, with the comma behind it."""
    return len(_ENCODER.encode(value)) + 1


class Brief:
    """What is kept of the pools' standings, and how many bytes that and the classes come to so far."""

    def __init__(self, tree: Tree, standings: Standings) -> None:
        self._tree = tree
        self._nodes = {pool: {node.budget: node for node in nodes} for pool, nodes in standings.items()}
        self._kept: dict[PoolId, set[BudgetId]] = {}
        self._bytes = 0

    def classes(self, waiting: Iterable[tuple[RequestClass, tuple[PoolId, ...]]]) -> int:
        """How many of the classes fit, the first ones, each in all of its pools; one always does."""
        count = 0
        for of, pools in waiting:
            parts = 2 if of.lane else 1  # the lane's classes stand among their leaf's too (3.1)
            cost = len(pools) * parts * size(of) + sum(self._cost(pool, of.budget) for pool in pools)
            if count and self._bytes + cost > MAX_CLASS_BYTES:
                break
            self._bytes += cost
            for pool in pools:
                self._keep(pool, of.budget)
            count += 1
        return count

    def running(self, leaves: Iterable[tuple[PoolId, BudgetId]]) -> None:
        """Keep the paths of leaves that run something in pools that are named, as long as they fit.

        1. leaves that are entitled to nothing there;
        2. the leaf that stands highest;
        3. the pool, then the leaf, by id.
        """
        named = (one for one in leaves if one[0] in self._kept and one[1] in self._nodes[one[0]])
        for pool, leaf in sorted(named, key=self._place):
            cost = self._cost(pool, leaf)
            if self._bytes + cost > MAX_RANK_BYTES:
                return
            self._bytes += cost
            self._keep(pool, leaf)

    def nodes(self, pool: PoolId) -> tuple[NodeStanding, ...]:
        """What is kept of the pool's standings, in their order."""
        kept = self._kept[pool]
        return tuple(node for name, node in self._nodes[pool].items() if name in kept)

    def _place(self, one: tuple[PoolId, BudgetId]) -> tuple[int, int, PoolId, BudgetId]:
        pool, leaf = one
        node = self._nodes[pool][leaf]
        if not node.entitled_gpu_ms:
            return (0, 0, pool, leaf)
        return (1, -((node.used_gpu_ms + node.promised_gpu_ms) * 1000 // node.entitled_gpu_ms), pool, leaf)

    def _cost(self, pool: PoolId, leaf: BudgetId) -> int:
        """What the leaf's path would add."""
        kept = self._kept.get(pool)
        missing = (name for name in self._tree.path(leaf) if kept is None or name not in kept)
        return (_POOL_BYTES if kept is None else 0) + sum(size(self._nodes[pool][name]) for name in missing)

    def _keep(self, pool: PoolId, leaf: BudgetId) -> None:
        self._kept.setdefault(pool, set()).update(self._tree.path(leaf))
