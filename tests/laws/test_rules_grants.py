"""What every grant keeps in any living cell: GPUs, gangs, caps, and the books (invariants C and F)."""

from fairlease_schemas.budget import AttemptCharged
from fairlease_schemas.cycle import CycleRanked, EvictionOrdered, GangGranted
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import job_of
from fairlease_schemas.job import AttemptEnded
from tests.laws.examine import at_length, examine
from tests.naive import standing as slow
from tests.naive.living import Law, Life, Living, lives, often


class EveryGpuHasOneHolder(Law):
    """Invariants 20, 21, 28, 29: granted from free GPUs of sound hosts, released once, held by one."""

    def __init__(self) -> None:
        self.holders: dict[tuple[str, int], str] = {}

    def before(self, cell: Living, record: Record) -> None:
        for event in record.events:
            if isinstance(event, GangGranted):
                for part in event.parts:
                    host = cell.world.fleet.hosts[part.host]
                    assert not host.holds, f"{event.attempt} was granted on {part.host}, which is held"
                    assert host.inventory.pool == event.pool
                    assert set(part.gpus) <= set(range(host.gpus))
                    assert len(set(part.gpus)) == len(part.gpus)
                for gpu in _gpus(event):
                    assert gpu not in self.holders, f"{event.attempt} was granted {gpu} of {self.holders[gpu]}"
                    self.holders[gpu] = event.attempt
            elif isinstance(event, AttemptEnded):
                held = [gpu for gpu, holder in self.holders.items() if holder == event.attempt]
                assert held, f"{event.attempt} ended and held nothing"
                for gpu in held:
                    del self.holders[gpu]

    def at_rest(self, cell: Living) -> None:
        fleet = cell.world.fleet
        seen = {(h, k): o for h in fleet.hosts for k, o in enumerate(fleet.occupants(h)) if o}
        assert seen == self.holders


class DrainsAreInTime(Law):
    """Rule 7.2: whatever a drain lets in can be gone before it begins, whoever the host was kept for."""

    def before(self, cell: Living, record: Record) -> None:
        policy = cell.world.policy
        for event in record.events:
            if isinstance(event, GangGranted) and policy is not None:
                job = cell.world.jobs[event.job]
                until_ms = max(record.at_ms + event.window_ms, slow.exempt_until_ms(policy, job))
                gone_ms = until_ms + job.request.grace_ms + policy.stop_margin_ms
                for part in event.parts:
                    drain = cell.world.fleet.hosts[part.host].drain
                    if drain is not None and not drain.is_queued:
                        assert gone_ms <= drain.start_ms, f"{event.attempt} is still on {part.host} when it drains"


class GangsAreWhole(Law):
    """Invariants 22, 25: the gang that was asked for, in one event, by a job that waits, on hosts of their own."""

    def before(self, cell: Living, record: Record) -> None:
        seen: set[str] = set()
        for event in record.events:
            if isinstance(event, GangGranted):
                job = cell.world.jobs[event.job]
                sizes = [len(part.gpus) for part in event.parts]
                assert sizes == [job.request.gpus_per_host] * job.request.hosts
                assert len({part.host for part in event.parts}) == job.request.hosts
                if job.request.hosts > 1:
                    assert all(cell.world.fleet.hosts[p.host].gpus == len(p.gpus) for p in event.parts)
                assert event.pool in slow.pools(job)
                assert event.number == len(job.attempts) + 1
                assert str(job.phase) == "waiting"
                assert job.live is None
                assert event.job not in seen
                assert event.window_ms == slow.window_ms(job)
                seen.add(event.job)


