"""The meter's figures against those by brute force, on lives and stories, of any period and scope."""

import random
from collections import Counter

import pytest

from fairlease.core.metrics.fairness import Fulfilment
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.meter import Figures, Meter
from fairlease.core.metrics.scope import Scope
from fairlease.core.world import World
from fairlease_schemas.codec import read_record
from fairlease_schemas.job import End
from tests.dsl.cell import MINUTE
from tests.laws.examine import examine
from tests.laws.story import READY, Report, Rest, Step, Story, Submit, Wait, play, stories
from tests.naive.figures import History
from tests.naive.living import Life, Living, lives

MANY = [pytest.param(20, id="20 logs"), pytest.param(1_000, id="1000 logs", marks=pytest.mark.long)]
TURNS = 10


def metered(records: list[bytes], period: Period, scope: Scope) -> tuple[Figures, World]:
    """The figures, and the world behind the last record of the period."""
    world, meter = World(), Meter(period, scope)
    for position, record in enumerate(map(read_record, records), start=1):
        if max(world.log_time_ms, record.at_ms) > period.until_ms:
            break
        world.apply(record, position)
        meter.take(world, record)
    return meter.report(world), world


def choices(records: list[bytes], chance: random.Random) -> tuple[Period, Scope]:
    """The whole log or a part of it, of everybody or of somebody."""
    all_of_it = whole(records)
    since_ms, until_ms = sorted(chance.randint(all_of_it.since_ms + 1, all_of_it.until_ms) for _ in range(2))
    period = chance.choice((all_of_it, all_of_it, Period(since_ms, until_ms)))
    names = {"budget": chance.choice(("a", "o", "b")), "pool": "h100", "account": "ann"}
    chosen = chance.choice(("", "", "", "budget", "pool", "account"))
    return period, Scope(**{chosen: names[chosen]}) if chosen else Scope()


def whole(records: list[bytes]) -> Period:
    times = [read_record(data).at_ms for data in records]
    return Period(min(times) - 1, max(times))


def same(records: list[bytes], seen: Counter[str], period: Period, scope: Scope) -> None:
    figures, world = metered(records, period, scope)
    slow = History(records, period, scope)
    assert figures.levels == slow.levels()
    assert (figures.entitled.within_gpu_ms, figures.entitled.beyond_gpu_ms) == slow.impact()
    assert _fates(figures) == slow.progress()
    held, due, uncapped = (slow.by_leaf(name) for name in ("held", "due", "uncapped"))
    assert figures.fairness.by_budget == {
        leaf: Fulfilment(
            held_gpu_ms=held.get(leaf, 0), due_gpu_ms_ppm=due.get(leaf, 0), uncapped_due_gpu_ms_ppm=uncapped[leaf]
        )
        for leaf in sorted(uncapped)
        if scope.has_budget(world.tree, leaf)
    }
    assert figures.recovery.window_breaks == figures.recovery.loops == 0
    if scope == Scope():
        recovery = figures.recovery
        found = (recovery.evictions, recovery.window_breaks, recovery.turns, recovery.loops)
        assert found == (slow.count(), slow.breaks(), *slow.turns())
        if period.since_ms < read_record(records[0]).at_ms:
            book, promised = world.promise_book, figures.promises
            voided = sum(promised.voided.values())
            assert (book.made, book.kept, book.earlier, book.voided, book.broken) == (
                *(promised.made, promised.kept, promised.earlier),
                *(voided, promised.broken),
            )
            seen["promises"] += book.made > 0
        seen["turns"] += recovery.turns > 0
    seen["evictions"] += figures.recovery.evictions > 0
    seen["reserved"] += figures.levels.reserved_gpu_ms > 0
    seen["fragmentation"] += figures.levels.fragmentation_gpu_ms > 0
    seen["beyond"] += figures.entitled.beyond_gpu_ms > 0
    seen["capped"] += due != uncapped
    for fate, amount in _fates(figures).items():
        seen[fate] += amount > 0


def _fates(figures: Figures) -> dict[str, int]:
    progress = figures.progress
    return {name.removesuffix("_gpu_ms"): getattr(progress, name) for name in progress.__struct_fields__}


@pytest.mark.parametrize("count", MANY)
def test_lives_have_the_figures_that_a_look_at_every_gpu_gives(count: int) -> None:
    # rule: 5.3
    seen: Counter[str] = Counter()

    def law(life: Life) -> None:
        records = Living(life).live().records
        same(records, seen, *choices(records, random.Random(len(life.steps) + life.hosts)))

    examine(law, lives(least=24), count)
    wanted = ("evictions", "reserved", "fragmentation", "beyond", "promises", "kept", "restart")
    for turn in range(1, TURNS):  # one log in ten has a promise: twenty may have none
        if all(seen[kind] for kind in wanted):
            break
        examine(law, lives(least=24), count, turn)
    assert not [kind for kind in wanted if not seen[kind]], f"never seen: {seen}"


def _worked_until(end: End) -> Story:
    """A job of one part works for two minutes and is gone with this end."""
    submit = Submit(0, "ann", "a", 1, 1, "short", ("h100",), 0, "fail")
    reports = [Report(0, 0, said, "") for said in (READY, None, end)]
    steps: tuple[Step, ...] = (submit, Rest(), reports[0], Rest(), reports[1], Rest(), Wait(2 * MINUTE), reports[2])
    return Story((4,), steps)


@pytest.mark.parametrize("count", MANY)
def test_stories_of_crossing_and_lying_have_them_too(count: int) -> None:
    seen: Counter[str] = Counter()

    def law(story: Story) -> None:
        records = play(story).records
        same(records, seen, *choices(records, random.Random(len(records))))

    for end in (End.FAILED, End.LOST):  # what has to be seen is not left to chance
        records = play(_worked_until(end)).records
        same(records, seen, whole(records), Scope())
    examine(law, stories(30), count)
    assert not [kind for kind in ("stopped", "failed") if not seen[kind]], f"never seen: {seen}"
