"""A quiet period: after a cycle that decided nothing the next is put off until there is something to weigh."""

from fairlease.core.deciders import RULES
from fairlease.core.world import World
from fairlease_schemas.cycle import CycleRanked, EvictionOrdered
from fairlease_schemas.envelope import Record
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell


def ranked_ms(here: Cell, since: int = 0) -> list[int]:
    """When cycles began, after so many records, in ms from the start."""
    records: list[Record] = [here.record(position) for position in range(since + 1, len(here.records) + 1)]
    return [r.at_ms - T0 for r in records if any(isinstance(event, CycleRanked) for event in r.events)]


def full(quiet_ms: int, window_ms: int = 30 * MINUTE) -> tuple[Cell, int]:
    """One host that a job of `a` has, a job of the same leaf behind it; and how many records that took."""
    here = Cell().hosts(1).budgets(a=1, b=1).policy(quiet_period_ms=quiet_ms)
    here.submit("runs", gpus_per_host=8, min_runtime_ms=window_ms, timeout_ms=24 * HOUR)
    here.submit("waits", gpus_per_host=8, min_runtime_ms=window_ms)
    here.at(10 * SECOND)  # the reason began with the cycle before: this one decides nothing
    return here, len(here.records)


def test_without_a_quiet_period_a_cycle_comes_every_ten_seconds() -> None:
    here, before = full(0)
    here.at(MINUTE)
    assert ranked_ms(here, before) == [20 * SECOND, 30 * SECOND, 40 * SECOND, 50 * SECOND, MINUTE]


def test_after_a_cycle_that_decided_nothing_the_next_comes_after_the_quiet_period() -> None:
    here, before = full(10 * MINUTE)
    here.at(25 * MINUTE)
    assert ranked_ms(here, before) == [10 * MINUTE + 10 * SECOND, 20 * MINUTE + 10 * SECOND]


def test_news_is_looked_at_at_once() -> None:
    here, before = full(10 * MINUTE)
    here.at(3 * MINUTE).submit("new", gpus_per_host=1)
    assert ranked_ms(here, before)[0] == 3 * MINUTE


def test_a_window_that_ends_is_looked_at_when_it_ends() -> None:
    here, before = full(6 * HOUR, window_ms=15 * MINUTE)
    here.at(14 * MINUTE)
    assert ranked_ms(here, before) == []
    here.at(16 * MINUTE)
    assert ranked_ms(here, before)[0] == 15 * MINUTE


def test_who_may_evict_at_a_window_s_end_does_so_as_soon_with_a_quiet_period_as_without() -> None:
    found = []
    for quiet_ms in (0, 6 * HOUR):
        here = Cell().hosts(1).budgets(a=1, b=1).policy(quiet_period_ms=quiet_ms, patience_ms=0, promises_per_pool=0)
        here.submit("runs", "a", gpus_per_host=8, min_runtime_ms=4 * HOUR, timeout_ms=100 * HOUR)
        here.at(MINUTE).submit("claims", "b", gpus_per_host=8, min_runtime_ms=15 * MINUTE)
        here.at(5 * HOUR)
        told = (here.record(p) for p in range(1, len(here.records) + 1))
        found.append([r.at_ms - T0 for r in told if any(isinstance(event, EvictionOrdered) for event in r.events)])
    assert found[0] == found[1] == [4 * HOUR]


def test_a_replica_that_starts_from_a_snapshot_looks_at_the_same_instant() -> None:
    here, _ = full(10 * MINUTE)
    ranker = RULES["ranker"]
    assert ranker.due_ms(World.load(here.world.dump())) == ranker.due_ms(here.world) == T0 + 10 * MINUTE + 10 * SECOND
