"""Standing: used + promised over entitled within the lookback, per budget node and pool.

Entitled (2.2) is each node's share of the pool's schedulable GPU-time, divided piece by piece with
prefix rounding so that children sum to their parent to the GPU-millisecond; in comparisons never
less than its present share of the present capacity over the entitlement floor (2.3). Used (2.4, 2.6) is
what its leaves' budgeted attempts held, with surcharges and credits; promised (2.5) the unspent rest
of their windows. Compared by cross-multiplication: no float, no rounding.
"""

from fairlease.core.fairshare.fade import Lookback
from fairlease.core.world import World
from fairlease_schemas.cycle import NodeStanding
from fairlease_schemas.ids import BudgetId, PoolId
from fairlease_schemas.policy import Policy


def entitled_gpu_ms(world: World, pool: PoolId, lookback: Lookback) -> dict[BudgetId, int]:
    """What each node of the present tree was entitled to within the lookback, without the floor."""
    meter = world.fleet.schedulable.get(pool)
    pieces = world.pieces
    entitled = dict.fromkeys(world.tree.nodes, 0)
    if meter is None:
        return entitled
    for index, piece in enumerate(pieces):
        until_ms = pieces[index + 1].from_ms if index + 1 < len(pieces) else lookback.now_ms
        amount = lookback.integral(meter, piece.from_ms, until_ms)
        if amount:
            for node, part in piece.tree.split_all(amount).items():
                if node in entitled:
                    entitled[node] += part
    return entitled


def promised_gpu_ms(world: World, policy: Policy, pool: PoolId, now_ms: int) -> dict[BudgetId, int]:
    """Per leaf, what is promised in the pool and not yet spent (2.5).

    The unspent rest of running windows and exemptions, and the windows of claims for which evictions
    are ordered or a promise stands.
    """
    promised = dict(world.tenure(policy, pool, now_ms).promised_gpu_ms())
    claims = {name: r.pool for name, r in world.reservations.items()} | {n: p.pool for n, p in world.promises.items()}
    for name, claimed in claims.items():
        job = world.jobs[name]
        if claimed == pool and job.live is None:
            promised[job.budget] = promised.get(job.budget, 0) + job.gpus * job.window_ms
    return promised


def standings(world: World, pool: PoolId, now_ms: int) -> tuple[NodeStanding, ...]:
    """The numbers of every node in one pool at `now_ms`, depth first, siblings by id."""
    policy = world.policy
    if policy is None:
        return ()
    tree = world.tree
    lookback = Lookback(policy, now_ms)
    entitled = entitled_gpu_ms(world, pool, lookback)
    meter = world.fleet.schedulable.get(pool)
    floor = tree.split_all((meter.value if meter else 0) * floor_ms(policy))
    promised_by_leaf = promised_gpu_ms(world, policy, pool, now_ms)
    used = dict.fromkeys(tree.nodes, 0)
    promised = dict.fromkeys(tree.nodes, 0)
    for leaf in tree.nodes:
        held, lumps = world.held(leaf, pool), world.lumps(leaf, pool)
        own_used = lookback.integral(held, lookback.from_ms, now_ms) if held.times_ms else 0
        if lumps.sums:
            own_used += lookback.lumps(lumps)
        own_promised = promised_by_leaf.get(leaf, 0)
        if own_used or own_promised:
            for node in tree.path(leaf):
                used[node] += own_used
                promised[node] += own_promised
    return tuple(
        [
            NodeStanding(
                budget=name,
                parent=tree.nodes[name].parent,
                weight=tree.nodes[name].weight,
                entitled_gpu_ms=max(entitled[name], floor[name]),
                used_gpu_ms=used[name],
                promised_gpu_ms=promised[name],
            )
            for name, _ in tree.walk()
        ]
    )


def floor_ms(policy: Policy) -> int:
    """The entitlement floor (2.3), never above what a steady share is entitled to in the long run.

    That is the lookback, or with a half-life h what fades to h / ln 2: were the floor above it, nobody's standing
    could ever reach 1.
    """
    steady_ms = policy.lookback_ms
    if policy.half_life_ms:
        steady_ms = min(steady_ms, policy.half_life_ms * 1443 // 1000)
    return min(policy.entitlement_floor_ms, steady_ms)


def permille(used_gpu_ms: int, entitled_gpu_ms: int) -> int | None:
    """A standing for people, rounded down; None where nothing is entitled."""
    return used_gpu_ms * 1000 // entitled_gpu_ms if entitled_gpu_ms else None
