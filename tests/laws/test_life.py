"""A job's life: legal steps only, one end, and at rest everybody knows why they wait."""

from fairlease.core.deciders import RULES
from fairlease.core.job import Phase
from fairlease_schemas import job as events
from fairlease_schemas.budget import BudgetChanged
from fairlease_schemas.commands import CancelJob
from fairlease_schemas.cycle import (
    CycleAbandoned,
    CyclePlaced,
    CycleRanked,
    GangGranted,
    PromiseEnded,
    PromiseMade,
    ReservationEnded,
    ReservationMade,
)
from fairlease_schemas.envelope import Record, TimerFired
from fairlease_schemas.host import HostHeld, HostHoldCleared, HostRegistered
from fairlease_schemas.ids import job_of
from fairlease_schemas.policy import PolicyChanged
from tests.dsl.cell import MINUTE, SERVICES, T0, Cell
from tests.laws.examine import at_length, examine
from tests.laws.story import Story, play, stories
from tests.naive import eviction as slow

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
        self.cancelled: set[str] = set()

    def see(self, cell: Cell, record: Record) -> None:
        before = dict(self.phase)
        for event in record.events:
            if isinstance(event, ENDS):
                self.ends[event.job] = self.ends.get(event.job, 0) + 1
                assert self.ends[event.job] == 1, "a job ends once"
            if isinstance(event, events.AttemptEnding) and event.end is events.End.CANCELLED:
                self.cancelled.add(job_of(event.attempt))
            if isinstance(event, events.JobRequeued):
                assert event.job not in self.cancelled or _by_itself(cell, event.job), "a cancel was forgotten"
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


def _by_itself(cell: Cell, job: str) -> bool:
    """Whether nobody asked for the cancel: an agent said `cancelled` of its own accord."""
    return not any(job == said.job for record in _heard(cell) for said in record if isinstance(said, CancelJob))


def _heard(cell: Cell) -> list[list[object]]:
    return [[answer.said for answer in cell.record(n).answers] for n in range(1, len(cell.records) + 1)]


def _leads(was: str, now: str) -> bool:
    return any(now in LEGAL.get(step, ()) for step in LEGAL[was])


@at_length
def test_a_job_takes_legal_steps_and_ends_once(examples: int) -> None:
    def lives_are_legal(story: Story) -> None:
        lives = Lives()
        play(story, Cell(lives.see))

    examine(lives_are_legal, stories(), examples)


class Pace:
    """How often a job comes again whose attempts a fault ends before anything of them began (7.7)."""

    def see(self, cell: Cell, record: Record) -> None:
        policy = cell.world.policy
        assert policy is not None
        for event in record.events:
            if isinstance(event, events.JobRequeued) and event.end is events.End.FAULT:
                job = cell.world.jobs[event.job]
                pace_ms = policy.retry_backoff_ms
                for attempt in reversed(job.attempts[:-1]):
                    if attempt.end is not events.End.FAULT or attempt.started or job.attempts[-1].started:
                        break
                    next_ms = record.at_ms + event.backoff_ms
                    assert next_ms >= job.attempts[-1].granted_ms + min(pace_ms, policy.retry_backoff_cap_ms)
                    pace_ms *= 2


@at_length
def test_what_never_begins_does_not_come_again_and_again_at_one_time(examples: int) -> None:
    # rule: 7.7
    def rounds_take_time(story: Story) -> None:
        play(story, Cell(Pace().see))

    examine(rounds_take_time, stories(), examples)


# at rest --------------------------------------------------------------------------------------------


@at_length
def test_at_rest_everybody_waits_with_a_reason_that_is_true(examples: int) -> None:
    def nobody_waits_unexplained(story: Story) -> None:
        play(story, at_rest=explained)

    examine(nobody_waits_unexplained, stories(), examples)


def explained(cell: Cell) -> None:
    """Who waits has a reason of its class or its backoff; no reason is left of one that no longer waits."""
    world = cell.world
    backoffs = {name for name, job in world.jobs.items() if job.phase is Phase.BACKOFF}
    assert set(world.reasons_of("placement")) == set(world.line.classes)
    assert set(world.reasons_of("admission")) == backoffs
    for name, job in world.jobs.items():
        assert job.is_terminal or job.live or name in backoffs or job.phase is Phase.WAITING


@at_length
def test_at_rest_nobody_waits_for_room_that_is_there(examples: int) -> None:
    def room_is_given(story: Story) -> None:
        play(story, at_rest=served)

    examine(room_is_given, stories(), examples)


