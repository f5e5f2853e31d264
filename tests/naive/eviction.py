"""Who may be asked to leave, by whom, at what cost, and by when hosts can be free, the slow way (decisions.md 5, 6).

Every set of attempts and every set of hosts is tried. `Tenant` is an attempt as the rules see it; `Side` is a
claim with the numbers its licence rests on. So are moves (5.8): every way to put the tenants elsewhere is tried.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, product
from typing import NamedTuple

from fairlease.core.host import Host
from fairlease.core.world import World
from fairlease_schemas.cycle import Licence
from fairlease_schemas.policy import Policy
from tests.naive import standing

Cost = tuple[int, int, int, tuple[str, ...]]
"""GPU-time lost, jobs, budgeted jobs, ids: rule 5.4."""


class Tenant(NamedTuple):
    """A live attempt: what it holds where, what losing it costs, and when it has to go at the latest."""

    attempt: str
    leaf: str
    parts: tuple[tuple[str, int], ...]
    lost: int
    is_idle: bool
    is_lane: bool
    is_past: bool
    is_stopping: bool
    end_ms: int
    grace_ms: int

    @property
    def on(self) -> dict[str, int]:
        """GPUs by host."""
        return dict(self.parts)


class Side(NamedTuple):
    """A claim of `leaf` with its licence: the numbers of every node, the new window, the margin, what part counts."""

    leaf: str
    licence: Licence
    window_gpu_ms: int
    numbers: dict[str, standing.Number]
    tree: standing.Tree
    margin_permille: int
    window_permille: int = 0
    due_first_permille: int = 0

    def is_due_more(self, leaf: str) -> bool:
        """Rule 3.2: whether the leaf comes before those that are not."""
        return 1000 * self.numbers[leaf].spent < self.due_first_permille * self.numbers[leaf].entitled


def side_of(
    policy: Policy,
    leaf: str,
    licence: Licence,
    window_gpu_ms: int,
    numbers: dict[str, standing.Number],
    tree: standing.Tree,
) -> Side:
    """The claim by this policy's numbers."""
    margin, part, due = policy.margin_permille, policy.licence_window_permille, policy.due_first_permille
    return Side(leaf, licence, window_gpu_ms, numbers, tree, margin, part, due)


def tenants(world: World, policy: Policy, pool: str, now_ms: int) -> list[Tenant]:
    """Everybody who holds something in the pool."""
    found = []
    for job in world.jobs.values():
        live = job.attempts[-1] if job.attempts and job.attempts[-1].end is None else None
        if live is None or live.pool != pool:
            continue
        window_ends_ms = max(live.granted_ms + live.window_ms, standing.exempt_until_ms(policy, job))
        start_up_ms = live.started_ms - live.granted_ms if live.started_ms is not None else 0
        unsaved_ms = now_ms - max(live.granted_ms, live.checkpoint_ms)
        end_ms, grace_ms = live.ending_ms, live.grace_ms
        if live.ending is None:
            end_ms = max(now_ms, min(window_ends_ms, live.granted_ms + job.request.timeout_ms))
            grace_ms = job.request.grace_ms
        found.append(
            Tenant(
                attempt=live.id,
                leaf=job.budget,
                parts=tuple((part.host, len(part.gpus)) for part in live.parts),
                lost=sum(len(part.gpus) for part in live.parts) * (unsaved_ms + start_up_ms),
                is_idle=job.request.min_runtime_ms == 0,
                is_lane=live.licence is Licence.DEBUG,
                is_past=now_ms >= window_ends_ms,
                is_stopping=live.ending is not None or live.is_stillborn,
                end_ms=end_ms,
                grace_ms=grace_ms,
            )
        )
    return found


def is_licensed(side: Side, tenant: Tenant) -> bool:
    """Rules 3.5-3.8: whether the claim may ask it to leave, were its window over; who is leaving may leave."""
    if tenant.is_stopping:
        return True
    if tenant.is_idle or side.licence is Licence.IDLE:
        return side.licence is not Licence.IDLE
    is_debug = side.licence is Licence.DEBUG
    if is_debug and tenant.is_lane:
        return False
    if tenant.leaf == side.leaf:
        return is_debug
    return is_outweighed(side, tenant.leaf)


