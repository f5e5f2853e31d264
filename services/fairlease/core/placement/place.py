"""The second step of a cycle: who is granted what, and why the others wait (placement).

Picks come from `next_pick` in rank order, over the numbers that the rank recorded; what no longer
waits is passed over. A pick that does not fit blocks its whole class (4.4). One that may evict is
handed on as a claim, and the hosts its eviction would use are closed to worse picks, found by the
same function that preemption plans with (4.2). One that may evict only later is handed on as blocked.
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from fairlease.core import job as lives
from fairlease.core.decision import Decision, decision_ms
from fairlease.core.departures import exempt_until_ms, needs_ms
from fairlease.core.fairshare.next_pick import Members, Pick, Picker
from fairlease.core.fairshare.order import members_by_submission, members_in_order
from fairlease.core.job import Job, Phase
from fairlease.core.line import class_key
from fairlease.core.placement.fit import Room
from fairlease.core.placement.limits import Caps, Lane, Savings
from fairlease.core.placement.shape import Shape
from fairlease.core.placement.sides import asked
from fairlease.core.placement.verdict import PLAIN, Verdicts
from fairlease.core.preemption.licence import Permit, Signature, permit_for
from fairlease.core.preemption.occupancy import occupancy
from fairlease.core.preemption.promise import is_sooner, promised
from fairlease.core.preemption.victims import Plan, Planner
from fairlease.core.state import RANKED, OpenReason, Promise, Reservation, is_served
from fairlease.core.world import World
from fairlease_schemas.cycle import Claim, CyclePlaced, CycleRanked, GangGranted, Licence, Part, PoolRank
from fairlease_schemas.envelope import Address, Answer, Event
from fairlease_schemas.ids import BudgetId, JobId, PoolId, attempt_id
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan, ReasonEnded

PROMISABLE = frozenset((Reason.PROTECTED_WINDOWS, Reason.THRASH_BRAKE))
MAX_PROOFS = 16
MAX_GRANT_BYTES = 160 * 1024
MAX_REASON_CHANGES = 100
"""What one record holds of them (log.md L2): the next cycle goes on. One gang is always granted whole."""

Verdict = tuple[Reason, Callable[[], Evidence], PoolId]


class Placed(msgspec.Struct):
    """What one placement did so far, over all pools."""

    grants: list[GangGranted] = []
    claims: list[Claim] = []
    blocked: list[Claim] = []
    verdicts: dict[str, Verdict] = {}
    looked_at: set[str] = set()
    taken: set[JobId] = set()
    leaves_with_claim: set[BudgetId] = set()
    is_cut: bool = False
    grant_bytes: int = 0


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """The placement of the cycle that was ranked, or nothing when none is."""
    policy, ranked = world.policy, world.cycle.ranked
    if policy is None or ranked is None or world.cycle.stage != RANKED:
        return None
    now_ms = decision_ms(world, answers)
    placed = place(world, policy, ranked, now_ms)
    reasons = reason_changes(world, placed, now_ms)
    if len(reasons) > MAX_REASON_CHANGES:
        reasons, placed.is_cut = reasons[:MAX_REASON_CHANGES], True
    placed.verdicts.clear()  # they hold the step that made them, which holds them: it all goes with the record
    done = CyclePlaced(
        cycle=ranked.cycle, claims=tuple(placed.claims), blocked=tuple(placed.blocked), is_cut=placed.is_cut
    )
    causes = {world.cycle.address, *(world.jobs[grant.job].admitted for grant in placed.grants)}
    events: tuple[Event, ...] = (*placed.grants, *reasons, done)
    return Decision(kind="cycle-placed", at_ms=now_ms, events=events, causes=tuple(sorted(causes)), answers=answers)


def place(world: World, policy: Policy, ranked: CycleRanked, now_ms: int) -> Placed:
    """Walk every pool's picks in order and grant what fits."""
    placed = Placed()
    lane = Lane(world, policy)
    for rank in ranked.pools:
        _PoolPlacement(world, policy, rank, placed, lane, now_ms).run()
        if placed.is_cut:
            break  # who would be blocked in the next pool may have its place here in the next record
    return placed


def grant_bytes(parts: tuple[Part, ...]) -> int:
    """An upper bound of what the grant of these parts takes in a record."""
    return 320 + sum(32 + len(part.host) + 3 * len(part.gpus) for part in parts)


