"""The second step of a cycle: who is granted what, and why the others wait (placement).

Picks come from `next_pick` in rank order, over the numbers that the rank recorded; what no longer
waits is passed over. A pick that does not fit blocks its whole class (4.4). One that may evict is
handed on as a claim, and the hosts its eviction would use are closed to worse picks, found by the
same function that preemption plans with (4.2).
"""

import msgspec

from fairlease.core.decision import Decision, decision_ms
from fairlease.core.fairshare.next_pick import Pick, Picker
from fairlease.core.job import Phase
from fairlease.core.line import class_key
from fairlease.core.placement.fit import Room, Shape
from fairlease.core.preemption.victims import Evictable
from fairlease.core.world import RANKED, World
from fairlease_schemas.cycle import Claim, CyclePlaced, CycleRanked, GangGranted, Licence, Part, PoolRank
from fairlease_schemas.envelope import Address, Answer, Event
from fairlease_schemas.ids import AccountId, BudgetId, JobId, PoolId, attempt_id
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan, ReasonEnded

Verdicts = dict[str, tuple[Reason, Evidence]]


class Placed(msgspec.Struct):
    """What one placement did so far."""

    grants: list[GangGranted] = []
    claims: list[Claim] = []
    verdicts: Verdicts = {}
    looked_at: set[str] = set()
    taken: set[JobId] = set()
    leaves_with_claim: set[BudgetId] = set()
    lane_gpus: dict[PoolId, int] = {}
    lane_people: dict[AccountId, int] = {}
    is_cut: bool = False


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """The placement of the cycle that was ranked, or nothing when none is."""
    policy, ranked = world.policy, world.cycle.ranked
    if policy is None or ranked is None or world.cycle.stage != RANKED:
        return None
    now_ms = decision_ms(world, answers)
    placed = place(world, policy, ranked, now_ms)
    reasons = reason_changes(world, placed)
    done = CyclePlaced(cycle=ranked.cycle, claims=tuple(placed.claims), is_cut=placed.is_cut)
    causes = {world.cycle.address, *(world.jobs[grant.job].admitted for grant in placed.grants)}
    events: tuple[Event, ...] = (*placed.grants, *reasons, done)
    return Decision(kind="cycle-placed", at_ms=now_ms, events=events, causes=tuple(sorted(causes)), answers=answers)


def place(world: World, policy: Policy, ranked: CycleRanked, now_ms: int) -> Placed:
    """Walk every pool's picks in order and grant what fits."""
    placed = Placed()
    for name, gpus in world.lane.items():
        found = world.attempt(name)
        assert found is not None, "the lane holds live attempts"
        job, attempt = found
        placed.lane_gpus[attempt.pool] = placed.lane_gpus.get(attempt.pool, 0) + gpus
        placed.lane_people[job.account] = placed.lane_people.get(job.account, 0) + 1
    for pool in ranked.pools:
        if placed.is_cut:
            break  # who would be blocked in the next pool may have its place here in the next record
        _place_pool(world, policy, pool, placed, now_ms)
    return placed


