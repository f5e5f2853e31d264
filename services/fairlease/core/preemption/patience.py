"""Whether waiting a little loses less than evicting now (decisions.md 5.5).

The loss of a plan at an instant is what its victims lose then, and what the GPUs that stand free for
the claim lose by waiting until then. A checkpoint that falls due makes its job cheap to evict; a
window that ends adds a cheaper victim. Only such instants are worth looking at, the nearest eight.
"""

from typing import Final

import msgspec

from fairlease.core.placement.fit import Room
from fairlease.core.placement.shape import Shape
from fairlease.core.preemption.licence import Permit
from fairlease.core.preemption.occupancy import Occupancy, Tenant, is_licensed
from fairlease.core.preemption.victims import Plan, licensed_hosts, plan_with
from fairlease_schemas.ids import HostId
from fairlease_schemas.reasons import Reason

MAX_INSTANTS: Final = 8


class Wait(msgspec.Struct, frozen=True):
    """Until when a claim waits, for what, and the hosts that it is then to clear."""

    reason: Reason
    until_ms: int
    hosts: tuple[HostId, ...]


def worth_waiting(
    occupancy: Occupancy, room: Room, shape: Shape, permit: Permit, plan: Plan, patience_ms: int
) -> Wait | None:
    """The best wait; None when evicting now loses no more than any."""
    now_ms = occupancy.now_ms
    if plan.lost_gpu_ms == 0 or patience_ms <= 0:
        return None
    standing_free = sum(min(len(room.free[host]), shape.gpus_per_host) for host in plan.hosts)
    best: tuple[int, Wait] | None = None
    among = licensed_hosts(occupancy, room, shape, permit)
    for at_ms, reason in _instants(occupancy, permit, now_ms, now_ms + patience_ms):
        then = plan_with(_Later(occupancy, permit, at_ms), room, shape, _is_any, among=among)
        if then is None:
            continue
        lost = then.lost_gpu_ms + standing_free * (at_ms - now_ms)
        if lost < (plan.lost_gpu_ms if best is None else best[0]):
            best = (lost, Wait(reason, at_ms, then.hosts))
    return None if best is None else best[1]


def _instants(occupancy: Occupancy, permit: Permit, now_ms: int, until_ms: int) -> list[tuple[int, Reason]]:
    """When something the claim may evict gets cheaper or evictable, soonest first."""
    found: dict[int, Reason] = {}
    for tenant in occupancy.everybody():
        end_ms, due_ms = tenant.leaves.end_ms, tenant.checkpoint_due_ms
        is_ending = now_ms < end_ms <= until_ms and not tenant.is_past
        is_due = now_ms < due_ms <= until_ms
        if not (is_ending or is_due) or tenant.is_stopping or not is_licensed(permit, tenant):
            continue
        if is_ending:
            found.setdefault(end_ms, Reason.PROTECTED_WINDOWS)
        if is_due:
            found[due_ms] = Reason.AWAITING_CHECKPOINT
    return sorted(found.items())[:MAX_INSTANTS]


def _leaves_at(permit: Permit, tenant: Tenant, at_ms: int) -> bool:
    if tenant.is_stopping or not (tenant.is_idle or tenant.is_past or tenant.leaves.end_ms <= at_ms):
        return False
    return is_licensed(permit, tenant)


def _is_any(_tenant: Tenant) -> bool:
    return True


class _Later(Occupancy):
    """Who may leave at a later instant, if nothing else happened and checkpoints came when due; weighed when asked."""

    def __init__(self, occupancy: Occupancy, permit: Permit, at_ms: int) -> None:
        super().__init__(occupancy.policy, at_ms, ())
        self._now = occupancy
        self._permit = permit

    def at(self, host: HostId) -> list[Tenant]:
        """Those of that host who may leave then, as they were ordered before. Not to be written to."""
        permit, at_ms, now_ms = self._permit, self.now_ms, self._now.now_ms
        return [_later(t, at_ms, at_ms - now_ms) for t in self._now.at(host) if _leaves_at(permit, t, at_ms)]


def _later(tenant: Tenant, at_ms: int, passed_ms: int) -> Tenant:
    due_ms = tenant.checkpoint_due_ms
    if at_ms - passed_ms < due_ms <= at_ms:
        lost = tenant.gpus * (at_ms - due_ms + tenant.start_up_ms)
    else:
        lost = tenant.lost_gpu_ms + tenant.gpus * passed_ms
    return msgspec.structs.replace(tenant, lost_gpu_ms=lost)
