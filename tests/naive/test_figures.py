"""The meter's figures against those by brute force, on lives and stories, of any period and scope."""

import random
from collections import Counter

import pytest
from hypothesis import strategies as st

from fairlease.core.metrics.fairness import Fulfilment
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.meter import Figures, Meter
from fairlease.core.metrics.scope import Scope
from fairlease.core.world import World
from fairlease_schemas.codec import read_record
from tests.laws.examine import examine
from tests.laws.story import play, stories
from tests.naive.figures import History
from tests.naive.living import Life, Living, lives

MANY = [pytest.param(20, id="20 logs"), pytest.param(1_000, id="1000 logs", marks=pytest.mark.long)]


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
    times = [read_record(data).at_ms for data in records]
    first_ms, last_ms = min(times), max(times)
    since_ms, until_ms = sorted(chance.randint(first_ms, last_ms) for _ in range(2))
    whole = Period(first_ms - 1, last_ms)
    period = chance.choice((whole, whole, Period(since_ms, until_ms)))
    names = {"budget": chance.choice(("a", "o", "b")), "pool": "h100", "account": "ann"}
    chosen = chance.choice(("", "", "", "budget", "pool", "account"))
    return period, Scope(**{chosen: names[chosen]}) if chosen else Scope()


def same(records: list[bytes], seen: Counter[str], chance: random.Random) -> None:
    period, scope = choices(records, chance)
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
        same(Living(life).live().records, seen, random.Random(len(life.steps) + life.hosts))

    examine(law, lives(least=24), count)
    wanted = ("evictions", "reserved", "fragmentation", "beyond", "promises", "kept", "restart")
    assert not [kind for kind in wanted if not seen[kind]], f"never seen: {seen}"


@pytest.mark.parametrize("count", MANY)
def test_stories_of_crossing_and_lying_have_them_too(count: int) -> None:
    seen: Counter[str] = Counter()
    logs = st.builds(lambda story: (story, play(story).records), stories(30))
    examine(lambda told: same(told[1], seen, random.Random(len(told[1]))), logs, count)
    assert not [kind for kind in ("stopped", "failed") if not seen[kind]], f"never seen: {seen}"