def _place_pool(world: World, policy: Policy, rank: PoolRank, placed: Placed, now_ms: int) -> None:
    room = Room(world, rank.pool, now_ms)
    evictable = Evictable(world, rank.pool, now_ms)
    kept = _with_hosts_kept(world, rank.pool, now_ms)
    picker = Picker(rank, lambda key: kept.get(key) or _members(world, key))
    lane_limit = max(max(room.size.values(), default=0), rank.schedulable_gpus * policy.debug_permille // 1000)
    while (pick := picker.next()) is not None:
        job = world.jobs[pick.job]
        placed.looked_at.add(pick.of.key)
        if pick.job in placed.taken or job.phase is not Phase.WAITING:
            picker.skip()
            continue
        if pick.licence is Licence.DEBUG and not _lane_takes(policy, placed, pick, rank.pool, lane_limit):
            evidence = Evidence(pool=rank.pool, held_gpus=placed.lane_gpus.get(rank.pool, 0))
            placed.verdicts.setdefault(pick.of.key, (Reason.LANE_FULL, evidence))
            picker.blocked()
            continue
        shape = Shape(pick.of.hosts, pick.of.gpus_per_host)
        parts = room.find(shape, pick.job)
        if parts is None:
            _block(world, room, evictable, placed, pick)
            picker.blocked()
            continue
        if len(placed.grants) == policy.max_grants_per_cycle:
            placed.is_cut = True
            return
        room.take(parts)
        _grant(world, placed, pick, rank.pool, parts)
        picker.granted()


def _members(world: World, key: str) -> list[tuple[Address, JobId]]:
    waiting = world.line.classes.get(key)
    return waiting.members if waiting else []


def _with_hosts_kept(world: World, pool: PoolId, now_ms: int) -> dict[str, list[tuple[Address, JobId]]]:
    """Classes in which hosts are kept for somebody, those members first: one who came back must not block them."""
    first: dict[str, list[tuple[Address, JobId]]] = {}
    for kept in world.reservations.values():
        job = world.jobs[kept.job]
        if kept.pool == pool and now_ms < kept.expires_ms and job.phase is Phase.WAITING:
            first.setdefault(class_key(job), []).append((job.admitted, job.id))
    for key, members in first.items():
        members.sort()
        ahead = set(members)
        members.extend(member for member in _members(world, key) if member not in ahead)
    return first


def _lane_takes(policy: Policy, placed: Placed, pick: Pick, pool: PoolId, lane_limit: int) -> bool:
    """Whether the pool's lane has a place for it, and its person too (3.1); beyond that it ranks as ordinary work."""
    gpus = placed.lane_gpus.get(pool, 0) + pick.of.hosts * pick.of.gpus_per_host
    return gpus <= lane_limit and placed.lane_people.get(pick.of.account, 0) < policy.debug_per_person


def _grant(world: World, placed: Placed, pick: Pick, pool: PoolId, parts: tuple[Part, ...]) -> None:
    job = world.jobs[pick.job]
    number = len(job.attempts) + 1
    placed.taken.add(job.id)
    placed.verdicts.pop(pick.of.key, None)
    if pick.licence is Licence.DEBUG:
        placed.lane_gpus[pool] = placed.lane_gpus.get(pool, 0) + job.gpus
        placed.lane_people[job.account] = placed.lane_people.get(job.account, 0) + 1
    placed.grants.append(
        GangGranted(
            job=job.id,
            attempt=attempt_id(job.id, number),
            number=number,
            pool=pool,
            parts=parts,
            window_ms=job.request.min_runtime_ms,
            licence=pick.licence,
        )
    )


def _block(world: World, room: Room, evictable: Evictable, placed: Placed, pick: Pick) -> None:
    """The pick does not fit: say why, and let it claim what it may evict."""
    shape = Shape(pick.of.hosts, pick.of.gpus_per_host)
    _note(placed, pick.of.key, *room.verdict(shape, pick.job))
    may_claim = not placed.claims or pick.of.budget not in placed.leaves_with_claim
    if pick.licence is Licence.IDLE or not may_claim or pick.job in world.reservations:
        return
    if any(claim.job == pick.job for claim in placed.claims):
        return
    plan = evictable.plan(room, shape)
    if plan is None:
        return
    if placed.claims:
        placed.leaves_with_claim.add(pick.of.budget)
    placed.claims.append(Claim(job=pick.job, pool=room.pool, key=pick.of.key, licence=pick.licence))
    evictable.spend(plan)
    room.close(plan.hosts, pick.job)


def _note(placed: Placed, key: str, code: Reason, evidence: Evidence) -> None:
    """The class's verdict: the last pool's, except that a pool which could never take it says nothing for others."""
    noted = placed.verdicts.get(key)
    if noted is None or code is not Reason.CONSTRAINT_CONFLICT or noted[1].pool == evidence.pool:
        placed.verdicts[key] = (code, evidence)


def reason_changes(world: World, placed: Placed) -> list[ReasonBegan | ReasonEnded]:
    """Reasons that begin, change their code, or end with this placement, by class key.

    A class that was not looked at keeps its reason; one of which nothing waits any more loses it.
    """
    present = world.reasons_of("placement")
    granted: dict[str, int] = {}
    for grant in placed.grants:
        key = _key(world, grant.job)
        granted[key] = granted.get(key, 0) + 1
    changes: list[ReasonBegan | ReasonEnded] = []
    for key in sorted(present.keys() | placed.verdicts.keys()):
        left = len(_members(world, key)) - granted.get(key, 0)
        was = present.get(key)
        now = placed.verdicts.get(key) if left > 0 else None
        if now is not None and (was is None or was.code is not now[0]):
            changes.append(ReasonBegan(subject=key, code=now[0], evidence=now[1]))
        elif was is not None and (left <= 0 or (now is None and key in placed.looked_at and not placed.is_cut)):
            changes.append(ReasonEnded(subject=key, code=was.code))
    return changes


def _key(world: World, job: JobId) -> str:
    return class_key(world.jobs[job])
