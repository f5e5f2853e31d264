"""Promises: which hosts will be free for a blocked claim, and by when (decisions.md 6).

The slow model: for every set of hosts that could take the gang, the latest end there; take the set
with the earliest. Hosts are independent, so it is enough to sort them by the time each can be free.
Made only where the licence would let the claim evict everything there, were its window over.
"""

import msgspec

from fairlease.core.departures import Departure, free_by_ms
from fairlease.core.job import Phase
from fairlease.core.placement.fit import Room, Shape
from fairlease.core.preemption.licence import Permit
from fairlease.core.preemption.occupancy import Occupancy, Tenant, is_licensed
from fairlease.core.preemption.victims import plan_with
from fairlease.core.world import Promise, World
from fairlease_schemas.cycle import PromiseEnd
from fairlease_schemas.ids import HostId, JobId


class Proof(msgspec.Struct, frozen=True):
    """Hosts, the start, and the latest end and greatest grace that prove it."""

    hosts: tuple[HostId, ...]
    start_ms: int
    latest_ms: int
    grace_ms: int


def soonest(occupancy: Occupancy, room: Room, shape: Shape, permit: Permit, job: JobId) -> Proof | None:
    """The earliest provable start of the claim; None when its licence never makes enough hosts free.

    Of hosts that can be free at the same time the lower id; a gang takes whole hosts.
    """
    policy, now_ms = occupancy.policy, occupancy.now_ms
    able: list[tuple[int, HostId, list[Departure]]] = []
    for host in room.free:
        if not room.is_promisable(host, job) or (shape.hosts > 1 and room.size[host] != shape.gpus_per_host):
            continue
        leaving = _departures(occupancy.on.get(host, []), host, shape.gpus_per_host - len(room.free[host]), permit)
        if leaving is not None:
            able.append((free_by_ms(policy, leaving, now_ms), host, leaving))
    if len(able) < shape.hosts:
        return None
    chosen = sorted(able, key=lambda entry: entry[:2])[: shape.hosts]
    departures = [leaving for _, _, on_host in chosen for leaving in on_host]
    return Proof(
        hosts=tuple(sorted(host for _, host, _ in chosen)),
        start_ms=free_by_ms(policy, departures, now_ms),
        latest_ms=max((d.end_ms for d in departures), default=now_ms),
        grace_ms=max((d.grace_ms for d in departures), default=0),
    )


def _departures(tenants: list[Tenant], host: HostId, missing: int, permit: Permit) -> list[Departure] | None:
    """The departures that free `missing` GPUs soonest, all within the licence; None when they cannot."""
    leaving: list[Departure] = []
    licensed = [t for t in tenants if is_licensed(permit, t)]
    for tenant in sorted(licensed, key=lambda t: (t.leaves.end_ms + t.leaves.grace_ms, t.attempt)):
        if missing <= 0:
            break
        leaving.append(tenant.leaves)
        missing -= tenant.gpus_on[host]
    return leaving if missing <= 0 else None


def why_over(world: World, promise: Promise, now_ms: int) -> tuple[PromiseEnd, str] | None:
    """The named event that voids the promise, if there is one (6.4), and its address where it is known."""
    job = world.jobs[promise.job]
    if job.phase is not Phase.WAITING:
        return PromiseEnd.CLAIM_LEFT, ""
    held = [host for host in promise.hosts if world.fleet.hosts[host].holds]
    if held:
        return PromiseEnd.HOST_HELD, held[0]
    if world.policy_address > promise.made:
        return PromiseEnd.POLICY_CHANGED, str(world.policy_address)
    if world.tree_address > promise.made:
        return PromiseEnd.TREE_CHANGED, str(world.tree_address)
    policy = world.policy
    if policy is not None and now_ms > promise.start_ms and world.closed_ms < promise.start_ms - policy.stop_margin_ms:
        return PromiseEnd.OUTAGE, ""
    return None


def leaving_for(occupancy: Occupancy, room: Room, promise: Promise, shape: Shape) -> list[tuple[int, Tenant]]:
    """Who must leave for the promise, each with the instant at which it is told to.

    The cheapest set on the promise's hosts, as everything there is past its protection by then; each is
    told its own grace and the stop margin before the start. Earliest first.
    """
    only = room.only(promise.hosts)
    plan = plan_with(occupancy, only, shape, lambda tenant: not tenant.is_stopping)
    if plan is None:
        return []
    margin_ms = occupancy.policy.stop_margin_ms
    told = [(promise.start_ms - tenant.grace_ms - margin_ms, tenant) for tenant in plan.victims]
    return sorted(told, key=lambda entry: (entry[0], entry[1].attempt))


def tellings_ms(world: World) -> list[int]:
    """When somebody on promised hosts is to be told to leave: instants at which a cycle is needed."""
    policy = world.policy
    if policy is None or not world.promises:
        return []
    instants: set[int] = set()
    for promise in world.promises.values():
        for host in promise.hosts:
            for attempt_id in world.fleet.attempts_on(host):
                found = world.attempt(attempt_id)
                if found is not None and found[1].ending is None:
                    instants.add(promise.start_ms - found[0].request.grace_ms - policy.stop_margin_ms)
    return sorted(instants)
