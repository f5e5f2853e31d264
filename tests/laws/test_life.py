"""A job's life: legal steps only, one end, and at rest everybody knows why they wait."""

from fairlease.core.deciders import RULES
from fairlease.core.job import Phase
from fairlease.core.placement.fit import Room, Shape
from fairlease_schemas import job as events
from fairlease_schemas.cycle import CycleRanked, GangGranted
from fairlease_schemas.envelope import Record, TimerFired
from fairlease_schemas.ids import job_of
from tests.dsl.cell import MINUTE, SERVICES, T0, Cell
from tests.laws.examine import at_length, examine
from tests.laws.story import Story, play, stories

LEGAL = {
    "": {"waiting"},
    "waiting": {"granted", "cancelled"},
    "backoff": {"waiting", "cancelled"},
    "granted": {"running", "stopping", "waiting", "backoff", "succeeded", "failed", "cancelled", "timed-out"},
    "running": {"stopping", "waiting", "backoff", "succeeded", "failed", "cancelled", "timed-out"},
    "stopping": {"waiting", "backoff", "succeeded", "failed", "cancelled", "timed-out"},
}
ENDS = (events.JobSucceeded, events.JobFailed, events.JobCancelled, events.JobTimedOut)


class Lives:
    """Every job's phase so far, and its ends."""

    def __init__(self) -> None:
        self.phase: dict[str, str] = {}
        self.ends: dict[str, int] = {}

    def see(self, cell: Cell, record: Record) -> None:
        before = dict(self.phase)
        for event in record.events:
            if isinstance(event, ENDS):
                self.ends[event.job] = self.ends.get(event.job, 0) + 1
                assert self.ends[event.job] == 1, "a job ends once"
        for name, job in cell.world.jobs.items():
            was, now = before.get(name, ""), str(job.phase)
            if was != now:
                # One record may hold several steps of a job; where it leads must be somewhere that steps lead.
                assert now in LEGAL[was] or _leads(was, now), f"{was} -> {now}"
                self.phase[name] = now
            assert [a.number for a in job.attempts] == list(range(1, len(job.attempts) + 1))
            assert all(a.is_over for a in job.attempts[:-1]), "one attempt lives at a time"
            assert job.retries <= job.request.max_retries
            assert job.is_terminal == (name in self.ends)
            if job.live is not None:
                assert job.live.is_stillborn == job.is_terminal


def _leads(was: str, now: str) -> bool:
    return any(now in LEGAL.get(step, ()) for step in LEGAL[was])


@at_length
def test_a_job_takes_legal_steps_and_ends_once(examples: int) -> None:
    def lives_are_legal(story: Story) -> None:
        lives = Lives()
        play(story, Cell(lives.see))

    examine(lives_are_legal, stories(), examples)


# at rest --------------------------------------------------------------------------------------------


@at_length
def test_at_rest_everybody_waits_with_a_reason_that_is_true(examples: int) -> None:
    def nobody_waits_unexplained(story: Story) -> None:
        world = play(story).world
        backoffs = {name for name, job in world.jobs.items() if job.phase is Phase.BACKOFF}
        assert set(world.reasons_of("placement")) == set(world.line.classes)
        assert set(world.reasons_of("admission")) == backoffs
        for name, job in world.jobs.items():
            assert job.is_terminal or job.live or name in backoffs or job.phase is Phase.WAITING

    examine(nobody_waits_unexplained, stories(), examples)


@at_length
def test_at_rest_nobody_waits_for_room_that_is_there(examples: int) -> None:
    def room_is_given(story: Story) -> None:
        cell = play(story)
        world = cell.world
        now_ms = world.cycle.ranked_ms
        for waiting in world.line.classes.values():
            shape = Shape(waiting.sample.request.hosts, waiting.sample.request.gpus_per_host)
            for pool in waiting.sample.request.pools:
                for _, job in waiting.members:
                    assert Room(world, pool, now_ms).find(shape, job) is None

    examine(room_is_given, stories(), examples)


@at_length
def test_at_rest_there_is_nothing_left_to_decide(examples: int) -> None:
    def all_have_said_all(story: Story) -> None:
        cell = play(story)
        world = cell.world
        assert [name for name in SERVICES if cell.draft(name)] == []
        assert (world.cycle.stage, world.stillborn, world.uncharged) == ("idle", {}, {})
        assert all(world.jobs[kept.job].phase is Phase.WAITING for kept in world.reservations.values())
        timer = TimerFired(due_ms=world.log_time_ms)
        assert not cell.draft("admission", (cell.answer(timer, "admission", "FL_LAB_TIMERS"),)) or _is_due(cell)

    examine(all_have_said_all, stories(), examples)


def _is_due(cell: Cell) -> bool:
    due_ms = RULES["admission"].due_ms(cell.world)
    return due_ms is not None and due_ms <= cell.now_ms


@at_length
def test_a_cell_left_alone_writes_one_cycle_a_period(examples: int) -> None:
    def cycles_are_periodic(story: Story) -> None:
        cell = play(story)
        policy = cell.world.policy
        assert policy is not None
        before = len(cell.records)
        cell.at(cell.now_ms - T0 + 30 * MINUTE)
        written = [cell.record(position) for position in range(before + 1, len(cell.records) + 1)]
        ranks = sum(1 for record in written if any(isinstance(e, CycleRanked) for e in record.events))
        others = sum(1 for record in written if record.by in ("admission", "ledger"))
        granted = sum(1 for record in written for event in record.events if isinstance(event, GangGranted))
        classes = len(cell.world.line.classes) + 1
        periods = 30 * MINUTE // policy.rank_period_ms + 1
        # A cut rank goes on until it has seen every class; grants, evictions and ends are news.
        assert ranks <= (periods + others + 2 * granted + 3 * len(cell.world.jobs)) * classes

    examine(cycles_are_periodic, stories(), examples)


@at_length
def test_every_job_that_is_left_alone_ends_or_waits(examples: int) -> None:
    """When hosts report whatever they are ordered to stop as gone, no job stays between two states."""

    def jobs_end(story: Story) -> None:
        cell = play(story)
        for _ in range(40):
            live = [job for job in cell.world.jobs.values() if job.live is not None]
            for job in live:
                if job.live is not None and job.live.ending is not None:
                    left = [part.host for part in job.live.parts if part.host not in {g.host for g in job.live.gone}]
                    cell.gone(job.id, events.End.CANCELLED, None, hosts=left)
            cell.at(cell.now_ms - T0 + 10 * MINUTE)
        for job in cell.world.jobs.values():
            assert job.phase is not Phase.BACKOFF
            assert job.live is None or job.live.ending is None or job.live.ending_ms > cell.now_ms - 11 * MINUTE
        assert set(cell.world.reasons_of("placement")) == set(cell.world.line.classes)
        assert all(job_of(a) in cell.world.jobs for a in cell.world.live)

    examine(jobs_end, stories(12), max(20, examples // 10))
