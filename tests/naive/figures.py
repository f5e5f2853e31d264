"""The figures of a log by brute force: every job, host and GPU looked at again behind every record.

What stood at an instant is read off the whole world; an integral is the sum over the gaps between records; what
became of an attempt is asked once the period is over. Nothing here is kept from one record to the next but the
world before it, for evictions.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fairlease.core.budget import Tree
from fairlease.core.departures import protected_until_ms
from fairlease.core.host import FAULT_KINDS
from fairlease.core.job import Attempt, Job, Phase
from fairlease.core.line import class_key
from fairlease.core.metrics.integral import PPM, Period
from fairlease.core.metrics.progress import FAILURES
from fairlease.core.metrics.pyramid import Levels
from fairlease.core.metrics.scope import Scope
from fairlease.core.placement.fit import Room
from fairlease.core.world import World
from fairlease_schemas.budget import BudgetChanged
from fairlease_schemas.codec import read_record
from fairlease_schemas.cycle import EvictionOrdered
from fairlease_schemas.envelope import Record
from fairlease_schemas.job import End
from fairlease_schemas.reasons import Reason


class Rates(NamedTuple):
    """What stands in a pool, in GPUs: the levels of which the figures are integrals."""

    installed: int
    schedulable: int
    everybody: int
    held: int
    budgeted: int
    reserved: int
    fragmentation: int
    no_demand: int


class Moment(NamedTuple):
    """What stood from `at_ms` on: by pool the levels, by (leaf, pool) GPUs held, due and so on; all as rates."""

    at_ms: int
    piece: int
    tree: Tree
    lookback_ms: int
    levels: dict[str, Rates]
    impact: dict[tuple[str, str], int]
    held: dict[str, int]
    due: dict[str, int]
    uncapped: dict[str, int]


class Told(NamedTuple):
    """One eviction that told somebody who had not been told: as it was right before it."""

    at_ms: int
    job: Job
    attempt: Attempt
    claim: str
    leaf: str
    is_break: bool


class History:
    """Everything about one log that the figures could ask, up to the end of the period."""

    def __init__(self, records: Iterable[bytes], period: Period, scope: Scope) -> None:
        self.period = period
        self.scope = scope
        self.world = World()
        self.moments: list[Moment] = []
        self.told: list[Told] = []
        piece = 0
        for position, record in enumerate(map(read_record, records), start=1):
            if max(self.world.log_time_ms, record.at_ms) > period.until_ms:
                break
            self._evictions(record)
            self.world.apply(record, position)
            piece += any(isinstance(event, BudgetChanged) for event in record.events)
            self.moments.append(self._moment(piece))

    # what stands ---------------------------------------------------------------------------------------
    def _moment(self, piece: int) -> Moment:
        world = self.world
        pools = sorted({*world.fleet.pools(), *(pool for job in world.jobs.values() for pool in job.request.pools)})
        pools = [pool for pool in pools if self.scope.has_pool(pool)]
        waits = [job for job in world.jobs.values() if job.phase is Phase.WAITING]
        rooms = {pool: Room(world, pool, world.log_time_ms) for pool in pools} if waits else {}
        fits = {job.id: [p for p in job.pools if p in rooms and self._fits(rooms[p], job)] for job in waits}
        levels = {pool: self._levels(pool, waits, fits) for pool in pools}
        impact: dict[tuple[str, str], int] = {}
        held: dict[str, int] = {}
        for job, attempt in self._live():
            if not job.is_idle_work and self.scope.has_pool(attempt.pool):
                held[job.budget] = held.get(job.budget, 0) + attempt.gpus
                if self._is_mine(job, attempt):
                    side = (job.budget, attempt.pool)
                    impact[side] = impact.get(side, 0) + self._sound(attempt)
        dues = {leaf: self._due(leaf, levels, waits, fits) for leaf in self._leaves()}
        policy = world.policy
        return Moment(
            at_ms=world.log_time_ms,
            piece=piece,
            tree=world.tree,
            lookback_ms=policy.lookback_ms if policy else 0,
            levels=levels,
            impact=impact,
            held=held,
            due={leaf: due for leaf, (due, _) in dues.items()},
            uncapped={leaf: due for leaf, (_, due) in dues.items()},
        )

    def _live(self) -> Iterator[tuple[Job, Attempt]]:
        for job in self.world.jobs.values():
            if job.live is not None and not job.live.is_stillborn:
                yield job, job.live

    def _is_mine(self, job: Job, attempt: Attempt) -> bool:
        return self.scope.has_pool(attempt.pool) and self.scope.has_job(self.world.tree, job)

    def _is_faulty(self, host: str) -> bool:
        return any(hold.kind in FAULT_KINDS for hold in self.world.fleet.hosts[host].holds)

    def _sound(self, attempt: Attempt) -> int:
        return sum(len(part.gpus) for part in attempt.parts if not self._is_faulty(part.host))

    def _fits(self, room: Room, job: Job) -> bool:
        return room.can_take(room.shape(job))

    def _is_capped(self, job: Job) -> bool:
        reason = self.world.reason("placement", class_key(job))
        return reason is not None and reason.code in (Reason.BUDGET_CAP, Reason.PROTECTED_CAP)

    def _levels(self, pool: str, waits: list[Job], fits: dict[str, list[str]]) -> Rates:
        world = self.world
        busy: dict[str, int] = {}
        for job in world.jobs.values():
            for part in job.live.parts if job.live is not None else ():
                busy[part.host] = busy.get(part.host, 0) + len(part.gpus)
        kept = {host for r in world.reservations.values() for host in r.hosts}
        kept |= {host for p in world.promises.values() for host in p.hosts}
        installed = schedulable = reserved = 0
        for host in world.fleet.in_pool(pool):
            mine = busy.get(host.id, 0)
            shown = max(host.gpus, mine)
            open_gpus = 0 if self._is_faulty(host.id) else mine if host.holds else shown
            installed += shown
            schedulable += open_gpus
            reserved += open_gpus - mine if host.id in kept and not self._is_faulty(host.id) else 0
        here = [(job, self._sound(attempt)) for job, attempt in self._live() if attempt.pool == pool]
        mine_only = [(job, gpus) for job, gpus in here if self.scope.has_job(world.tree, job)]
        everybody = sum(gpus for _, gpus in here)
        rest = max(0, schedulable - everybody - reserved)
        wanted = sum(job.gpus for job in waits if pool in fits[job.id] and not self._is_capped(job))
        return Rates(
            installed=installed,
            schedulable=schedulable,
            everybody=everybody,
            held=sum(gpus for _, gpus in mine_only),
            budgeted=sum(gpus for job, gpus in mine_only if not job.is_idle_work),
            reserved=reserved,
            fragmentation=min(rest, wanted),
            no_demand=rest - min(rest, wanted),
        )

    def _leaves(self) -> set[str]:
        return {*self.world.tree.leaves(), *(job.budget for job in self.world.jobs.values())}

    def _due(
        self, leaf: str, levels: dict[str, Rates], waits: list[Job], fits: dict[str, list[str]]
    ) -> tuple[int, int]:
        """What the leaf is due now, in millionths of a GPU: under its caps, and without them."""
        found = []
        for has_caps in (True, False):
            asks = [
                job
                for job in waits
                if job.budget == leaf and not job.is_idle_work and not (has_caps and self._is_capped(job))
            ]
            due = everything = 0
            for pool, level in levels.items():
                parts = self.world.tree.split_all(level.schedulable * PPM)
                entitled = parts.get(leaf, 0) if leaf in self.world.tree.leaves() else 0
                held = sum(a.gpus for job, a in self._live() if a.pool == pool and _charges(job, leaf))
                due += min(entitled, (held + sum(job.gpus for job in asks if pool in fits[job.id])) * PPM)
                everything += held
            everything += sum(job.gpus for job in asks if fits[job.id])
            found.append(min(due, everything * PPM))
        return found[0], found[1]

    # integrals -----------------------------------------------------------------------------------------
    def gaps(self) -> Iterator[tuple[Moment, int, int]]:
        """What stood, from when to when, within the period."""
        ends = [*(moment.at_ms for moment in self.moments[1:]), self.period.until_ms]
        for moment, end_ms in zip(self.moments, ends, strict=True):
            from_ms, to_ms = max(moment.at_ms, self.period.since_ms), min(end_ms, self.period.until_ms)
            if from_ms < to_ms:
                yield moment, from_ms, to_ms

    def levels(self) -> Levels:
        sums = dict.fromkeys(Rates._fields, 0)
        for moment, from_ms, to_ms in self.gaps():
            for level in moment.levels.values():
                for name in sums:
                    sums[name] += getattr(level, name) * (to_ms - from_ms)
        return Levels(**{f"{name}_gpu_ms": amount for name, amount in sums.items()})

    def by_leaf(self, name: str) -> dict[str, int]:
        """Integrals by leaf of `held`, `due` or `uncapped`; those that are 0 are left out."""
        sums: dict[str, int] = {}
        for moment, from_ms, to_ms in self.gaps():
            for leaf, rate in getattr(moment, name).items():
                sums[leaf] = sums.get(leaf, 0) + rate * (to_ms - from_ms)
        return {leaf: amount for leaf, amount in sums.items() if amount}

    def impact(self) -> tuple[int, int]:
        """(within entitlement, beyond it) over all buckets."""
        within = total = 0
        for bucket in self._buckets():
            held: dict[tuple[str, str], int] = {}
            pieces: dict[tuple[int, str], tuple[Tree, int]] = {}
            for moment, from_ms, to_ms in bucket:
                for side, gpus in moment.impact.items():
                    held[side] = held.get(side, 0) + gpus * (to_ms - from_ms)
                for pool, level in moment.levels.items():
                    before = pieces.get((moment.piece, pool), (moment.tree, 0))[1]
                    amount = before + level.schedulable * (to_ms - from_ms)
                    pieces[moment.piece, pool] = (moment.tree, amount)
            entitled: dict[tuple[str, str], int] = {}
            for (_, pool), (tree, amount) in pieces.items():
                for leaf, part in tree.split_all(amount).items():
                    entitled[leaf, pool] = entitled.get((leaf, pool), 0) + part
            within += sum(min(amount, entitled.get(side, 0)) for side, amount in held.items())
            total += sum(held.values())
        return within, total - within

    def _buckets(self) -> Iterator[list[tuple[Moment, int, int]]]:
        """The gaps, cut where a bucket of one lookback ends."""
        end_ms, bucket = 0, []
        for moment, from_ms, to_ms in self.gaps():
            begin_ms = from_ms
            end_ms = end_ms or begin_ms + moment.lookback_ms
            while begin_ms < to_ms:
                if begin_ms == end_ms:
                    yield bucket
                    end_ms, bucket = begin_ms + moment.lookback_ms, []
                cut_ms = min(to_ms, end_ms)
                bucket.append((moment, begin_ms, cut_ms))
                begin_ms = cut_ms
        yield bucket

    # what became of attempts ----------------------------------------------------------------------------
    def progress(self) -> dict[str, int]:
        """Every ended attempt's time by its fate, cut once the whole story is known."""
        sums = dict.fromkeys(("kept", "stopped", "failed", "restart", "abandoned"), 0)
        for job in self.world.jobs.values():
            for place, attempt in enumerate(job.attempts):
                if attempt.is_over and not attempt.is_stillborn and self._is_mine(job, attempt):
                    self._cut(sums, job, place)
        return sums

    def _cut(self, sums: dict[str, int], job: Job, place: int) -> None:
        attempt, end_ms = job.attempts[place], job.attempts[place].ended_ms
        fate = "abandoned" if job.is_terminal or (job.is_clean and not job.attempts[-1].is_clean) else ""
        for later in job.attempts[place + 1 :]:
            if later.is_clean or later.started_ms is not None or later.end is End.SUCCEEDED:
                fate = "abandoned" if later.is_clean else "kept"
                break
        is_later = any(earlier.started_ms is not None for earlier in job.attempts[:place])
        begin_ms = attempt.granted_ms
        if is_later:
            begin_ms = attempt.started_ms if attempt.started_ms is not None else end_ms
        sums["restart"] += self._gpu_ms(attempt, attempt.granted_ms, begin_ms)
        if attempt.end is End.SUCCEEDED:
            sums["kept"] += self._gpu_ms(attempt, begin_ms, end_ms)
            return
        saved_ms = max(begin_ms, attempt.checkpoint_ms) if job.request.is_resumable else begin_ms
        saved = self._gpu_ms(attempt, begin_ms, saved_ms)
        if fate:
            sums[fate] += saved
        sums["failed" if attempt.end in FAILURES else "stopped"] += self._gpu_ms(attempt, saved_ms, end_ms)

    def _gpu_ms(self, attempt: Attempt, from_ms: int, to_ms: int) -> int:
        return attempt.gpus * self.period.length_ms(from_ms, to_ms)

    # evictions -----------------------------------------------------------------------------------------
    def _evictions(self, record: Record) -> None:
        """Who is told by the record and was not before, with the world still without it."""
        world, policy = self.world, self.world.policy
        at_ms = max(world.log_time_ms, record.at_ms)
        for event in record.events:
            found = world.attempt(event.attempt) if isinstance(event, EvictionOrdered) else None
            if not isinstance(event, EvictionOrdered) or found is None or found[1].ending is not None:
                continue
            job, attempt = found
            assert policy is not None
            is_early = not job.is_idle_work and at_ms < protected_until_ms(policy, job, attempt)
            claim = world.jobs.get(event.claim)
            leaf = claim.budget if claim is not None else ""
            self.told.append(Told(at_ms, job, attempt, event.claim, leaf, is_early and not event.is_deadline))

    def turns(self) -> tuple[int, int]:
        """(turns, loops): each eviction back of somebody for whom one of the claim's leaf had left, each once."""
        turns = loops = 0
        for place, back in enumerate(self.told):
            pairs = [k for k in range(place) if self.told[k].claim == back.job.id and back.leaf]
            pairs = [k for k in pairs if self.told[k].job.budget == back.leaf and not self._answered(k, place)]
            if not pairs or not self.period.holds(back.at_ms):
                continue
            since_ms = max(self.told[k].at_ms for k in pairs)
            runs = [a for a in back.job.attempts if a.granted_ms >= since_ms and not a.is_stillborn]
            has_run = any((a.ended_ms or back.at_ms) - a.granted_ms >= a.window_ms for a in runs)
            turns, loops = turns + has_run, loops + (not has_run)
        return turns, loops

    def _answered(self, first: int, before: int) -> bool:
        """Whether an eviction back came between the two already."""
        debt = self.told[first]
        between = self.told[first + 1 : before]
        return any(told.job.id == debt.claim and told.leaf == debt.job.budget for told in between)

    def breaks(self) -> int:
        return sum(told.is_break for told in self.told if self.period.holds(told.at_ms))

    def count(self) -> int:
        return sum(self.period.holds(told.at_ms) for told in self.told)


def _charges(job: Job, leaf: str) -> bool:
    return job.budget == leaf and not job.is_idle_work
