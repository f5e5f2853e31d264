"""Drains: a host is emptied for its owner without breaking a window (decisions.md 7.2, 7.3).

From the request on the host takes only what is gone before the start; at the start it is held. Who is past
the window then is told to leave its grace before the start, the rest at the end of their own windows,
and everybody at the deadline: the one named exception, which is credited. All of that is arithmetic on the
calendar, so the owner is told when the host will be empty. Health plans and holds; preemption, which alone
orders evictions, asks here whom to tell, and when.
"""

from collections.abc import Iterator, Mapping

import msgspec

from fairlease.core.departures import protected_until_ms
from fairlease.core.host import DRAIN, Drain, Host
from fairlease.core.job import Attempt, Job
from fairlease.core.world import World
from fairlease_schemas.commands import RequestDrain, UndrainHost
from fairlease_schemas.envelope import Answer, Event
from fairlease_schemas.host import (
    DrainCancelled,
    DrainCompleted,
    DrainPlanned,
    DrainProgress,
    HostHeld,
    HostHoldCleared,
)
from fairlease_schemas.ids import AttemptId, HostId
from fairlease_schemas.job import CommandRefused, Problem
from fairlease_schemas.policy import Policy

MAX_TEXT = 200
MAX_AHEAD_MS = 366 * 86_400_000


# what was asked ------------------------------------------------------------------------------------------
def request(
    world: World, policy: Policy, staged: Mapping[HostId, Host], answer: Answer, said: RequestDrain, now_ms: int
) -> list[Event]:
    """A plan, or a place in the queue; nothing when the sender asked for just that already.

    `staged` are the hosts that this record has changed so far: of two who ask at once the first has the host.
    """
    host = staged.get(said.host) or world.fleet.hosts.get(said.host)
    problem = _problem(answer, host, said, now_ms)
    if host is None or problem is not None:
        assert problem is not None, "a host that is not there is a problem"
        return [CommandRefused(account=answer.who, verb="request-drain", seq=answer.seq, problems=(problem,))]
    start_ms = max(now_ms, said.not_before_ms)
    drain = host.drain
    if drain is not None and (max(now_ms, drain.start_ms), drain.deadline_ms) == (start_ms, said.deadline_ms):
        return []
    is_queued = _is_overtaking(world, host, staged, now_ms) or not _has_room(world, policy, host, staged)
    asked = Drain(
        owner=answer.who,
        start_ms=start_ms,
        deadline_ms=said.deadline_ms,
        empty_ms=0,
        left=0,
        is_queued=is_queued,
        reason=said.reason[:MAX_TEXT],
        external_id=said.external_id[:MAX_TEXT],
    )
    return _planned(world, policy, host, asked, now_ms)


def undrain(host: Host | None, answer: Answer, said: UndrainHost) -> list[Event]:
    """The drain is called off; nothing when there is none. Only its owner may."""
    if host is not None and host.drain is not None and host.drain.owner == answer.who:
        cancelled: list[Event] = [DrainCancelled(host=host.id, account=answer.who)]
        if host.is_held_as(DRAIN):
            cancelled.append(HostHoldCleared(host=host.id, owner=answer.who, kind=DRAIN))
        return cancelled
    if host is not None and host.drain is None:
        return []
    limit = "a registered host" if host is None else "a host that the sender drains"
    way_out = "see `fairlease hosts`" if host is None or host.drain is None else f"ask {host.drain.owner}"
    problem = Problem(field="host", rule="7.2", value=said.host[:80], limit=limit, way_out=way_out)
    return [CommandRefused(account=answer.who, verb="undrain-host", seq=answer.seq, problems=(problem,))]


def _problem(answer: Answer, host: Host | None, said: RequestDrain, now_ms: int) -> Problem | None:
    if host is None:
        way_out = "see `fairlease hosts`"
        return Problem(field="host", rule="7.2", value=said.host[:80], limit="a registered host", way_out=way_out)
    if host.drain is not None and host.drain.owner != answer.who:
        limit, way_out = "one drain of a host at a time", f"ask {host.drain.owner}, or wait until it is returned"
        return Problem(field="host", rule="7.2", value=host.id, limit=limit, way_out=way_out)
    start_ms = max(now_ms, said.not_before_ms)
    if said.deadline_ms and said.deadline_ms < start_ms:
        value, limit = str(said.deadline_ms), f"from the start on: {start_ms}"
        return Problem(field="deadline_ms", rule="7.2", value=value, limit=limit, way_out="write a later one, or none")
    if not 0 <= said.not_before_ms <= now_ms + MAX_AHEAD_MS:
        value, limit = str(said.not_before_ms)[:30], "0, or ms since 1970 within a year from now"
        return Problem(field="not_before_ms", rule="7.2", value=value, limit=limit, way_out="ask again later")
    return None


def _has_room(world: World, policy: Policy, host: Host, staged: Mapping[HostId, Host]) -> bool:
    """Whether this host may drain beside those that do (7.3); one of a pool always may."""
    pool = host.inventory.pool
    draining = {h.id: h for h in world.fleet.draining()} | dict(staged)
    others = [h for h in draining.values() if h.inventory.pool == pool and h.id != host.id and h.closes_ms is not None]
    gpus = host.gpus + sum(h.gpus for h in others)
    return not others or gpus * 1000 <= world.fleet.gpus_in(pool) * policy.max_draining_permille