def is_outweighed(side: Side, leaf: str) -> bool:
    """Rule 3.6: whether the side outweighs the other leaf's, or its leaf that one; never where that one is shielded."""
    found = standing.sides(side.tree, side.leaf, leaf)
    if found is None:
        return False
    pairs = [found]
    if side.licence is not Licence.DEBUG and side.is_due_more(side.leaf) != side.is_due_more(leaf):
        pairs = [found, (side.leaf, leaf)] if side.is_due_more(side.leaf) else []
    return any(_outweighs(side, ours, theirs) for ours, theirs in pairs)


def _outweighs(side: Side, our: str, their: str) -> bool:
    """Rule 5.2 between two nodes, of which the claim's stands below 1, but for the lane (3.5, 3.6)."""
    ours, theirs, is_debug = side.numbers[our], side.numbers[their], side.licence is Licence.DEBUG
    margin = 0 if is_debug else side.margin_permille
    is_below = is_debug or ours.spent < ours.entitled
    new_gpu_ms = standing.counted_ms(ours, side.window_gpu_ms, side.window_permille)
    return is_below and standing.outweighs(ours, theirs, new_gpu_ms, margin)


def is_evictable(side: Side, tenant: Tenant) -> bool:
    """Rule 5.1: within the licence, idle or past its window, and not leaving already."""
    return not tenant.is_stopping and is_licensed(side, tenant) and (tenant.is_idle or tenant.is_past)


def open_hosts(world: World, pool: str, now_ms: int, owner: str = "") -> list[str]:
    """Hosts without a hold that are neither kept, spare nor promised, but for what is promised to `owner`."""
    closed = {h for r in world.reservations.values() if now_ms < r.expires_ms for h in r.hosts}
    closed |= {h for p in world.promises.values() if p.job != owner for h in p.hosts}
    closed |= spares(world, pool, now_ms)
    found = [h.id for h in world.fleet.hosts.values() if h.inventory.pool == pool and not h.holds]
    return sorted(set(found) - closed)


def spares(world: World, pool: str, now_ms: int) -> set[str]:
    """Rule 3.1: the empty hosts for the lane, the largest first, where fewest are empty."""
    closed = {h for r in world.reservations.values() if now_ms < r.expires_ms for h in r.hosts}
    closed |= {h for p in world.promises.values() for h in p.hosts}
    there = [host for host in world.fleet.hosts.values() if host.inventory.pool == pool]
    sound = [h for h in there if not h.holds and (h.drain is None or h.drain.is_queued)]
    empty = [h for h in sound if h.id not in closed and free_on(world, h.id) == h.gpus]

    def place(host: Host) -> tuple[int, int, str, str]:
        block = host.inventory.block.partition("/")[0]
        beside = sum(h.gpus == host.gpus and h.inventory.block.partition("/")[0] == block for h in empty)
        return -host.gpus, beside, block, host.id

    return {host.id for host in sorted(empty, key=place)[: spares_wanted(world, pool, now_ms)]}


