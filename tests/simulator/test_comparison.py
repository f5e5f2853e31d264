from collections.abc import Mapping
from typing import Any

import pytest

from fairlease.cli.compare import table_of
from fairlease.cli.table import Style
from fairlease.simulator.comparison import Limit, compared, figures_of, shown, span, spread_of
from fairlease_schemas.comparison import Comparison, Range, Unplayed

FRAME: dict[str, Any] = {
    "workload": "lab-1024",
    "workload_digest": "ab",
    "hosts": 4,
    "gpus": 32,
    "days": 1.0,
    "seeds": (1, 2, 3),
}


def report(policy: str, seed: int, **figures: object) -> dict[str, Any]:
    return {"kind": "SimulationReport", "policy": policy, "seed": seed, "digest": f"{policy}{seed}", **figures}


def one(*values: float | None, limits: Mapping[str, Limit] | None = None) -> Comparison:
    reports = [report("a", seed, occupancy=value) for seed, value in enumerate(values, start=1)]
    return compared(["a"], reports, (), limits or {}, FRAME)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((3,), Range(median=3, min=3, max=3)),
        ((3, 1), Range(median=1, min=1, max=3)),
        ((9, 1, 4), Range(median=4, min=1, max=9)),
        ((None, 2, None), Range(median=2, min=2, max=2)),
        ((None,), Range(median=None, min=None, max=None)),
        ((), Range(median=None, min=None, max=None)),
    ],
    ids=["one", "of two the lower", "three", "absent ones are left out", "all absent", "no run"],
)
def test_a_median_is_one_of_the_values(values: tuple[int | None, ...], expected: Range) -> None:
    assert spread_of("x", values) == expected


def test_what_a_table_of_events_does_not_name_happened_never() -> None:
    assert spread_of("preemption.by_reason.claim.debug", (4, None, None)) == Range(median=0, min=0, max=4)


def test_figures_are_the_numbers_of_a_report_by_their_keys() -> None:
    found = figures_of(
        report(
            "a", 1, hosts=4, wait={"all": {"p50_s": 1.5}}, impact=None, speed={"wall_s": 9}, series={"x": [1]}, ok=True
        )
    )
    assert found == {"wait.all.p50_s": 1.5, "impact": None}


def test_a_comparison_depends_on_what_was_played_and_on_nothing_else() -> None:
    same = [one(0.5, 0.7), one(0.5, 0.7)]
    assert same[0] == same[1]
    assert one(0.5, 0.6).digest != same[0].digest
    slow = [report("a", 1, occupancy=0.5, speed={"wall_s": wall_s}) for wall_s in (1, 2)]
    assert len({compared(["a"], [run], (), {}, FRAME).digest for run in slow}) == 1


@pytest.mark.parametrize(
    ("limit", "is_missed"),
    [
        (Limit(least=0.7), False),
        (Limit(least=0.71), True),
        (Limit(most=0.7), False),
        (Limit(most=0.69), True),
        (Limit(least=0.6, most=0.65), True),
        (Limit(), False),
    ],
)
def test_a_limit_is_held_against_the_median(limit: Limit, is_missed: bool) -> None:
    assert one(0.6, 0.7, 0.9, limits={"occupancy": limit}).missed == (("occupancy",) if is_missed else ())


def test_a_figure_that_no_run_has_is_missed() -> None:
    assert one(None, limits={"occupancy": Limit(least=0)}).missed == ("occupancy",)
    assert one(1.0, limits={"no.such.figure": Limit()}).missed == ("no.such.figure",)


def test_limits_are_of_the_first_policy_also_where_it_has_no_run() -> None:
    reports = [report("b", 1, occupancy=1.0)]
    missing = (Unplayed(policy="a", seed=1, why="its process ended with -9 and no report"),)
    found = compared(["a", "b"], reports, missing, {"occupancy": Limit(least=0.5)}, FRAME)
    assert (found.missed, list(found.policies), found.policies["a"]) == (("occupancy",), ["a", "b"], {})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("occupancy", 0.98765, "98.7 %"),
        ("fulfilment.by_budget.a1", 1.0, "100.0 %"),
        ("wait.all.p90_s", 5400.0, "1.5h"),
        ("preemption.lost_gpu_h", 12.34, "12.3"),
        ("gpu_hours.lost_restart", 1.0, "1.0"),
        ("jobs.finished", 12345, "12,345"),
        ("slowdown.p50", 1.25, "1.25"),
        ("impact", None, "-"),
    ],
)
def test_a_figure_is_told_in_its_unit(name: str, value: float | None, told: str) -> None:
    assert shown(name, value) == told


def test_a_range_says_per_cent_once() -> None:
    assert (span("1.0 %", "2.0 %"), span("1.0s", "2.0h")) == ("1.0 - 2.0 %", "1.0s - 2.0h")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_table_of_many_policies_fits_eighty_columns(lang: str) -> None:
    names = ["budget-window", "static-priority", "fair-tree", "kai-time", "usage-decay", "hadoop-fair"]
    figures: dict[str, Any] = {
        "fulfilment": {"mean": 0.9, "lowest": 0.5, "at_least_95": 12},
        "wait": {"all": {"p50_s": 12345.0, "p90_s": 99999.0}},
    }
    reports = [report(name, seed, **figures, occupancy=0.9 + seed / 100) for name in names for seed in (1, 2, 3)]
    text = table_of(compared(names, reports, (), {}, FRAME), {}, Style(80, has_color=False, is_wide=False), lang)
    lines = text.splitlines()
    assert max(len(line.encode("gbk")) for line in lines) <= 80
    assert all(any(name in line for line in lines) for name in names)
    assert text.count("91.0 - 93.0 %") == len(names)
    assert "medians over the seeds, below them the least and the most" in " ".join(text.split())
