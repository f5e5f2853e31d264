"""Advice for contracts that look mis-sized (decisions.md 1.18): never a reason to refuse.

A window that covers the whole timeout gives up nothing for its protection. A window larger than its
budget's entitlement over the lookback, less the margin of 5.2, can never evict budgeted work: with it the
budget would stand above its share from the first minute. It runs only where room is free by itself.
What jobs of its kind waited lately, beside what others like it did, is told where that is much less.
"""

from fairlease.core.budget import Tree
from fairlease.core.fairshare.standing import floor_ms, standings
from fairlease.core.policy_rules import window_bound
from fairlease.core.starts import Starts, size_class, told_wait, told_window, usual_wait_ms, window_class
from fairlease.core.words import Number
from fairlease.core.world import World
from fairlease_schemas.ids import BudgetId, PoolId
from fairlease_schemas.job import Advice, Request
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import MINUTE_MS, format_length

WORTH_MS = 5 * MINUTE_MS
LESS = 2
"""A wait that nobody minds is not worth advice, nor one that is not at most half of it."""


def advise(world: World, policy: Policy, budget: BudgetId, request: Request, now_ms: int) -> tuple[Advice, ...]:
    """What the submitter could do better, given a request that is taken."""
    if request.min_runtime_ms == 0 or request.lane:
        return ()
    found = [_oversized(world, policy, budget, request, now_ms), _whole(request)]
    found.append(_sooner(world.starts, request, now_ms - policy.lookback_ms))
    return tuple(advice for advice in found if advice is not None)


def _sooner(starts: Starts, request: Request, since_ms: int) -> Advice | None:
    """What waited less lately: the longest shorter window that did, or else the largest smaller size."""
    size, window = size_class(request.hosts * request.gpus_per_host), window_class(request.min_runtime_ms)
    usual_ms = usual_wait_ms(starts, size, window, since_ms)
    if usual_ms is None or usual_ms < WORTH_MS:
        return None
    last = f"with {told_window(window)} in {told_wait(usual_ms)} (medians of the last starts)"
    for shorter in range(window - 1, -1, -1) if request.is_resumable else ():
        wait_ms = usual_wait_ms(starts, size, shorter, since_ms)
        if wait_ms is not None and wait_ms <= usual_ms // LESS:
            text = f"with a window of {told_window(shorter)} jobs like this started in {told_wait(wait_ms)}, {last}"
            return Advice(field="spec.min_runtime", rule="1.18", text=text)
    while size > 1:
        size //= 2
        wait_ms = usual_wait_ms(starts, size, window, since_ms)
        if wait_ms is not None and wait_ms <= usual_ms // LESS:
            text = (
                f"jobs of at most {Number(size):GPU} with such a window started in {told_wait(wait_ms)}, "
                f"those like this in {told_wait(usual_ms)} (medians of the last starts)"
            )
            return Advice(field="spec.hosts", rule="1.18", text=text)
    return None


def _whole(request: Request) -> Advice | None:
    """A resumable job that is protected for all its time asks for more than it needs."""
    if not request.is_resumable or request.min_runtime_ms < request.timeout_ms:
        return None
    text = (
        f"the window of {format_length(request.min_runtime_ms)} covers the whole timeout; "
        "a shorter window fits more places and starts sooner"
    )
    return Advice(field="spec.min_runtime", rule="1.18", text=text)


def _oversized(world: World, policy: Policy, budget: BudgetId, request: Request, now_ms: int) -> Advice | None:
    """A window that no accepted pool's entitlement could carry, with the longest that could evict, in whole minutes."""
    gpus = request.hosts * request.gpus_per_host
    whole_gpu_ms = gpus * request.min_runtime_ms * 1000
    less = 1000 - policy.margin_permille
    if any(whole_gpu_ms <= less * _floor_gpu_ms(world, policy, pool, budget) for pool in request.pools):
        return None  # the entitlement is never below its floor: most windows need no more arithmetic
    entitled_gpu_ms = max((_entitled_gpu_ms(world, pool, budget, now_ms) for pool in request.pools), default=0)
    if whole_gpu_ms <= less * entitled_gpu_ms:
        return None
    longest_ms = max(0, less * entitled_gpu_ms // (1000 * gpus) // MINUTE_MS * MINUTE_MS)
    bound_ms = window_bound(policy, gpus).shortest_ms
    way_out = f"the longest window that could evict is {format_length(longest_ms)}"
    if longest_ms < max(1, bound_ms):
        way_out = f"no window of {Number(gpus):GPU} could evict"
    text = (
        f"{Number(gpus):GPU} for {format_length(request.min_runtime_ms)} {Number(gpus):is|are} more than budget "
        f"{budget} is entitled to in "
        f"{format_length(policy.lookback_ms)} less the margin, so it starts only where room is free; {way_out}"
    )
    field = "spec.min_runtime" if request.is_resumable else "spec.timeout"
    return Advice(field=field, rule="1.18", text=text)


def _floor_gpu_ms(world: World, policy: Policy, pool: PoolId, budget: BudgetId) -> int:
    """The least that the budget counts as entitled to (2.3): its present share of the present capacity."""
    meter = world.fleet.schedulable.get(pool)
    return leaf_part(world.tree, budget, (meter.value if meter else 0) * floor_ms(policy))


def _entitled_gpu_ms(world: World, pool: PoolId, budget: BudgetId, now_ms: int) -> int:
    return next((node.entitled_gpu_ms for node in standings(world, pool, now_ms) if node.budget == budget), 0)


def leaf_part(tree: Tree, budget: BudgetId, amount: int) -> int:
    """The budget's part of an amount divided down the tree: what `split_all` gives it, along its path alone."""
    parent = ""
    for node in reversed(tree.path(budget)):
        amount = tree.split(parent, amount)[node]
        parent = node
    return amount
