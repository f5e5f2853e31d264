"""The screen of an exploration: who stands where, what does not fit, and what is said below."""

from fairlease.cli.explore_table import name_of, table_of
from fairlease.cli.table import Style
from fairlease.simulator.comparison import Limit
from fairlease.simulator.exploration import LEAST, MOST, Frame, Run, digest_of_policy, explored
from fairlease_schemas.comparison import Aim, Exploration, Unplayed
from fairlease_schemas.policy import Policy

PLAIN = Style(1_000, has_color=False, is_wide=False)
AIMS = {"occupancy": Aim(best=MOST), "wait.all.p90_s": Aim(best=LEAST)}
LIMITS = {"occupancy": Limit(least=0.5), "wait.all.p90_s": Limit(most=60)}


def found(
    *figures: tuple[float, float | None] | None, missing: tuple[Unplayed, ...] = (), seed: int = 1
) -> Exploration:
    """A point for each pair of figures, with margins of 1, 2, ..; None is one that has no run."""
    points = [Policy(margin_permille=margin) for margin in range(1, len(figures) + 1)]
    runs = [
        Run(digest_of_policy(point), seed, "d", "c", dict(zip(AIMS, pair, strict=True)))
        for point, pair in zip(points, figures, strict=True)
        if pair is not None
    ]
    frame = Frame("lab-1024", "w" * 64, 2, 16, 1.0)
    return explored(frame, points, (seed,), runs, missing, aims=AIMS, limits=LIMITS)


def margins(text: str) -> list[str]:
    """The points in the order of their rows; a star behind those that are marked."""
    rows = [line.split() for line in text.splitlines()[1:] if line[:1] in "* " and "other point" not in line]
    return [row[1] + "*" if row[0] == "*" else row[0] for row in rows if row]


def test_who_keeps_the_limits_stands_first_then_who_is_on_the_front() -> None:
    told = table_of(found((0.4, 10), (0.9, 90), (0.6, 30), (0.5, 40), None, (0.6, None)), LIMITS, PLAIN)
    assert margins(told) == ["3*", "4", "2*", "1*", "6", "5"]
    assert told.splitlines()[0].split() == ["margin_permille", "occupancy", "wait,", "p90", "MISSED"]
    assert told.splitlines()[6].split() == ["5", "-", "-", "-"]
    assert "2 points keep every limit" in told
    assert "6 points, 5 runs, compared on seed 1, 1d on 2 hosts" in told


def test_on_a_narrow_terminal_the_aims_stand_below_each_other_each_with_its_point() -> None:
    told = table_of(found((0.4, 10), (0.9, 90)), {}, PLAIN._replace(width=34))
    heads = [line.split() for line in told.splitlines() if "margin_permille" in line]
    assert heads == [["margin_permille", "occupancy"], ["margin_permille", "wait,", "p90"]]
    assert all(len(line) <= 34 for line in told.splitlines()[:7])


def test_of_very_many_points_the_first_are_shown_unless_somebody_wants_all() -> None:
    many = found(*[(number / 100, 10.0) for number in range(50)])
    told = table_of(many, {}, PLAIN)
    assert len(margins(told)) == 40
    assert margins(told)[0] == "50*"
    assert "and 10 points more: -o wide shows all" in told
    assert len(margins(table_of(many, {}, PLAIN._replace(is_wide=True)))) == 50


def test_runs_without_figures_are_told_by_their_point_ten_of_them() -> None:
    gone = tuple(Unplayed(policy=digest_of_policy(Policy(margin_permille=2)), seed=n, why="killed") for n in range(12))
    told = table_of(found((0.4, 10), None, missing=gone), {}, PLAIN)
    assert told.count("no figures: margin_permille=2, seed ") == 10
    assert "and 2 runs more without figures" in told


def test_a_name_holds_numbers_as_people_write_them() -> None:
    bounds = [{"up_to_gpus": 1 << 30, "shortest_ms": 60_000, "longest_ms": 3_600_000}]
    numbers = {"patience_ms": 300_000, "margin_permille": 20, "window_bounds": bounds}
    assert name_of(numbers) == "patience_ms=5m margin_permille=20 window_bounds=*:1m-1h"
    assert name_of({}) == "the only point"
