"""Free preemption: at each cycle the whole cluster is handed out anew by one order, and whoever has no place leaves.

For validation alone: no window, no brake, no fair share. Who is chosen and runs already stays where it is if those
before it have left its GPUs; who must move or yield is told to leave, and the places are given once all have gone. With
stops that take no time that is the same instant.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from fairlease.core.deciders import Rule
from fairlease.core.decision import Decision, decision_ms
from fairlease.core.job import Job
from fairlease.core.state import PLACED
from fairlease.core.world import World
from fairlease.simulator import walk
from fairlease.simulator.walk import Open, waiting
from fairlease_schemas.cycle import CycleClosed, EvictionOrdered, Licence, Part
from fairlease_schemas.envelope import Address, Answer, Event
from fairlease_schemas.ids import AttemptId, HostId, JobId

Order = Callable[[Job], tuple[tuple[int, ...], Address]]
Places = dict[HostId, int]
MAX_EVICTIONS: Final = 400
"""What one record holds of them; the next cycle goes on."""


def rules(order: Order) -> dict[str, Rule]:
    """The services' rules with placement by this order, and eviction of whoever it leaves no place."""

    def place(here: Open) -> None:
        if not any(_leaving(here.world, order)):
            for job, places in _chosen(here.world, order):
                if job.live is None:
                    here.give(job, _parts(here.world, places))

    def close(world: World, answers: tuple[Answer, ...]) -> Decision | None:
        return _closed(order, world, answers)

    return {**walk.rules(place), "preemption": Rule(close, lambda _world: None)}


def _chosen(world: World, order: Order) -> Iterator[tuple[Job, Places]]:
    """Everybody who has a place if the cluster is handed out anew, in order, each with its GPUs by host."""
    hosts = [world.fleet.hosts[name] for pool in world.fleet.pools() for name in world.fleet.frame(pool).hosts]
    size = {host.id: host.gpus for host in hosts if not host.holds}
    free = dict(size)
    live = (world.jobs[name] for name in world.live.values())
    for job in sorted((*live, *waiting(world)), key=order):
        places = _kept(job, free) or _found(job, free, size)
        if places is not None:
            for host, gpus in places.items():
                free[host] -= gpus
            yield job, places


def _kept(job: Job, free: Places) -> Places | None:
    """Where it runs, if all of that is left."""
    if job.live is None:
        return None
    places = {part.host: len(part.gpus) for part in job.live.parts}
    return places if all(free.get(host, 0) >= gpus for host, gpus in places.items()) else None


def _found(job: Job, free: Places, size: Places) -> Places | None:
    """The fullest host that has room, or as many whole empty ones; None without."""
    hosts, gpus = job.request.hosts, job.request.gpus_per_host
    if hosts == 1:
        able = [(left, host) for host, left in free.items() if left >= gpus]
        return {min(able)[1]: gpus} if able else None
    empty = [host for host, left in free.items() if left == size[host] == gpus][:hosts]
    return dict.fromkeys(empty, gpus) if len(empty) == hosts else None


def _leaving(world: World, order: Order) -> Iterator[AttemptId]:
    """Live attempts that have no place where they are, by grant; also those that are leaving already."""
    stays = {
        job.live.id
        for job, places in _chosen(world, order)
        if job.live is not None and places == {part.host: len(part.gpus) for part in job.live.parts}
    }
    for name in world.live:
        found = world.attempt(name)
        if found is not None and (name not in stays or found[1].ending is not None):
            yield name


def _parts(world: World, places: Mapping[HostId, int]) -> tuple[Part, ...]:
    return tuple(Part(host=host, gpus=tuple(world.fleet.free_gpus(host)[:gpus])) for host, gpus in places.items())


def _closed(order: Order, world: World, answers: tuple[Answer, ...]) -> Decision | None:
    placed, now_ms = world.cycle.placed, decision_ms(world, answers)
    if placed is None or world.cycle.stage != PLACED:
        return None
    events: list[Event] = []
    claim = _claim(world, order)
    for name in list(_leaving(world, order))[:MAX_EVICTIONS]:
        found = world.attempt(name)
        if found is not None and found[1].ending is None:
            job, attempt = found
            lost_gpu_ms = attempt.gpus * (now_ms - attempt.saved_ms)
            evicted = EvictionOrdered(
                attempt=name,
                claim=claim,
                licence=Licence.OVER_SHARE,
                grace_ms=job.request.grace_ms,
                lost_gpu_ms=lost_gpu_ms,
            )
            events.append(evicted)
    closed = CycleClosed(cycle=placed.cycle)
    return Decision(
        kind="cycle-closed", at_ms=now_ms, events=(*events, closed), causes=(world.cycle.address,), answers=answers
    )


def _claim(world: World, order: Order) -> JobId:
    """For whom room is made: the first of those who wait; empty where nobody does, and somebody only moves."""
    first = min(waiting(world), key=order, default=None)
    return first.id if first is not None else ""