class _PoolPlacement:
    """One pool's walk. Limits are asked first, then room, then who could make room."""

    def __init__(self, world: World, policy: Policy, rank: PoolRank, placed: Placed, lane: Lane, now_ms: int) -> None:
        self._world = world
        self._policy = policy
        self._rank = rank
        self._placed = placed
        self._lane = lane
        self._now_ms = now_ms
        self._room = Room(world, rank.pool, now_ms)
        self._occupancy = occupancy(world, policy, rank.pool, now_ms)
        self._planner = Planner(self._occupancy)
        self._verdicts = Verdicts(self._room, self._occupancy)
        self._picker = Picker(rank, *kept_first(world, rank.pool, now_ms), due_first_permille=policy.due_first_permille)
        self._owners = {name: class_key(world.jobs[name]) for name in owners(world, rank.pool, now_ms)}
        self._owed = world.reservations.keys() | world.promises.keys()
        largest_host = max(self._room.size.values(), default=0)
        self._largest_host = largest_host
        self._caps = Caps(world, policy, rank, self._room, largest_host)
        self._savings = Savings(world, policy, rank.pool, now_ms, self._picker.scales)
        self._promises_left = policy.promises_per_pool - sum(p.pool == rank.pool for p in world.promises.values())
        self._proofs_left = MAX_PROOFS
        self._unprovable: set[tuple[Shape, Signature]] = set()
        self._without_room: dict[str, tuple[Pick, Shape, int]] = {}

    def run(self) -> None:
        """The walk, and then the reasons of those who found no room once more, as it has left them."""
        self._walk()
        for key, (pick, shape, version) in self._without_room.items():
            noted = self._placed.verdicts.get(key)
            if noted is not None and noted[2] == self._rank.pool and version != self._room.version:
                self._judge(pick, shape)

    def _walk(self) -> None:
        placed = self._placed
        while (pick := self._picker.next()) is not None:
            placed.looked_at.add(pick.of.key)
            job = self._world.jobs[pick.job]
            if pick.job in placed.taken or job.phase is not Phase.WAITING:
                self._picker.skip()
                continue
            refusal = self._refusal(pick)
            if refusal is not None:
                code, evidence = refusal
                self._verdict(pick, code, partial(_same, evidence))
                self._picker.blocked()
                continue
            shape = self._room.shape(job)
            parts = None
            if not self._room.is_full(shape, pick.job, pick.licence):
                length_ms = needs_ms(self._policy, job, self._now_ms)
                parts = self._room.find(shape, pick.job, length_ms, pick.licence)
            if parts is None:
                self._block(pick, shape)
                self._owners.pop(pick.job, None)
                # Another of its class for whom hosts are kept has them for itself.
                if pick.of.key in self._owners.values():
                    self._picker.skip()
                else:
                    self._picker.blocked()
                continue
            size = grant_bytes(parts)
            is_full = placed.grants and placed.grant_bytes + size > MAX_GRANT_BYTES
            if is_full or len(placed.grants) == self._policy.max_grants_per_cycle:
                placed.is_cut = True
                return
            placed.grant_bytes += size
            self._grant(pick, job, parts)

    def _commitment(self, job: JobId) -> Reservation | Promise | None:
        """What the pool owes the claim: evictions are ordered for it, or a promise stands."""
        if job not in self._owed:
            return None
        world = self._world
        for owed in (world.reservations.get(job), world.promises.get(job)):
            if owed is not None and owed.pool == self._rank.pool:
                return owed
        return None

    def _is_counted(self, job: JobId) -> bool:
        """Whether the claim's window is among the promised of this pool already (2.5)."""
        return self._commitment(job) is not None

    def _refusal(self, pick: Pick) -> tuple[Reason, Evidence] | None:
        """What keeps the pick from being tried at all.

        What is owed was within its limits when it was promised, and only a named event takes it back (6.4).
        """
        if pick.licence is Licence.IDLE:
            return None
        if pick.licence is Licence.DEBUG:
            refusal = self._lane.refuses(pick, self._rank, self._largest_host)
            if refusal is not None:
                return refusal
        owed = self._commitment(pick.job)
        if owed is not None and owed.made > self._world.tree_address:
            return None
        return self._caps.refuses(pick, is_counted=owed is not None) or self._savings.refuses(pick)

    def _grant(self, pick: Pick, job: Job, parts: tuple[Part, ...]) -> None:
        placed = self._placed
        is_counted = self._is_counted(job.id)
        number = len(job.attempts) + 1
        placed.taken.add(job.id)
        self._owners.pop(job.id, None)
        placed.verdicts.pop(pick.of.key, None)
        self._room.take(parts, job.id, asked(job.request))
        if pick.licence is Licence.DEBUG:
            self._lane.granted(pick, self._rank.pool)
        if pick.licence is not Licence.IDLE:
            self._caps.granted(pick, is_counted=is_counted)
        event = GangGranted(
            job=job.id,
            attempt=attempt_id(job.id, number),
            number=number,
            pool=self._rank.pool,
            parts=parts,
            window_ms=job.window_ms,
            licence=pick.licence,
            start_limit_ms=job.request.start_limit_ms or self._policy.start_limit_ms,
        )
        placed.grants.append(event)
        # Who comes later in the walk waits for this one too, and is told so.
        token = Address(self._world.epoch, self._world.position + 1, len(placed.grants) - 1)
        granted = lives.grant(job, event, token, self._now_ms)
        self._occupancy.admit(granted)
        self._picker.granted(is_counted=is_counted)
        if pick.licence is not Licence.IDLE:  # an exemption counts as a window everywhere (5.7)
            exempt_ms = max(0, exempt_until_ms(self._policy, job) - self._now_ms - job.window_ms)
            self._picker.charge(pick.of.budget, job.gpus * exempt_ms)

    def _block(self, pick: Pick, shape: Shape) -> None:
        """The pick does not fit: say why, let it claim what it may evict now, or hand it on for a promise."""
        placed = self._placed
        if pick.job in [known.job for known in (*placed.claims, *placed.blocked)]:
            return  # from the lane or from another pool, and what was said of it there stands
        permit = permit_of(self._policy, self._picker, pick, is_counted=self._is_counted(pick.job))
        claim = Claim(job=pick.job, pool=self._rank.pool, key=pick.of.key, licence=pick.licence)
        is_claimant = pick.licence is not Licence.IDLE and not is_served(self._world.reservations.get(pick.job))
        may_claim = not placed.claims or pick.of.budget not in placed.leaves_with_claim
        plan = self._planner.plan(self._room, shape, permit, pick.job) if is_claimant else None
        promise = self._world.promises.get(pick.job)
        if plan is not None and not is_sooner(self._occupancy, plan, promise, self._now_ms):
            plan = None
        if plan is not None and not may_claim:
            # It could clear these hosts, and waits for its turn to (5.6): no worse pick is put there (4.2).
            code = self._verdicts.code(shape, pick.job, permit)
            self._verdict(pick, code, partial(_same, self._verdicts.evidence(code, shape, pick.job, permit)))
            self._room.close(plan.hosts, pick.job)
            return
        if plan is not None:
            for_ms = self._claim(pick, claim, plan, permit)
            evidence = self._room.verdict(shape, pick.job)[1]
            evidence = msgspec.structs.replace(evidence, claim=pick.job, for_ms=for_ms)
            self._verdict(pick, Reason.RESERVATION, partial(_same, evidence))
            return
        code = self._verdicts.code(shape, pick.job, permit)
        if self._verdict(pick, code, lambda: self._verdicts.evidence(code, shape, pick.job, permit)):
            self._without_room[pick.of.key] = (pick, shape, self._room.version)
        if is_claimant and promise is not None and promise.pool == self._rank.pool:
            placed.blocked.append(claim)
        elif is_claimant and self._is_promisable(code, shape, permit, pick.job):
            self._promises_left -= 1
            self._caps.granted(pick, is_counted=False)
            placed.blocked.append(claim)

    def _is_promisable(self, code: Reason, shape: Shape, permit: Permit, job: JobId) -> bool:
        """Whether a promise would help, is left, keeps to its part of the pool (6.5) and can be proved; few are tried.

        It helps a pick that waits for protections to end or for those who are stopping.
        Nothing is kept empty for the lane (3.1): it is first in line whenever something comes free.
        """
        if code not in PROMISABLE and (code in PLAIN or not self._verdicts.waits_for_stops(shape, permit)):
            return False
        limit = self._rank.schedulable_gpus * self._policy.promise_permille // 1000
        is_too_large = shape.hosts > 1 and shape.gpus > limit
        if self._promises_left <= 0 or self._proofs_left <= 0 or is_too_large or permit.licence is Licence.DEBUG:
            return False
        key = (shape, permit.signature(self._occupancy.leaves))
        if key in self._unprovable:
            return False
        self._proofs_left -= 1
        horizon_ms = self._policy.promise_horizon_ms
        if promised(self._occupancy, self._room, shape, permit, job, horizon_ms) is not None:
            return True
        self._unprovable.add(key)
        return False

    def _judge(self, pick: Pick, shape: Shape) -> None:
        """The reason of a pick after the walk: worse picks have taken room since its turn, so it may be another."""
        permit = permit_of(self._policy, self._picker, pick, is_counted=self._is_counted(pick.job))
        code = self._verdicts.code(shape, pick.job, permit)
        evidence = partial(self._verdicts.evidence, code, shape, pick.job, permit)
        self._placed.verdicts[pick.of.key] = (code, evidence, self._rank.pool)

    def _verdict(self, pick: Pick, code: Reason, evidence: Callable[[], Evidence]) -> bool:
        """The class's reason, and whether it is noted: the last pool's, but one that could never take it is silent.

        What the lane said stands when the job is tried again as ordinary work, unless that claims hosts.
        """
        verdicts, pool = self._placed.verdicts, self._rank.pool
        noted = verdicts.get(pick.of.key)
        is_second_try = bool(pick.of.lane) and pick.licence is not Licence.DEBUG
        if noted is not None and noted[2] == pool and is_second_try and code is not Reason.RESERVATION:
            return False
        if noted is not None and code is Reason.CONSTRAINT_CONFLICT and noted[2] != pool:
            return False
        self._without_room.pop(pick.of.key, None)
        verdicts[pick.of.key] = (code, evidence, pool)
        return True

    def _claim(self, pick: Pick, claim: Claim, plan: Plan, permit: Permit) -> int:
        """The pick may evict now: its hosts are closed to worse picks, and its window counts from here.

        How long the hosts are kept for it at most.
        """
        placed = self._placed
        if placed.claims:
            placed.leaves_with_claim.add(pick.of.budget)
        placed.claims.append(claim)
        self._occupancy.spend({victim.attempt for victim in plan.victims})
        for_ms = plan.kept_for_ms(self._policy)
        self._room.close(plan.hosts, pick.job, self._now_ms + for_ms)
        self._caps.granted(pick, is_counted=self._is_counted(pick.job))
        if not self._is_counted(pick.job):
            self._picker.charge(pick.of.budget, permit.window_gpu_ms)
        return for_ms


