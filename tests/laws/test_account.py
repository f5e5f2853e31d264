"""Held GPU-time is conserved to the millisecond: per attempt, per leaf, per pool, and up the tree."""

from collections import defaultdict

from fairlease.core.fairshare.standing import entitled_gpu_ms, standings
from fairlease_schemas.budget import AttemptCharged
from fairlease_schemas.cycle import GangGranted
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import job_of
from fairlease_schemas.job import AttemptEnded
from tests.dsl.cell import Cell
from tests.laws.examine import at_length, examine
from tests.laws.story import Story, play, stories


class Books:
    """The slow model: GPUs times length of every attempt, and the pool's GPU-time counted record by record."""

    def __init__(self) -> None:
        self.granted: dict[str, tuple[str, str, int, int, bool]] = {}
        self.closed: dict[tuple[str, str], int] = defaultdict(int)
        self.held: dict[str, int] = {}
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
        if not cell.world.jobs[job_of(event.attempt)].is_idle_work:
            self.closed[budget, pool] += self.held[event.attempt]

    def _charged(self, cell: Cell, event: AttemptCharged) -> None:
        assert event.attempt not in self.charged, "charged twice"
        self.charged.add(event.attempt)
        is_idle = cell.world.jobs[job_of(event.attempt)].is_idle_work
        assert event.held_gpu_ms == self.held[event.attempt]
        assert event.charged_gpu_ms == (0 if is_idle else event.held_gpu_ms)

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
    for pool in world.fleet.pools():
        rows = {row.budget: row for row in standings(world, pool, world.log_time_ms)}
        for name, row in rows.items():
            below = [rows[child] for child in world.tree.children(name)]
            own = world.held(name, pool).integral(world.log_time_ms - _lookback_ms(cell), world.log_time_ms)
            assert row.used_gpu_ms == own + sum(child.used_gpu_ms for child in below)
            assert row.promised_gpu_ms >= sum(child.promised_gpu_ms for child in below)
            assert row.entitled_gpu_ms >= 0
        entitled = entitled_gpu_ms(world, pool, 0, world.log_time_ms)
        whole = world.fleet.schedulable[pool].integral(
            world.pieces[0].from_ms if world.pieces else 0, world.log_time_ms
        )
        if world.pieces:
            top = [name for name, node in world.tree.nodes.items() if not node.parent]
            assert len(world.pieces) > 1 or sum(entitled[name] for name in top) == whole


def _lookback_ms(cell: Cell) -> int:
    assert cell.world.policy is not None
    return cell.world.policy.lookback_ms


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
