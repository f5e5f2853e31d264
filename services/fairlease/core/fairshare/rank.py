"""The first step of a cycle: where everyone stands, and who waits (ranker).

The rank is data for placement, not yet an order: which claim is next depends on what was granted
before it in the same cycle, so `next_pick` walks these numbers while placing. A cycle starts when
none is open and something changed since the last rank looked, and every `rank_period_ms` while
anything waits, because standings move with time. A policy may have a `quiet_period_ms`: after a cycle
that decided nothing the next is put off that long, or until time ends a protection or a wait; standings
move little in it, a claim may come within the horizon of a promise (6.5) that much sooner than it is
seen, and whatever else a cycle weighs is news.
"""

from fairlease.core.decision import Decision, decision_ms
from fairlease.core.fairshare.brief import MAX_RANK_BYTES, Brief, Standings, size
from fairlease.core.fairshare.standing import standings
from fairlease.core.line import WaitingClass
from fairlease.core.preemption.promise import tellings_ms
from fairlease.core.state import IDLE
from fairlease.core.world import World
from fairlease_schemas.cycle import CycleAbandoned, CycleRanked, NodeStanding, PoolRank, RequestClass
from fairlease_schemas.envelope import Answer
from fairlease_schemas.ids import PoolId
from fairlease_schemas.policy import Policy

_NEXT_STEP = {"ranked": "cycle-placed", "placed": "cycle-closed"}


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """A new rank, the end of a cycle whose next step is missing, or nothing."""
    policy = world.policy
    if policy is None:
        return None
    cycle = world.cycle
    now_ms = decision_ms(world, answers)
    if cycle.stage != IDLE:
        if now_ms < cycle.stage_ms + policy.step_limit_ms:
            return None
        missing = _NEXT_STEP[cycle.stage]
        return Decision(
            kind="cycle-abandoned",
            at_ms=now_ms,
            events=(CycleAbandoned(cycle=cycle.number, missing=missing),),
            causes=(cycle.address,),
            answers=answers,
        )
    if not _wants_cycle(world, policy, now_ms):
        return None
    return Decision(
        kind="cycle-ranked",
        at_ms=now_ms,
        events=(rank(world, policy, now_ms, first=first_class(world)),),
        causes=(world.policy_address,),
        answers=answers,
    )


def due_ms(world: World) -> int | None:
    """When the ranker must look again although nothing arrives."""
    policy = world.policy
    if policy is None:
        return None
    if world.cycle.stage != IDLE:
        return world.cycle.stage_ms + policy.step_limit_ms
    dues = [at_ms for at_ms in tellings_ms(world) if at_ms > world.cycle.ranked_ms]
    next_ms = _next_look_ms(world, policy)
    if world.line.total:
        dues.append(next_ms)
    elif world.reservations:
        dues.append(max(next_ms, min(r.expires_ms for r in world.reservations.values())))
    return min(dues, default=None)


def first_class(world: World) -> int:
    """Where to go on: behind the last class when the rank before was cut and nothing changed since, else at the top.

    Counted anew by first submission, because the grants of that cycle have shortened the line.
    """
    cycle = world.cycle
    if not cycle.is_cut or cycle.news_position > cycle.ranked_basis:
        return 0
    classes = world.line.classes
    first = sum(1 for waiting in classes.values() if waiting.head[0] <= cycle.looked_up_to)
    return first if first < len(classes) else 0


def rank(world: World, policy: Policy, now_ms: int, *, first: int) -> CycleRanked:
    """Every pool that somebody waits for, pools by id; the policy's number of classes from the `first`-th on.

    Every node of the tree in each pool; where one record cannot hold all that, what placement needs (brief.py).
    """
    waiting = world.line.in_order()
    looked_at = waiting[first : first + policy.max_classes_per_pool]
    # Also a pool that has lost its last host: who waits for it is told so.
    numbers = {pool: standings(world, pool, now_ms) for pool in _pools_of(looked_at)}
    whole = _ranked(world, looked_at, numbers, first)
    if size(whole) <= MAX_RANK_BYTES:
        return whole
    brief = Brief(world.tree, numbers)
    looked_at = looked_at[: brief.classes((request_class(of), of.sample.pools) for of in looked_at)]
    brief.running({(found[1].pool, found[0].budget) for found in map(world.attempt, world.live) if found})
    return _ranked(world, looked_at, {pool: brief.nodes(pool) for pool in _pools_of(looked_at)}, first)


