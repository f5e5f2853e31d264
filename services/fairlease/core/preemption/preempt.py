"""The third step of a cycle: evictions, reservations, promises, and the cycle's end.

Claims and blocked picks come from placement in rank order; each is judged again at this step's own
basis, because the world moved, and dropped when it no longer holds. Promises come first: those that
an event voided are ended by its name, and what must leave for those that stand is told in time.
"""

from fairlease.core import drain as drains
from fairlease.core.decision import Decision, decision_ms
from fairlease.core.departures import needs_ms
from fairlease.core.fairshare.scales import Scales
from fairlease.core.fairshare.standing import standings
from fairlease.core.job import Job, Phase
from fairlease.core.placement.fit import Room
from fairlease.core.placement.shape import Shape
from fairlease.core.preemption.licence import Permit, permit_for
from fairlease.core.preemption.move import worth_moving
from fairlease.core.preemption.occupancy import Tenant, occupancy, tenant_of
from fairlease.core.preemption.patience import worth_waiting
from fairlease.core.preemption.promise import Proof, is_sooner, is_under_way, leaving_for, promised, why_over
from fairlease.core.preemption.victims import MAX_VICTIMS, Plan, Planner
from fairlease.core.state import PLACED, Promise, Reservation, is_served, promise_of
from fairlease.core.world import World
from fairlease_schemas.cycle import (
    Claim,
    CycleClosed,
    EvictionOrdered,
    Licence,
    PromiseEnd,
    PromiseEnded,
    PromiseMade,
    ReservationEnded,
    ReservationMade,
)
from fairlease_schemas.envelope import Answer, Event
from fairlease_schemas.ids import AttemptId, HostId, JobId, PoolId
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Evidence, ReasonBegan, ReasonEnded


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """The end of the cycle that was placed, or nothing when none was."""
    policy, placed = world.policy, world.cycle.placed
    if policy is None or placed is None or world.cycle.stage != PLACED:
        return None
    now_ms = decision_ms(world, answers)
    step = _Step(world, policy, now_ms)
    step.end_stale_reservations()
    step.keep_promises()
    step.drain()
    for claim in placed.claims:
        step.claim(claim)
    for claim in placed.blocked:
        step.promise(claim)
    step.move()
    step.end_reasons()
    causes = {world.cycle.address, *(world.jobs[c.job].admitted for c in (*placed.claims, *placed.blocked))}
    return Decision(
        kind="cycle-closed",
        at_ms=now_ms,
        events=(*step.events, CycleClosed(cycle=placed.cycle)),
        causes=tuple(sorted(causes)),
        answers=answers,
    )


MAX_HOST_BYTES = 160 * 1024
"""What one record holds of hosts kept and promised (log.md L2); the next cycle goes on. One gang always is whole."""


class _View:
    """One pool as this step sees it."""

    def __init__(self, world: World, policy: Policy, pool: PoolId, now_ms: int) -> None:
        self.room = Room(world, pool, now_ms)
        self.occupancy = occupancy(world, policy, pool, now_ms)
        self.planner = Planner(self.occupancy)
        # Not the rank's numbers and the grants since: a grant's window may be among the promised already.
        self.scales = Scales(standings(world, pool, now_ms))
        meter = world.fleet.schedulable.get(pool)
        self.schedulable_gpus = meter.value if meter else 0


