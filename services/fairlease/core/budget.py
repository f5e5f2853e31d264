"""The budget tree: who shares with whom, and the ledger's decisions about it (decisions.md 2).

A tree is a value: every change makes a new one, and the old ones are kept as *pieces* as long as the
lookback reaches them, because entitlement is integrated piece by piece (2.2). Leaves are what jobs
are charged to; a node with children is none.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import accumulate

import msgspec

from fairlease.core.job import Attempt, Job, replace
from fairlease.core.policy_rules import ORDERS, policy_problems
from fairlease_schemas.budget import AttemptCharged, BudgetChanged
from fairlease_schemas.commands import ChangeBudget, ChangePolicy
from fairlease_schemas.envelope import Address, Answer, Unreadable
from fairlease_schemas.ids import BudgetId, is_name
from fairlease_schemas.job import CommandRefused, End, MessageRefused, Problem
from fairlease_schemas.policy import Policy, PolicyChanged

MAX_WEIGHT = 1_000_000
MAX_DEPTH = 8
MAX_NODES = 2_000
MAX_CHARGES_PER_RECORD = 200
MAX_PERMILLE = 1_000_000
MAX_SPLITS = 8
FIRST_POLICY_NAME = "default"


class Node(msgspec.Struct, frozen=True):
    """One node; `parent` is empty for the children of the root, which has no node of its own."""

    parent: BudgetId
    weight: int
    order: str = "fifo"
    max_protected_permille: int = 0
    burst_permille: int = 0


class Tree(msgspec.Struct, frozen=True, dict=True):
    """All nodes by id, in the order of the ids, so that every walk is the same everywhere.

    A tree never changes, so what a walk finds is kept with it.
    """

    nodes: Mapping[BudgetId, Node] = {}

    def children(self, parent: BudgetId) -> list[BudgetId]:
        """Children of a node (of the root: of the empty id), by id."""
        return [name for name, node in self.nodes.items() if node.parent == parent]

    def is_leaf(self, name: BudgetId) -> bool:
        """Whether jobs may be charged to it: it exists and nothing hangs below it."""
        return name in self.nodes and not any(node.parent == name for node in self.nodes.values())

    def path(self, name: BudgetId) -> list[BudgetId]:
        """The node, its parent, and so on up to a child of the root; empty for an unknown one. Not to be written to."""
        path = self._paths.get(name)
        if path is None:
            path, at = [], name
            while at and at in self.nodes and len(path) <= MAX_DEPTH:
                path.append(at)
                at = self.nodes[at].parent
            if path:
                self._paths[name] = path
        return path

    @cached_property
    def _paths(self) -> dict[BudgetId, list[BudgetId]]:
        return {}

    def leaves(self) -> list[BudgetId]:
        """Every leaf, by id."""
        parents = {node.parent for node in self.nodes.values()}
        return [name for name in self.nodes if name not in parents]

    def by_parent(self) -> dict[BudgetId, list[BudgetId]]:
        """The children of every node that has some, by id: what a walk over all of a large tree looks up."""
        below: dict[BudgetId, list[BudgetId]] = {}
        for name, node in self.nodes.items():
            below.setdefault(node.parent, []).append(name)
        return below

    def walk(self, parent: BudgetId = "") -> Iterator[tuple[BudgetId, int]]:
        """Every node below `parent`, depth first, siblings by id, with its depth from 0."""
        yield from self._whole if not parent else self._below(parent)

    @cached_property
    def _whole(self) -> tuple[tuple[BudgetId, int], ...]:
        return tuple(self._below(""))

    def _below(self, parent: BudgetId) -> Iterator[tuple[BudgetId, int]]:
        below = self.by_parent()
        frontier = [(child, 0) for child in reversed(below.get(parent, ()))]
        while frontier:
            name, depth = frontier.pop()
            yield name, depth
            frontier.extend((child, depth + 1) for child in reversed(below.get(name, ())))

    def with_node(self, name: BudgetId, node: Node) -> "Tree":
        """The tree after a change of one node."""
        return Tree(dict(sorted({**self.nodes, name: node}.items())))

    def split(self, parent: BudgetId, amount: int) -> dict[BudgetId, int]:
        """An amount divided among the children by weight, by prefix rounding (2.2).

        Child i in id order gets floor(A(w1+…+wi)/W) - floor(A(w1+…+w(i-1))/W): they sum to the amount.
        """
        return self._split(self.children(parent), amount)

    def _split(self, children: Iterable[BudgetId], amount: int) -> dict[BudgetId, int]:
        total = sum(self.nodes[child].weight for child in children)
        parts: dict[BudgetId, int] = {}
        weight_before = given = 0
        for child in children:
            weight_before += self.nodes[child].weight
            upto = amount * weight_before // total
            parts[child] = upto - given
            given = upto
        return parts

    def split_all(self, amount: int) -> dict[BudgetId, int]:
        """The amount divided down the whole tree: each node's part. Not to be written to."""
        known = self._splits.get(amount)
        if known is not None:
            return known
        parts = {"": amount}
        for parent, total, children in self._divisions:
            whole, given = parts[parent], 0
            for child, weight_upto in children:
                upto = whole * weight_upto // total
                parts[child] = upto - given
                given = upto
        del parts[""]
        if len(self._splits) >= MAX_SPLITS:
            self._splits.clear()
        self._splits[amount] = parts
        return parts

    @cached_property
    def _splits(self) -> dict[int, dict[BudgetId, int]]:
        """The last amounts divided: the steps of one cycle ask for the same few."""
        return {}

    @cached_property
    def _divisions(self) -> tuple[tuple[BudgetId, int, tuple[tuple[BudgetId, int], ...]], ...]:
        """Parents before their children: each with its children's weight in all, and up to each child by id."""
        below = self.by_parent()
        found = []
        for parent in ("", *(name for name, _ in self._whole)):
            children = below.get(parent, [])
            upto = tuple(accumulate(self.nodes[child].weight for child in children))
            if children:
                found.append((parent, upto[-1], tuple(zip(children, upto, strict=True))))
        return tuple(found)


