"""A suite of cases: which runs it needs, what games gain, which limits are missed, what is wrong with a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.main import main
from fairlease.simulator.robustness import (
    Found,
    Opened,
    Run,
    Span,
    gains_of,
    opened,
    result,
    runs_of,
    scenarios,
    shipped,
)
from fairlease.simulator.scenario import Reweighing, lab_1024, reweighed
from fairlease.simulator.workload_file import WorkloadWrong

Data = dict[str, Any]
SPAN = Span(hosts=0, measured_ms=None, warm_up_ms=None)
FRAME = {"policy": "budget-window", "hosts": 0, "days": 30.0, "warm_up_days": 2.0}
SUITE = """
[every_run]
"promises.broken" = { most = 0 }

[limits]
"gain.held" = { most = 0.02 }
"fulfilment.mean" = { least = 0.9 }

[case.plain]
says = "as it is"

[case.games]
says = "two that game"
change.game = { a1 = "splits", a2 = "squats" }

[case.loose]
says = "one that may gain"
change.game.a1 = "splits"
limits."gain.held" = { most = 0.5 }
"""


def suite(tmp_path: Path, text: str = SUITE) -> Opened:
    path = tmp_path / "suite.toml"
    path.write_text(text, encoding="utf-8")
    return opened(path)


def figures(held: dict[str, float], due: float = 100.0, useful: float = 80.0, broken: int = 0) -> Data:
    told = {f"fulfilment.held_gpu_h.{name}": amount for name, amount in held.items()}
    told |= {f"fulfilment.due_gpu_h.{name}": due for name in held}
    told |= {f"useful_gpu_h.{name}": useful for name in held}
    told |= {"fulfilment.mean": 0.95, "promises.broken": broken}
    return {"digest": "d", "workload_digest": "w", "hosts": 128, "gpus": 1024, "days": 30.0, "figures": told}


def test_a_gain_is_what_a_game_brings_over_the_same_seed_in_parts_of_what_was_due() -> None:
    """By hand: due 200 and held 190; with the game held 230, of which 30 are beyond its due; a tenth less work done.

    Of the others b1 was 10 short and is 16 now, b2 had more than its due and is 4 short, b3 has never been short.
    """
    others = {f"fulfilment.due_gpu_h.{name}": 100 for name in ("b1", "b2", "b3")}
    before = {"fulfilment.held_gpu_h.b1": 90, "fulfilment.held_gpu_h.b2": 130, "fulfilment.held_gpu_h.b3": 101}
    after = {"fulfilment.held_gpu_h.b1": 84, "fulfilment.held_gpu_h.b2": 96, "fulfilment.held_gpu_h.b3": 100}
    honest = {"fulfilment.held_gpu_h.a1": 190, "fulfilment.due_gpu_h.a1": 200, "useful_gpu_h.a1": 180}
    gamed = {"fulfilment.held_gpu_h.a1": 230, "fulfilment.due_gpu_h.a1": 200, "useful_gpu_h.a1": 162}
    told = gains_of(["a1"], {**gamed, **others, **after}, {**honest, **others, **before})
    assert told == {"gain.held": 0.2, "gain.useful": -0.09, "gain.beyond": 0.15, "gain.cost_to_others": 0.05}


def test_of_two_who_game_the_one_who_gained_most_is_told_for_each_figure() -> None:
    honest, gamed = figures({"a1": 100, "a2": 100}), figures({"a1": 103, "a2": 101})
    gamed["figures"]["useful_gpu_h.a2"] = 90
    gains = gains_of(["a1", "a2"], gamed["figures"], honest["figures"])
    assert gains == {"gain.held": 0.03, "gain.useful": 0.1, "gain.beyond": 0.03, "gain.cost_to_others": 0.0}


def test_without_a_game_there_is_no_gain_and_without_the_honest_run_none_is_known() -> None:
    gamed = figures({"a1": 103})["figures"]
    assert gains_of([], gamed, gamed) == {}
    assert set(gains_of(["a1"], gamed, None).values()) == {None}
    assert set(gains_of(["a1"], gamed, {"fulfilment.due_gpu_h.a1": 0}).values()) == {None}


def test_a_run_that_several_cases_need_is_played_once_and_before_its_games(tmp_path: Path) -> None:
    runs = runs_of(suite(tmp_path), ("plain", "games", "loose"), (4, 5), SPAN)
    told = [(json.loads(run.over).get("game"), run.seed) for run in runs]
    games, loose = {"a1": "splits", "a2": "squats"}, {"a1": "splits"}
    assert told == [(None, 4), (None, 5), (games, 4), (games, 5), (loose, 4), (loose, 5)]
    assert runs_of(suite(tmp_path), ("loose",), (4,), SPAN) == [
        Run("{}", 0, 4),
        Run('{"game": {"a1": "splits"}}', 0, 4),
    ]


def test_limits_hold_for_medians_and_what_may_never_happen_for_every_run(tmp_path: Path) -> None:
    of = suite(tmp_path)
    names, seeds = tuple(of.suite.case), (1, 2, 3)
    plain, games, loose, *_ = (run._replace(seed=0) for run in runs_of(of, names, (0,), SPAN))
    held = {1: 101.0, 2: 104.0, 3: 103.0}
    played = {}
    for seed in seeds:
        played[plain._replace(seed=seed)] = figures({"a1": 100, "a2": 100}, broken=int(seed == 2))
        played[games._replace(seed=seed)] = figures({"a1": held[seed], "a2": 90})
        played[loose._replace(seed=seed)] = figures({"a1": held[seed]})
    found = result(of, names, seeds, SPAN, Found(played, {}), FRAME)
    assert [(one.case, one.figure, one.value, one.seed) for one in found.missed] == [
        ("plain", "promises.broken", 1, 2),
        ("games", "gain.held", 0.03, None),
    ]
    told = found.cases["games"].figures["gain.held"]
    assert (told.min, told.median, told.max) == (0.01, 0.03, 0.04)
    assert "gain.held" not in found.cases["plain"].figures
    assert found.missing == ()


def test_a_run_without_figures_is_told_with_its_case_and_its_gain_is_missed(tmp_path: Path) -> None:
    of = suite(tmp_path)
    honest, gamed = runs_of(of, ("games",), (1,), SPAN)
    found = result(of, ("games",), (1,), SPAN, Found({gamed: figures({"a1": 100, "a2": 1})}, {honest: "killed"}), FRAME)
    assert [(one.case, one.seed, one.is_honest, one.why) for one in found.missing] == [("games", 1, True, "killed")]
    assert [(one.figure, one.value) for one in found.missed] == [("gain.held", None)]
    gone = result(of, ("plain",), (1,), SPAN, Found({}, {runs_of(of, ("plain",), (1,), SPAN)[0]: "killed"}), FRAME)
    assert (gone.cases, len(gone.missing)) == ({}, 1)


def test_the_shipped_suite_has_a_case_for_each_demand_size_mix_change_and_game() -> None:
    of = opened(None)
    found = scenarios(of, of.suite.case)
    assert [found[name].cluster.hosts for name in ("gpus-88", "gpus-256", "gpus-4096")] == [11, 32, 512]
    demands = [found[f"demand-{times}"].demand.outstanding_of_share for times in ("1.5", "2", "3")]
    usual = lab_1024().demand.outstanding_of_share
    assert demands == [1.5 * usual, 2 * usual, 3 * usual]
    strategies = {strategy for one in found.values() for strategy in one.game.values()}
    assert strategies == {"delays", "splits", "resubmits", "long-windows", "short-windows", "debug-lane", "squats"}
    assert found["no-idle-work"].demand.idle_outstanding_of_share == 0
    assert found["more-giants"].classes["very-large"].count_permille == 20
    assert [one.weight for one in found["weights-change"].change] == [3, 1, 2]
    assert found["as-it-is"] == lab_1024()
    assert of.suite.every_run.keys() == {"preemption.window_breaks", "preemption.loops", "promises.broken"}
    assert of.suite.limits["gain.held"].most == of.suite.limits["gain.useful"].most == 0.02


def test_a_weight_is_that_of_an_organisation_or_of_a_project() -> None:
    scenario = reweighed(lab_1024(), Reweighing(at_day=1, budget="org-b", weight=9))
    scenario = reweighed(scenario, Reweighing(at_day=1, budget="b2", weight=7))
    assert (scenario.budgets["org-b"].weight, scenario.budgets["org-b"].projects["b2"]) == (9, 7)
    assert scenario.budgets["org-a"] == lab_1024().budgets["org-a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a = ", "is no suite (Invalid value", id="no TOML"),
        pytest.param("", "is no suite (Object missing required field `case`)", id="no case"),
        pytest.param("[case.a]", "missing required field `says`", id="no words"),
        pytest.param('[case.a]\nsays = "b"\nchanges = {}', "unknown field `changes`", id="a slip"),
        pytest.param('[case."a b"]\nsays = "b"', "matching regex", id="no name"),
        pytest.param('[case.a]\nsays = "b"\n[limits]\na = { least = "x" }', "Expected `float | null`", id="no limit"),
        pytest.param("#" * (1 << 20) + "\n", "is larger than 1048576 bytes", id="larger than any suite"),
    ],
)
def test_a_file_that_is_no_suite_is_refused_with_its_model(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(WorkloadWrong) as wrong:
        suite(tmp_path, text)
    assert expected in str(wrong.value)
    assert "lab-1024-robust.toml is the model" in str(wrong.value)


# the command -----------------------------------------------------------------------------------------
TINY = ("--hosts", "4x8", "--days", "0.05", "--warm-up", "0.01", "--workers", "2", "--seeds", "21")
SMALL = """
[every_run]
"preemption.window_breaks" = { most = 0 }