def _is_overtaking(world: World, host: Host, staged: Mapping[HostId, Host], now_ms: int) -> bool:
    """Whether an older drain of the pool waits in the queue: no younger one passes it, be it as small as it may (7.3).

    One that drains already is not asked to wait again when its owner asks for another time.
    """
    if host.closes_ms is not None:
        return False
    mine = (host.drain.asked_ms if host.drain is not None else now_ms, host.id)
    present = ({h.id: h for h in world.fleet.draining()} | dict(staged)).values()
    others = [(h, h.drain) for h in present if h.inventory.pool == host.inventory.pool and h.id != host.id]
    return any(drain is not None and drain.is_queued and (drain.asked_ms, h.id) < mine for h, drain in others)


# what follows by itself ----------------------------------------------------------------------------------
def duties(world: World, policy: Policy, now_ms: int) -> Iterator[Event]:
    """Holds whose time has come, progress, completion, and who comes from the queue; hosts by id, the queue by age."""
    for host, drain in _under_way(world):
        left = world.fleet.attempts_on(host.id)
        is_held = host.is_held_as(DRAIN)
        if now_ms >= drain.start_ms and not is_held:
            yield HostHeld(host=host.id, owner=drain.owner, kind=DRAIN, reason=drain.reason)
            is_held = True
        if not left and is_held:
            yield DrainCompleted(host=host.id)
        elif len(left) < drain.left:
            empty_ms = empty_by_ms(world, policy, host, drain, now_ms)
            yield DrainProgress(host=host.id, left=len(left), empty_in_ms=empty_ms - now_ms)
    queued = [host for host in world.fleet.draining() if host.drain is not None and host.drain.is_queued]
    for host in sorted(queued, key=lambda h: (h.drain.asked_ms if h.drain else 0, h.id)):
        if host.drain is None or _is_overtaking(world, host, {}, now_ms):
            continue
        if _has_room(world, policy, host, {}):
            asked = msgspec.structs.replace(host.drain, start_ms=max(now_ms, host.drain.start_ms), is_queued=False)
            yield from _planned(world, policy, host, asked, now_ms)
            return  # the next one is judged beside it


def due_ms(world: World) -> int | None:
    """When the next drain begins."""
    return min((drain.start_ms for host, drain in _under_way(world) if not host.is_held_as(DRAIN)), default=None)


def _under_way(world: World) -> Iterator[tuple[Host, Drain]]:
    """Hosts whose drain is neither queued nor complete, by id."""
    for host in world.fleet.draining():
        if host.drain is not None and not host.drain.is_queued and not host.drain.is_done:
            yield host, host.drain


def _planned(world: World, policy: Policy, host: Host, asked: Drain, now_ms: int) -> list[Event]:
    """The plan; where nothing stands on the host and it begins now, the end of it in the same record."""
    attempts = tuple(world.fleet.attempts_on(host.id))
    planned: list[Event] = [_plan(world, policy, host, asked, attempts, now_ms)]
    if not attempts and not asked.is_queued and asked.start_ms <= now_ms:
        if not host.is_held_as(DRAIN):
            planned.append(HostHeld(host=host.id, owner=asked.owner, kind=DRAIN, reason=asked.reason))
        planned.append(DrainCompleted(host=host.id))
    return planned


def _plan(
    world: World, policy: Policy, host: Host, asked: Drain, attempts: tuple[AttemptId, ...], now_ms: int
) -> DrainPlanned:
    return DrainPlanned(
        host=host.id,
        owner=asked.owner,
        start_in_ms=asked.start_ms - now_ms,
        deadline_in_ms=max(0, asked.deadline_ms - now_ms) if asked.deadline_ms else None,
        empty_in_ms=empty_by_ms(world, policy, host, asked, now_ms) - now_ms,
        attempts=attempts,
        is_queued=asked.is_queued,
        reason=asked.reason,
        external_id=asked.external_id,
    )


# the calendar of one host --------------------------------------------------------------------------------
def empty_by_ms(world: World, policy: Policy, host: Host, drain: Drain, now_ms: int) -> int:
    """When nothing is left at the latest: each one's telling + its grace + the stop margin.

    An empty host is so at once, or at a later start within the margin: the bus tells of a start a little late.
    """
    attempts = world.fleet.attempts_on(host.id)
    latest_ms = max(now_ms, drain.start_ms)
    if not attempts and drain.start_ms > now_ms:
        latest_ms += policy.stop_margin_ms
    for name in attempts:
        found = world.attempt(name)
        if found is not None:
            job, attempt = found
            told_ms, grace_ms = attempt.ending_ms, attempt.grace_ms
            if attempt.ending is None:
                told_ms, grace_ms = max(now_ms, told_at_ms(policy, drain, job, attempt)), job.request.grace_ms
            latest_ms = max(latest_ms, told_ms + grace_ms + policy.stop_margin_ms)
    return latest_ms


def told_at_ms(policy: Policy, drain: Drain, job: Job, attempt: Attempt) -> int:
    """When the attempt is told to leave: its grace before the start, never inside its window, at the deadline.

    A time-out that comes before needs no telling.
    """
    early_ms = drain.start_ms - job.request.grace_ms
    told_ms = early_ms if job.is_idle_work else max(early_ms, protected_until_ms(policy, job, attempt))
    return min(told_ms, drain.deadline_ms) if drain.deadline_ms else told_ms


def leaving(world: World, policy: Policy) -> list[tuple[int, Job, Attempt, Host]]:
    """Everybody who stands on a draining host and was not told to leave: by when to tell, then by attempt."""
    found: dict[str, tuple[int, Job, Attempt, Host]] = {}
    for host, drain in _under_way(world):
        for name in world.fleet.attempts_on(host.id):
            known = world.attempt(name)
            if known is not None and known[1].ending is None and not known[1].is_stillborn:
                entry = (told_at_ms(policy, drain, *known), *known, host)
                if name not in found or entry[0] < found[name][0]:
                    found[name] = entry
    return sorted(found.values(), key=lambda entry: (entry[0], entry[2].id))