def _same(evidence: Evidence) -> Evidence:
    return evidence


def owners(world: World, pool: PoolId, now_ms: int) -> set[JobId]:
    """The waiting jobs for whom hosts of the pool are kept."""
    found = {n for n, r in world.reservations.items() if r.pool == pool and now_ms < r.expires_ms}
    found |= {n for n, p in world.promises.items() if p.pool == pool}
    return {name for name in found if world.jobs[name].phase is Phase.WAITING}


def kept_first(world: World, pool: PoolId, now_ms: int) -> tuple[Members, Members]:
    """The members of a class, in their leaf's order and by submission; first those for whom hosts are kept.

    One of the same class that comes before them must not block them from what is theirs.
    """
    kept = owners(world, pool, now_ms)
    keys = {class_key(world.jobs[name]) for name in kept}

    def ahead(key: str, listed: list[tuple[Any, JobId]]) -> list[tuple[Any, JobId]]:
        if key not in keys or not listed:
            return listed
        # At the place of the class's first member: among other classes nobody loses its place by it.
        own = [(listed[0][0], name) for _, name in listed if name in kept]
        return own + [member for member in listed if member[1] not in kept]

    return (
        lambda key: ahead(key, members_in_order(world, key, now_ms)),
        lambda key: ahead(key, members_by_submission(world, key)),
    )


