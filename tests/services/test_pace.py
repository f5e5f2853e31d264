"""Ten refusals a second and inbox, whatever is sent."""

from hypothesis import given
from hypothesis import strategies as some

from fairlease.runtime.pace import OWED_S, Pace


def test_a_few_refusals_cost_nothing_and_more_cost_a_rest() -> None:
    pace = Pace()
    assert [pace.count("a", 1, 0.0) for _ in range(10)] == [0.0] * 10
    assert (pace.resting(0.0), pace.is_flooded(0.0)) == (frozenset(), True)
    assert round(pace.count("a", 5, 0.0), 6) == 0.5
    assert pace.count("b", 1, 0.0) == 0.0
    assert pace.resting(0.25) == {"a"}
    assert pace.resting(0.75) == frozenset()
    assert (pace.is_flooded(0.75), pace.is_flooded(1.25)) == (True, False)


def test_no_inbox_rests_longer_than_a_second() -> None:
    pace = Pace()
    assert pace.count("a", 400, 0.0) == 1.0
    assert (pace.resting(0.5), pace.resting(1.0)) == ({"a"}, frozenset())


def test_who_was_quiet_owes_nothing() -> None:
    pace = Pace()
    pace.count("a", 15, 0.0)
    assert pace.count("a", 1, 10.0) == 0.0
    assert pace.resting(10.0) == frozenset()


@given(some.lists(some.tuples(some.floats(0, 0.3), some.integers(1, 8)), max_size=60))
def test_over_any_time_an_inbox_is_refused_ten_times_a_second_and_what_it_may_owe(
    turns: list[tuple[float, int]],
) -> None:
    """A turn comes after a pause, and writes so many refusals unless the inbox rests."""
    pace, now_s, written = Pace(), 0.0, 0
    for pause_s, events in turns:
        now_s += pause_s
        if "a" not in pace.resting(now_s):
            pace.count("a", events, now_s)
            written += events
        assert written <= 10 * (now_s + OWED_S) + 8
