"""Placement for policies that are not the product's: whoever the policy's order names gets room where there is any.

Room is the product's own (best fit below a host, whole hosts above, drains and holds kept), so that policies differ
in whom they serve alone. Nobody is evicted here, and no reasons are written: they are the product's.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from fairlease.core.deciders import RULES, Rule
from fairlease.core.decision import Decision, decision_ms
from fairlease.core.departures import needs_ms
from fairlease.core.fairshare.rank import has_work
from fairlease.core.job import Job
from fairlease.core.placement.fit import Room
from fairlease.core.placement.place import MAX_GRANT_BYTES, grant_bytes
from fairlease.core.placement.shape import Shape
from fairlease.core.placement.sides import asked
from fairlease.core.preemption.promise import tellings_ms
from fairlease.core.state import IDLE, RANKED
from fairlease.core.world import World
from fairlease_schemas.cycle import CyclePlaced, CycleRanked, GangGranted, Licence, Part
from fairlease_schemas.envelope import Answer, Event
from fairlease_schemas.ids import PoolId, attempt_id
from fairlease_schemas.policy import Policy

LICENCE: Final = Licence.IDLE
"""A grant by such a policy may evict nobody, and is no more protected than another: placement alone."""

Walk = Callable[["Open"], None]
"""One walk over who waits: it offers jobs, in its own order, until nobody is left whom it wants to offer."""


class Full(Exception):
    """The record holds no more grants: the next one goes on."""


class Open:
    """What is left of the cell's room in one placement, and what was granted so far."""

    def __init__(self, world: World, policy: Policy, now_ms: int) -> None:
        self.world = world
        self.now_ms = now_ms
        self.grants: list[GangGranted] = []
        self._policy = policy
        self._rooms: dict[PoolId, Room] = {}
        self._blocked: set[tuple[PoolId, Shape]] = set()
        self._bytes = 0

    def offer(self, job: Job) -> bool:
        """Grant the job its GPUs in the first of its pools that has room; whether one had. Full when it cannot say so.

        Room only shrinks, so a shape that found none is not looked for again.
        """
        for pool in job.pools:
            room = self._room(pool)
            shape = room.shape(job)
            if (pool, shape) in self._blocked:
                continue
            parts = room.find(shape, job.id, needs_ms(self._policy, job, self.now_ms))
            if parts is not None:
                self._grant(room, job, parts)
                return True
            self._blocked.add((pool, shape))
        return False

    def give(self, job: Job, parts: tuple[Part, ...]) -> None:
        """Grant the job these GPUs, which somebody else has found to be free. Full as above."""
        pool = self.world.fleet.hosts[parts[0].host].inventory.pool
        self._grant(self._room(pool), job, parts)

    def _room(self, pool: PoolId) -> Room:
        if pool not in self._rooms:
            self._rooms[pool] = Room(self.world, pool, self.now_ms)
        return self._rooms[pool]

    def _grant(self, room: Room, job: Job, parts: tuple[Part, ...]) -> None:
        size = grant_bytes(parts)
        is_full = self.grants and self._bytes + size > MAX_GRANT_BYTES
        if is_full or len(self.grants) == self._policy.max_grants_per_cycle:
            raise Full
        self._bytes += size
        room.take(parts, job.id, asked(job.request))
        number = len(job.attempts) + 1
        self.grants.append(
            GangGranted(
                job=job.id,
                attempt=attempt_id(job.id, number),
                number=number,
                pool=room.pool,
                parts=parts,
                window_ms=job.window_ms,
                licence=LICENCE,
                start_limit_ms=job.request.start_limit_ms or self._policy.start_limit_ms,
            )
        )


def rules(walk: Walk) -> dict[str, Rule]:
    """The services' rules with that walk in the place of ranker and placement; nobody is evicted but for drains."""

    def placed(world: World, answers: tuple[Answer, ...]) -> Decision | None:
        return _placed(walk, world, answers)

    return {**RULES, "ranker": Rule(_ranked, _due_ms), "placement": Rule(placed, _never)}


def waiting(world: World) -> Iterator[Job]:
    """Everybody who waits, in no order."""
    for of in world.line.classes.values():
        for _, name in of.members:
            yield world.jobs[name]


def offer_all(here: Open, jobs: Iterable[Job], *, is_strict: bool = False) -> None:
    """Offer them in this order; strict: nobody passes one who finds no room."""
    for job in jobs:
        if not here.offer(job) and is_strict:
            return


def _never(_world: World) -> int | None:
    return None


def _ranked(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """A cycle for news, or to tell somebody to leave: an order that looks at no standing changes nobody's room."""
    cycle, now_ms = world.cycle, decision_ms(world, answers)
    if world.policy is None or cycle.stage != IDLE or not has_work(world):
        return None
    is_told = any(cycle.ranked_ms < at_ms <= now_ms for at_ms in tellings_ms(world))
    if cycle.news_position <= cycle.ranked_basis and not cycle.is_cut and not is_told:
        return None
    ranked = CycleRanked(cycle=cycle.number + 1)
    return Decision(kind="cycle-ranked", at_ms=now_ms, events=(ranked,), answers=answers)


def _due_ms(world: World) -> int | None:
    """The next instant at which somebody is told to leave."""
    if world.policy is None or world.cycle.stage != IDLE:
        return None
    return min((at_ms for at_ms in tellings_ms(world) if at_ms > world.cycle.ranked_ms), default=None)


def _placed(walk: Walk, world: World, answers: tuple[Answer, ...]) -> Decision | None:
    policy, ranked = world.policy, world.cycle.ranked
    if policy is None or ranked is None or world.cycle.stage != RANKED:
        return None
    now_ms = decision_ms(world, answers)
    here, is_cut = Open(world, policy, now_ms), False
    try:
        walk(here)
    except Full:
        is_cut = True
    done = CyclePlaced(cycle=ranked.cycle, is_cut=is_cut)
    causes = {world.cycle.address, *(world.jobs[grant.job].admitted for grant in here.grants)}
    events: tuple[Event, ...] = (*here.grants, done)
    return Decision(kind="cycle-placed", at_ms=now_ms, events=events, causes=tuple(sorted(causes)), answers=answers)
