"""`fairlease explore`: what is asked, what is played and kept, and what is told when it ends early."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli import explore_runs
from fairlease.cli.explore_runs import play_point
from fairlease.cli.main import main
from fairlease.simulator.code import code_digest
from fairlease.simulator.crew import Play, Result, Wrong
from fairlease.simulator.exploration import digest_of_policy, whole_of
from fairlease.simulator.kept import Kept, Setting
from fairlease.simulator.lab_numbers import lab_numbers
from fairlease.simulator.scenario import workload_digest
from fairlease_schemas.policy import Policy

TINY = ("--hosts", "2x8", "--days", "0.01", "--warm-up", "0.01", "--workers", "1")
HUNDRED = ",".join(map(str, range(100)))
GRID = ("--grid", "patience-ms=0,5m", "--grid", "margin_permille=20")


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["explore", *words])
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code, out, err = told(capsys, *words, *TINY, "-q", "-o", "json")
    assert (code, err) == (0, "")
    return dict(json.loads(out))


def kept_runs(path: Path) -> list[tuple[int, int]]:
    """(patience, seed) of every line, in order."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(one["numbers"]["patience_ms"], one["seed"]) for one in lines]


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two points with two seeds, played once for all stories that only read them."""
    path = tmp_path_factory.mktemp("explored") / "kept.jsonl"
    assert main(["explore", *GRID, "--seeds", "1-2", *TINY, "--keep", str(path), "-o", "name"]) == 0
    return path


@pytest.fixture
def path(explored: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    copy = tmp_path / "kept.jsonl"
    copy.write_bytes(explored.read_bytes())
    return copy


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs each command really plays."""
    real, plays = explore_runs.played, []

    def played(asked: Iterable[Play], workers: int, tell: Callable[[int], None]) -> Iterable[Result]:
        runs = list(asked)
        plays.append(len(runs))
        return real(runs, workers, tell)

    monkeypatch.setattr(explore_runs, "played", played)
    return plays


# what is played and kept -----------------------------------------------------------------------------
def test_all_points_have_the_first_seed_before_any_has_the_second(explored: Path) -> None:
    assert kept_runs(explored) == [(0, 1), (300_000, 1), (0, 2), (300_000, 2)]


def test_what_is_kept_is_not_played_again_and_gives_the_same_answer(
    capsys: pytest.CaptureFixture[str], path: Path, counted: list[int]
) -> None:
    fresh = answer(capsys, *GRID, "--seeds", "1-2")
    again = answer(capsys, *GRID, "--seeds", "1-2", "--keep", str(path))
    assert counted == [4, 0]
    assert again == fresh
    assert (fresh["kind"], fresh["seeds"], fresh["missing"]) == ("Exploration", [1, 2], [])
    assert [one["numbers"] for one in fresh["points"]] == [{"patience_ms": 0}, {"patience_ms": 300_000}]
    assert any(one["is_front"] for one in fresh["points"])


def test_more_points_and_seeds_play_only_what_is_missing(
    capsys: pytest.CaptureFixture[str], path: Path, counted: list[int]
) -> None:
    words = ("--grid", "patience_ms=0,1m", "--seeds", "1-3", "--keep", str(path), *TINY)
    code, out, err = told(capsys, *words)
    assert (code, counted) == (0, [4])
    assert err == f"{path}: 2 runs taken up, 4 left to play\n"
    assert kept_runs(path)[4:] == [(60_000, 1), (60_000, 2), (0, 3), (60_000, 3)]
    assert "2 points, 6 runs, compared on seeds 1, 2, 3" in out


def test_without_a_grid_the_points_are_those_of_the_file_and_other_aims_need_no_run(
    capsys: pytest.CaptureFixture[str], path: Path, counted: list[int]
) -> None:
    words = (
        "--keep",
        str(path),
        "--seeds",
        "1-2",
        "--aim",
        "jobs.finished:most:5",
        "--aim",
        "preemption.by_reason.x:least",
    )
    found = answer(capsys, *words)
    assert counted == [0]
    assert found["aims"] == {"jobs.finished": {"best": "most", "step": 5}, "preemption.by_reason.x": {"best": "least"}}
    assert [one["numbers"] for one in found["points"]] == [{"patience_ms": 0}, {"patience_ms": 300_000}]
    assert [one["figures"]["preemption.by_reason.x"]["max"] for one in found["points"]] == [0, 0]


def test_whoever_looks_sees_what_there_is_and_plays_nothing(
    capsys: pytest.CaptureFixture[str], path: Path, counted: list[int]
) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    found = answer(capsys, "--keep", str(path), "--seeds", "1-9", "--show")
    assert counted == []
    assert found["seeds"] == [1]
    assert [one["seeds"] for one in found["points"]] == [[1, 2], [1]]
    code, _, err = told(capsys, "--keep", str(path), "--seeds", "7", "--show", *TINY)
    assert code == 1
    assert "has no run of these points and seeds" in err


