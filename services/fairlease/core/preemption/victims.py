"""One claim, one verified plan: the attempts whose leaving makes room for a whole gang.

First cut: idle work only, which every claim above idle may evict (3.5-3.7). On each host the idle
attempts that free the most for the least are taken, then the set over all chosen hosts is trimmed:
a victim whose GPUs turn out not to be needed stays. Placement closes hosts with the same function.
"""

from collections.abc import Set as AbstractSet

import msgspec

from fairlease.core.job import Attempt
from fairlease.core.placement.fit import Room, Shape
from fairlease.core.world import World
from fairlease_schemas.ids import AttemptId, HostId, JobId


class Victim(msgspec.Struct, frozen=True):
    """An attempt that would be evicted, and what that loses (since its grant: nothing is saved yet)."""

    attempt: AttemptId
    job: JobId
    lost_gpu_ms: int
    grace_ms: int


class Plan(msgspec.Struct, frozen=True):
    """The hosts the gang would get once the victims are gone; victims in the order they are asked."""

    hosts: tuple[HostId, ...]
    victims: tuple[Victim, ...]


def victim_order(victim: Victim) -> tuple[int, AttemptId]:
    """Who is asked to leave first.

    1. the least GPU-time lost, so that the eviction is cheap;
    2. the attempt id, so that the order is the same everywhere.
    """
    return (victim.lost_gpu_ms, victim.attempt)


def plan_eviction(world: World, room: Room, shape: Shape, now_ms: int, spared: AbstractSet[AttemptId]) -> Plan | None:
    """The cheapest trimmed set of idle attempts whose leaving places the gang, or None.

    `spared` attempts are spoken for already. Nobody who is stopping is asked twice. Hosts are
    compared by what must be lost there, then by id; for a gang, within one block when one suffices.
    """
    costs: dict[HostId, list[Victim]] = {}
    for host in room.free:
        if room.is_open(host) and (shape.hosts == 1 or room.size[host] == shape.gpus_per_host):
            asked = _cheapest_on(world, room, host, shape.gpus_per_host, now_ms, spared)
            if asked is not None:
                costs[host] = asked
    if len(costs) < shape.hosts:
        return None
    by_cost = sorted(costs, key=lambda h: (sum(v.lost_gpu_ms for v in costs[h]), len(costs[h]), h))
    if shape.hosts > 1:
        by_cost = room.by_block(by_cost, shape.hosts)
    hosts = tuple(sorted(by_cost[: shape.hosts]))
    victims = {v.attempt: v for host in hosts for v in costs[host]}
    trimmed = _trim(world, room, shape, hosts, victims)
    return Plan(hosts, tuple(sorted(trimmed, key=victim_order))) if trimmed else None


def _cheapest_on(
    world: World, room: Room, host: HostId, gpus: int, now_ms: int, spared: AbstractSet[AttemptId]
) -> list[Victim] | None:
    """The fewest cheap idle attempts whose leaving frees `gpus` on the host; None when that cannot be."""
    free = len(room.free[host])
    if free >= gpus:
        return []
    candidates = sorted(
        (v for a in world.fleet.attempts_on(host) if a not in spared and (v := _victim(world, a, now_ms)) is not None),
        key=victim_order,
    )
    chosen: list[Victim] = []
    for victim in candidates:
        chosen.append(victim)
        free += _gpus_on(world, victim.attempt, host)
        if free >= gpus:
            return chosen
    return None


def _victim(world: World, attempt_id: AttemptId, now_ms: int) -> Victim | None:
    """The attempt as a victim, when it is idle work that nobody has asked to leave."""
    found = world.attempt(attempt_id)
    if found is None:
        return None
    job, attempt = found
    if not job.is_idle_work or attempt.ending is not None or attempt.is_stillborn:
        return None
    return Victim(attempt.id, job.id, attempt.held_gpu_ms(now_ms), job.request.grace_ms)


def _trim(
    world: World, room: Room, shape: Shape, hosts: tuple[HostId, ...], victims: dict[AttemptId, Victim]
) -> list[Victim]:
    """The victims without those that are not needed: the dearest are spared first."""
    kept = dict(victims)
    for victim in sorted(victims.values(), key=victim_order, reverse=True):
        rest = [v for v in kept if v != victim.attempt]
        if all(len(room.free[h]) + sum(_gpus_on(world, v, h) for v in rest) >= shape.gpus_per_host for h in hosts):
            del kept[victim.attempt]
    return list(kept.values())


def _gpus_on(world: World, attempt_id: AttemptId, host: HostId) -> int:
    found = world.attempt(attempt_id)
    attempt: Attempt | None = found[1] if found else None
    return sum(len(part.gpus) for part in attempt.parts if part.host == host) if attempt else 0
