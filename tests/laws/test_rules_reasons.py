"""Reasons in any living cell: who waits has one, none outlives its cause, none changes where nothing did (9)."""

from collections.abc import Iterable

from fairlease.core.decision import Decision, record_of
from fairlease.core.fairshare import rank
from fairlease.core.line import class_key
from fairlease.core.placement import place
from fairlease.core.preemption import preempt
from fairlease.core.world import World
from fairlease.replay.verify import verify
from fairlease_schemas.cycle import CycleClosed, CyclePlaced, CycleRanked
from fairlease_schemas.envelope import Event, Record
from fairlease_schemas.reasons import ReasonBegan, ReasonEnded
from tests.laws.examine import at_length, examine
from tests.naive.living import Law, Life, Living, lives

FRAMES = (CycleRanked, CyclePlaced, CycleClosed)


class EveryReasonIsAlive(Law):
    """Rule 9.3: whatever waits has a reason when the cell is at rest, and nothing else has one."""

    def at_rest(self, cell: Living) -> None:
        world = cell.world
        waiting = {class_key(job) for job in world.jobs.values() if str(job.phase) == "waiting"}
        assert world.reasons_of("placement").keys() == waiting
        assert world.reasons_of("preemption").keys() <= waiting
        backoff = {job.id for job in world.jobs.values() if str(job.phase) == "backoff"}
        assert world.reasons_of("admission").keys() == backoff

    def before(self, cell: Living, record: Record) -> None:
        world = cell.world
        for event in record.events:
            if isinstance(event, ReasonBegan):
                present = world.reason(record.by, event.subject)
                if present is not None and present.code == event.code:  # told anew only past the "until" it named
                    assert 0 < present.evidence.for_ms <= record.at_ms - present.since_ms, f"{event} is told twice"
                    assert event.evidence.for_ms > 0
            if isinstance(event, ReasonEnded):
                present = world.reason(record.by, event.subject)
                assert present is not None, f"{event.subject}: {event.code} ended, unsaid"
                assert present.code == event.code, f"{event.subject}: {event.code} ended, {present.code} was said"


class CyclesComeToRest(Law):
    """Cycle after cycle on the same world at the same time: soon one says nothing, so no reason ever alternates.

    A cycle that grants, evicts or promises changes what others wait for, and that they save or not is seen one
    cycle later; but where two cycles did nothing, the third has nothing to say.
    """

    def __init__(self) -> None:
        self._closed = self._rested = 0

    def after(self, cell: Living, record: Record) -> None:
        if record.by == "preemption":
            self._closed = len(cell.records)

    def at_rest(self, cell: Living) -> None:
        world = cell.world
        if world.position != self._closed or world.log_time_ms != cell.now_ms or not world.line.total:
            return
        self._rested += 1
        if self._rested % 3:
            return
        copy, idle = World.load(world.dump()), 0
        for _ in range(24):
            said = another_cycle(copy, cell.now_ms)
            if not said:
                return
            idle = 0 if acts_of(said) else idle + 1
            assert idle <= 2, f"nothing happened in two cycles, and still: {said}"
        raise AssertionError(f"after two dozen cycles still: {said}")


def acts_of(events: Iterable[Event]) -> list[Event]:
    """What changes what others may have."""
    return [event for event in events if not isinstance(event, (ReasonBegan, ReasonEnded, *FRAMES))]


def another_cycle(world: World, now_ms: int) -> list[Event]:
    """What one more cycle says, without its frames; the world is changed."""
    assert world.policy is not None
    ranked = rank.rank(world, world.policy, now_ms, first=0)
    _apply(world, "ranker", Decision(kind="cycle-ranked", at_ms=now_ms, events=(ranked,)))
    said: list[Event] = []
    for service, decide in (("placement", place.decide), ("preemption", preempt.decide)):
        decision = decide(world, ())
        assert decision is not None
        said += [event for event in decision.events if not isinstance(event, FRAMES)]
        _apply(world, service, decision)
    return said


def _apply(world: World, service: str, decision: Decision) -> None:
    world.apply(record_of(world, service, decision), world.position + 1)


@at_length
def test_reasons_begin_and_end_with_their_causes(examples: int) -> None:
    def law(life: Life) -> None:
        Living(life, EveryReasonIsAlive(), CyclesComeToRest()).live()

    examine(law, lives(), examples)


@at_length
def test_every_life_replays_byte_for_byte(examples: int) -> None:
    def law(life: Life) -> None:
        cell = Living(life).live()
        report = verify(enumerate(cell.records, 1))
        assert report.divergences == 0, report.first
        assert report.digest == cell.world.digest()

    examine(law, lives(), examples)
