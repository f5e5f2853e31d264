"""One claim, one verified plan: the attempts whose leaving makes room for a whole gang.

First cut: idle work only, which every claim above idle may evict (3.5-3.7). On each host the idle
attempts that free the most for the least are taken, then the set over all chosen hosts is trimmed:
a victim whose GPUs turn out not to be needed stays. Placement closes hosts with the same function.
"""

import msgspec

from fairlease.core.job import Attempt, Job
from fairlease.core.placement.fit import Room, Shape
from fairlease.core.world import World
from fairlease_schemas.ids import AttemptId, HostId, JobId, PoolId


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


class Evictable:
    """The idle attempts of a pool that may be asked to leave, by host; made once for a step.

    Room only shrinks while a step goes on, so a shape that had no plan has none later in the step.
    """

    def __init__(self, world: World, pool: PoolId, now_ms: int) -> None:
        self._on: dict[HostId, list[Victim]] = {}
        self._gpus: dict[tuple[AttemptId, HostId], int] = {}
        self._hopeless: set[Shape] = set()
        for name in world.live.values():
            job = world.jobs[name]
            attempt = job.live
            if attempt is None or attempt.pool != pool or not _may_be_asked(job, attempt):
                continue
            victim = Victim(attempt.id, job.id, attempt.held_gpu_ms(now_ms), job.request.grace_ms)
            for part in attempt.parts:
                self._on.setdefault(part.host, []).append(victim)
                self._gpus[attempt.id, part.host] = len(part.gpus)
        for victims in self._on.values():
            victims.sort(key=victim_order)

    def spend(self, plan: Plan) -> None:
        """The plan's victims are spoken for: nobody is asked twice."""
        gone = {victim.attempt for victim in plan.victims}
        self._on = {host: [v for v in victims if v.attempt not in gone] for host, victims in self._on.items()}

    def plan(self, room: Room, shape: Shape) -> Plan | None:
        """The cheapest trimmed set of idle attempts whose leaving places the gang, or None.

        Hosts are compared by what must be lost there, then by how many are asked, then by id; a
        gang is kept within one block when one suffices.
        """
        if not self._on or shape in self._hopeless:
            return None
        costs: dict[HostId, list[Victim]] = {}
        for host in room.free:
            if room.is_open(host) and (shape.hosts == 1 or room.size[host] == shape.gpus_per_host):
                asked = self._cheapest_on(room, host, shape.gpus_per_host)
                if asked is not None:
                    costs[host] = asked
        plan = self._cheapest(room, shape, costs) if len(costs) >= shape.hosts else None
        if plan is None:
            self._hopeless.add(shape)
        return plan

    def _cheapest(self, room: Room, shape: Shape, costs: dict[HostId, list[Victim]]) -> Plan | None:
        by_cost = sorted(costs, key=lambda h: (sum(v.lost_gpu_ms for v in costs[h]), len(costs[h]), h))
        if shape.hosts > 1:
            by_cost = room.by_block(by_cost, shape.hosts)
        hosts = tuple(sorted(by_cost[: shape.hosts]))
        victims = {v.attempt: v for host in hosts for v in costs[host]}
        trimmed = self._trim(room, shape, hosts, victims)
        return Plan(hosts, tuple(sorted(trimmed, key=victim_order))) if trimmed else None

    def _cheapest_on(self, room: Room, host: HostId, gpus: int) -> list[Victim] | None:
        """The fewest cheap idle attempts whose leaving frees `gpus` on the host; None when that cannot be."""
        free = len(room.free[host])
        chosen: list[Victim] = []
        for victim in self._on.get(host, ()):
            if free >= gpus:
                break
            chosen.append(victim)
            free += self._gpus[victim.attempt, host]
        return chosen if free >= gpus else None

    def _trim(
        self, room: Room, shape: Shape, hosts: tuple[HostId, ...], victims: dict[AttemptId, Victim]
    ) -> list[Victim]:
        """The victims without those that are not needed: the dearest are spared first."""
        freed = {h: len(room.free[h]) + sum(self._gpus.get((v, h), 0) for v in victims) for h in hosts}
        kept = dict(victims)
        for victim in sorted(victims.values(), key=victim_order, reverse=True):
            less = {h: freed[h] - self._gpus.get((victim.attempt, h), 0) for h in hosts}
            if all(gpus >= shape.gpus_per_host for gpus in less.values()):
                del kept[victim.attempt]
                freed = less
        return list(kept.values())


def _may_be_asked(job: Job, attempt: Attempt) -> bool:
    """Whether it is idle work that nobody has asked to leave yet."""
    return job.is_idle_work and attempt.ending is None and not attempt.is_stillborn
