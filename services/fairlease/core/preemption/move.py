"""Moves: work below one host leaves it for holes on other hosts, so that one more host is whole (decisions.md 5.8).

Nobody's share is weighed, because nobody loses any: who is moved has room elsewhere at once, and pays one stop and one
start. Only idle work and work past its window is moved, one host's at a time, where somebody waits for whole hosts, and
where what is lost is less than what the hole on the host would lose in the policy's `move_gain_ms`. The slow model: try
every host with a hole and every way to put its tenants into the others. This one fills holes largest first, so it may
miss a way; it makes none that does not fit.

Moves come to rest. Who leaves a host with `f` free GPUs, holding `g`, goes where fewest are free (4.1): back, or to a
hole of `h < f + g`. The sum of the squares of what is free on each host then grows by `2g(f + g - h)`, and it is
bounded. A move is made only where every hole is smaller than that, so that the first who leaves makes it grow.
"""

from fairlease.core.placement.fit import Room
from fairlease.core.placement.shape import Shape, shape_of
from fairlease.core.preemption.occupancy import Occupancy, Tenant
from fairlease.core.world import World
from fairlease_schemas.ids import HostId
from fairlease_schemas.policy import Policy


def worth_moving(world: World, policy: Policy, room: Room, occupancy: Occupancy) -> tuple[Tenant, ...]:
    """Whose leaving makes a host whole at the best price; nobody when it pays nowhere.

    1. the host with the largest hole;
    2. the least GPU-time lost;
    3. the host id.

    While somebody is leaving a host with a hole nobody is moved: those may need the holes there are.
    """
    if not policy.move_gain_ms:
        return ()
    sizes = _wanted(world, room)
    holes = room.open_holes() if sizes else {}
    if len(holes) < 2:
        return ()
    there = {host: occupancy.at(host) for host in holes}
    if any(tenant.is_stopping for tenants in there.values() for tenant in tenants):
        return ()
    best: tuple[tuple[int, int, HostId], tuple[Tenant, ...]] | None = None
    for host, tenants in there.items():
        lost_gpu_ms = sum(tenant.lost_gpu_ms for tenant in tenants)
        place = (-holes[host], lost_gpu_ms, host)
        if room.size[host] not in sizes or (best is not None and best[0] <= place):
            continue
        is_free_to = all(_may_move(world, t) and t.gpus == t.gpus_on[host] for t in tenants)
        is_cheap = lost_gpu_ms <= holes[host] * policy.move_gain_ms
        # Not where work of another pool stands too: that stays.
        is_all = holes[host] + sum(tenant.gpus_on[host] for tenant in tenants) == room.size[host]
        if is_free_to and is_cheap and is_all and _fits(world, room, host, tenants, holes):
            best = place, tuple(tenants)
    return () if best is None else best[1]


def _may_move(world: World, tenant: Tenant) -> bool:
    """Whether it is idle, or past its window and below no cap (2.9): its new window could keep it from coming back."""
    if tenant.is_idle:
        return True
    path = [world.tree.nodes[name] for name in world.tree.path(tenant.leaf)]
    return tenant.is_past and not any(node.max_protected_permille or node.burst_permille for node in path)


def _wanted(world: World, room: Room) -> set[int]:
    """The sizes of hosts that somebody waits for whole ones of; all of them where the lane lacks a spare one (3.1)."""
    sizes = set(room.size.values())
    if len(room.spare) < room.spares_wanted:
        return sizes
    asked = (of.sample.request for of in world.line.classes.values() if room.pool in of.sample.pools)
    return sizes & {request.gpus_per_host for request in asked}


def _fits(world: World, room: Room, host: HostId, tenants: list[Tenant], holes: dict[HostId, int]) -> bool:
    """Whether all of them have room on other hosts that have begun, the largest first, each in the smallest hole.

    Where placement would rather have one elsewhere, back on the host or on a smaller empty one, there is no such room.
    """
    left = {name: free for name, free in holes.items() if name != host}
    for tenant in sorted(tenants, key=lambda t: (-t.gpus, t.attempt)):
        shape = shape_of(world, room.pool, world.jobs[tenant.job].request)
        taken = _smallest(room, shape, left)
        if taken is None or holes[taken] >= holes[host] + tenant.gpus or room.has_empty(shape, holes[taken]):
            return False
        left[taken] -= tenant.gpus
        if room.sides.are_asked:  # what else somebody asked of that host is not summed here: one comes to each
            del left[taken]
    return True


def _smallest(room: Room, shape: Shape, left: dict[HostId, int]) -> HostId | None:
    able = [(free, host) for host, free in left.items() if free >= shape.gpus_per_host and room.has_room(host, shape)]
    return min(able)[1] if able else None
