"""Workloads that say what is different from another, and weights of budgets that change in mid-run."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.main import main
from fairlease.simulator.engine import T0
from fairlease.simulator.runs import simulate_lab
from fairlease.simulator.scenario import lab_1024, workload_bytes, workload_digest
from fairlease.simulator.workload_file import WorkloadWrong, laid, scenario_of
from fairlease_schemas.units import HOUR_MS

Data = dict[str, Any]
TINY = ("--hosts", "2x8", "--days", "0.02", "--warm-up", "0.01")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")
    return path


def told(path: Path) -> str:
    with pytest.raises(WorkloadWrong) as wrong:
        scenario_of(path)
    return str(wrong.value)


def test_tables_are_laid_over_each_other_and_all_else_takes_the_place_of_what_was_there() -> None:
    under = {"a": {"b": 1, "c": [1, 2]}, "d": 3}
    assert laid(under, {"a": {"c": [9]}, "d": {"e": 4}}) == {"a": {"b": 1, "c": [9]}, "d": {"e": 4}}
    assert under == {"a": {"b": 1, "c": [1, 2]}, "d": 3}


def test_a_file_says_what_is_different_from_the_reference_workload(tmp_path: Path) -> None:
    text = 'based_on = "lab-1024"\n[demand]\noutstanding_of_share = 5.0\n[budgets.org-b.projects]\nb1 = 7\n'
    scenario, digest = scenario_of(written(tmp_path, text))
    assert scenario.demand.outstanding_of_share == 5
    assert scenario.demand.people_per_project == lab_1024().demand.people_per_project
    assert scenario.budgets["org-b"].projects == {"b1": 7, "b2": 2, "b3": 2, "b4": 1, "b5": 1}
    over = {"demand": {"outstanding_of_share": 5.0}, "budgets": {"org-b": {"projects": {"b1": 7}}}}
    assert scenario_of(None, over) == (scenario, digest)  # the same changes have the same digest wherever they stand
    assert digest != workload_digest()
    assert scenario_of(None, {}) == (lab_1024(), workload_digest())


def test_changes_are_laid_over_a_file_too_and_move_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    path.write_bytes(workload_bytes())
    scenario, digest = scenario_of(path, {"cluster": {"hosts": 3}})
    assert (scenario.cluster.hosts, digest) == (3, scenario_of(None, {"cluster": {"hosts": 3}})[1])
    assert digest != scenario_of(None, {"cluster": {"hosts": 4}})[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('based_on = "lab"', 'based_on = "lab": is no workload that is shipped', id="another base"),
        pytest.param("based_on = 1", 'based_on = 1: is no workload that is shipped: write "lab-1024"', id="a number"),
        pytest.param("[demnd]\na = 1", "demnd = ", id="an unknown table"),
        pytest.param('[game]\nzz = "splits"', "[game] zz: is no project: write one of a1, a2", id="no project"),
        pytest.param('[game]\norg-a = "splits"', "[game] org-a: is no project", id="an organisation does not play"),
        pytest.param('[game]\na1 = "cheats"', '[game] a1 = "cheats": is none of "debug-lane"', id="no strategy"),
        pytest.param(
            "change = 3", "change = 3: is no list of tables: write [[change]] above each", id="a change alone"
        ),
        pytest.param("[[change]]\nat_day = 1", "[change[0]] budget: is missing", id="a change of nothing"),
        pytest.param(
            '[[change]]\nat_day = 1\nbudget = "zz"\nweight = 2',
            '[change[0]] budget = "zz": is no budget: write one of org-a, org-b, org-c, a1',
            id="no budget",
        ),
        pytest.param(
            '[[change]]\nat_day = -1\nbudget = "a1"\nweight = 2', "at_day = -1: is below 0", id="before the beginning"
        ),
        pytest.param(
            '[[change]]\nat_day = 1\nbudget = "a1"\nweight = 0', "weight = 0: is below 1", id="without any weight"
        ),
    ],
)
def test_a_problem_of_what_is_different_is_told_as_of_every_workload(tmp_path: Path, text: str, expected: str) -> None:
    base = "" if text.startswith("based_on") else 'based_on = "lab-1024"\n'
    assert expected in told(written(tmp_path, base + text))


def test_a_comparison_plays_a_workload_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = written(tmp_path, 'based_on = "lab-1024"\ndemand.outstanding_of_share = 5.0\n')
    words = ("--workload", str(path), "--policies", "fifo", "--seeds", "1", *TINY, "--workers", "1", "-o", "json")
    assert main(["compare", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["workload"], found["workload_digest"]) == (str(path), scenario_of(path)[1])
    assert main(["simulate", "--workload", str(path), "--policy", "fifo", *TINY, "-o", "json"]) == 0
    assert found["runs"][0]["digest"] == json.loads(capsys.readouterr().out)["digest"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--workload", "nowhere.toml"), "--workload nowhere.toml: No such file"),
        (("--workload", __file__), "cannot be simulated"),
    ],
)
def test_a_workload_that_cannot_be_compared_is_named(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    assert main(["compare", *words, "--policies", "fifo", "--seeds", "1", *TINY]) == 65
    assert expected in capsys.readouterr().err


# weights in mid-run ----------------------------------------------------------------------------------
def reweighed(*changes: Data, hours: int = 8, log: Path | None = None) -> Data:
    over: Data = {"cluster": {"host_mtbf_days": 1_000_000}}
    if changes:
        over["change"] = list(changes)
    with log.open("wb") if log is not None else nullcontext() as opened:
        return simulate_lab(
            policy="budget-window", seed=3, over=over, log=opened, measured_ms=hours * HOUR_MS, warm_up_ms=0, hosts=16
        )


def test_another_weight_holds_from_its_day_on_in_what_budgets_are_due_and_want(tmp_path: Path) -> None:
    """c5, 1 of 11 among its siblings, has 10 of 20 after four hours; at its old wish it would want less than that."""
    log = tmp_path / "log.jsonl"
    report = reweighed({"at_day": 4 / 24, "budget": "c5", "weight": 10}, log=log)
    events = [
        (record["at_ms"] - T0, event)
        for record in map(json.loads, log.read_text(encoding="utf-8").splitlines())
        for event in record["events"]
        if event["type"] == "budget-changed" and event["budget"] == "c5"
    ]
    assert [(at_ms, event["weight"], event["parent"]) for at_ms, event in events][1:] == [(4 * HOUR_MS, 10, "org-c")]
    assert {"rule": "a budget has another weight in mid-run, and its people want as much more or less", "count": 1} in (
        report["rules"]
    )
    series, gpus = report["series"], 128
    due, ends = series["budgets"]["c5"]["due_gpu_ms"], series["ends_ms"]
    rates = [(end, amount / (end - begin) / gpus) for begin, end, amount in zip((0, *ends), ends, due, strict=False)]
    before = max(rate for end, rate in rates if end <= 4 * HOUR_MS)
    after = max(rate for end, rate in rates if end > 4 * HOUR_MS)
    assert before == pytest.approx(2 / 7 * 1 / 11, abs=1e-6)
    assert after == pytest.approx(2 / 7 * 10 / 20, abs=1e-6)


def test_a_change_behind_the_end_is_not_made_and_told() -> None:
    report = reweighed({"at_day": 9, "budget": "c5", "weight": 10}, hours=1)
    assert report["digest"] == reweighed(hours=1)["digest"]
    rules = [one["rule"] for one in report["rules"]]
    assert "a change of a weight falls behind the end, and is not made" in rules
