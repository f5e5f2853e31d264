"""The meter: all figures of one period and scope, fed with the records of a log in their order.

    meter = Meter(period, scope)
    for each record: world.apply(record, position); meter.take(world, record)
    report = meter.report(world)

It is handed the world behind every record, from the first on, also those before the period: what it knows then
is where the period begins. Nothing is sampled, and nothing walks over all jobs until the report. All events of a
record happened at one instant, so the state behind it is what held from then on. The caller takes no record
that is later than the period.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from fairlease.core.budget import Tree
from fairlease.core.fairshare.rank import has_work
from fairlease.core.fairshare.standing import standings
from fairlease.core.job import Job
from fairlease.core.metrics.course import Sums, sums
from fairlease.core.metrics.demand import Demand
from fairlease.core.metrics.fairness import Fairness, Shares
from fairlease.core.metrics.impact import Entitled, Impact
from fairlease.core.metrics.integral import Integral, Period
from fairlease.core.metrics.operations import Follow, Operations
from fairlease.core.metrics.progress import Fates, Progress, cut_of
from fairlease.core.metrics.pyramid import Levels, Pyramid, Tenancy
from fairlease.core.metrics.quantile import Spread, curve, spread
from fairlease.core.metrics.recovery import Evictions, Recovery
from fairlease.core.metrics.scope import EVERYBODY, Scope
from fairlease.core.metrics.waiting import (
    REAL_TIME,
    DebugBounds,
    Promised,
    Promises,
    Waiting,
    grouped,
    life,
    waited_in,
    waiting,
)
from fairlease.core.world import World
from fairlease_schemas import cycle as cycles
from fairlease_schemas import host as hosts
from fairlease_schemas import job as jobs
from fairlease_schemas import reasons
from fairlease_schemas.budget import BudgetChanged
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import HostId, JobId, job_of
from fairlease_schemas.policy import Policy, PolicyChanged


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Of the period: jobs by what happened to them in it, records and events. Hosts and GPUs are those at its end."""

    submitted: int
    started: int
    finished: int
    records: int
    events: int
    hosts: int
    gpus: int


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Submission to end, in ms, of the jobs submitted in the period that ran and are over.

    `makespan_ms` is from the first of those submissions to the last of those ends.
    """

    spread: Spread
    makespan_ms: int | None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured, in whole numbers with their units; ratios are the reader's to make."""

    period: Period
    scope: Scope
    counts: Counts
    levels: Levels
    entitled: Entitled
    progress: Progress
    fairness: Fairness
    waiting: Waiting
    completion: Completion
    promises: Promised
    recovery: Recovery
    operations: Operations


_Handler = Callable[[World, Any], None]