def _pools_of(looked_at: list[WaitingClass]) -> list[PoolId]:
    """The pools that the classes accept, by id."""
    return sorted({pool for of in looked_at for pool in of.sample.pools})


def _ranked(world: World, looked_at: list[WaitingClass], numbers: Standings, first: int) -> CycleRanked:
    pools = []
    for pool, nodes in numbers.items():
        classes = [of for of in looked_at if pool in of.sample.pools]
        pools.append(_pool_rank(world, pool, classes, nodes))
    return CycleRanked(
        cycle=world.cycle.number + 1,
        pools=tuple(pools),
        first_class=first,
        classes=len(looked_at),
        is_cut=first + len(looked_at) < len(world.line.classes),
    )


def has_work(world: World) -> bool:
    """Whether a cycle would have anything to do: somebody waits, or something is kept, told or emptied for somebody."""
    has_claims = world.line.total or world.reservations or world.promises or world.fleet.draining()
    return bool(has_claims or world.has_reasons("placement"))


def _wants_cycle(world: World, policy: Policy, now_ms: int) -> bool:
    cycle = world.cycle
    if not has_work(world):
        return False
    if cycle.news_position > cycle.ranked_basis or cycle.is_cut:
        return True
    if any(cycle.ranked_ms < at_ms <= now_ms for at_ms in tellings_ms(world)):
        return True
    return bool(world.line.total or _is_stale(world, now_ms)) and now_ms >= _next_look_ms(world, policy)


def _next_look_ms(world: World, policy: Policy) -> int:
    """When time alone makes a cycle: after the period, or after a quiet one when there is nothing new to weigh."""
    cycle = world.cycle
    period_ms = cycle.ranked_ms + policy.rank_period_ms
    if not cycle.is_quiet or policy.quiet_period_ms <= policy.rank_period_ms:
        return period_ms
    ends = [r.expires_ms for r in world.reservations.values()]
    for promise in world.promises.values():
        ends += (promise.start_ms, promise.start_ms + policy.reservation_slack_ms)
    turns = [world.next_turn_ms(cycle.ranked_ms), *(end_ms + 1 for end_ms in ends if end_ms >= cycle.ranked_ms)]
    return max(period_ms, min(*turns, cycle.ranked_ms + policy.quiet_period_ms))


def _is_stale(world: World, now_ms: int) -> bool:
    """Whether a reservation has outlived itself."""
    return any(now_ms >= r.expires_ms for r in world.reservations.values())


def _pool_rank(world: World, pool: PoolId, classes: list[WaitingClass], nodes: tuple[NodeStanding, ...]) -> PoolRank:
    lane, leaves, idle = [], [], []
    for waiting in classes:
        of = request_class(waiting)
        if of.min_runtime_ms == 0:
            idle.append(of)
            continue
        leaves.append(of)
        if of.lane:
            lane.append(of)
    leaves.sort(key=lambda of: of.budget)
    meter = world.fleet.schedulable.get(pool)
    return PoolRank(
        pool=pool,
        schedulable_gpus=meter.value if meter else 0,
        nodes=nodes,
        lane=tuple(lane),
        leaves=tuple(leaves),
        idle=tuple(idle),
    )


def request_class(waiting: WaitingClass) -> RequestClass:
    """The class as a record names it."""
    job = waiting.sample
    return RequestClass(
        key=waiting.key,
        budget=job.budget,
        hosts=job.request.hosts,
        gpus_per_host=job.request.gpus_per_host,
        min_runtime_ms=job.request.min_runtime_ms,
        count=len(waiting.members),
        lane=job.request.lane,
        account=job.account if job.request.lane else "",
        rest_ms=job.rest_ms,
    )