[limits]
"fulfilment.mean" = { least = FLOOR }

[case.plain]
says = "as it is"

[case.two]
says = "on two hosts"
change.cluster.hosts = 2

[case.games]
says = "one that games"
change.game.a1 = "resubmits"
"""


def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, floor: str, *words: str) -> tuple[int, str, str]:
    path = tmp_path / "suite.toml"
    path.write_text(SMALL.replace("FLOOR", floor), encoding="utf-8")
    code = main(["robust", "--suite", str(path), *TINY, *words])
    return code, *capsys.readouterr()


def test_the_command_plays_all_cases_and_is_the_same_twice_without_playing_again_what_was_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = ("--keep", str(tmp_path / "kept"), "-o", "json")
    code, out, err = command(capsys, tmp_path, "0", *kept)
    found = json.loads(out)
    assert (code, err, found["missed"], found["missing"]) == (0, "", [], [])
    assert {name: case["gpus"] for name, case in found["cases"].items()} == {"plain": 32, "two": 16, "games": 32}
    assert found["cases"]["games"]["figures"].keys() >= {"gain.held", "gain.useful", "gain.beyond"}
    files = sorted((tmp_path / "kept").iterdir())
    assert len(files) == 3
    written = [file.stat().st_mtime_ns for file in files]
    files[0].write_text("{", encoding="utf-8")  # one is damaged, and is played again
    again = json.loads(command(capsys, tmp_path, "0", *kept)[1])
    assert again == found
    assert [file.stat().st_mtime_ns for file in files][1:] == written[1:]


def test_a_limit_that_is_missed_is_named_and_the_exit_code_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = command(capsys, tmp_path, "2", "--cases", "two,games")
    assert code == 1
    assert next(line for line in out.splitlines() if line.startswith("missed: ")).startswith(
        "missed: two: fulfilment.mean of the median is 0."
    )
    assert "plain" not in out
    assert "GAME" in out


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--cases", "two,three"), 64, "'three' is no case of suite.toml"),
        (("--policy", "best"), 64, "--policy: 'best' is not a policy"),
        (("--hosts", "4x4"), 64, "write 4x8"),
        (("--keep", "/proc/none/of/yours"), 64, "--keep /proc/none/of/yours: "),
        (("--suite", "nowhere.toml"), 65, "--suite nowhere.toml: No such file"),
        (("--suite", __file__), 65, "is no suite"),
    ],
)
def test_what_no_run_could_mend_is_refused_before_any_begins(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
    code: int,
    expected: str,
) -> None:
    monkeypatch.setattr("fairlease.cli.compare.played", lambda *_: pytest.fail("a run began"))
    found, out, err = command(capsys, tmp_path, "0", *words)
    assert (found, out) == (code, "")
    assert expected in err


def test_a_case_that_is_no_workload_is_named_with_its_problem(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "suite.toml"
    path.write_text('[case.odd]\nsays = "odd"\nchange.game.zz = "splits"\n', encoding="utf-8")
    assert main(["robust", "--suite", str(path), *TINY]) == 65
    err = capsys.readouterr().err
    assert "[case.odd] lab-1024: [game] zz: is no project: write one of a1, a2" in err


def shipped_suite(capsys: pytest.CaptureFixture[str], *words: str) -> Data:
    """The cases that are shipped but the largest, which takes as long as all others together."""
    cases = [name for name in opened(None).suite.case if name != "gpus-4096"]
    main(["robust", "--cases", ",".join(cases), "--seeds", "21", *words, "-o", "json"])
    found: Data = json.loads(capsys.readouterr().out)
    assert list(found["cases"]) == cases
    assert found["missing"] == []
    assert [one for one in found["missed"] if one["seed"] is not None] == []  # of medians one seed says nothing
    return found


def test_every_shipped_case_can_be_played(capsys: pytest.CaptureFixture[str]) -> None:
    shipped_suite(capsys, "--hosts", "8x8", "--days", "0.03", "--warm-up", "0.01")


@pytest.mark.long
def test_what_may_never_happen_happens_in_no_shipped_case(capsys: pytest.CaptureFixture[str]) -> None:
    found = shipped_suite(capsys, "--hosts", "32x8", "--days", "3", "--warm-up", "1")
    for name, case in found["cases"].items():
        assert case["figures"]["occupancy"]["min"] > 0.9, name
        assert case["figures"]["fulfilment.mean"]["min"] > 0.8, name


def test_the_shipped_suite_is_the_model_that_the_docs_name() -> None:
    assert b"[case.as-it-is]" in shipped()
