"""One claim, one verified plan: the attempts whose leaving makes room for a whole gang (5.1-5.5).

The slow model: try every set of evictable attempts in order of loss, take the first whose leaving
frees hosts of the right shape. This one finds, on each host, the cheapest set that frees enough (exact,
by a table over what is still missing), compares hosts, and then trims the union: a victim whose GPUs turn
out not to be needed stays. Attempts that are stopping already are no victims, and no room yet.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter

import msgspec

from fairlease.core.placement.blocks import groups, together
from fairlease.core.placement.fit import Lack, Room, is_short
from fairlease.core.placement.shape import Shape
from fairlease.core.preemption.licence import Permit, Signature
from fairlease.core.preemption.occupancy import Occupancy, Tenant, is_evictable, is_licensed, tenant_order
from fairlease.core.stay import Kind
from fairlease_schemas.ids import AttemptId, HostId, JobId
from fairlease_schemas.policy import Policy

Cost = tuple[int, int, int, tuple[AttemptId, ...]]
"""Of a set of victims: GPU-time lost, how many jobs, how many of them budgeted, their ids: rule 5.4."""


class Plan(msgspec.Struct, frozen=True):
    """The hosts the gang would get once the victims are gone; victims in the order they are asked."""

    hosts: tuple[HostId, ...]
    victims: tuple[Tenant, ...]

    @property
    def lost_gpu_ms(self) -> int:
        return sum(victim.lost_gpu_ms for victim in self.victims)

    def kept_for_ms(self, policy: Policy) -> int:
        """How long the hosts are kept for the claim at most: the longest grace, stop margin and slack (5.6)."""
        return self.free_by_ms(policy, 0) + policy.reservation_slack_ms

    def free_by_ms(self, policy: Policy, now_ms: int) -> int:
        """When its hosts are free at the latest, were the victims told now: the longest grace and the stop margin."""
        return now_ms + max(victim.grace_ms for victim in self.victims) + policy.stop_margin_ms


MAX_VICTIMS = 400
"""Of one plan, and of all evictions of one record (log.md L2). Who needs more waits for a promise or for room."""

NOTHING: Cost = (0, 0, 0, ())


class Planner:
    """Plans of one step over one pool. A shape that had no plan under a licence has none later in the step."""

    def __init__(self, occupancy: Occupancy) -> None:
        self.occupancy = occupancy
        self._hopeless: set[tuple[Shape, Signature]] = set()

    def plan(self, room: Room, shape: Shape, permit: Permit, job: JobId) -> Plan | None:
        """The cheapest trimmed plan that evicts now, or None."""
        key = (shape, permit.signature(self.occupancy.leaves))
        has_part = room.has_part(job)
        if key in self._hopeless and not has_part:
            return None
        plan = plan_now(self.occupancy, room, shape, permit, job)
        if plan is None and not has_part:
            self._hopeless.add(key)
        return plan


def plan_now(occupancy: Occupancy, room: Room, shape: Shape, permit: Permit, job: JobId = "") -> Plan | None:
    """The cheapest trimmed plan among those the claim may ask to leave now (5.1); None when it is too large too."""

    def may_leave(tenant: Tenant | Kind) -> bool:
        return is_evictable(permit, tenant)

    rule = ("evictable", permit.signature(occupancy.leaves))
    able = None if room.has_part(job) else occupancy.able(room, shape, rule, may_leave)
    if able is not None and able.bit_count() < shape.hosts:
        return None
    plan = plan_with(occupancy, room, shape, may_leave, job, None if able is None else room.frame.names(able))
    return plan if plan is not None and len(plan.victims) <= MAX_VICTIMS else None


def licensed_hosts(occupancy: Occupancy, room: Room, shape: Shape, permit: Permit) -> list[HostId] | None:
    """The open hosts that could take a part of the gang, were all within the licence gone, by id; None: look at all."""
    rule = ("licensed", permit.signature(occupancy.leaves))
    able = occupancy.able(room, shape, rule, lambda tenant: is_licensed(permit, tenant))
    return None if able is None else list(room.frame.names(able))


def plan_with(
    occupancy: Occupancy,
    room: Room,
    shape: Shape,
    may_leave: Callable[[Tenant], bool],
    job: JobId = "",
    among: Iterable[HostId] | None = None,
) -> Plan | None:
    """The cheapest trimmed plan among tenants that `may_leave`; None when the gang cannot be placed so.

    `among` are the hosts that may serve, by id, where that is known; None is all.

    Hosts are compared by their cheapest set (5.4), then by id; a gang stays within one topology block
    where one suffices: the one that loses least, then the smallest.
    """
    found: dict[HostId, tuple[Cost, tuple[Tenant, ...]]] = {}
    best: Cost | None = None
    for host in room.free if among is None else among:
        if not room.is_open(host, job) or not shape.suits(host, room.size[host]):
            continue
        bound = best[0] if best is not None and shape.hosts == 1 else None
        chosen = cheapest_on(room, occupancy.at(host), host, room.lack(host, shape), may_leave, bound)
        if chosen is not None:
            found[host] = chosen
            best = min(best, chosen[0]) if best is not None else chosen[0]
    if len(found) < shape.hosts:
        return None
    hosts = _cheapest_hosts(room, shape, found)
    if hosts is None:
        return None
    victims = {t.attempt: t for host in hosts for t in found[host][1]}
    kept = trim(room, shape, hosts, victims)
    return Plan(tuple(sorted(hosts)), tuple(sorted(kept, key=tenant_order))) if kept else None


def _cheapest_hosts(
    room: Room, shape: Shape, found: dict[HostId, tuple[Cost, tuple[Tenant, ...]]]
) -> list[HostId] | None:
    """The hosts for the gang, by what all their victims lose together; None when no block has enough as it must.

    Within a block the cheapest hosts, twice: by what each would lose alone, and by its part of it, because
    a gang that leaves frees all its hosts for one loss. The better of both is not always the best of all.
    """
    by_cost = sorted(found, key=lambda h: (found[h][0], h))
    if shape.hosts == 1:
        return by_cost[:1]
    options: list[tuple[tuple[int, ...], int, tuple[AttemptId, ...], list[HostId]]] = []
    for name, members in groups(by_cost, room.block, 1).items():
        if len(members) >= shape.hosts and (name or not shape.is_same_block):
            for hosts in (members, sorted(members, key=lambda h: _shared_cost(h, found[h][1]))):
                chosen = hosts[: shape.hosts]
                *cost, ids = _cost({t.attempt: t for h in chosen for t in found[h][1]})
                options.append((tuple(cost), len(members), ids, chosen))
    if options:
        return min(options)[-1]
    return together(by_cost, shape.hosts, room.block, is_same_block=shape.is_same_block)


def _shared_cost(host: HostId, victims: tuple[Tenant, ...]) -> tuple[int, HostId]:
    """What the victims lose, each counted by the part of it that stands on this host."""
    return sum(t.lost_gpu_ms * t.gpus_on[host] // t.gpus for t in victims), host


def _cost(victims: dict[AttemptId, Tenant]) -> Cost:
    lost = sum(t.lost_gpu_ms for t in victims.values())
    return lost, len(victims), sum(not t.is_idle for t in victims.values()), tuple(sorted(victims))


def trim(room: Room, shape: Shape, hosts: Iterable[HostId], victims: dict[AttemptId, Tenant]) -> list[Tenant]:
    """The victims without those that are not needed: the dearest are spared first.

    On one host the cheapest set has nobody to spare; a gang's hosts are whole, so that GPUs say everything.
    """
    if shape.hosts == 1:
        return list(victims.values())
    freed = {h: len(room.free[h]) + sum(t.gpus_on.get(h, 0) for t in victims.values()) for h in hosts}
    kept = dict(victims)
    for tenant in sorted(victims.values(), key=tenant_order, reverse=True):
        less = {h: gpus - tenant.gpus_on.get(h, 0) for h, gpus in freed.items()}
        if all(gpus >= shape.gpus_per_host for gpus in less.values()):
            del kept[tenant.attempt]
            freed = less
    return list(kept.values())


_attempt = attrgetter("attempt")


def cheapest_on(
    room: Room,
    tenants: Iterable[Tenant],
    host: HostId,
    lack: Lack,
    may_leave: Callable[[Tenant], bool],
    bound_gpu_ms: int | None = None,
) -> tuple[Cost, tuple[Tenant, ...]] | None:
    """The cheapest set whose leaving ends the lack on one host, exactly; None when no set does.

    None too when every set loses more than `bound_gpu_ms`. A table by what is still missing, for GPUs at most
    17 rows, each with the cheapest set so far; tenants come in the order of their ids, so a set's ids stay sorted.
    """
    if not is_short(lack):
        return NOTHING, ()
    able = [tenant for tenant in tenants if may_leave(tenant)]
    gpus = sum([tenant.gpus_on[host] for tenant in able])
    if gpus < lack[0]:
        return None
    if bound_gpu_ms is not None and min([tenant.lost_gpu_ms for tenant in able], default=0) > bound_gpu_ms:
        return None
    able.sort(key=_attempt)
    if gpus == lack[0] and len(lack) == 1:
        return _cost({t.attempt: t for t in able}), tuple(able)
    table: dict[Lack, Cost] = {tuple(max(0, missing) for missing in lack): NOTHING}
    for tenant in able:
        held, lost, budgeted = tenant.gpus_on[host], tenant.lost_gpu_ms, not tenant.is_idle
        for missing, before in list(table.items()):
            if not any(missing):
                continue
            left = room.eased(missing, host, held, tenant.sizes)
            with_it = (before[0] + lost, before[1] + 1, before[2] + budgeted, (*before[3], tenant.attempt))
            present = table.get(left)
            if present is None or with_it < present:
                table[left] = with_it
    cost = next((cost for missing, cost in table.items() if not any(missing)), None)
    if cost is None:
        return None
    names = set(cost[3])
    return cost, tuple(t for t in able if t.attempt in names)