class _Step:
    """One closing of a cycle."""

    def __init__(self, world: World, policy: Policy, now_ms: int) -> None:
        self._world = world
        self._policy = policy
        self._now_ms = now_ms
        self._views: dict[PoolId, _View] = {}
        self._waits: dict[str, None] = {}
        self._promised_gpus: dict[PoolId, int] = {}
        self._promises: dict[PoolId, int] = {}
        self._over: set[JobId] = set()
        self._evictions_left = MAX_VICTIMS
        self._host_bytes = 0
        self._told: set[AttemptId] = set()
        self.events: list[Event] = []

    def _view(self, pool: PoolId) -> _View:
        if pool not in self._views:
            self._views[pool] = _View(self._world, self._policy, pool, self._now_ms)
        return self._views[pool]

    def end_stale_reservations(self) -> None:
        """Reservations that ran out, whose job no longer waits, or that a drain has made useless (7.2)."""
        for name, reservation in self._world.reservations.items():
            job = self._world.jobs[name]
            if self._now_ms >= reservation.expires_ms:
                self.events.append(ReservationEnded(job=name, why="expired"))
            elif job.phase is not Phase.WAITING:
                self.events.append(ReservationEnded(job=name, why="not-waiting"))
            elif drained := self._drained_of(job, reservation):
                self.events.append(ReservationEnded(job=name, why="drain", cause=drained))

    def _drained_of(self, job: Job, reservation: Reservation) -> HostId:
        """The first host that closes before the job could be gone, where the job cannot do without it; else empty.

        What a fault left of a gang is of use as long as one of its hosts is.
        """
        room, length_ms = self._view(reservation.pool).room, needs_ms(self._policy, job, self._now_ms)
        closing = [host for host in reservation.hosts if room.closes_within(host, length_ms)]
        is_useless = len(closing) == len(reservation.hosts) if reservation.is_part else bool(closing)
        return closing[0] if closing and is_useless else ""

    def keep_promises(self) -> None:
        """End by name what an event voided; tell those to leave whose time has come."""
        for name, promise in self._world.promises.items():
            over = why_over(self._world, promise, self._now_ms)
            if over is not None:
                self._over.add(name)
                self.events.append(PromiseEnded(job=name, why=over[0], cause=over[1]))
                continue
            view = self._view(promise.pool)
            self._promises[promise.pool] = self._promises.get(promise.pool, 0) + 1
            self._promised_gpus[promise.pool] = self._promised_gpus.get(promise.pool, 0) + sum(
                view.room.size[host] for host in promise.hosts
            )
            self._tell(view, promise)

    def drain(self) -> None:
        """Ask those to leave draining hosts whose time has come; the deadline is the one exception (7.2)."""
        for told_ms, job, attempt, host in drains.leaving(self._world, self._policy):
            if told_ms > self._now_ms or self._evictions_left == 0:
                return
            if attempt.id in self._told:
                continue
            tenant = tenant_of(self._policy, job, attempt, self._now_ms)
            self._evictions_left -= 1
            self._told.add(attempt.id)
            self.events.append(
                EvictionOrdered(
                    attempt=attempt.id,
                    claim="",
                    licence=Licence.DRAIN,
                    grace_ms=tenant.grace_ms,
                    lost_gpu_ms=tenant.lost_gpu_ms,
                    drain=host.id,
                    is_deadline=not (tenant.is_idle or tenant.is_past),
                )
            )
            self._view(attempt.pool).occupancy.spend({attempt.id})

    def _tell(self, view: _View, promise: Promise) -> None:
        """Ask those to leave for the promise whose time to be told has come."""
        if not is_under_way(view.occupancy, promise, self._now_ms):
            return  # not even the one with the longest grace
        shape = view.room.shape(self._world.jobs[promise.job])
        leaving = leaving_for(view.occupancy, view.room, promise, shape, self._world.closed_ms)
        ready = [t for at_ms, t in leaving if at_ms <= self._now_ms and (t.is_idle or t.is_past)]
        # Those for whom the record has no room are told in the next cycle.
        self._evict(view, ready[: self._evictions_left], promise.job, promise.licence)

    def claim(self, claim: Claim) -> None:
        """Evict for a claim that may, unless waiting a little loses less (5.5)."""
        job = self._world.jobs[claim.job]
        if job.phase is not Phase.WAITING or is_served(self._world.reservations.get(job.id)):
            return
        view, permit = self._view(claim.pool), self._permit(claim)
        shape = view.room.shape(job)
        if self._has_room(view, shape, job, claim.licence):
            return
        plan = view.planner.plan(view.room, shape, permit, job.id)
        if plan is None or not is_sooner(view.occupancy, plan, self._world.promises.get(job.id), self._now_ms):
            return
        if self._waits_for(claim, view, shape, permit, plan) or len(plan.victims) > self._evictions_left:
            return
        if not self._names(plan.hosts):
            return
        self._evict(view, plan.victims, job.id, claim.licence)
        for_ms = plan.kept_for_ms(self._policy)
        self.events.append(ReservationMade(job=job.id, pool=claim.pool, hosts=plan.hosts, for_ms=for_ms))
        view.room.close(plan.hosts, job.id)
        if job.id in self._world.promises:
            self._over.add(job.id)
            self.events.append(PromiseEnded(job=job.id, why=PromiseEnd.EARLIER))
        view.scales.charge(job.budget, permit.window_gpu_ms)  # nothing where it is counted already

    def _has_room(self, view: _View, shape: Shape, job: Job, licence: Licence) -> bool:
        """Whether the claim needs nobody to leave."""
        length_ms = needs_ms(self._policy, job, self._now_ms)
        return view.room.find(shape, job.id, length_ms, licence) is not None

    def promise(self, claim: Claim) -> None:
        """Promise hosts to a blocked claim, or promise earlier ones (6.2, 6.4)."""
        job = self._world.jobs[claim.job]
        if job.phase is not Phase.WAITING or is_served(self._world.reservations.get(job.id)) or job.id in self._over:
            return
        view = self._view(claim.pool)
        shape = view.room.shape(job)
        if self._has_room(view, shape, job, claim.licence):
            return
        permit, present = self._permit(claim), self._world.promises.get(job.id)
        if present is not None and is_under_way(view.occupancy, present, self._now_ms):
            return  # nobody is told to leave for nothing (6.4): an earlier proof would change nothing
        proof = promised(view.occupancy, view.room, shape, permit, job.id, self._policy.promise_horizon_ms)
        if proof is None or proof.start_ms <= self._now_ms:
            return
        if present is not None and not self._is_better(proof, present):
            return
        if not self._has_room_for(claim.pool, view, proof.hosts, present) or not self._names(proof.hosts):
            return
        if present is not None:
            self.events.append(PromiseEnded(job=job.id, why=PromiseEnd.EARLIER))
        view.scales.charge(job.budget, permit.window_gpu_ms)  # nothing where it is counted already
        view.room.close(proof.hosts, job.id)
        made = PromiseMade(
            job=job.id,
            pool=claim.pool,
            hosts=proof.hosts,
            start_in_ms=proof.start_ms - self._now_ms,
            latest_in_ms=proof.latest_ms - self._now_ms,
            grace_ms=proof.grace_ms,
            licence=claim.licence,
        )
        self.events.append(made)
        # Where everybody may go by now, this is the instant to say so: the next cycle would be too late.
        self._tell(view, promise_of(made, self._world.cycle.address, self._now_ms))

    def _is_better(self, proof: Proof, present: Promise) -> bool:
        """Whether the hosts are free enough earlier (6.4)."""
        return proof.start_ms <= present.start_ms - max(1, self._policy.promise_gain_ms)

    def move(self) -> None:
        """Make a host whole by moving what stands there to holes elsewhere, where that pays (5.8)."""
        if not self._policy.move_gain_ms:
            return
        for pool in self._world.fleet.pools():
            view = self._view(pool)
            moved = worth_moving(self._world, self._policy, view.room, view.occupancy)
            if len(moved) <= self._evictions_left and not any(tenant.attempt in self._told for tenant in moved):
                self._evict(view, moved, "", Licence.MOVE)

    def end_reasons(self) -> None:
        """Claims that wait for a checkpoint or a window, and those that no longer do (5.5, 9.3)."""
        ranked, placed = self._world.cycle.ranked, self._world.cycle.placed
        looked_at = {claim.key for claim in placed.claims} if placed is not None else set()
        if ranked is not None and placed is not None and not placed.is_cut:
            looked_at |= {of.key for rank in ranked.pools for of in (*rank.lane, *rank.leaves)}
        for key, reason in self._world.reasons_of("preemption").items():
            # One that this cycle did not come to keeps its reason: patience is had once.
            if key not in self._waits and (key in looked_at or key not in self._world.line.classes):
                self.events.append(ReasonEnded(subject=key, code=reason.code))

    def _waits_for(self, claim: Claim, view: _View, shape: Shape, permit: Permit, plan: Plan) -> bool:
        """Whether the claim waits, and says so. A wait once begun is not made longer: patience is had once."""
        since = self._world.reason("preemption", claim.key)
        patience_ms = self._policy.patience_ms
        if claim.licence is Licence.DEBUG:
            patience_ms = patience_ms * self._policy.debug_patience_permille // 1000
        if since is not None:
            patience_ms = min(patience_ms, since.evidence.for_ms) - (self._now_ms - since.since_ms)
        wait = worth_waiting(view.occupancy, view.room, shape, permit, plan, patience_ms)
        if wait is None:
            return False
        view.room.close(wait.hosts, claim.job)  # no worse claim gets ahead of it there (4.2)
        self._waits[claim.key] = None
        if since is None:
            evidence = Evidence(pool=claim.pool, needed_gpus=shape.gpus, for_ms=wait.until_ms - self._now_ms)
            self.events.append(ReasonBegan(subject=claim.key, code=wait.reason, evidence=evidence))
        return True

    def _has_room_for(self, pool: PoolId, view: _View, hosts: tuple[str, ...], present: Promise | None) -> bool:
        """Whether a promise, in place of its own `present` one, keeps to its part of the pool; one host always does.

        And to how many a pool may have at a time (6.5).
        """
        gpus = sum(view.room.size[host] for host in hosts)
        limit = view.schedulable_gpus * self._policy.promise_permille // 1000
        others, count = self._promised_gpus.get(pool, 0), self._promises.get(pool, 0)
        if present is not None and present.pool == pool:
            others -= sum(view.room.size[host] for host in present.hosts)
            count -= 1
        is_too_much = others + gpus > limit and not (len(hosts) == 1 and others == 0)
        if is_too_much or count >= self._policy.promises_per_pool:
            return False
        self._promised_gpus[pool], self._promises[pool] = others + gpus, count + 1
        return True

    def _names(self, hosts: tuple[str, ...]) -> bool:
        """Whether the record can name these hosts too."""
        size = sum(len(host) + 3 for host in hosts)
        if self._host_bytes and self._host_bytes + size > MAX_HOST_BYTES:
            return False
        self._host_bytes += size
        return True

    def _permit(self, claim: Claim) -> Permit:
        job = self._world.jobs[claim.job]
        promise = self._world.promises.get(job.id)
        kept = self._world.reservations.get(job.id)
        is_counted = any(owed is not None and owed.pool == claim.pool for owed in (promise, kept))
        scales, window_gpu_ms = self._view(claim.pool).scales, job.gpus * job.window_ms
        return permit_for(self._policy, scales, job.budget, claim.licence, window_gpu_ms, is_counted=is_counted)

    def _evict(self, view: _View, victims: list[Tenant] | tuple[Tenant, ...], claim: JobId, licence: Licence) -> None:
        for tenant in victims:
            self.events.append(
                EvictionOrdered(
                    attempt=tenant.attempt,
                    claim=claim,
                    licence=licence,
                    grace_ms=tenant.grace_ms,
                    lost_gpu_ms=tenant.lost_gpu_ms,
                )
            )
        self._evictions_left -= len(victims)
        self._told |= {tenant.attempt for tenant in victims}
        view.occupancy.spend({tenant.attempt for tenant in victims})
