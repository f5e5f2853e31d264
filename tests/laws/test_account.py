"""Held GPU-time is conserved to the millisecond: per attempt, per leaf, per pool, and up the tree."""

from collections import defaultdict

from fairlease.core.fairshare.fade import Lookback
from fairlease.core.fairshare.standing import entitled_gpu_ms, standings
from fairlease_schemas.budget import AttemptCharged
from fairlease_schemas.cycle import EvictionOrdered, GangGranted
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import job_of
from fairlease_schemas.job import AttemptEnded, CheckpointConfirmed, End
from tests.dsl.cell import Cell
from tests.laws.examine import at_length, examine
from tests.laws.story import Story, play, stories


class Books:
    """The slow model: GPUs times length of every attempt, and the pool's GPU-time counted record by record."""

    def __init__(self) -> None:
        self.granted: dict[str, tuple[str, str, int, int, bool]] = {}
        self.closed: dict[tuple[str, str], int] = defaultdict(int)
        self.held: dict[str, int] = {}
        self.saved_ms: dict[str, int] = {}
        self.unsaved: dict[str, int] = {}
        self.evicted_for: dict[str, int] = defaultdict(int)
        self.caused: dict[str, int] = {}
        self.charged: set[str] = set()
        self.schedulable: dict[str, int] = {}
        self.capacity: dict[str, int] = defaultdict(int)
        self.seen_ms = 0

    def see(self, cell: Cell, record: Record) -> None:
        now_ms = cell.world.log_time_ms
        for pool, gpus in self.schedulable.items():
            self.capacity[pool] += gpus * (now_ms - self.seen_ms)
        self.seen_ms = now_ms
        for event in record.events:
            match event:
                case GangGranted():
                    attempt = cell.world.jobs[event.job].attempts[-1]
                    gpus = sum(len(part.gpus) for part in event.parts)
                    budget = cell.world.jobs[event.job].budget
                    self.granted[event.attempt] = (budget, event.pool, gpus, now_ms, attempt.is_stillborn)
                    self.saved_ms[event.attempt] = now_ms
                    self.caused[event.attempt] = self.evicted_for.pop(event.job, 0)
                case EvictionOrdered():
                    self.evicted_for[event.claim] += event.lost_gpu_ms
                case CheckpointConfirmed():
                    self.saved_ms[event.attempt] = now_ms
                case AttemptEnded():
                    self._ended(cell, event, now_ms)
                case AttemptCharged():
                    self._charged(cell, event)
                case _:
                    pass
        self.schedulable = _schedulable(cell)
        self._compare(cell, now_ms)

    def _ended(self, cell: Cell, event: AttemptEnded, now_ms: int) -> None:
        budget, pool, gpus, from_ms, is_stillborn = self.granted.pop(event.attempt)
        self.held[event.attempt] = 0 if is_stillborn else gpus * (now_ms - from_ms)
        is_fault = event.end is End.FAULT and not is_stillborn
        self.unsaved[event.attempt] = gpus * (now_ms - self.saved_ms[event.attempt]) if is_fault else 0
        if not cell.world.jobs[job_of(event.attempt)].is_idle_work:
            self.closed[budget, pool] += self.held[event.attempt]

    def _charged(self, cell: Cell, event: AttemptCharged) -> None:
        """Rule 2.6: at least what its victims lost, less what a fault undid since its last checkpoint."""
        assert event.attempt not in self.charged, "charged twice"
        self.charged.add(event.attempt)
        held = self.held[event.attempt]
        assert event.held_gpu_ms == held
        if cell.world.jobs[job_of(event.attempt)].is_idle_work:
            assert (event.charged_gpu_ms, event.surcharge_gpu_ms, event.credit_gpu_ms) == (0, 0, 0)
            return
        assert event.credit_gpu_ms == self.unsaved[event.attempt]
        assert event.charged_gpu_ms == max(held, self.caused[event.attempt]) - event.credit_gpu_ms
        assert event.surcharge_gpu_ms == event.charged_gpu_ms + event.credit_gpu_ms - held

    def _compare(self, cell: Cell, now_ms: int) -> None:
        used = defaultdict(int, self.closed)
        for attempt, (budget, pool, gpus, from_ms, is_stillborn) in self.granted.items():
            if not is_stillborn and not cell.world.jobs[job_of(attempt)].is_idle_work:
                used[budget, pool] += gpus * (now_ms - from_ms)
        for (budget, pool), gpu_ms in used.items():
            assert cell.world.held(budget, pool).integral(0, now_ms) == gpu_ms, "held is the sum over grants"
        for pool, meter in cell.world.fleet.schedulable.items():
            assert meter.integral(0, now_ms) == self.capacity[pool], "schedulable is the sum over hosts"
            assert meter.value == self.schedulable.get(pool, 0)