def test_the_table_marks_the_front_and_counts_what_is_missed(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path
) -> None:
    must = tmp_path / "must.toml"
    must.write_text('"promises.broken" = { most = 0 }\n"jobs.finished" = { least = 1000 }\n')
    words = ("--keep", str(path), "--seeds", "1-2", *TINY, "--aim", "occupancy:most", "--must", str(must))
    code, out, _ = told(capsys, *words)
    lines = out.splitlines()
    assert code == 1
    assert lines[0].split() == ["patience_ms", "occupancy", "MISSED"]
    assert lines[1].startswith("* ")
    assert {line.split()[-1] for line in lines[1:3]} == {"1"}
    assert "no point keeps every limit" in out
    assert "which misses jobs.finished" in out
    (alike,) = (line for line in lines if line.startswith("at all points "))
    assert "quiet_period_ms=5m" in alike
    assert "leaf_order=least-attained" in alike
    must.write_text('"promises.broken" = { most = 0 }\n')
    code, out, _ = told(capsys, *words)
    assert code == 0
    assert "2 points keep every limit" in out


def test_a_sample_is_a_part_of_the_grid(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--grid", "patience_ms=1m,2m,3m,4m", "--grid", "margin_permille=10,20", "--sample", "2", "--seeds", "1")
    found = answer(capsys, *words, "--sample-seed", "3")
    assert len(found["points"]) == 2
    assert found["points"] == answer(capsys, *words, "--sample-seed", "3")["points"]


# what is refused -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--grid", "marjin=5"), 65, "policy.marjin: there is no such number"),
        (("--grid", "margin_permille=5,x"), 65, "policy.margin_permille: 'x' is no whole number"),
        (("--grid", "margin_permille"), 64, "is not KEY=VALUE"),
        (("--grid", "margin_permille="), 65, "policy.margin_permille: '' is no whole number"),
        (("--grid", "lookback_ms=1d,0"), 65, "no cell can be run by this policy (lookback_ms=0s)"),
        (("--grid", "patience_ms=1", "--grid", "patience-ms=2"), 64, "--grid patience_ms: stands twice"),
        (
            ("--grid", f"margin_permille={HUNDRED}", "--grid", f"patience_ms={HUNDRED}"),
            64,
            "10,000 points",
        ),
        ((*GRID, "--grid", f"debug_permille={HUNDRED}", "--seeds", "1-1000"), 64, "200 points with 1000 seeds"),
        (("--sample", "2"), 64, "--sample: is of a grid, and there is none"),
        ((*GRID, "--sample", "0"), 64, "0 is too small"),
        ((), 64, "there is nothing to explore"),
        ((*GRID, "--hosts", "4x4"), 64, "of hosts with 8 GPUs"),
        ((*GRID, "--aim", "occupancy"), 64, "'occupancy' is no aim"),
        ((*GRID, "--aim", "occupancy:best"), 64, "'occupancy:best' is no aim"),
        ((*GRID, "--aim", "occupancy:most:0"), 64, "'0' is not a number above 0"),
        ((*GRID, "--aim", "ocupancy:most"), 64, "--aim ocupancy: no report has such a figure"),
        ((*GRID, "--must", "/dev/zero"), 65, "--must /dev/zero: is a device: name a plain file"),
        ((*GRID, "--keep", "/dev/null"), 65, "--keep /dev/null: is no file"),
        ((*GRID, "--keep", "/nowhere/at/all.jsonl"), 64, "--keep /nowhere/at/all.jsonl: No such file"),
        ((*GRID, "--any-code"), 64, "--any-code: is of a file, and none is named"),
        ((*GRID, "--show"), 64, "--show: is of a file, and none is named"),
        ((*GRID, "--workload", "/nowhere.toml"), 1, "/nowhere.toml: No such file"),
    ],
)
def test_what_no_run_could_mend_is_refused_before_any_begins(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    expected: str,
) -> None:
    def begun(*_: object) -> None:
        pytest.fail("a run began")

    monkeypatch.setattr(explore_runs, "played", begun)
    found, out, err = told(capsys, "--seeds", "1", "--hosts", "1x8", *words)
    assert (found, out) == (code, "")
    assert expected in err


def test_a_limit_of_a_figure_that_there_is_not_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    must = tmp_path / "must.toml"
    must.write_text('"ocupancy" = { least = 1 }\n')
    code, _, err = told(capsys, *GRID, *TINY, "--must", str(must))
    assert code == 64
    assert "--must ocupancy: no report has such a figure" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--days", "0.02"), "measured_ms is 864000, and that of this exploration 1728000"),
        (("--hosts", "3x8"), "hosts is 2, and that of this exploration 3"),
    ],
)
def test_a_file_of_another_exploration_is_refused_and_kept(
    capsys: pytest.CaptureFixture[str], path: Path, words: tuple[str, ...], expected: str
) -> None:
    before = path.read_bytes()
    code, out, err = told(capsys, *GRID, *TINY, "--keep", str(path), *words)
    assert (code, out) == (65, "")
    assert f"--keep {path}: line 1: {expected}" in err
    assert "name a file that does not exist yet" in err
    assert path.read_bytes() == before