class CapsHold(Law):
    """Rule 2.9 at every grant; what was owed already was within its caps when it was promised."""

    def before(self, cell: Living, record: Record) -> None:
        world, policy = cell.world, cell.world.policy
        held: dict[tuple[str, str], int] = {}
        protected: dict[tuple[str, str], int] = {}
        for job in world.jobs.values():
            attempt = job.live
            if attempt is not None and job.request.min_runtime_ms and policy is not None:
                until_ms = max(attempt.granted_ms + attempt.window_ms, slow.exempt_until_ms(policy, job))
                for node in world.tree.path(job.budget):
                    key = (node, attempt.pool)
                    held[key] = held.get(key, 0) + attempt.gpus
                    protected[key] = protected.get(key, 0) + (attempt.gpus if until_ms > record.at_ms else 0)
        for event in record.events:
            if isinstance(event, GangGranted) and world.jobs[event.job].request.min_runtime_ms and policy is not None:
                job = world.jobs[event.job]
                is_protected = event.window_ms > 0 or slow.exempt_until_ms(policy, job) > record.at_ms
                is_owed = event.job in world.promises or event.job in world.reservations
                for node in world.tree.path(job.budget):
                    key = (node, event.pool)
                    held[key] = held.get(key, 0) + job.gpus
                    protected[key] = protected.get(key, 0) + job.gpus * is_protected
                    if not is_owed:
                        self._check(cell, node, event.pool, held[key], protected[key] * is_protected)

    def _check(self, cell: Living, node: str, pool: str, held: int, protected: int) -> None:
        world = cell.world
        tree = {name: (one.parent, one.weight) for name, one in world.tree.nodes.items()}
        gpus = slow.divided(tree, world.fleet.schedulable[pool].value * 1000)[node]
        least = max(host.gpus for host in world.fleet.in_pool(pool))
        caps = world.tree.nodes[node]
        if caps.max_protected_permille:
            limit = max(least, gpus * caps.max_protected_permille // 1_000_000)
            assert protected <= limit, f"{node} protects {protected} GPUs of {pool}, its cap is {limit}"
        if caps.burst_permille and self._others_wait(cell, node, pool):
            limit = max(least, gpus * caps.burst_permille // 1_000_000)
            assert held <= limit, f"{node} holds {held} GPUs of {pool}, its cap is {limit} while others wait"

    def _others_wait(self, cell: Living, node: str, pool: str) -> bool:
        """Whether another budget had demand that fits the pool at the rank (2.10)."""
        world = cell.world
        ranked = world.cycle.ranked
        assert isinstance(ranked, CycleRanked)
        for rank in ranked.pools:
            for of in rank.leaves if rank.pool == pool else ():
                sound = [h.gpus for h in world.fleet.in_pool(pool) if not h.holds]
                fits = [g for g in sound if (g >= of.gpus_per_host if of.hosts == 1 else g == of.gpus_per_host)]
                if node not in world.tree.path(of.budget) and len(fits) >= of.hosts:
                    return True
        return False


class TheBooksBalance(Law):
    """Invariants 44-48, 50: used is what was held, charged once; nothing lost, nothing counted twice."""

    def __init__(self) -> None:
        self.charges: dict[str, AttemptCharged] = {}
        self.caused: dict[str, int] = {}
        self._evicted_for: dict[str, int] = {}

    def after(self, cell: Living, record: Record) -> None:
        for event in record.events:
            if isinstance(event, EvictionOrdered):
                self._evicted_for[event.claim] = self._evicted_for.get(event.claim, 0) + event.lost_gpu_ms
            elif isinstance(event, GangGranted):
                self.caused[event.attempt] = self._evicted_for.pop(event.job, 0)
            elif isinstance(event, AttemptCharged):
                assert event.attempt not in self.charges, f"{event.attempt} was charged twice"
                self.charges[event.attempt] = event
                self._charge(cell, event)

    def _charge(self, cell: Living, event: AttemptCharged) -> None:
        job = cell.world.jobs[job_of(event.attempt)]
        attempt = next(one for one in job.attempts if one.id == event.attempt)
        held = attempt.gpus * (attempt.ended_ms - attempt.granted_ms)
        assert event.held_gpu_ms == held
        if job.request.min_runtime_ms:
            assert event.charged_gpu_ms == max(held, self.caused[event.attempt]) - event.credit_gpu_ms
        else:
            assert (event.charged_gpu_ms, event.credit_gpu_ms, event.surcharge_gpu_ms) == (0, 0, 0)

    def at_rest(self, cell: Living) -> None:
        world = cell.world
        ended = {a.id for job in world.jobs.values() for a in job.attempts if a.end is not None}
        assert ended == self.charges.keys()
        for leaf in world.tree.nodes:
            for pool in world.fleet.pools():
                held = sum(
                    a.gpus * ((a.ended_ms if a.end is not None else world.log_time_ms) - a.granted_ms)
                    for job in world.jobs.values()
                    for a in job.attempts
                    if job.budget == leaf and a.pool == pool and job.request.min_runtime_ms
                )
                assert world.held(leaf, pool).integral(0, world.log_time_ms) == held


def _gpus(event: GangGranted) -> list[tuple[str, int]]:
    return [(part.host, index) for part in event.parts for index in part.gpus]


@at_length
def test_gpus_gangs_caps_and_books_are_kept_in_every_life(examples: int) -> None:
    def law(life: Life) -> None:
        Living(life, EveryGpuHasOneHolder(), GangsAreWhole(), CapsHold(), TheBooksBalance()).live()

    examine(law, lives(), examples)


@at_length
def test_nothing_is_granted_that_a_drain_would_meet_in_any_life(examples: int) -> None:
    def law(life: Life) -> None:
        Living(life, EveryGpuHasOneHolder(), DrainsAreInTime(), TheBooksBalance()).live()

    examine(law, lives(often(submits=8, waits=4, drains=3, seldom=1)), examples)