def _schedulable(cell: Cell) -> dict[str, int]:
    """GPUs without a hold, or that an attempt from before the hold still has."""
    fleet = cell.world.fleet
    found: dict[str, int] = defaultdict(int)
    for host in fleet.hosts.values():
        held = sum(1 for holder in fleet.occupants(host.id) if holder)
        found[host.inventory.pool] += held if host.holds else host.gpus
    return found


def see_standings(cell: Cell, _record: Record) -> None:
    """Parents are the sum of their children, and nobody is entitled to time that was not there."""
    world = cell.world
    policy = world.policy
    assert policy is not None
    from_ms = world.log_time_ms - policy.lookback_ms
    for pool in world.fleet.pools():
        rows = {row.budget: row for row in standings(world, pool, world.log_time_ms)}
        for name, row in rows.items():
            below = [rows[child] for child in world.tree.children(name)]
            held = world.held(name, pool).integral(from_ms, world.log_time_ms)
            lumps = world.lumps(name, pool).within(from_ms)
            own = _owed(cell, name, pool)
            assert row.used_gpu_ms == held + lumps + sum(child.used_gpu_ms for child in below)
            assert row.promised_gpu_ms == own + sum(child.promised_gpu_ms for child in below)
        _is_shared_out(cell, pool)


def _owed(cell: Cell, leaf: str, pool: str) -> int:
    """What is promised to a leaf's own jobs: the rest of their windows, and windows that hosts are kept for (2.5)."""
    world, total = cell.world, 0
    for job in world.jobs.values():
        attempt = job.live
        if job.budget != leaf or job.is_idle_work:
            continue
        if attempt is not None and attempt.pool == pool and not attempt.is_stillborn:
            total += attempt.gpus * max(0, attempt.granted_ms + attempt.window_ms - world.log_time_ms)
        kept = [book[job.id] for book in (world.promises, world.reservations) if job.id in book]
        if attempt is None and any(one.pool == pool for one in kept):
            total += job.gpus * job.window_ms
    return total


def _is_shared_out(cell: Cell, pool: str) -> None:
    """What the roots are entitled to is what was schedulable within the lookback, to the GPU-millisecond (2.2)."""
    world = cell.world
    assert world.policy is not None
    lookback = Lookback(world.policy, world.log_time_ms)
    entitled = entitled_gpu_ms(world, pool, lookback)
    trees = [piece.tree for piece in world.pieces]
    roots = [name for name, node in world.tree.nodes.items() if not node.parent]
    for name in entitled.keys() - set(roots):
        assert entitled[name] >= 0
    if trees and all(not tree.nodes[name].parent for tree in trees for name in roots if name in tree.nodes):
        was_below = [name for tree in trees for name, node in tree.nodes.items() if not node.parent]
        if set(was_below) <= set(roots):  # nobody moved up or down across the top
            from_ms = max(lookback.from_ms, world.pieces[0].from_ms)
            whole = world.fleet.schedulable[pool].integral(from_ms, world.log_time_ms)
            assert sum(entitled[name] for name in roots) == whole


@at_length
def test_held_and_charged_and_schedulable_time_are_conserved(examples: int) -> None:
    def books_are_balanced(story: Story) -> None:
        books = Books()
        cell = play(story, Cell(books.see))
        assert books.held.keys() == books.charged, "at rest every attempt that ended is charged"
        assert cell.world.uncharged == {}

    examine(books_are_balanced, stories(), examples)


@at_length
def test_standings_add_up_the_tree(examples: int) -> None:
    def standings_add_up(story: Story) -> None:
        play(story, Cell(see_standings))

    examine(standings_add_up, stories(), examples)