class Piece(msgspec.Struct, frozen=True):
    """A tree and the instant from which it was in force."""

    from_ms: int
    tree: Tree


class Uncharged(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that ended and awaits its one charge; `ended` is the address of its end.

    `credit_gpu_ms` is what a host fault or a drain's deadline undid, `caused_gpu_ms` what its victims lost (2.6).
    """

    budget: BudgetId
    pool: str
    held_gpu_ms: int
    credit_gpu_ms: int
    caused_gpu_ms: int
    is_budgeted: bool
    ended: Address


def owed(job: Job, attempt: Attempt, ended: Address) -> Uncharged:
    """What an attempt that is over owes its budget. A stillborn one held nothing that anybody could use."""
    held_gpu_ms = 0 if attempt.is_stillborn else attempt.held_gpu_ms(attempt.ended_ms)
    # A deadline ended what left for it: not who was done in its grace, nor who was cancelled meanwhile.
    is_ended_by_it = attempt.is_credited and attempt.ending is End.PREEMPTED and attempt.end is not End.SUCCEEDED
    is_credited = attempt.end is End.FAULT or is_ended_by_it
    unsaved_gpu_ms = attempt.gpus * (attempt.ended_ms - attempt.saved_ms) if is_credited else 0
    return Uncharged(
        budget=job.budget,
        pool=attempt.pool,
        held_gpu_ms=held_gpu_ms,
        credit_gpu_ms=min(held_gpu_ms, unsaved_gpu_ms),
        caused_gpu_ms=attempt.caused_gpu_ms,
        is_budgeted=not job.is_idle_work,
        ended=ended,
    )


def change_budget(
    tree: Tree, busy: frozenset[BudgetId], answer: Answer, said: ChangeBudget
) -> BudgetChanged | CommandRefused | None:
    """The event for a `change-budget` by somebody who may, or None when the tree is already so.

    Refused: an id or weight out of bounds, an unknown parent, a cycle, more than `MAX_DEPTH` levels,
    and children under a leaf that live jobs are charged to (`busy`).
    """
    present = tree.nodes.get(said.budget)
    parent = parent_of(tree, said)
    problem = _tree_problem(tree, busy, said, parent)
    if problem is not None:
        return CommandRefused(account=answer.who, verb="change-budget", seq=answer.seq, problems=(problem,))
    wanted = _node(present or Node("", 1), said, parent)
    if present == wanted:
        return None
    changed = BudgetChanged(
        budget=said.budget,
        parent=parent,
        weight=said.weight,
        author=answer.who,
        reason=said.reason[:200],
        max_protected_permille=wanted.max_protected_permille,
        burst_permille=wanted.burst_permille,
    )
    # A default is left out of the bytes by its identity, which a text that comes from a snapshot has not.
    return changed if wanted.order == changed.order else replace(changed, order=wanted.order)


def parent_of(tree: Tree, said: ChangeBudget) -> BudgetId:
    """The parent that the node would have: what is not said stays as it is."""
    present = tree.nodes.get(said.budget)
    return said.parent if said.parent is not None else (present.parent if present else "")


def node_of(event: BudgetChanged) -> Node:
    """The node as the event makes it."""
    return Node(event.parent, event.weight, event.order, event.max_protected_permille, event.burst_permille)


def _node(present: Node, said: ChangeBudget, parent: BudgetId) -> Node:
    """The node as it would be: what is not said stays as it is."""
    most, burst = said.max_protected_permille, said.burst_permille
    return Node(
        parent,
        said.weight,
        said.order if said.order is not None else present.order,
        most if most is not None else present.max_protected_permille,
        burst if burst is not None else present.burst_permille,
    )


def _tree_problem(tree: Tree, busy: frozenset[BudgetId], said: ChangeBudget, parent: BudgetId) -> Problem | None:
    if not is_name(said.budget):
        return Problem(
            field="budget", rule="2.1", value=said.budget[:80], limit="1-63 of a-z 0-9 -", way_out="choose another name"
        )
    if not 1 <= said.weight <= MAX_WEIGHT:
        return Problem(
            field="weight",
            rule="2.1",
            value=str(said.weight)[:30],
            limit=f"1 to {MAX_WEIGHT}",
            way_out="write a whole number from 1 on",
        )
    if said.order is not None and said.order not in ORDERS:
        return Problem(
            field="order", rule="3.2", value=said.order[:40], limit=", ".join(ORDERS), way_out="write one of these"
        )
    for field, permille in (
        ("max_protected_permille", said.max_protected_permille),
        ("burst_permille", said.burst_permille),
    ):
        if permille is not None and not 0 <= permille <= MAX_PERMILLE:
            limit, way_out = f"0-{MAX_PERMILLE}", "write an integer, 0 for none"
            return Problem(field=field, rule="2.9", value=str(permille)[:30], limit=limit, way_out=way_out)
    if said.budget not in tree.nodes and len(tree.nodes) >= MAX_NODES:
        limit, way_out = f"{MAX_NODES} budgets in the tree", "join small budgets into one"
        return Problem(field="budget", rule="2.1", value=said.budget, limit=limit, way_out=way_out)
    if not parent:
        return None
    if parent not in tree.nodes:
        return Problem(
            field="parent", rule="2.1", value=parent[:80], limit="a budget of the tree", way_out="make it first"
        )
    above = tree.path(parent)
    if said.budget in above:
        return Problem(
            field="parent",
            rule="2.1",
            value=parent,
            limit="not below the budget itself",
            way_out="move the parent first",
        )
    height = 1 + max((depth + 1 for _, depth in tree.walk(said.budget)), default=0)
    if len(above) + height > MAX_DEPTH:
        return Problem(
            field="parent", rule="2.1", value=parent, limit=f"{MAX_DEPTH} levels", way_out="hang it higher up"
        )
    if parent in busy and tree.is_leaf(parent):
        return Problem(
            field="parent",
            rule="1.1",
            value=parent,
            limit="no children while jobs are charged to it",
            way_out="end or move its jobs first",
        )
    return None


def change_policy(
    name: str, policy: Policy | None, answer: Answer, said: ChangePolicy
) -> PolicyChanged | CommandRefused | None:
    """The event for a `change-policy`, or None when this policy is in force under this name."""
    problems: tuple[Problem, ...]
    if not is_name(said.name):
        limit, way_out = "1-63 of a-z 0-9 -", "choose another name"
        problems = (Problem(field="name", rule="10.1", value=said.name[:80], limit=limit, way_out=way_out),)
    elif said.name == name and said.policy != policy:
        limit, way_out = "the numbers in force under this name", "other numbers need another name"
        problems = (Problem(field="name", rule="10.1", value=said.name, limit=limit, way_out=way_out),)
    else:
        problems = policy_problems(said.policy)
    if problems:
        return CommandRefused(account=answer.who, verb="change-policy", seq=answer.seq, problems=problems)
    if said.name == name:
        return None
    return PolicyChanged(name=said.name, author=answer.who, policy=said.policy, reason=said.reason[:200])


def refuse_unreadable(answer: Answer, said: Unreadable) -> MessageRefused:
    """The event that answers a message nobody can read."""
    return MessageRefused(
        stream=answer.stream,
        seq=answer.seq,
        size=said.size,
        sha256=said.sha256,
        error=said.error[:200],
        field=said.field,
    )


def charge(attempt: str, due: Uncharged) -> AttemptCharged:
    """The one charge of an ended attempt (2.6): max(held, what its victims lost) - credit; idle work pays nothing."""
    surcharge_gpu_ms = max(0, due.caused_gpu_ms - due.held_gpu_ms) if due.is_budgeted else 0
    credit_gpu_ms = due.credit_gpu_ms if due.is_budgeted else 0
    paid_gpu_ms = due.held_gpu_ms + surcharge_gpu_ms - credit_gpu_ms
    return AttemptCharged(
        attempt=attempt,
        budget=due.budget,
        pool=due.pool,
        held_gpu_ms=due.held_gpu_ms,
        charged_gpu_ms=paid_gpu_ms if due.is_budgeted else 0,
        credit_gpu_ms=credit_gpu_ms,
        surcharge_gpu_ms=surcharge_gpu_ms,
    )
