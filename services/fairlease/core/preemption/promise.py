"""Promises: which hosts will be free for a blocked claim, and by when (decisions.md 6).

The slow model: for every set of hosts that could take the gang, the latest end and the greatest grace
there; take the set with the earliest sum. With a bound on grace hosts are independent, so it is enough
to sort them by their latest end, once for each grace there is. A promise is made only where the licence
would let the claim evict everybody there, were their windows over: so whoever is cheapest may go then.
"""

from typing import Final

import msgspec

from fairlease.core import drain
from fairlease.core.constraint import host_takes
from fairlease.core.departures import Departure, free_by_ms, protected_until_ms
from fairlease.core.host import Host
from fairlease.core.job import Job, Phase
from fairlease.core.placement.blocks import groups
from fairlease.core.placement.fit import Lack, Room, is_short
from fairlease.core.placement.shape import Shape
from fairlease.core.preemption.licence import Permit
from fairlease.core.preemption.occupancy import Occupancy, Tenant, is_licensed
from fairlease.core.preemption.victims import Plan, cheapest_on, plan_with
from fairlease.core.state import Promise
from fairlease.core.world import World
from fairlease_schemas.cycle import PromiseEnd
from fairlease_schemas.ids import AttemptId, HostId, JobId

MAX_GRACES: Final = 8


class Proof(msgspec.Struct, frozen=True):
    """Hosts, the start, and the latest end and greatest grace that prove it."""

    hosts: tuple[HostId, ...]
    start_ms: int
    latest_ms: int
    grace_ms: int


