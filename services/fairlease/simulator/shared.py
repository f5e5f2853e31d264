"""Other schedulers' fair shares as policies: whose turn it is by their rankers, over what the fold knows of each leaf.

Common to all: inside a leaf by first submission; who finds no room is passed; idle work comes last, by submission.
`fair-tree` reads usage within the lookback and does not see a cycle's own grants; `usage-decay` adds what a grant will
use until the next sample; `hadoop-fair` and `kai-time` read what is held, grants of the cycle too. None of them
evicts, nor knows windows: that is where they differ from the product.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final

from fairlease.core.budget import Tree
from fairlease.core.fairshare.fade import Lookback
from fairlease.core.job import Job
from fairlease.simulator.rankers import fair_tree, hadoop_fair, kai_time, usage_decay
from fairlease.simulator.rankers.tree import Share, account, user
from fairlease.simulator.walk import Open, offer_all, waiting
from fairlease_schemas.ids import BudgetId
from fairlease_schemas.units import MINUTE_MS

SAMPLE_MS: Final = 5 * MINUTE_MS
KAI_K: Final = Fraction(1)

Next = Callable[["Leaves"], BudgetId]
"""Whose turn it is among the leaves that have somebody left to offer."""


class Leaves:
    """What is known of every leaf in this placement; GPUs over all pools."""

    def __init__(self, here: Open) -> None:
        self.world = here.world
        self.tree = here.world.tree
        self.now_ms = here.now_ms
        self.left: dict[BudgetId, list[Job]] = {}
        self.idle: list[Job] = []
        self.held = dict.fromkeys(self.tree.leaves(), 0)
        self.granted = dict.fromkeys(self.tree.leaves(), 0)
        for job in sorted(waiting(here.world), key=lambda job: job.admitted, reverse=True):
            (self.idle if job.is_idle_work else self.left.setdefault(job.budget, [])).append(job)
        for name in here.world.live.values():
            job = here.world.jobs[name]
            if not job.is_idle_work and job.budget in self.held:
                self.held[job.budget] += job.gpus
        self.asked = {name: sum(job.gpus for job in jobs) for name, jobs in self.left.items()}

    def used_gpu_ms(self, leaf: BudgetId) -> int:
        """GPU-time held within the lookback, faded as the policy says."""
        policy = self.world.policy
        if policy is None:
            return 0
        lookback = Lookback(policy, self.now_ms)
        pools = self.world.fleet.pools()
        return sum(lookback.integral(self.world.held(leaf, pool), lookback.from_ms, self.now_ms) for pool in pools)

    def take(self, leaf: BudgetId, gpus: int) -> None:
        """The leaf got so many GPUs in this placement."""
        self.held[leaf] += gpus
        self.granted[leaf] += gpus
        self.asked[leaf] -= gpus

    def sum_below(self, amounts: dict[BudgetId, int], node: BudgetId) -> int:
        """Over the leaves at or below the node."""
        return sum(amount for leaf, amount in amounts.items() if node in self.tree.path(leaf))


def by_turns(choose: Callable[[Leaves], Next]) -> Callable[[Open], None]:
    """A walk that offers, turn after turn, the first job of the leaf whose turn it is."""

    def walk(here: Open) -> None:
        leaves = Leaves(here)
        following = choose(leaves)
        while leaves.left:
            leaf = following(leaves)
            job = leaves.left[leaf].pop()
            if not leaves.left[leaf]:
                del leaves.left[leaf]
            if here.offer(job):
                leaves.take(leaf, job.gpus)
        offer_all(here, reversed(leaves.idle))

    return walk


def by_fair_tree(leaves: Leaves) -> Next:
    """Slurm's Fair Tree over the budget tree: ranked once for a placement, as usage moves with time alone."""
    used = {leaf: leaves.used_gpu_ms(leaf) for leaf in leaves.held}
    ranked = [one.name for one in fair_tree.fair_tree(account("", 1, *_shares(leaves.tree, "", used)))]
    return lambda now: next(name for name in ranked if name in now.left)