def test_runs_by_other_rules_are_refused_unless_somebody_asks_for_them(
    capsys: pytest.CaptureFixture[str], path: Path, counted: list[int]
) -> None:
    path.write_bytes(path.read_bytes().replace(code_digest().encode(), b"0" * 64, 1))
    words = (*GRID, "--seeds", "1-2", *TINY, "--keep", str(path))
    code, _, err = told(capsys, *words)
    assert code == 65
    assert "they may decide otherwise" in err
    code, out, _ = told(capsys, *words, "--any-code")
    assert (code, counted) == (0, [0])
    assert "played by 2 different codes" in out


# a run of its own ------------------------------------------------------------------------------------
SETTING = Setting(workload_digest(), 1, 1, 1)
USUAL = lab_numbers(1)


def played_alone(setting: Setting, code: str, numbers: Policy = USUAL) -> Any:  # noqa: ANN401 - a line of the file
    return play_point(lambda _permille: None, numbers=numbers, seed=1, setting=setting, file=None, code=code)["run"]


def test_a_run_says_what_its_figures_depend_on() -> None:
    found = played_alone(SETTING, code_digest())
    assert (found.code, found.policy_digest) == (code_digest(), digest_of_policy(USUAL))
    assert found.numbers == whole_of(USUAL)


def test_numbers_reach_the_cell_that_is_played() -> None:
    found = [played_alone(SETTING, code_digest(), numbers) for numbers in (USUAL, USUAL, Policy())]
    assert found[0] == found[1]
    assert found[0].digest != found[2].digest


def test_code_or_a_workload_that_was_changed_meanwhile_gives_no_figures() -> None:
    with pytest.raises(Wrong, match="the code of this program was changed"):
        played_alone(SETTING, "0" * 64)
    with pytest.raises(Wrong, match="the file of the workload was changed"):
        played_alone(SETTING._replace(workload_digest="0" * 64), code_digest())


# what ends early -------------------------------------------------------------------------------------
def test_when_no_run_ends_the_first_cause_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = [Result(0, None, "job-1 was refused"), Result(1, None, "its process ended with -9 and no report")]
    monkeypatch.setattr(explore_runs, "played", lambda *_: (one for one in ended))
    code, out, err = told(capsys, *GRID, *TINY, "--seeds", "1")
    assert (code, out) == (1, "")
    assert "no run came to its end: seed 1 of point " in err
    assert "job-1 was refused" in err


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_disk_that_is_full_costs_no_answer_and_stops_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Kept, "keep", full)
    words = (*GRID, *TINY, "--seeds", "1-2", "--keep", str(tmp_path / "kept.jsonl"), "-o", "json")
    code, out, err = told(capsys, *words)
    found = json.loads(out)
    assert code == 1
    assert [one["seeds"] for one in found["points"]] == [[1], []]
    assert {one["why"] for one in found["missing"]} == {"stopped before its end"}
    assert "kept.jsonl: No space left on device" in err
    assert "the answer on standard output is whole" in err


def until(what: Callable[[], bool], seconds: float = 300) -> None:
    end_s = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end_s, "it did not come to that in time"
        time.sleep(0.02)


def begun(path: Path) -> "subprocess.Popen[bytes]":
    """An exploration of six runs that has kept one."""
    words = ["explore", *GRID, "--seeds", "1-3", *TINY, "--keep", str(path), "-o", "json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlease", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until(lambda: path.exists() and b"\n" in path.read_bytes())
    return process


def test_a_killed_exploration_goes_on_where_it_was_and_ends_as_if_it_had_not_been(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, counted: list[int]
) -> None:
    path = tmp_path / "kept.jsonl"
    process = begun(path)
    words = (*GRID, "--seeds", "1-3", "--keep", str(path))
    code, _, err = told(capsys, *words, *TINY)
    assert (code, "another exploration has this file" in err) == (75, True), err
    assert answer(capsys, "--keep", str(path), "--seeds", "1-3", "--show")["points"] != []
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    known = path.read_bytes().count(b"\n")
    assert 1 <= known < 6
    with path.open("ab") as file:
        file.write(b'{"kind":"ExploredRun","workload_dig')
    resumed = answer(capsys, *words)
    assert counted == [6 - known]
    assert len(set(kept_runs(path))) == 6
    assert resumed == answer(capsys, *words)
    path.unlink()
    assert answer(capsys, *words) == resumed


def test_an_interruption_tells_what_is_known_and_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    process = begun(path)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    found = json.loads(out)
    runs = sum(len(one["seeds"]) for one in found["points"])
    assert 1 <= runs < 6
    assert runs == path.read_bytes().count(b"\n")
    assert runs + len(found["missing"]) == 6
    assert {one["why"] for one in found["missing"]} == {"stopped before its end"}
    assert b"Traceback" not in err