def soonest(
    occupancy: Occupancy, room: Room, shape: Shape, permit: Permit, job: JobId, *, is_promise: bool = False
) -> Proof | None:
    """The earliest provable start of the claim (6.1); None when its licence never makes enough hosts free.

    With `is_promise` only where everybody on the hosts is within the licence, and T covers them all (6.2).
    Of hosts that can be free by then a promise takes those whose cheapest set loses least (5.4), then the lower
    id. At most `MAX_GRACES` bounds on grace are tried, the greatest always.
    """
    offers: list[tuple[HostId, Lack, list[Tenant]]] = []
    licence = permit.signature(occupancy.leaves)
    places = occupancy.able(room, shape, ("licensed", licence), lambda t: is_licensed(permit, t), is_all=True)
    if places is not None and places.bit_count() < shape.hosts:
        return None
    for host in room.free if places is None else room.frame.names(places):
        if room.is_promisable(host, job) and shape.suits(host, room.size[host]):
            lack = room.lack(host, shape)
            tenants = occupancy.at(host) if is_short(lack) else []
            able = [tenant for tenant in tenants if is_licensed(permit, tenant)]
            if len(able) == len(tenants) or not is_promise:
                offers.append((host, lack, sorted(able, key=lambda t: (t.leaves.end_ms, t.attempt))))
    graces = sorted({t.leaves.grace_ms for _, _, able in offers for t in able} | {0}, reverse=True)
    best: Proof | None = None
    free: dict[HostId, _Freed] = {}
    for most_ms in graces[:: -(-len(graces) // MAX_GRACES)]:
        before = len(free)
        if is_promise and best is not None:  # everybody leaves, so that a bound takes hosts away and changes none
            free = {host: freed for host, freed in free.items() if freed.grace_ms <= most_ms}
            if len(free) == before:
                continue
        else:
            free = {}
            for host, lack, able in offers:
                leaving = _departures(room, host, lack, able, most_ms, is_promise=is_promise)
                if leaving is not None:
                    free[host] = _freed(lack, leaving, able)
        proofs = [
            _proof(occupancy, room, shape, {host: free[host] for host in hosts}, is_promise=is_promise)
            for name, hosts in (groups(free, room.block, 1) if shape.is_same_block else {"all": list(free)}).items()
            if len(hosts) >= shape.hosts and name
        ]
        if not proofs:
            break
        proof = min(proofs, key=lambda p: (p.start_ms, p.hosts))
        if best is None or proof.start_ms <= best.start_ms:
            best = proof
    return best


def promised(
    occupancy: Occupancy, room: Room, shape: Shape, permit: Permit, job: JobId, horizon_ms: int
) -> Proof | None:
    """What a promise would rest on (6.2): None where nothing proves one, or only beyond the gang's horizon (6.5).

    The horizon is so long for each of its hosts, 0 for none: the more there are, the longer they gather.
    """
    proof = soonest(occupancy, room, shape, permit, job, is_promise=True)
    is_far = proof is not None and 0 < horizon_ms * shape.hosts < proof.start_ms - room.now_ms
    return None if is_far else proof


class _Freed(msgspec.Struct, frozen=True):
    """A host that can be free: from when, what is missing until then, by whose leaving, and who might leave instead.

    `grace_ms` is the greatest of those who leave.
    """

    end_ms: int
    lack: Lack
    leaving: list[Departure]
    able: list[Tenant]
    grace_ms: int


def _freed(lack: Lack, leaving: list[Departure], able: list[Tenant]) -> _Freed:
    grace_ms = max([departure.grace_ms for departure in leaving], default=0)
    return _Freed(leaving[-1].end_ms if leaving else -1, lack, leaving, able, grace_ms)


def _proof(occupancy: Occupancy, room: Room, shape: Shape, free: dict[HostId, _Freed], *, is_promise: bool) -> Proof:
    """The start on the hosts that are free soonest; of those free by then, for a promise the ones that lose least."""
    latest_ms = sorted(freed.end_ms for freed in free.values())[shape.hosts - 1]
    in_time = [host for host, freed in free.items() if freed.end_ms <= latest_ms]
    if is_promise and len(in_time) > shape.hosts:
        in_time.sort(key=lambda host: (_loss(room, host, free[host]), host))
    chosen = in_time[: shape.hosts]
    departures = [leaving for host in chosen for leaving in free[host].leaving]
    return Proof(
        hosts=tuple(sorted(chosen)),
        start_ms=free_by_ms(occupancy.policy, departures, occupancy.now_ms),
        latest_ms=max((d.end_ms for d in departures), default=occupancy.now_ms),
        grace_ms=max((d.grace_ms for d in departures), default=0),
    )


def _loss(room: Room, host: HostId, freed: _Freed) -> tuple[int, int]:
    """GPU-time that the cheapest set on the host would lose now, and how many it is."""
    lack = freed.lack
    for tenant in freed.able:
        if tenant.is_stopping:
            lack = room.eased(lack, host, tenant.gpus_on[host], tenant.sizes)
    found = cheapest_on(room, freed.able, host, lack, lambda tenant: not tenant.is_stopping)
    return found[0][:2] if found is not None else (0, 0)


def _departures(
    room: Room, host: HostId, lack: Lack, able: list[Tenant], most_ms: int, *, is_promise: bool
) -> list[Departure] | None:
    """Of those who may leave, by their ends: the departures that end the lack soonest within that grace.

    For a promise everybody's; None when they cannot. The latest end comes last.
    """
    leaving: list[Departure] = []
    for tenant in able:
        if not is_short(lack) and not is_promise:
            break
        if tenant.leaves.grace_ms <= most_ms:
            leaving.append(tenant.leaves)
            lack = room.eased(lack, host, tenant.gpus_on[host], tenant.sizes)
        elif is_promise:
            return None
    return None if is_short(lack) else leaving


def is_sooner(occupancy: Occupancy, plan: Plan, promise: Promise | None, now_ms: int) -> bool:
    """Whether evicting now makes room earlier than the promise does, by what makes a replacement worth it (6.4)."""
    if promise is None:
        return True
    if is_under_way(occupancy, promise, now_ms):
        return False
    policy = occupancy.policy
    return plan.free_by_ms(policy, now_ms) <= promise.start_ms - policy.promise_gain_ms


def is_under_way(occupancy: Occupancy, promise: Promise, now_ms: int) -> bool:
    """Whether the first of those who must leave for the promise may have been told: it is not replaced any more (6.4).

    Whoever left for it would have left for nothing. The longest grace there counts, also of who came after it was made.
    """
    there = (tenant.grace_ms for host in promise.hosts for tenant in occupancy.at(host))
    return now_ms >= promise.start_ms - max(there, default=0) - occupancy.policy.stop_margin_ms


def why_over(world: World, promise: Promise, now_ms: int) -> tuple[PromiseEnd, str] | None:
    """The named event that voids the promise, if there is one (6.4), and its address where it is known."""
    job = world.jobs[promise.job]
    if job.phase is not Phase.WAITING:
        return PromiseEnd.CLAIM_LEFT, ""
    drained = [name for name in promise.hosts if world.fleet.hosts[name].closes_ms is not None]
    if drained:
        return PromiseEnd.DRAIN, drained[0]
    lost = [name for name in promise.hosts if not _is_sound(world.fleet.hosts[name], promise, job)]
    if lost:
        return PromiseEnd.HOST_HELD, lost[0]
    if world.policy_address > promise.made:
        return PromiseEnd.POLICY_CHANGED, str(world.policy_address)
    if world.tree_address > promise.made:
        return PromiseEnd.TREE_CHANGED, str(world.tree_address)
    policy = world.policy
    if policy is not None and now_ms > promise.start_ms:
        if world.closed_ms < promise.start_ms - policy.stop_margin_ms:
            return PromiseEnd.OUTAGE, ""
        if now_ms > promise.start_ms + policy.reservation_slack_ms:
            return PromiseEnd.BROKEN, ""  # somebody there overstays: the other hosts are not kept for ever
    return None


def _is_sound(host: Host, promise: Promise, job: Job) -> bool:
    """Whether the host is still what was promised: in its pool, of a size for the gang, without a hold."""
    return not host.holds and host.inventory.pool == promise.pool and not host_takes(job.request, host)


def leaving_for(
    occupancy: Occupancy, room: Room, promise: Promise, shape: Shape, closed_ms: int
) -> list[tuple[int, Tenant]]:
    """Who must leave for the promise, each with the instant at which it is told to.

    The cheapest set on the promise's hosts beside those that are leaving already; everybody there is past its
    protection by then. Each is told its own grace and the stop margin before the start, so one whose
    instant was over when the last cycle closed is taken only where nobody else would do. Earliest first.
    """
    only = room.only(promise.hosts)
    for host in only.free:
        for tenant in occupancy.at(host):
            if tenant.is_stopping:
                only.leave(host, tenant.gpus_on[host], tenant.sizes)
    margin_ms = occupancy.policy.stop_margin_ms

    def told_ms(tenant: Tenant) -> int:
        return promise.start_ms - tenant.grace_ms - margin_ms

    plan = plan_with(occupancy, only, shape, lambda t: not t.is_stopping and told_ms(t) > closed_ms)
    plan = plan or plan_with(occupancy, only, shape, lambda t: not t.is_stopping)
    if plan is None:
        return []
    return sorted(((told_ms(t), t) for t in plan.victims), key=lambda entry: (entry[0], entry[1].attempt))


def tellings_ms(world: World) -> list[int]:
    """When somebody is to be told to leave for a promise or a drain: instants at which a cycle is needed."""
    policy = world.policy
    if policy is None:
        return []
    instants = {told_ms for told_ms, *_ in drain.leaving(world, policy)}
    for promise in world.promises.values():
        there: set[AttemptId] = set()
        for host in promise.hosts:
            there.update(world.fleet.attempts_on(host))
        for attempt_id in there:
            found = world.attempt(attempt_id)
            if found is not None and found[1].ending is None:
                told_ms = promise.start_ms - found[0].request.grace_ms - policy.stop_margin_ms
                # A grant that crossed a younger record may be protected a moment longer than was decided.
                instants.add(max(told_ms, protected_until_ms(policy, *found)))
    return sorted(instants)