def _shares(tree: Tree, parent: BudgetId, used: dict[BudgetId, int]) -> Iterable[Share]:
    for name in tree.children(parent):
        weight = tree.nodes[name].weight
        if tree.is_leaf(name):
            yield user(name, weight, used[name])
        else:
            yield account(name, weight, *_shares(tree, name, used))


def by_hadoop(_leaves: Leaves) -> Next:
    """Hadoop's order at every level from the root down: what is held over weight, who wants something first."""

    def following(now: Leaves) -> BudgetId:
        node = ""
        while True:
            children = [name for name in now.tree.children(node) if now.sum_below(_counts(now), name)]
            if not children:
                return node
            node = min((_claim(now, name) for name in children), key=hadoop_fair.claim_order).name

    return following


def _counts(now: Leaves) -> dict[BudgetId, int]:
    return {leaf: len(jobs) for leaf, jobs in now.left.items()}


def _claim(now: Leaves, node: BudgetId) -> hadoop_fair.Claim:
    held, asked = now.sum_below(now.held, node), now.sum_below(now.asked, node)
    first = min(jobs[-1].submitted_ms for leaf, jobs in now.left.items() if node in now.tree.path(leaf))
    weight = Fraction(now.tree.nodes[node].weight)
    return hadoop_fair.Claim(node, usage=held, demand=held + asked, least=0, weight=weight, start_ms=first)


def by_usage_decay(leaves: Leaves) -> Next:
    """Usage for each unit of share, with what this placement's grants will use until the next sample."""
    used = {leaf: leaves.used_gpu_ms(leaf) for leaf in leaves.held}
    parts = _parts(leaves.tree)

    def following(now: Leaves) -> BudgetId:
        consumers = (
            usage_decay.Consumer(leaf, used[leaf], parts[leaf], penalty=now.granted[leaf] * SAMPLE_MS)
            for leaf in now.left
        )
        return min(consumers, key=usage_decay.consumer_order).name

    return following


def by_kai(leaves: Leaves) -> Next:
    """KAI's order of queues over its fair shares, by what each has used of the cluster within the lookback."""
    world, policy = leaves.world, leaves.world.policy
    capacity = sum(world.fleet.gpus_in(pool) for pool in world.fleet.pools())
    parts = _parts(leaves.tree)
    window_ms = policy.lookback_ms if policy is not None else 0
    whole = max((part.denominator for part in parts.values()), default=1)
    queues = [
        kai_time.Queue(
            leaf,
            deserved=0,
            weight=int(part * whole * 1000),
            asked=leaves.held[leaf] + leaves.asked.get(leaf, 0),
            used=kai_time.used_part(leaves.used_gpu_ms(leaf), capacity, window_ms),
        )
        for leaf, part in parts.items()
    ]
    fair = dict(zip(parts, kai_time.exact_shares(capacity, queues, KAI_K), strict=True))

    def following(now: Leaves) -> BudgetId:
        return min((_position(now, leaf, fair[leaf], capacity) for leaf in now.left), key=kai_time.queue_order).name

    return following


def _position(now: Leaves, leaf: BudgetId, fair: Fraction, capacity: int) -> kai_time.Position:
    held, job = now.held[leaf], now.left[leaf][-1]
    return kai_time.Position(
        leaf,
        fair=fair / capacity,
        quota=Fraction(0),
        share=Fraction(held, capacity),
        with_job=Fraction(held + job.gpus, capacity),
        priority=0,
        allocatable=int(fair),
        created_ms=0,
    )


def _parts(tree: Tree) -> dict[BudgetId, Fraction]:
    """Each leaf's part of the whole: the product of the shares down its path."""
    found: dict[BudgetId, Fraction] = {}
    for leaf in tree.leaves():
        part = Fraction(1)
        for name in tree.path(leaf):
            siblings = sum(tree.nodes[child].weight for child in tree.children(tree.nodes[name].parent))
            part *= Fraction(tree.nodes[name].weight, siblings)
        found[leaf] = part
    return found
