"""The third step of a cycle: evictions, the reservations they are made for, and the cycle's end.

Claims come from placement in rank order; each is planned again at this step's own basis, because
the world moved, and dropped when it no longer holds. Freed hosts are kept for the claimant (5.6).
"""

from fairlease.core.decision import Decision, decision_ms
from fairlease.core.job import Phase
from fairlease.core.placement.fit import Room, Shape
from fairlease.core.preemption.victims import Evictable, Plan
from fairlease.core.world import PLACED, World
from fairlease_schemas.cycle import Claim, CycleClosed, EvictionOrdered, ReservationEnded, ReservationMade
from fairlease_schemas.envelope import Answer, Event
from fairlease_schemas.ids import PoolId
from fairlease_schemas.policy import Policy


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """The end of the cycle that was placed, or nothing when none was."""
    policy, placed = world.policy, world.cycle.placed
    if policy is None or placed is None or world.cycle.stage != PLACED:
        return None
    now_ms = decision_ms(world, answers)
    events: list[Event] = _stale_reservations(world, now_ms)
    views: dict[PoolId, tuple[Room, Evictable]] = {}
    for claim in placed.claims:
        if claim.pool not in views:
            views[claim.pool] = (Room(world, claim.pool, now_ms), Evictable(world, claim.pool, now_ms))
        room, evictable = views[claim.pool]
        plan = _plan(world, room, evictable, claim)
        if plan is not None:
            events.extend(_carry_out(policy, claim, plan))
            evictable.spend(plan)
            room.close(plan.hosts, claim.job)
    causes = {world.cycle.address, *(world.jobs[claim.job].admitted for claim in placed.claims)}
    return Decision(
        kind="cycle-closed",
        at_ms=now_ms,
        events=(*events, CycleClosed(cycle=placed.cycle)),
        causes=tuple(sorted(causes)),
        answers=answers,
    )


def _stale_reservations(world: World, now_ms: int) -> list[Event]:
    """Reservations that ran out, or whose job no longer waits."""
    ended: list[Event] = []
    for job_id, reservation in world.reservations.items():
        if now_ms >= reservation.expires_ms:
            ended.append(ReservationEnded(job=job_id, why="expired"))
        elif world.jobs[job_id].phase is not Phase.WAITING:
            ended.append(ReservationEnded(job=job_id, why="not-waiting"))
    return ended


def _plan(world: World, room: Room, evictable: Evictable, claim: Claim) -> Plan | None:
    """The claim's plan as things stand now; None when it no longer waits, needs none, or cannot."""
    job = world.jobs[claim.job]
    if job.phase is not Phase.WAITING or job.id in world.reservations:
        return None
    shape = Shape(job.request.hosts, job.request.gpus_per_host)
    if room.find(shape, job.id) is not None:
        return None
    return evictable.plan(room, shape)


def _carry_out(policy: Policy, claim: Claim, plan: Plan) -> list[Event]:
    """Evictions in victim order, then the reservation: last grace + stop margin + slack."""
    longest_grace_ms = max(victim.grace_ms for victim in plan.victims)
    return [
        *(
            EvictionOrdered(
                attempt=victim.attempt,
                claim=claim.job,
                licence=claim.licence,
                grace_ms=victim.grace_ms,
                lost_gpu_ms=victim.lost_gpu_ms,
            )
            for victim in plan.victims
        ),
        ReservationMade(
            job=claim.job,
            pool=claim.pool,
            hosts=plan.hosts,
            for_ms=longest_grace_ms + policy.stop_margin_ms + policy.reservation_slack_ms,
        ),
    ]
