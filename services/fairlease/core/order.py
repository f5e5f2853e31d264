"""What a host shall run, as a projection of the log: the words that go to its agent.

A job that is over before its grant (stillborn) is never ordered. The order's position is the last
one that changed anything on the host, so that two publishers write the same order.
"""

from fairlease.core.job import Attempt, Job
from fairlease.core.world import World
from fairlease_schemas.ids import HostId
from fairlease_schemas.orders import HostOrder, RunOrder
from fairlease_schemas.policy import Policy


def host_order(world: World, host: HostId) -> HostOrder:
    """The host's whole desired state, attempts by id."""
    policy = world.policy or Policy()
    runs = []
    for attempt_id in world.fleet.attempts_on(host):
        found = world.attempt(attempt_id)
        if found is not None and not found[1].is_stillborn and not _is_gone(found[1], host):
            runs.append(_run(world, policy, host, *found))
    return HostOrder(
        epoch=world.epoch,
        position=world.ordered.get(host, 0),
        host=host,
        runs=tuple(runs),
        lease_ms=policy.lease_ms,
        incarnation=known.incarnation if (known := world.fleet.hosts.get(host)) is not None else "",
    )


def _is_gone(attempt: Attempt, host: HostId) -> bool:
    return any(part.host == host for part in attempt.gone)


def _run(world: World, policy: Policy, host: HostId, job: Job, attempt: Attempt) -> RunOrder:
    rank = attempt.hosts.index(host)
    there = world.fleet.hosts[host]
    uuids = there.inventory.gpus
    return RunOrder(
        attempt=attempt.id,
        job=job.id,
        token=str(attempt.token),
        digest=job.digest,
        gpus=tuple(uuids[index] for index in attempt.parts[rank].gpus),
        hosts=attempt.hosts,
        rank=rank,
        stop=str(attempt.ending) if attempt.ending is not None else "",
        grace_ms=attempt.grace_ms,
        margin_ms=policy.stop_margin_ms,
        run_grace_ms=job.request.grace_ms,
        array_index=_array_index(job),
        is_go=attempt.is_go,
        rendezvous=attempt.rendezvous if attempt.is_go else None,
        account=job.account,
        is_of_before=attempt.granted_ms < there.registered_ms,  # a host with work registers anew after a boot alone
        is_clean=attempt.is_clean,
    )


def _array_index(job: Job) -> int:
    array = job.request.array
    return -1 if array is None or array.index is None else array.index