class Meter:
    """One measurement. `bounds` say what counts as debug work where time is not people's own."""

    def __init__(self, period: Period, scope: Scope = EVERYBODY, bounds: DebugBounds = REAL_TIME) -> None:
        self._period = period
        self._scope = scope
        self._bounds = bounds
        self._demand = Demand()
        self._pyramid = Pyramid(self._demand)
        self._pyramid.now_ms = period.since_ms
        self._impact = Impact(self._pyramid, scope, period.since_ms)
        self._shares = Shares(self._pyramid, self._demand, scope)
        self._fates = Fates(period)
        self._promises = Promises()
        self._evictions = Evictions(period)
        self._follow = Follow(period)
        self._held = Integral()
        self._tree = Tree()
        self._policy = Policy()
        self._at_ms = 0
        self._is_counted = False
        self._record: Record | None = None
        self._stored_ms = 0
        self._news = 0
        self._records = self._events = 0
        self._timeless = (0, 0)
        self._handlers: dict[type, _Handler] = {
            cycles.GangGranted: self._granted,
            jobs.AttemptEnded: self._ended,
            jobs.AttemptStarted: self._started,
            jobs.CheckpointConfirmed: self._saved,
            cycles.EvictionOrdered: self._evicted,
            jobs.JobAdmitted: self._job_moved,
            jobs.JobRequeued: self._requeued,
            jobs.JobReleased: self._job_moved,
            jobs.JobUnblocked: self._job_moved,
            jobs.JobHeld: self._job_moved,
            jobs.JobHoldCleared: self._job_moved,
            jobs.JobSucceeded: self._job_over,
            jobs.JobFailed: self._job_over,
            jobs.JobCancelled: self._job_over,
            jobs.JobTimedOut: self._job_over,
            cycles.ReservationMade: self._kept,
            cycles.ReservationEnded: self._kept,
            cycles.PromiseMade: self._promised,
            cycles.PromiseEnded: self._promise_ended,
            reasons.ReasonBegan: self._reason_began,
            reasons.ReasonEnded: self._reason_ended,
            BudgetChanged: self._tree_changed,
            PolicyChanged: self._policy_changed,
            hosts.HostRegistered: self._host_changed,
            hosts.HostHeld: self._host_changed,
            hosts.HostHoldCleared: self._host_changed,
            hosts.DrainPlanned: self._drain_planned,
            hosts.DrainCompleted: self._drain_completed,
            hosts.DrainCancelled: self._drain_cancelled,
            hosts.LeaseLost: self._lease_lost,
            cycles.CycleRanked: self._ranked,
            cycles.CycleClosed: self._closed,
            cycles.CycleAbandoned: self._abandoned,
        }

    def take(self, world: World, record: Record, stored_ms: int | None = None) -> None:
        """The record is folded into the world, which stands right behind it.

        `stored_ms` is when the bus stored it, where that is known; its log time is taken for it else.
        """
        if world.log_time_ms != self._at_ms:
            self._move(world.log_time_ms)
        self._record, self._stored_ms = record, stored_ms if stored_ms is not None else self._at_ms
        if self._is_counted:
            self._records += 1
            self._events += len(record.events)
        elif not self._at_ms:
            self._timeless = (self._timeless[0] + 1, self._timeless[1] + len(record.events))
        news = world.cycle.news_position
        if news != self._news:
            self._news = news
            if self._stored_ms:  # not before time began
                self._follow.news(news, self._stored_ms)
        if not has_work(world):
            self._follow.rested()
        handlers = self._handlers
        for event in record.events:
            kind = type(event)
            if kind in handlers:
                handlers[kind](world, event)

    def report(self, world: World) -> Figures:
        """The figures up to the end of the period, given the world behind its last record."""
        until_ms = self._period.until_ms
        self._advance(until_ms)
        pools = [pool for pool in self._pyramid.pools if self._scope.has_pool(pool)]
        mine = [job for job in world.jobs.values() if self._has_job(world, job)]
        submitted = [job for job in mine if waited_in(self._period, job)]
        return Figures(
            period=self._period,
            scope=self._scope,
            counts=self._counts(mine, len(submitted), pools),
            levels=self._pyramid.levels(pools, until_ms),
            entitled=self._impact.result(self._tree, until_ms),
            progress=self._fates.result(),
            fairness=self._shares.result(world.tree, {pool: standings(world, pool, until_ms) for pool in pools}),
            waiting=waiting(life(job, until_ms, self._bounds) for job in submitted),
            completion=_completion(submitted),
            promises=self._promises.result(),
            recovery=self._evictions.result(self._held.upto(until_ms)),
            operations=self._follow.result(),
        )

    def sums(self, at_ms: int) -> Sums:
        """What the period's sums were at this instant. No record taken so far is later; none later is earlier."""
        now_ms = self._period.clip(at_ms)
        if now_ms > self._pyramid.now_ms:
            self._advance(now_ms)
        recovery = self._evictions.result(self._held.upto(self._pyramid.now_ms))
        return sums(self._shares, self._fates.result(), recovery, self._promises.result())

    def waits(self, world: World) -> dict[str, tuple[int, tuple[int, ...]]]:
        """By group of jobs how many there are, and the curve of their waits in ms, as `report` counts them."""
        until_ms = self._period.until_ms
        mine = (job for job in world.jobs.values() if waited_in(self._period, job) and self._has_job(world, job))
        groups = grouped(life(job, until_ms, self._bounds) for job in mine)
        return {name: (len(lives), curve(one.wait_ms for one in lives)) for name, lives in groups.items()}

    def _move(self, at_ms: int) -> None:
        """Log time is another one from this record on. What was written before time began counts with the first."""
        is_first = not self._at_ms
        self._at_ms = at_ms
        self._is_counted = self._period.holds(at_ms)
        if is_first and self._is_counted:
            self._records, self._events = self._timeless
        now_ms = self._period.clip(at_ms)  # before the period nothing has a length
        if now_ms > self._pyramid.now_ms:
            self._advance(now_ms)

    def _advance(self, now_ms: int) -> None:
        """Time passes: whatever was put off is said of the instant that ends, then buckets that are over end."""
        if self._demand.is_stale:
            self._demand.settle()
        if self._shares.is_stale:
            self._shares.settle(self._tree)
        if now_ms > self._impact.ends_ms:
            self._impact.turn(self._tree, self._policy.lookback_ms, now_ms)
        self._pyramid.now_ms = now_ms

    def _has_job(self, world: World, job: Job) -> bool:
        """Whether the scope counts the job: of one pool those that accept it."""
        is_in_pool = not self._scope.pool or self._scope.pool in job.request.pools
        return is_in_pool and self._scope.has_job(world.tree, job)

    def _counts(self, mine: list[Job], submitted: int, pools: list[str]) -> Counts:
        holds = self._period.holds
        firsts = (next((a.started_ms for a in job.attempts if a.started_ms is not None), None) for job in mine)
        return Counts(
            submitted=submitted,
            started=sum(first is not None and holds(first) for first in firsts),
            finished=sum(job.is_terminal and holds(job.ended_ms) for job in mine),
            records=self._records,
            events=self._events,
            hosts=sum(map(self._pyramid.hosts, pools)),
            gpus=sum(map(self._pyramid.installed_gpus, pools)),
        )

    # jobs and attempts -------------------------------------------------------------------------------
    def _granted(self, world: World, event: cycles.GangGranted) -> None:
        job = world.jobs[event.job]
        attempt = job.attempts[-1]
        is_mine = self._scope.has_pool(attempt.pool) and self._scope.has_job(world.tree, job)
        tenancy = Tenancy(job.budget, attempt.pool, not job.is_idle_work, is_mine, attempt.is_stillborn)
        self._demand.look(job)
        self._keep(world, job.id)
        self._pyramid.occupy(attempt, tenancy)
        if not attempt.is_stillborn:
            self._hold(tenancy, attempt.gpus)
        margin_ms = self._policy.stop_margin_ms
        self._promises.used(job.id, self._at_ms, world.closed_ms, margin_ms, is_counted=self._is_counted and is_mine)
        if event.number == 1 and is_mine:
            self._follow.granted(attempt.id, job.submitted_ms, job.admitted.position)

    def _hold(self, tenancy: Tenancy, gpus: int) -> None:
        if tenancy.is_mine:
            self._held.add(self._pyramid.now_ms, gpus)
        if tenancy.is_budgeted:
            self._shares.hold(tenancy.budget, tenancy.pool, gpus)

    def _started(self, world: World, event: jobs.AttemptStarted) -> None:
        job = world.jobs[job_of(event.attempt)]
        attempt = job.attempts[-1]
        if attempt.id != event.attempt or attempt.started_ms is None or attempt.started[-1] != event.host:
            return
        self._fates.attempt_runs(job.id)
        self._follow.runs(attempt.id, self._at_ms)
        if self._is_mine(world, job, attempt.pool):
            self._evictions.runs(job, attempt, self._at_ms)

    def _saved(self, world: World, event: jobs.CheckpointConfirmed) -> None:
        job = world.jobs.get(job_of(event.attempt))
        if job is not None and self._is_mine(world, job, job.attempts[-1].pool):
            self._evictions.saved(self._at_ms)

    def _ended(self, world: World, event: jobs.AttemptEnded) -> None:
        job = world.jobs.get(job_of(event.attempt))
        if job is None or not job.attempts or job.attempts[-1].id != event.attempt:
            return
        attempt = job.attempts[-1]
        tenancy = self._pyramid.release(attempt)
        self._demand.look(job)
        if tenancy is None or tenancy.is_stillborn:
            return
        self._hold(tenancy, -attempt.gpus)
        self._follow.ended(attempt.id)
        if tenancy.is_mine:
            cut = cut_of(job)
            self._fates.attempt_ended(job, attempt, cut)
            self._evictions.ended(job, attempt, cut)

    def _evicted(self, world: World, event: cycles.EvictionOrdered) -> None:
        job = world.jobs.get(job_of(event.attempt))
        if job is not None and self._is_mine(world, job, job.attempts[-1].pool):
            claim = world.jobs.get(event.claim)
            is_promised = event.claim in world.promises
            self._evictions.evicted(event, job, claim, self._policy, self._at_ms, is_promised=is_promised)

    def _requeued(self, world: World, event: jobs.JobRequeued) -> None:
        self._job_moved(world, event)
        self._keep(world, event.job)
        if event.end is jobs.End.FAULT:
            self._follow.requeued(event.job, self._at_ms)
        if event.end is jobs.End.RESUME_REFUSED:
            self._fates.set_aside(event.job)
        job = world.jobs[event.job]
        if event.counts_as_retry and self._is_mine(world, job, job.attempts[-1].pool):
            self._evictions.retried(job, self._at_ms)

    def _job_moved(self, world: World, event: jobs.JobRequeued | jobs.JobAdmitted | jobs.JobReleased) -> None:
        self._demand.look(world.jobs[event.job])

    def _job_over(self, world: World, event: jobs.JobSucceeded) -> None:
        self._demand.look(world.jobs[event.job])
        self._fates.job_over(event.job)
        self._evictions.over(event.job)

    def _is_mine(self, world: World, job: Job, pool: str) -> bool:
        return self._scope.has_pool(pool) and self._scope.has_job(world.tree, job)

    # what is kept, and why somebody waits -------------------------------------------------------------
    def _keep(self, world: World, job: JobId) -> None:
        self._pyramid.keep(job, world.reservations.get(job), world.promises.get(job))

    def _kept(self, world: World, event: cycles.ReservationMade | cycles.ReservationEnded) -> None:
        self._keep(world, event.job)

    def _promised(self, world: World, event: cycles.PromiseMade) -> None:
        self._keep(world, event.job)
        promise = world.promises.get(event.job)
        if promise is not None:
            is_mine = self._is_mine(world, world.jobs[event.job], event.pool)
            self._promises.made(promise, is_counted=self._is_counted and is_mine)

    def _promise_ended(self, world: World, event: cycles.PromiseEnded) -> None:
        self._keep(world, event.job)
        job = world.jobs[event.job]
        is_mine = self._scope.has_job(world.tree, job)
        self._promises.ended(event.job, event.why, is_counted=self._is_counted and is_mine)

    def _reason_began(self, _world: World, event: reasons.ReasonBegan) -> None:
        if self._is_by("placement"):
            self._demand.reason(event.subject, event.code)

    def _reason_ended(self, _world: World, event: reasons.ReasonEnded) -> None:
        if self._is_by("placement"):
            self._demand.reason(event.subject, None)

    def _is_by(self, service: str) -> bool:
        return self._record is not None and self._record.by == service

    # hosts and the tree -------------------------------------------------------------------------------
    def _tree_changed(self, world: World, _event: BudgetChanged) -> None:
        self._impact.tree_changes(self._tree, self._pyramid.now_ms)
        self._tree = world.tree
        self._shares.is_stale = True

    def _policy_changed(self, _world: World, event: PolicyChanged) -> None:
        self._policy = event.policy

    def _host_changed(self, world: World, event: hosts.HostRegistered | hosts.HostHeld | hosts.HostHoldCleared) -> None:
        host = world.fleet.hosts.get(event.host)
        if host is not None:
            self._pyramid.put_host(host)
            self._demand.put_host(host)

    def _drain_planned(self, world: World, event: hosts.DrainPlanned) -> None:
        if self._is_host_mine(world, event.host):
            self._follow.drain_planned(event.host, self._at_ms, event.empty_in_ms, is_queued=event.is_queued)

    def _drain_completed(self, _world: World, event: hosts.DrainCompleted) -> None:
        self._follow.drain_over(event.host, self._at_ms, is_empty=True)

    def _drain_cancelled(self, _world: World, event: hosts.DrainCancelled) -> None:
        self._follow.drain_over(event.host, self._at_ms, is_empty=False)

    def _lease_lost(self, world: World, event: hosts.LeaseLost) -> None:
        if self._is_host_mine(world, event.host):
            self._follow.lease_lost([job_of(name) for name in event.attempts], self._at_ms, event.silent_ms)

    def _is_host_mine(self, world: World, name: HostId) -> bool:
        host = world.fleet.hosts.get(name)
        return host is not None and self._scope.has_pool(host.inventory.pool)

    # cycles ------------------------------------------------------------------------------------------
    def _ranked(self, _world: World, _event: cycles.CycleRanked) -> None:
        self._follow.ranked(self._record.basis if self._record is not None else 0)

    def _closed(self, _world: World, _event: cycles.CycleClosed) -> None:
        self._follow.closed(self._at_ms, self._stored_ms)

    def _abandoned(self, _world: World, _event: cycles.CycleAbandoned) -> None:
        self._follow.abandoned()


def _completion(submitted: list[Job]) -> Completion:
    over = [job for job in submitted if job.is_terminal and any(not attempt.is_stillborn for attempt in job.attempts)]
    first_ms = min((job.submitted_ms for job in over), default=0)
    return Completion(
        spread=spread(job.ended_ms - job.submitted_ms for job in over),
        makespan_ms=max(job.ended_ms for job in over) - first_ms if over else None,
    )