def served(cell: Cell) -> None:
    """No waiting job fits on hosts that are nobody else's, as things stood when the last cycle looked."""
    world, at_ms = cell.world, cell.world.cycle.ranked_ms
    for waiting in world.line.classes.values():
        wanted, gpus = waiting.sample.request.hosts, waiting.sample.request.gpus_per_host
        for pool in waiting.sample.pools:
            for _, name in waiting.members:
                able = slow.fitting(world, slow.open_hosts(world, pool, at_ms, name), wanted, gpus)
                free = [host for host in able if slow.free_on(world, host) >= gpus]
                assert len(free) < wanted, f"{name} waits, and {free} are free"


@at_length
def test_at_rest_there_is_nothing_left_to_decide(examples: int) -> None:
    def all_have_said_all(story: Story) -> None:
        play(story, at_rest=finished)

    examine(all_have_said_all, stories(), examples)


def finished(cell: Cell) -> None:
    """Nobody has anything to say, and nothing is half done."""
    world = cell.world
    assert [name for name in SERVICES if cell.draft(name)] == []
    assert (world.cycle.stage, world.stillborn, world.uncharged) == ("idle", {}, {})
    for kept in world.reservations.values():
        assert world.jobs[kept.job].phase is Phase.WAITING
        assert world.cycle.ranked_ms < kept.expires_ms, "a reservation outlives a cycle that saw it run out"
    timer = TimerFired(due_ms=world.log_time_ms)
    assert not cell.draft("admission", (cell.answer(timer, "admission", "FL_LAB_TIMERS"),)) or _is_due(cell)


def _is_due(cell: Cell) -> bool:
    due_ms = RULES["admission"].due_ms(cell.world)
    return due_ms is not None and due_ms <= cell.now_ms


class Ranks:
    """When a cycle began, and what had happened since the one before."""

    NEWS = (
        *(events.JobAdmitted, events.JobCancelled, events.JobReleased, events.JobRequeued, events.AttemptEnded),
        *(BudgetChanged, PolicyChanged, HostRegistered, HostHeld, HostHoldCleared),
        *(ReservationEnded, PromiseEnded, CycleAbandoned),
    )

    def __init__(self) -> None:
        self.news_position = 0
        self.ranked_ms = self.basis = 0
        self.is_cut = True
        self.kept: set[str] = set()

    def see(self, cell: Cell, record: Record) -> None:
        policy = cell.world.policy
        assert policy is not None
        for event in record.events:
            if isinstance(event, CycleRanked):
                is_due = record.at_ms >= self.ranked_ms + policy.rank_period_ms
                is_news = self.is_cut or self.news_position > self.basis
                assert is_due or is_news or self._is_telling(cell, record.at_ms), "a rank without a reason"
                self.ranked_ms, self.basis, self.is_cut = cell.world.log_time_ms, record.basis, event.is_cut
            elif isinstance(event, CyclePlaced):
                self.is_cut = self.is_cut or event.is_cut
            elif isinstance(event, ReservationMade | PromiseMade):
                self.kept.add(event.job)
            if isinstance(event, self.NEWS) or (isinstance(event, GangGranted) and event.job in self.kept):
                self.news_position = cell.world.position
                self.kept.discard(getattr(event, "job", ""))
            if isinstance(event, events.JobRequeued) and event.end is events.End.FAULT:
                self.kept.add(event.job)  # what the fault spared of its hosts stays kept for it

    def _is_telling(self, cell: Cell, at_ms: int) -> bool:
        """Whether somebody on promised hosts was to be told to leave since the rank before."""
        world, policy = cell.world, cell.world.policy
        assert policy is not None
        for promise in world.promises.values():
            for name in {one for host in promise.hosts for one in world.fleet.occupants(host) if one}:
                found = world.attempt(name)
                if found is not None and found[1].ending is None:
                    told_ms = promise.start_ms - found[0].request.grace_ms - policy.stop_margin_ms
                    if self.ranked_ms < told_ms <= at_ms:
                        return True
        return False


@at_length
def test_two_ranks_within_a_period_have_news_between_them(examples: int) -> None:
    """So a cell at rest writes one cycle a period, whoever waits in it."""

    def ranks_have_reasons(story: Story) -> None:
        ranks = Ranks()
        cell = play(story, Cell(ranks.see))
        cell.at(cell.now_ms - T0 + 30 * MINUTE)

    examine(ranks_have_reasons, stories(), examples)


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