def spares_wanted(world: World, pool: str, now_ms: int) -> int:
    """Rule 3.1: at most half of the hosts that can be used, and none that a gang in line cannot do without."""
    policy = world.policy
    there = [host for host in world.fleet.hosts.values() if host.inventory.pool == pool and not host.holds]
    able = [h for h in there if h.closes_ms is None or h.closes_ms > now_ms]
    most = min(policy.debug_spare_hosts, len(able) // 2) if policy is not None else 0
    for job in world.jobs.values():
        request = job.request
        if str(job.phase) == "waiting" and request.hosts > 1 and pool in standing.pools(job):
            alike = sum(h.gpus == request.gpus_per_host for h in able)
            most = min(most, alike - request.hosts) if alike >= request.hosts else most
    return most


def can_move(world: World, policy: Policy, pool: str, host: str, now_ms: int) -> bool:
    """Rule 5.8, but for the price: everybody on the host may go, and there is a way to put all into other holes."""
    here = tenants(world, policy, pool, now_ms)
    open_now = open_hosts(world, pool, now_ms)
    sizes = {name: world.fleet.hosts[name].gpus for name in open_now}
    holes = {name: free_on(world, name) for name in open_now if 0 < free_on(world, name) < sizes[name]}
    if host not in holes or any(t.is_stopping and t.on.keys() & holes.keys() for t in here):
        return False
    there = [t for t in here if host in t.on]
    if not there or any(len(t.on) > 1 or not (t.is_idle or t.is_past) for t in there):
        return False
    others = [name for name in holes if name != host]
    for ways in product(others, repeat=len(there)):
        filled = {name: sum(t.on[host] for t, way in zip(there, ways, strict=True) if way == name) for name in others}
        if all(filled[name] <= holes[name] for name in others):
            return True
    return False


def free_on(world: World, host: str) -> int:
    return sum(1 for occupant in world.fleet.occupants(host) if not occupant)


def fitting(world: World, hosts: Iterable[str], wanted: int, gpus: int) -> list[str]:
    """Hosts that could take one part when empty; more than one host means whole hosts (1.2)."""
    sizes = {host: world.fleet.hosts[host].gpus for host in hosts}
    return [host for host, size in sizes.items() if (size >= gpus if wanted == 1 else size == gpus)]


def cost(victims: Iterable[Tenant]) -> Cost:
    some = list(victims)
    return (
        sum(t.lost for t in some),
        len(some),
        sum(not t.is_idle for t in some),
        tuple(sorted(t.attempt for t in some)),
    )


def subsets(some: list[Tenant]) -> Iterator[tuple[Tenant, ...]]:
    for size in range(len(some) + 1):
        yield from combinations(some, size)


def suffices(world: World, hosts: Iterable[str], gpus: int, victims: Iterable[Tenant]) -> bool:
    """Whether each of the hosts has the GPUs once the victims are gone."""
    gone = list(victims)
    return all(free_on(world, host) + sum(t.on.get(host, 0) for t in gone) >= gpus for host in hosts)


def cheapest(world: World, hosts: tuple[str, ...], gpus: int, may_leave: list[Tenant]) -> Cost | None:
    """The cheapest set of victims that frees these very hosts; None when none does."""
    near = [t for t in may_leave if t.on.keys() & set(hosts)]
    return min((cost(some) for some in subsets(near) if suffices(world, hosts, gpus, some)), default=None)


def plans(
    world: World, hosts: list[str], wanted: int, gpus: int, may_leave: list[Tenant]
) -> dict[tuple[str, ...], Cost]:
    """Every set of hosts that the gang could have, with what that costs; within one block where one suffices (4.1)."""
    found: dict[tuple[str, ...], Cost] = {}
    for some in combinations(fitting(world, hosts, wanted, gpus), wanted):
        loss = cheapest(world, some, gpus, may_leave)
        if loss is not None:
            found[some] = loss
    in_one = {
        some: loss for some, loss in found.items() if len({world.fleet.hosts[h].inventory.block for h in some}) == 1
    }
    return in_one or found


def earliest_ms(
    world: World,
    policy: Policy,
    hosts: list[str],
    shape: tuple[int, int],
    on: list[Tenant],
    now_ms: int,
    *,
    is_all: bool,
) -> Callable[[Callable[[Tenant], bool]], int | None]:
    """Rule 6.1: T = the latest end + the greatest grace + the stop margin, over every set of hosts; asked by licence.

    `is_all` asks that everybody on a host that is not free may leave (6.2), and T covers them all.
    """
    wanted, gpus = shape

    def ask(is_allowed: Callable[[Tenant], bool]) -> int | None:
        best: int | None = None
        for some in combinations(fitting(world, hosts, wanted, gpus), wanted):
            for leaving in _leavings(world, some, gpus, on, is_allowed, is_all=is_all):
                at_ms = now_ms
                if leaving:
                    end_ms = max(t.end_ms for t in leaving) + max(t.grace_ms for t in leaving) + policy.stop_margin_ms
                    at_ms = max(now_ms, end_ms)
                best = at_ms if best is None else min(best, at_ms)
        return best

    return ask


def _leavings(
    world: World,
    hosts: tuple[str, ...],
    gpus: int,
    on: list[Tenant],
    is_allowed: Callable[[Tenant], bool],
    *,
    is_all: bool,
) -> Iterator[tuple[Tenant, ...]]:
    """Every set whose leaving frees these hosts."""
    busy = [host for host in hosts if free_on(world, host) < gpus]
    near = [t for t in on if t.on.keys() & set(busy)]
    if is_all:
        if all(is_allowed(t) for t in near):
            yield tuple(near)
        return
    for some in subsets([t for t in near if is_allowed(t)]):
        if suffices(world, hosts, gpus, some):
            yield some
