"""Points of a grid, the front among them, and what an exploration says of runs that are all there, or not yet."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlease.simulator.comparison import Limit
from fairlease.simulator.exploration import (
    LEAST,
    MOST,
    Frame,
    Run,
    digest_of_policy,
    drawn,
    explored,
    front_of,
    plain_of,
    points_of,
    size_of,
    worth,
)
from fairlease_schemas.comparison import Aim, Exploration, Unplayed
from fairlease_schemas.policy import DEFAULT_WINDOW_BOUNDS, Policy, WindowBound
from fairlease_schemas.units import MINUTE_MS

FRAME = Frame("lab-1024", "d" * 64, 2, 16, 1.0)
AIMS = {"occupancy": Aim(best=MOST), "wait.all.p90_s": Aim(best=LEAST)}


# the front -------------------------------------------------------------------------------------------
def slow_front(points: list[tuple[float, ...]]) -> list[bool]:
    """All with all: beaten is who finds one as good in everything and better in something."""
    return [
        not any(all(b >= a for a, b in zip(one, other, strict=True)) and other != one for other in points)
        for one in points
    ]


WORTHS = st.integers(1, 4).flatmap(
    lambda aims: st.lists(
        st.tuples(*[st.sampled_from((-math.inf, -2.0, -1.0, -0.0, 0, 1, 1.5))] * aims), min_size=0, max_size=12
    )
)


@given(WORTHS)
def test_the_front_is_that_of_comparing_all_with_all(points: list[tuple[float, ...]]) -> None:
    assert front_of(points) == slow_front(points)


@given(WORTHS)
def test_whoever_is_not_on_the_front_is_beaten_by_one_who_is(points: list[tuple[float, ...]]) -> None:
    found = front_of(points)
    front = [point for point, is_front in zip(points, found, strict=True) if is_front]
    assert bool(front) is bool(points)
    for point, is_front in zip(points, found, strict=True):
        beaten = any(all(b >= a for a, b in zip(point, one, strict=True)) and one != point for one in front)
        assert beaten is not is_front


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        pytest.param([(1.0, 1.0)], [True], id="the only one"),
        pytest.param([(1.0, 1.0), (1.0, 1.0)], [True, True], id="the same do not beat each other"),
        pytest.param([(1.0, 2.0), (2.0, 1.0)], [True, True], id="each is better in one"),
        pytest.param([(1.0, 1.0), (1.0, 2.0)], [False, True], id="a tie in one is decided by the other"),
        pytest.param([(-math.inf, 9.0), (0.0, 9.0)], [False, True], id="absent is worse than any"),
        pytest.param([(-math.inf,), (-math.inf,)], [True, True], id="absent everywhere is a tie"),
        pytest.param([], [], id="none"),
    ],
)
def test_a_front_by_hand(points: list[tuple[float, ...]], expected: list[bool]) -> None:
    assert front_of(points) == expected


def test_worth_turns_every_aim_so_that_more_is_better_and_counts_in_steps() -> None:
    aims = {"a": Aim(best=MOST), "b": Aim(best=LEAST), "c": Aim(best=LEAST, step=60), "d": Aim(best=MOST)}
    assert worth({"a": 0.5, "b": 3, "c": 89, "d": None}, aims) == (0.5, -3, -1, -math.inf)
    assert worth({"a": 0.5, "b": 3, "c": 31}, aims) == (0.5, -3, -1, -math.inf)


# points ----------------------------------------------------------------------------------------------
def test_the_number_named_last_changes_first() -> None:
    grid = {"margin_permille": [10, 20], "patience_ms": [0, 1, 2]}
    base = Policy(quiet_period_ms=7)
    found = points_of(grid, base, range(size_of(grid)))
    expected = itertools.product((10, 20), (0, 1, 2))
    assert found == [Policy(quiet_period_ms=7, margin_permille=m, patience_ms=p) for m, p in expected]


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 5))
def test_a_sample_is_of_different_places_in_order_and_the_same_for_one_seed(size: int, sample: int, seed: int) -> None:
    found = drawn(size, sample, seed)
    assert found == sorted(set(found)) == drawn(size, sample, seed)
    assert len(found) == min(size, sample)
    assert not found or (found[0] >= 0 and found[-1] < size)


def test_a_sample_draws_every_place_about_as_often() -> None:
    counts = [0] * 10
    for seed in range(2_000):
        for place in drawn(10, 3, seed):
            counts[place] += 1
    assert sum(counts) == 6_000
    assert all(500 <= count <= 700 for count in counts), counts


def test_a_sample_of_a_grid_that_no_memory_holds_is_drawn() -> None:
    found = drawn(10**12, 4, 1)
    assert len(set(found)) == 4
    assert max(found) > 10**9


def test_a_point_is_known_by_what_is_not_at_its_default() -> None:
    written_out = Policy(margin_permille=20, window_bounds=tuple(DEFAULT_WINDOW_BOUNDS[:]))
    assert plain_of(written_out) == {}
    assert digest_of_policy(written_out) == digest_of_policy(Policy())
    bounds = (WindowBound(up_to_gpus=8, shortest_ms=1, longest_ms=2),)
    other = Policy(window_bounds=bounds)
    assert plain_of(other) == {"window_bounds": ({"up_to_gpus": 8, "shortest_ms": 1, "longest_ms": 2},)}
    assert digest_of_policy(other) != digest_of_policy(Policy())


# the answer ------------------------------------------------------------------------------------------
POINTS = [Policy(margin_permille=margin, quiet_period_ms=MINUTE_MS) for margin in (10, 20, 30)]


def ran(point: Policy, seed: int, occupancy: float | None, wait_s: float | None, code: str = "c") -> Run:
    figures = {"occupancy": occupancy, "wait.all.p90_s": wait_s}
    return Run(digest_of_policy(point), seed, f"{seed}-{occupancy}", code, figures)


def told(*runs: Run, missing: tuple[Unplayed, ...] = (), limits: dict[str, Limit] | None = None) -> Exploration:
    return explored(FRAME, POINTS, (1, 2), runs, missing, aims=AIMS, limits=limits or {})


def test_medians_front_and_missed_limits_of_whole_seeds() -> None:
    limits = {"occupancy": Limit(least=0.8), "wait.all.p90_s": Limit(most=50)}
    found = told(
        *(ran(POINTS[0], seed, 0.9, 60) for seed in (1, 2)),
        *(ran(POINTS[1], seed, 0.7, 40) for seed in (1, 2)),
        *(ran(POINTS[2], seed, 0.7, 41) for seed in (1, 2)),
        limits=limits,
    )
    assert found.seeds == (1, 2)
    assert found.shared == {"quiet_period_ms": MINUTE_MS}
    assert [one.numbers for one in found.points] == [{"margin_permille": margin} for margin in (10, 20, 30)]
    assert [one.is_front for one in found.points] == [True, True, False]
    assert [one.missed for one in found.points] == [("wait.all.p90_s",), ("occupancy",), ("occupancy",)]
    assert found.points[0].figures["occupancy"].median == 0.9


def test_an_exploration_cut_short_compares_only_the_seeds_that_all_points_have() -> None:
    first = [ran(POINTS[0], 1, 0.5, 10), ran(POINTS[1], 1, 0.6, 10), ran(POINTS[2], 1, 0.4, 10)]
    lucky = ran(POINTS[0], 2, 0.99, 1)
    found = told(*first, lucky)
    assert found.seeds == (1,)
    assert [one.is_front for one in found.points] == [False, True, False]
    assert [one.figures["occupancy"].max for one in found.points] == [0.5, 0.6, 0.4]
    assert [one.seeds for one in found.points] == [(1, 2), (1,), (1,)]


def test_a_point_without_any_run_is_on_no_front_and_keeps_no_other_from_being_compared() -> None:
    gone = Unplayed(policy=digest_of_policy(POINTS[2]), seed=1, why="killed")
    runs = [ran(point, seed, 0.5, 10) for point in POINTS[:2] for seed in (1, 2)]
    found = told(*runs, missing=(gone,), limits={"occupancy": Limit(least=0)})
    assert found.seeds == (1, 2)
    assert [one.is_front for one in found.points] == [True, True, False]
    assert [one.missed for one in found.points] == [(), (), ("occupancy",)]
    assert found.points[2].figures["occupancy"].median is None
    assert found.missing == (gone,)


def test_points_that_share_no_seed_are_not_compared() -> None:
    found = told(ran(POINTS[0], 1, 0.5, 10), ran(POINTS[1], 2, 0.6, 10))
    assert found.seeds == ()
    assert not any(one.is_front for one in found.points)
    assert all(one.figures["occupancy"].median is None for one in found.points)


def test_an_absent_figure_does_not_win() -> None:
    found = told(ran(POINTS[0], 1, 0.5, None), ran(POINTS[1], 1, 0.5, 90), ran(POINTS[2], 1, 0.4, None))
    assert [one.is_front for one in found.points] == [False, True, False]


def test_runs_of_other_points_and_seeds_are_left_out() -> None:
    strange = [ran(Policy(margin_permille=99), 1, 1.0, 0), ran(POINTS[0], 7, 1.0, 0)]
    runs = [ran(point, 1, 0.5, 10) for point in POINTS]
    assert told(*runs, *strange) == told(*runs)


@given(st.permutations([ran(point, seed, 0.5 + seed / 10, 10) for point in POINTS for seed in (1, 2)]))
def test_the_order_in_which_runs_ended_changes_nothing(runs: list[Run]) -> None:
    assert told(*runs) == told(*sorted(runs, key=lambda run: (run.seed, run.policy_digest)))


def test_another_fold_of_one_run_is_another_digest() -> None:
    runs = [ran(point, 1, 0.5, 10) for point in POINTS]
    assert told(*runs).digest != told(*runs[:2], runs[2]._replace(digest="other")).digest


def test_every_code_that_played_is_told() -> None:
    assert told(ran(POINTS[0], 1, 0.5, 1, "b"), ran(POINTS[1], 1, 0.5, 1, "a")).code == ("a", "b")


def test_a_number_that_is_at_its_default_at_some_points_is_written_out_there() -> None:
    points = [Policy(), Policy(patience_ms=1)]
    found = explored(FRAME, points, (1,), [ran(points[0], 1, 1, 1)], (), aims=AIMS, limits={})
    assert [one.numbers for one in found.points] == [{"patience_ms": 5 * MINUTE_MS}, {"patience_ms": 1}]
    assert found.shared == {}


def test_a_point_that_is_named_twice_is_one() -> None:
    point = Policy(patience_ms=1)
    found = explored(FRAME, [point, Policy(), point], (1,), [ran(point, 1, 1, 1)], (), aims=AIMS, limits={})
    assert [one.numbers["patience_ms"] for one in found.points] == [1, 5 * MINUTE_MS]