def permit_of(policy: Policy, picker: Picker, pick: Pick, *, is_counted: bool) -> Permit:
    """The pick's licence over the numbers as they stand in this step; its window is new unless it `is_counted`."""
    of = pick.of
    window_gpu_ms = of.hosts * of.gpus_per_host * of.window_ms
    return permit_for(policy, picker.scales, of.budget, pick.licence, window_gpu_ms, is_counted=is_counted)


def _is_outlived(reason: OpenReason, now_ms: int) -> bool:
    """Whether the reason said until when it would stand, and that has passed."""
    return 0 < reason.evidence.for_ms <= now_ms - reason.since_ms


def reason_changes(world: World, placed: Placed, now_ms: int) -> list[ReasonBegan | ReasonEnded]:
    """Reasons that begin, change their code, or end with this placement, by class key.

    One whose "until" has passed and that still stands is told anew, with the next. A class that was not looked
    at keeps its reason; one of which nothing waits any more loses it.
    """
    present, classes, verdicts = world.reasons_of("placement"), world.line.classes, placed.verdicts
    granted: dict[str, int] = {}
    for grant in placed.grants:
        key = class_key(world.jobs[grant.job])
        granted[key] = granted.get(key, 0) + 1
    changes: list[ReasonBegan | ReasonEnded] = []
    # Most classes wait for what they waited for, and nothing is to be said of them: they need no order.
    for key in (*present, *(key for key in verdicts if key not in present)):
        waiting: Any = classes.get(key)
        left = (len(waiting.members) if waiting else 0) - granted.get(key, 0)
        was = present.get(key)
        now = verdicts.get(key) if left > 0 else None
        if now is not None and (was is None or was.code is not now[0]):
            changes.append(ReasonBegan(subject=key, code=now[0], evidence=now[1]()))
        elif now is not None and was is not None and _is_outlived(was, now_ms) and (evidence := now[1]()).for_ms > 0:
            changes.append(ReasonBegan(subject=key, code=now[0], evidence=evidence))
        elif was is not None and (left <= 0 or (now is None and key in placed.looked_at and not placed.is_cut)):
            changes.append(ReasonEnded(subject=key, code=was.code))
    changes.sort(key=attrgetter("subject"))
    return changes
