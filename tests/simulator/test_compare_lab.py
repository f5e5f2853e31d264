"""The reference workload by several policies, in one command: figures of all, a page, and what must hold of ours.

`make test` plays six days of one seed, `make test-long` thirty days of three.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.main import main

POLICIES = ("budget-window", "static-priority", "fair-tree", "kai-time")
LOOSE = {
    "fulfilment.mean": {"least": 0.93},
    "occupancy": {"least": 0.97},
    "wait.debug.p90_s": {"most": 600},
    "preemption.overhead": {"most": 0.04},
    "preemption.window_breaks": {"most": 0},
    "preemption.loops": {"most": 0},
    "promises.broken": {"most": 0},
}
"""What a short run of one seed may be expected to hold; the limits of the whole are shipped (`--must lab-1024`)."""
EIGHT_DAYS = {
    "fulfilment.mean": {"least": 0.97},
    "fulfilment.lowest": {"least": 0.85},
    "fulfilment.at_least_95": {"least": 13},
    "occupancy": {"least": 0.98},
    "wait.debug.p90_s": {"most": 60},
    "wait.debug.p99_s": {"most": 1_800},
    "wait.all.p50_s": {"most": 60},
    "wait.all.p90_s": {"most": 5_400},
    "preemption.overhead": {"most": 0.02},
    "preemption.window_breaks": {"most": 0},
    "preemption.loops": {"most": 0},
    "promises.broken": {"most": 0},
}
"""What our policy holds over eight days of one seed, in which a large gang waits long or not at all."""


def limits_in(folder: Path, limits: dict[str, dict[str, float]]) -> str:
    must = folder / "must.toml"
    lines = [
        f'"{name}" = {{ {", ".join(f"{k} = {v}" for k, v in limit.items())} }}\n' for name, limit in limits.items()
    ]
    must.write_text("".join(lines), encoding="utf-8")
    return str(must)


def compared(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    page = ("--html", str(folder / "page.html"), "--must", limits_in(folder, LOOSE), "-o", "json")
    code = main(["compare", "--workload", "lab-1024", "--policies", ",".join(POLICIES), *words, *page])
    return code, json.loads(capsys.readouterr().out)


def check(code: int, found: dict[str, Any], folder: Path, seeds: list[int]) -> None:
    assert (code, found["missed"], found["missing"]) == (0, [], [])
    assert [(run["policy"], run["seed"]) for run in found["runs"]] == [(p, s) for p in POLICIES for s in seeds]
    for policy in POLICIES:
        figures = found["policies"][policy]
        assert 0 < figures["occupancy"]["median"] <= 1, policy
        assert figures["jobs.finished"]["min"] > 0, policy
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert all(policy in page for policy in POLICIES)


def test_six_days_of_one_seed_by_four_policies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = compared(capsys, tmp_path, "--seeds", "1", "--days", "6", "--warm-up", "1")
    check(code, found, tmp_path, [1])


@pytest.mark.long
def test_thirty_days_of_three_seeds_by_four_policies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = compared(capsys, tmp_path, "--seeds", "1-3")
    check(code, found, tmp_path, [1, 2, 3])


def held(capsys: pytest.CaptureFixture[str], must: str, *words: str) -> tuple[int, set[str]]:
    asked = ("compare", "--workload", "lab-1024", "--policies", "budget-window", "--must", must, "-o", "json")
    code = main([*asked, *words])
    found = json.loads(capsys.readouterr().out)
    assert found["missing"] == []
    print({name: found["policies"]["budget-window"][name]["median"] for name in EIGHT_DAYS})
    return code, set(found["missed"])


def test_eight_days_of_one_seed_hold_what_our_policy_is_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert held(capsys, limits_in(tmp_path, EIGHT_DAYS), "--seeds", "1", "--days", "8") == (0, set())


@pytest.mark.long
def test_thirty_days_of_twenty_seeds_hold_all_that_must(capsys: pytest.CaptureFixture[str]) -> None:
    assert held(capsys, "lab-1024", "--seeds", "1-20") == (0, set())
