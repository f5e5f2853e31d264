"""What keeps a pick from being tried at all: caps of its budget (2.9), the lane's size (3.1), a side that saves (3.4).

Each limit is asked before room is looked for, and told of every grant. Counts are GPUs in one pool.
"""

import msgspec

from fairlease.core.departures import exempt_until_ms, protected_until_ms
from fairlease.core.fairshare.next_pick import Pick
from fairlease.core.fairshare.scales import Scales
from fairlease.core.placement.fit import Room
from fairlease.core.world import World
from fairlease_schemas.cycle import Licence, PoolRank
from fairlease_schemas.envelope import Address
from fairlease_schemas.ids import AccountId, BudgetId, PoolId
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Evidence, Reason

Refusal = tuple[Reason, Evidence]


class Lane:
    """The debug lane: how much of it is held in each pool, and by whom in all."""

    def __init__(self, world: World, policy: Policy) -> None:
        self._policy = policy
        self._gpus: dict[PoolId, int] = {}
        self._people: dict[AccountId, int] = {}
        for name, gpus in world.lane.items():
            found = world.attempt(name)
            assert found is not None, "the lane holds live attempts"
            job, attempt = found
            self._gpus[attempt.pool] = self._gpus.get(attempt.pool, 0) + gpus
            self._people[job.account] = self._people.get(job.account, 0) + 1

    def refuses(self, pick: Pick, rank: PoolRank, largest_host: int) -> Refusal | None:
        """At most max(one host, `debug_permille` of the pool), and two at a time per person."""
        limit = max(largest_host, rank.schedulable_gpus * self._policy.debug_permille // 1000)
        gpus = pick.of.hosts * pick.of.gpus_per_host
        held = self._gpus.get(rank.pool, 0)
        if held + gpus <= limit and self._people.get(pick.of.account, 0) < self._policy.debug_per_person:
            return None
        evidence = Evidence(pool=rank.pool, needed_gpus=gpus, held_gpus=held, limit_gpus=limit)
        return Reason.LANE_FULL, evidence

    def granted(self, pick: Pick, pool: PoolId) -> None:
        self._gpus[pool] = self._gpus.get(pool, 0) + pick.of.hosts * pick.of.gpus_per_host
        self._people[pick.of.account] = self._people.get(pick.of.account, 0) + 1


class Caps:
    """Caps of budget nodes in one pool. `is_idle` when no node has one, and then nothing is counted."""

    def __init__(self, world: World, policy: Policy, rank: PoolRank, room: Room, largest_host: int) -> None:
        nodes = world.tree.nodes
        self._world, self._policy, self._now_ms = world, policy, room.now_ms
        self._tree = world.tree
        self._pool = rank.pool
        self._capped = {n: node for n, node in nodes.items() if node.max_protected_permille or node.burst_permille}
        self._protected: dict[BudgetId, int] = {}
        self._held: dict[BudgetId, int] = {}
        self._least = largest_host
        if not self._capped:
            return
        self._entitled_milli = self._tree.split_all(rank.schedulable_gpus * 1000)
        # Demand that the pool could not take even when empty moves nobody's share (2.10).
        samples = [waiting.sample for of in rank.leaves if (waiting := world.line.classes.get(of.key)) is not None]
        self._waiting = {job.budget for job in samples if room.can_take(room.shape(job))}
        for name in world.live.values():
            job = world.jobs[name]
            attempt = job.live
            if attempt is not None and attempt.pool == rank.pool and not job.is_idle_work:
                self._add(self._held, job.budget, attempt.gpus)
                if protected_until_ms(policy, job, attempt) > room.now_ms:
                    self._add(self._protected, job.budget, attempt.gpus)
        claims = {n: r.pool for n, r in world.reservations.items()} | {n: p.pool for n, p in world.promises.items()}
        for name, pool in claims.items():
            if pool == rank.pool and world.jobs[name].live is None:
                for counts in (self._protected, self._held):
                    self._add(counts, world.jobs[name].budget, world.jobs[name].gpus)

    def refuses(self, pick: Pick, *, is_counted: bool) -> Refusal | None:
        """The first cap above the pick, from the leaf up; a claim that `is_counted` adds nothing."""
        if not self._capped:
            return None
        gpus = pick.of.hosts * pick.of.gpus_per_host
        more = 0 if is_counted else gpus
        is_protected = self._is_protected(pick)
        for name in self._tree.path(pick.of.budget):
            node = self._capped.get(name)
            if node is None:
                continue
            protected = self._protected.get(name, 0) + (more if is_protected else 0)
            limit = self._limit(name, node.max_protected_permille)
            if node.max_protected_permille and is_protected and protected > limit:
                return Reason.PROTECTED_CAP, self._evidence(name, gpus, protected, limit)
            held = self._held.get(name, 0) + more
            limit = self._limit(name, node.burst_permille)
            if node.burst_permille and held > limit and self._others_wait(name):
                return Reason.BUDGET_CAP, self._evidence(name, gpus, held, limit)
        return None

    def granted(self, pick: Pick, *, is_counted: bool) -> None:
        """The pick got its GPUs, or a claim to them: in this step nobody gets beyond the caps together with it."""
        if self._capped and not is_counted:
            for counts in (self._protected, self._held) if self._is_protected(pick) else (self._held,):
                self._add(counts, pick.of.budget, pick.of.hosts * pick.of.gpus_per_host)

    def _is_protected(self, pick: Pick) -> bool:
        """Whether it will be in a window or an exemption; a fault may have left nothing of its window (7.7)."""
        job = self._world.jobs.get(pick.job)
        is_exempt = job is not None and exempt_until_ms(self._policy, job) > self._now_ms
        return pick.of.window_ms > 0 or is_exempt

    def _limit(self, name: BudgetId, permille: int) -> int:
        return max(self._least, self._entitled_milli.get(name, 0) * permille // 1_000_000)

    def _others_wait(self, name: BudgetId) -> bool:
        return any(name not in self._tree.path(leaf) for leaf in self._waiting)

    def _evidence(self, name: BudgetId, gpus: int, would_be: int, limit: int) -> Evidence:
        return Evidence(pool=self._pool, needed_gpus=gpus, held_gpus=would_be, limit_gpus=limit, level=name)

    def _add(self, counts: dict[BudgetId, int], leaf: BudgetId, gpus: int) -> None:
        for node in self._tree.path(leaf):
            counts[node] = counts.get(node, 0) + gpus


class Saver(msgspec.Struct, frozen=True):
    """A class that standing alone has blocked for long; its side `level` saves for it."""

    level: BudgetId
    key: str
    job: str
    admitted: Address
    is_due_more: bool


class Savings:
    """The sides that save in one pool (3.4): later and larger claims of the subtree wait behind the saver.

    But none that is due more (3.2) behind one that is not, or was not when the walk began.
    """

    def __init__(self, world: World, policy: Policy, pool: str, now_ms: int, scales: Scales) -> None:
        self._world = world
        self._policy = policy
        self._pool = pool
        self._scales = scales
        self._savers: list[Saver] = []
        for key, reason in world.reasons_of("placement").items():
            waiting = world.line.classes.get(key)
            if reason.code is not Reason.WINDOW_OVERSHARE or reason.evidence.pool != pool or waiting is None:
                continue
            admitted, job = waiting.head
            # The reason is the class's, the wait the claim's: who came into the class later has not waited so long.
            since_ms = max(reason.since_ms, world.jobs[job].waiting_since_ms)
            if now_ms - since_ms >= policy.saving_after_ms:
                due_more = scales.is_below(waiting.sample.budget, policy.due_first_permille)
                self._savers.append(Saver(reason.evidence.level, key, job, admitted, due_more))
        self._savers.sort(key=lambda saver: (saver.admitted, saver.job))

    def refuses(self, pick: Pick) -> Refusal | None:
        """Whether the pick waits behind a saver: submitted later, below its side, and not small."""
        if not self._savers or pick.licence in (Licence.DEBUG, Licence.IDLE):
            return None
        of = pick.of
        if of.hosts * of.gpus_per_host * of.window_ms <= self._policy.saving_pass_gpu_ms:
            return None
        path = self._world.tree.path(of.budget)
        admitted = self._world.jobs[pick.job].admitted
        is_due_more = self._scales.is_below(of.budget, self._policy.due_first_permille)
        for saver in self._savers:
            is_behind = saver.is_due_more or not is_due_more
            if is_behind and saver.level in path and saver.key != of.key and admitted > saver.admitted:
                return Reason.SAVING, Evidence(pool=self._pool, claim=saver.job, level=saver.level)
        return None
