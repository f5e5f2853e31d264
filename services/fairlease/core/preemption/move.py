"""Moves: work below one host leaves it for holes on other hosts, so that one more host is whole (decisions.md 5.8).

Nobody's share is weighed, because nobody loses any: who is moved has room elsewhere at once, and pays one stop and one
start. Only idle work and work past its window is moved, one host's at a time, where somebody waits for whole hosts, and
where what is lost is less than what the hole on the host would lose in the policy's `move_gain_ms`. The slow model: try
every host with a hole and every way to put its tenants into the others. This one fills holes largest first, so it may
miss a way; it makes none that does not fit.
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
    if not policy.move_gain_ms or not _is_wanted(world, policy, room):
        return ()
    holes = room.open_holes()
    if len(holes) < 2:
        return ()
    there = {host: occupancy.at(host) for host in holes}
    if any(tenant.is_stopping for tenants in there.values() for tenant in tenants):
        return ()
    best: tuple[tuple[int, int, HostId], tuple[Tenant, ...]] | None = None
    for host, tenants in there.items():
        lost_gpu_ms = sum(tenant.lost_gpu_ms for tenant in tenants)
        place = (-holes[host], lost_gpu_ms, host)
        if best is not None and best[0] <= place:
            continue
        is_free_to = all((t.is_idle or t.is_past) and t.gpus == t.gpus_on[host] for t in tenants)
        is_cheap = lost_gpu_ms <= holes[host] * policy.move_gain_ms
        if is_free_to and is_cheap and _fits(world, room, host, tenants, holes):
            best = place, tuple(tenants)
    return () if best is None else best[1]


def _is_wanted(world: World, policy: Policy, room: Room) -> bool:
    """Whether somebody waits for whole hosts of the pool, or the lane lacks a spare one (3.1)."""
    if len(room.spare) < policy.debug_spare_hosts:
        return True
    sizes = set(room.size.values())
    return any(
        room.pool in of.sample.pools and of.sample.request.gpus_per_host in sizes for of in world.line.classes.values()
    )


def _fits(world: World, room: Room, host: HostId, tenants: list[Tenant], holes: dict[HostId, int]) -> bool:
    """Whether all of them have room on other hosts that have begun, the largest first, each in the smallest hole."""
    left = {name: free for name, free in holes.items() if name != host}
    for tenant in sorted(tenants, key=lambda t: (-t.gpus, t.attempt)):
        shape = shape_of(world, room.pool, world.jobs[tenant.job].request)
        taken = _smallest(room, shape, left)
        if taken is None:
            return False
        left[taken] -= tenant.gpus
        if room.sides.are_asked:  # what else somebody asked of that host is not summed here: one comes to each
            del left[taken]
    return True


def _smallest(room: Room, shape: Shape, left: dict[HostId, int]) -> HostId | None:
    able = [(free, host) for host, free in left.items() if free >= shape.gpus_per_host and room.has_room(host, shape)]
    return min(able)[1] if able else None
