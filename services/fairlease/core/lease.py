"""Leases: which hosts have gone silent, and when nothing of what they ran can be left (decisions.md 7.6).

An agent stops its runs itself one lease after it sent the last renewal that was acknowledged, and they are
gone within their grace and the stop margin. So two instants count from the bus's timestamp of that renewal:

1. lease + lease margin: nothing new is placed there (a hold of kind `lease`, cleared when it is heard again);
2. lease + the greatest grace there + stop margin + lease margin: what it ran is over, and its GPUs are free.

Renewals are not in the log. What health read of them is part of the message that it answers. When too large a
part of a pool falls to such holds in a short time, it is the bus or a switch that is silent, not the hosts: then
no further host is held by itself, and a person is asked (7.3).
"""

from fairlease.core.host import HEALTH, LEASE, Host
from fairlease.core.world import World
from fairlease_schemas.envelope import Event, LeasesRead
from fairlease_schemas.host import BreakerTripped, HostHeld, HostHoldCleared, LeaseLost
from fairlease_schemas.ids import AttemptId, HostId, PoolId
from fairlease_schemas.policy import Policy


def judge(world: World, policy: Policy, said: LeasesRead, now_ms: int) -> list[Event]:
    """What follows for each host that was read, by id; hosts that nobody registered are passed over."""
    events: list[Event] = []
    breaker = _Breaker(world, policy, now_ms)
    for name, renewed_ms in sorted(said.renewed.items()):
        host = world.fleet.hosts.get(name)
        if host is not None:
            silent_ms = now_ms - max(renewed_ms, host.registered_ms)
            events.extend(_judge(world, policy, breaker, host, silent_ms, _kept_to_ms(world, policy, said, name)))
    return events


def _kept_to_ms(world: World, policy: Policy, said: LeasesRead, host: HostId) -> int:
    """The lease by which the host's agent fences itself: as it said, if it never heard of a shorter one.

    Never above the longest that any policy gave, so that an agent's slip cannot keep its GPUs for ever.
    """
    return max(policy.lease_ms, min(said.leases_ms.get(host, 0), world.longest_lease_ms))


class _Breaker:
    """How much of each pool was held by itself within the span, in GPUs, this record's holds among them (7.3)."""

    def __init__(self, world: World, policy: Policy, now_ms: int) -> None:
        self._world = world
        self._policy = policy
        self._since_ms = now_ms - policy.breaker_span_ms
        self._held: dict[PoolId, int] = {}
        self._has_told: set[PoolId] = {pool for pool, at_ms in world.breaker.items() if at_ms > self._since_ms}

    def hold(self, host: Host, *, is_lost: bool) -> list[Event]:
        """The hold of this host, or the word that it is not held; nothing when that was said within the span.

        One whose work is given up for lost is held whatever the breaker says: it would be given that work again.
        """
        pool = host.inventory.pool
        if pool not in self._held:
            self._held[pool] = sum(map(self._counted, self._world.fleet.in_pool(pool)))
        gpus = self._held[pool] + host.gpus
        limit = self._world.fleet.gpus_in(pool) * self._policy.breaker_permille // 1000
        if is_lost or self._held[pool] == 0 or gpus <= limit:
            self._held[pool] = gpus
            return [HostHeld(host=host.id, owner=HEALTH, kind=LEASE, reason="its agent has gone silent")]
        if pool in self._has_told:
            return []
        self._has_told.add(pool)
        return [BreakerTripped(pool=pool, host=host.id, held_gpus=self._held[pool], limit_gpus=limit)]

    def _counted(self, host: Host) -> int:
        by_itself = (hold.since_ms for hold in host.holds if hold.owner == HEALTH)
        return host.gpus if max(by_itself, default=self._since_ms) > self._since_ms else 0


def silence_ms(policy: Policy, lease_ms: int = 0) -> int:
    """After how long a host takes no new work; `lease_ms` is what its agent keeps to, if not the policy's."""
    return (lease_ms or policy.lease_ms) + policy.lease_margin_ms


def loss_ms(world: World, policy: Policy, host: HostId, lease_ms: int = 0) -> int:
    """After how long nothing is left of what it runs."""
    graces = (found[0].request.grace_ms for name in remains(world, host) if (found := world.attempt(name)) is not None)
    return silence_ms(policy, lease_ms) + max(graces, default=0) + policy.stop_margin_ms


def _judge(world: World, policy: Policy, breaker: _Breaker, host: Host, silent_ms: int, lease_ms: int) -> list[Event]:
    is_held = host.is_held_as(LEASE)
    if silent_ms < silence_ms(policy, lease_ms):
        return [HostHoldCleared(host=host.id, owner=HEALTH, kind=LEASE)] if is_held else []
    there = remains(world, host.id)
    is_lost = bool(there) and silent_ms >= loss_ms(world, policy, host.id, lease_ms)
    events = [] if is_held else breaker.hold(host, is_lost=is_lost)
    if is_lost:
        events.append(LeaseLost(host=host.id, silent_ms=silent_ms, attempts=there))
    return events


def remains(world: World, host: HostId) -> tuple[AttemptId, ...]:
    """Attempts of which a part there is neither reported gone nor lost already, by id."""
    return tuple(
        name
        for name in world.fleet.attempts_on(host)
        if (found := world.attempt(name)) is not None
        and host not in world.lost.get(name, ())
        and all(part.host != host for part in found[1].gone)
    )
