"""The scales: every node's standing in one pool while a step decides, and how two sides compare.

Made from the numbers that the rank recorded. A grant, an eviction or a promise made in the same cycle
charges the claimant's path with its whole window at once, so that the next comparison sees it.
"""

from collections.abc import Iterable
from functools import cmp_to_key

from fairlease_schemas.cycle import NodeStanding
from fairlease_schemas.ids import BudgetId


class Node:
    """One budget node: entitled and spent (used + promised) GPU-milliseconds within the lookback.

    While a step picks: how many `candidates` are below it, and how many of them in leaves that are `due_more` (3.2).
    """

    __slots__ = ("candidates", "children", "due_more", "entitled", "name", "parent", "spent", "weight")

    def __init__(self, standing: NodeStanding) -> None:
        self.name = standing.budget
        self.parent = standing.parent
        self.weight = standing.weight
        self.entitled = standing.entitled_gpu_ms
        self.spent = standing.used_gpu_ms + standing.promised_gpu_ms
        self.children: list[Node] = []
        self.candidates = 0
        self.due_more = 0

    @property
    def is_under(self) -> bool:
        """Whether its standing is below 1."""
        return self.spent < self.entitled

    def is_below(self, permille: int) -> bool:
        """Whether its standing is below so much."""
        return 1000 * self.spent < permille * self.entitled

    @property
    def permille(self) -> int:
        """Its standing for people, rounded down; 0 where nothing is entitled."""
        return self.spent * 1000 // self.entitled if self.entitled else 0


def compare_standing(a: Node, b: Node) -> int:
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


BY_STANDING = cmp_to_key(compare_standing)


Contest = tuple[Node, Node, int]
"""The sides X and Y of rule 5.2, and the victims' leaves for which these are the sides, as bits."""

Parted = tuple[int, list[tuple[int, Node]]]
"""Leaves below some standing, as bits; and the others, each with its bit."""


class Scales:
    """All nodes of the tree in one pool. `version` moves with every charge."""

    def __init__(self, standings: Iterable[NodeStanding]) -> None:
        self.nodes = {standing.budget: Node(standing) for standing in standings}
        self.roots: list[Node] = []
        self.version = 0
        self._paths: dict[BudgetId, list[Node]] = {}
        self._leaves: tuple[BudgetId, ...] = ()
        self._behind: dict[BudgetId, int] = {}
        self._contests: dict[BudgetId, list[Contest]] = {}
        self._parted_at = (-1, 0)
        self._parted_of: tuple[BudgetId, ...] = ()
        self._parted: Parted = (0, [])
        for node in self.nodes.values():
            above = self.nodes.get(node.parent)
            (above.children if above else self.roots).append(node)

    def path(self, name: BudgetId) -> list[Node]:
        """The node, its parent, and so on; empty for a node the rank did not know. Not to be written to."""
        path = self._paths.get(name)
        if path is None:
            path = self._paths[name] = []
            node = self.nodes.get(name)
            while node is not None:
                path.append(node)
                node = self.nodes.get(node.parent)
        return path

    def charge(self, leaf: BudgetId, gpu_ms: int) -> None:
        """The leaf's whole path has spent so much more."""
        self.version += 1
        for node in self.path(leaf):
            node.spent += gpu_ms

    def sides(self, claimant: BudgetId, victim: BudgetId) -> tuple[Node, Node] | None:
        """The children of the lowest common ancestor towards each: X and Y of rule 5.2. None for one leaf."""
        ours, theirs = self.path(claimant), self.path(victim)
        if not ours or not theirs or claimant == victim:
            return None
        x, y = len(ours) - 1, len(theirs) - 1
        while x and y and ours[x] is theirs[y]:
            x, y = x - 1, y - 1
        return (ours[x], theirs[y]) if ours[x] is not theirs[y] else None

    def is_below(self, leaf: BudgetId, permille: int) -> bool:
        """Whether that leaf stands below so much; one that the rank did not know does not."""
        node = self.nodes.get(leaf)
        return node is not None and node.is_below(permille)

    def parted(self, leaves: tuple[BudgetId, ...], permille: int) -> Parted:
        """These leaves by whether they stand below so much; bit k is for the k-th. Kept until somebody is charged."""
        if not permille:
            return 0, []
        if self._parted_at != (self.version, permille) or self._parted_of is not leaves:
            below, others = 0, []
            for place, leaf in enumerate(leaves):
                if self.is_below(leaf, permille):
                    below |= 1 << place
                elif leaf in self.nodes:
                    others.append((1 << place, self.nodes[leaf]))
            self._parted_at, self._parted_of, self._parted = (self.version, permille), leaves, (below, others)
        return self._parted

    def contests(self, claimant: BudgetId, leaves: tuple[BudgetId, ...]) -> list[Contest]:
        """The sides towards each of these leaves, equal ones together; bit k is for the k-th leaf.

        Of the claimant's path each node with each of its siblings: behind a sibling lie the leaves below it.
        """
        if self._leaves is not leaves:
            self._leaves = leaves
            self._contests.clear()
            self._behind.clear()
            for place, leaf in enumerate(leaves):
                for node in self.path(leaf):
                    self._behind[node.name] = self._behind.get(node.name, 0) | 1 << place
        found = self._contests.get(claimant)
        if found is None:
            found = self._contests[claimant] = []
            for ours in self.path(claimant):
                above = self.nodes.get(ours.parent)
                for theirs in above.children if above is not None else self.roots:
                    if theirs is not ours and theirs.name in self._behind:
                        found.append((ours, theirs, self._behind[theirs.name]))
        return found


def outweighs(ours: Node, theirs: Node, window_gpu_ms: int, margin_permille: int) -> bool:
    """Rule 5.2: (X.spent + the new window)/E(X) + margin < Y.spent/E(Y), all in integers.

    A side entitled to nothing outweighs nobody; one that holds something and is entitled to nothing
    is outweighed by anybody who is.
    """
    if ours.entitled == 0:
        return False
    if theirs.entitled == 0:
        return True
    left = (1000 * (ours.spent + window_gpu_ms) + margin_permille * ours.entitled) * theirs.entitled
    return left < 1000 * theirs.spent * ours.entitled
