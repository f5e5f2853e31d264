import json
import re
from pathlib import Path

import pytest

from fairlease.cli.main import main
from fairlease.simulator.runs import simulate_lab
from fairlease_schemas.units import HOUR_MS


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "cell.jsonl"
    with path.open("wb") as file:
        simulate_lab(policy="budget-window", seed=1, hosts=2, measured_ms=2 * HOUR_MS, warm_up_ms=1, log=file)
    return path


def told(capsys: pytest.CaptureFixture[str], log: Path, *words: str) -> tuple[int, str, str]:
    code = main(["whatif", "--from", str(log), *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_three_columns_come_as_data_and_as_a_page(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    words = ("--set", "patience_ms=10m", "--weight", "a1=9", "-o", "json", "--html", str(page))
    code, out, err = told(capsys, log, *words)
    found = json.loads(out)
    assert (code, err, found["kind"]) == (0, "", "WhatIf")
    assert found["change"] == {"patience_ms": "10m", "weight a1": "9"}
    counted = found["figures"]["jobs.submitted"]
    assert counted["was"] == counted["again"] == counted["would"] > 0
    assert found["earlier"] + found["later"] + found["same"] == counted["was"]
    assert {"rule": "jobs are submitted, held, released and cancelled when they were", "count": counted["was"]} in (
        found["rules"]
    )
    text = page.read_text(encoding="utf-8")
    assert all(name in text for name in ("as it was", "played again", "would have been", "patience_ms=10m"))


def test_a_table_says_what_was_assumed_and_how_often(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    code, out, _ = told(capsys, log, "--set", "patience_ms=0", "--html", str(page))
    assert code == 0
    assert out.endswith(f"\nthe page is written: {page}\n")
    assert re.match(r"[12]h(\d+m)?(\d+s)? on 2 hosts; ", out), out
    assert out.splitlines()[2].split() == ["FIGURE", "WAS", "AGAIN", "WOULD"]
    assert "assumed, with how many things each met" in out
    assert "checkpoints fall at the interval of the contract" in out


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ((), 64, "nothing is to be otherwise"),
        (("--set", "patience=1"), 65, "policy.patience: there is no such number"),
        (("--set", "patience-ms=soon"), 65, "policy.patience_ms: 'soon' is not a length of time"),
        (("--set", "lookback_ms=0"), 65, "policy.lookback_ms"),
        (("--set", "patience_ms"), 64, "is not KEY=VALUE"),
        (("--weight", "a1=0"), 64, "--weight a1=0: is no weight"),
        (("--weight", "nobody=2"), 64, "the log makes no budget nobody"),
        (("--policy", "best"), 64, "'best' is not a policy"),
        (("--policy-file", "/nowhere.toml"), 65, "--policy-file /nowhere.toml"),
        (("--set", "patience_ms=1", "--html", "/nowhere/x.html"), 64, "no file can be written there"),
    ],
)
def test_a_change_that_is_none_is_refused_before_anything_is_played(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    log: Path,
    words: tuple[str, ...],
    code: int,
    expected: str,
) -> None:
    def begun(*_: object) -> None:
        pytest.fail("a run began")

    monkeypatch.setattr("fairlease.cli.whatif.played_twice", begun)
    found, out, err = told(capsys, log, *words)
    assert (found, out) == (code, "")
    assert expected in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("patience_ms = 1\nfoo = 2", "policy.toml: policy.foo: there is no such number"),
        ("patience_ms = ", "--policy-file"),
        ("grace_cap_ms = 'x'", "policy.grace_cap_ms: 'x' is not a length of time"),
        ("grace_cap_ms = 1.5", "policy.grace_cap_ms: Expected `int`"),
        ("#" * 70_000, "has more than 65536 bytes"),
    ],
)
def test_a_policy_file_that_is_none_is_told(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    code, _, err = told(capsys, log, "--policy-file", str(path))
    assert code == 65
    assert expected in err


@pytest.mark.parametrize(
    ("text", "expected"), [("", "holds no record"), ("{}\n", "no record"), ("no json\n", "no record")]
)
def test_a_log_that_is_none_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    code, _, err = told(capsys, path, "--set", "patience_ms=1")
    assert code == 1
    assert expected in err


def test_a_log_in_which_nothing_has_happened_is_told(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    path = tmp_path / "new.jsonl"
    path.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    code, _, err = told(capsys, path, "--set", "patience_ms=1")
    assert code == 1
    assert "nothing has happened in this log" in err


def test_a_log_that_was_cut_at_its_beginning_is_told(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[40:]))
    code, _, err = told(capsys, path, "--set", "patience_ms=1")
    assert code == 1
    assert "line 1 of the log" in err
