import json
import re
from pathlib import Path

import pytest

from fairlease.cli.compare import ProgressBar
from fairlease.cli.main import main
from fairlease.cli.output import Output
from fairlease.cli.table import Style
from fairlease.simulator.crew import Result

TINY = ("--seeds", "1-2", "--hosts", "2x8", "--days", "0.01", "--warm-up", "0.01", "--workers", "2")


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["compare", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_figures_of_seeds_come_as_data_and_as_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page, must = tmp_path / "page.html", tmp_path / "must.toml"
    must.write_text('"promises.broken" = { most = 0 }\n"jobs.finished" = { least = 1000 }\n')
    words = ("--policies", "budget-window", *TINY, "-o", "json", "--html", str(page), "--must", str(must))
    code, out, err = told(capsys, *words, "--lang", "zh")
    found = json.loads(out)
    assert (code, err, found["missed"], found["missing"]) == (1, "", ["jobs.finished"], [])
    assert [(run["policy"], run["seed"]) for run in found["runs"]] == [("budget-window", 1), ("budget-window", 2)]
    figures = found["policies"]["budget-window"]
    assert figures["occupancy"]["min"] <= figures["occupancy"]["median"] <= figures["occupancy"]["max"] <= 1
    assert page.read_text(encoding="utf-8").startswith('<!DOCTYPE html>\n<html lang="zh-Hans">')


def test_what_is_missed_is_told_with_what_it_had_to_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    must = tmp_path / "must.toml"
    must.write_text('"occupancy" = { least = 1.5, most = 2 }\n"jobs.finished" = { least = 1000 }\n')
    code, out, _ = told(capsys, "--policies", "budget-window", *TINY, "--must", str(must))
    first, second = [line for line in out.splitlines() if line.startswith("missed: ")]
    assert code == 1
    assert re.fullmatch(
        r"missed: occupancy \(occupancy\) of budget-window is [0-9.]+ %, must be at least 150.0 % and at most 200.0 %",
        first,
    )
    assert re.fullmatch(r"missed: jobs.finished.* of budget-window is [0-9]+, must be at least 1,000", second)


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "--policies", "budget-window", "--seeds", "1", *TINY[2:], "-o", "json"),
        ("simulate", "--workload", "lab-1024", *TINY[2:6], "-o", "json"),
    ],
    ids=["compare", "simulate"],
)
def test_a_disk_that_is_full_costs_the_page_and_not_the_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    for command in ("cli.compare", "simulator.command"):
        monkeypatch.setattr(f"fairlease.{command}.put", full)
    assert main([*words, "--html", str(tmp_path / "page.html")]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["kind"] in ("Comparison", "SimulationReport")
    assert "No space left on device" in err
    assert "the answer on standard output is whole" in err


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--policies", "budget-window,best"), 64, "'best' is not a policy"),
        (("--policies", "budget-window", "--hosts", "4x4"), 64, "of hosts with 8 GPUs"),
        (("--policies", "budget-window", "--html", "/nowhere/at/all.html"), 64, "no file can be written there"),
        (("--policies", "budget-window", "--seeds", "3-1"), 64, "no range of at most"),
        (("--policies", "budget-window", "--seeds", "1-5000"), 64, "no range of at most"),
        (("--policies", ""), 64, "is not a name"),
        ((), 64, "--policies"),
        (("--policies", "budget-window", "--must", "/nowhere.toml"), 65, "--must /nowhere.toml"),
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

    monkeypatch.setattr("fairlease.cli.compare.played", begun)
    found, out, err = told(capsys, *words)
    assert (found, out) == (code, "")
    assert expected in err


@pytest.mark.parametrize("text", ["a = 1", '"a" = { last = 1 }', "a = {", '"a" = { least = "1" }'])
def test_limits_that_are_none_are_told_with_the_form(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    must = tmp_path / "must.toml"
    must.write_text(text)
    code, _, err = told(capsys, "--policies", "budget-window", "--must", str(must))
    assert code == 65
    assert '"fulfilment.mean" = { least = 0.98 }' in err


def test_when_no_run_ends_the_first_cause_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = [Result(0, None, "its process ended with -9 and no report"), Result(1, None, "job-1 was refused")]
    monkeypatch.setattr("fairlease.cli.compare.played", lambda *_: (one for one in ended))
    code, out, err = told(capsys, "--policies", "budget-window", "--seeds", "1-2")
    assert (code, out) == (1, "")
    assert "no run came to its end: budget-window, seed 1: its process ended with -9 and no report" in err


class Terminal:
    """Standard error that is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("form", "is_quiet", "is_shown"), [("table", False, True), ("table", True, False), ("json", False, False)]
)
def test_progress_is_for_people_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, form: str, is_quiet: bool, is_shown: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    bar = ProgressBar(4, Output(form, is_quiet, Style(80, has_color=False, is_wide=False)))
    bar.show(1000, 1)
    bar.clear()
    assert ("\r[######------------------] 25 %, 1 of 4 runs, " in terminal.text) is is_shown
    assert terminal.text.endswith("\r\x1b[K") is is_shown
    assert bool(terminal.text) is is_shown
