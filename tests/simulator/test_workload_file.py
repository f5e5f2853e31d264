"""A workload in a file of one's own: it runs as lab-1024 does, or every problem of it is told at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.main import main
from fairlease.simulator import quantiles
from fairlease.simulator.draws import tables
from fairlease.simulator.scenario import lab_1024, workload_bytes, workload_digest
from fairlease.simulator.workload_file import WorkloadWrong, scenario_of
from fairlease.trace.cells import SHOWN_PROBLEMS

SMALL = ("--hosts", "2x8", "--days", "0.1", "--warm-up", "0.02")


def written(tmp_path: Path, *changes: tuple[str, str], raw: bytes | None = None) -> Path:
    """The reference workload with these texts replaced, each of which must be there."""
    text = workload_bytes().decode()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = tmp_path / "own.toml"
    path.write_bytes(text.encode() if raw is None else raw)
    return path


def told(path: Path) -> list[str]:
    with pytest.raises(WorkloadWrong) as wrong:
        scenario_of(path)
    return str(wrong.value).split("\n")


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["simulate", *words, "-o", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_copy_of_the_reference_workload_is_the_reference_workload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = written(tmp_path)
    assert scenario_of(copy) == (lab_1024(), workload_digest())
    assert {name: tuple(points) for name, points in quantiles.made(lab_1024()).items()} == tables()
    shipped, own = report(capsys, "--workload", "lab-1024", *SMALL), report(capsys, "--workload", str(copy), *SMALL)
    assert own["digest"] == shipped["digest"]
    assert own["workload_digest"] == shipped["workload_digest"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workload", "nowhere.toml"), ("--workload nowhere.toml: No such file", "name lab-1024, or a file")),
        (("--trace", "nowhere.csv"), ("--trace nowhere.csv: No such file", "name a table or a log")),
        (("--workload", "lab-1024", *SMALL, "--log", "/nowhere/log"), ("--log /nowhere/log: No such file", "a place")),
    ],
)
def test_a_file_that_cannot_be_had_is_named_with_a_way_out(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: tuple[str, str]
) -> None:
    assert main(["simulate", *words]) == 65
    err = capsys.readouterr().err
    assert [text in err for text in said] == [True, True], err
    assert "Errno" not in err


def test_no_figure_of_the_table_is_a_table_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", "lab-1024", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "preemption.count" in out
    assert "{" not in out


def test_a_workload_of_ones_own_runs_on_the_cluster_that_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(
        tmp_path,
        ("hosts = 128", "hosts = 2"),
        ("gpus_per_host = 8", "gpus_per_host = 4"),
        ("mean_s = 390", "mean_s = 60"),
        ("median_h = 3, sigma = 1.2", "median_h = 0.5, sigma = 0.3"),
    )
    found = report(capsys, "--workload", str(path), "--days", "0.1", "--warm-up", "0.02")
    assert (found["hosts"], found["gpus"]) == (2, 8)
    assert found["jobs"]["finished"] > 0
    assert found["workload_digest"] != workload_digest()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("hosts = 128", "hosts = 0", "[cluster] hosts = 0: is below 1: write 1 to 10000", id="below"),
        pytest.param("hosts = 128", "hosts = 99999", "hosts = 99999: is above 10000: write 1 to 10000", id="above"),
        pytest.param("hosts = 128", "hosts = -5", "[cluster] hosts = -5: is below 1", id="negative"),
        pytest.param("hosts = 128", "hosts = 12.5", "hosts = 12.5: is no whole number: write digits", id="a fraction"),
        pytest.param("hosts = 128", 'hosts = "128"', '[cluster] hosts = "128": is no whole number', id="a text"),
        pytest.param("hosts = 128", "hosts = true", "[cluster] hosts = true: is no whole number", id="true"),
        pytest.param("hosts = 128", "hosts = {}", "[cluster] hosts = {}: is no whole number", id="a table"),
        pytest.param("hosts = 128", "", "[cluster] hosts: is missing: lab-1024.toml is the model", id="missing"),
        pytest.param(
            "hosts = 128", "hosts = 128\nhost = 1", "host = 1: is unknown: write one of pool, hosts", id="slip"
        ),
        pytest.param("[time]", "[times]", "times = {", id="an unknown table"),
        pytest.param('pool = "h100"', 'pool = "H 100"', '[cluster] pool = "H 100": is no name: write 1-50', id="name"),
        pytest.param("from_day = 12", 'from_day = ""', '[cluster.maintenance] from_day = "": is no', id="inside"),
        pytest.param("_of_share = 2.5", "_of_share = nan", "outstanding_of_share = NaN: is no number", id="nan"),
        pytest.param("_of_share = 2.5", "_of_share = inf", "= Infinity: is no number: write digits", id="endless"),
        pytest.param("weight = 3", "weight = 0", "[budgets.org-a] weight = 0: is below 1", id="no weight"),
        pytest.param("a2 = 3", "a2 = 0", "[budgets.org-a.projects] a2 = 0: is below 1", id="a project's weight"),
        pytest.param("a2 = 3", '"A 2" = 3', "[budgets.org-a.projects] A 2: is no name", id="a project's name"),
        pytest.param("a2 = 3", "b2 = 3", "[budgets] b2: stands there 2 times: give each", id="a name twice"),
        pytest.param("count_permille = 450", "count_permille = 451", "[class] count_permille = 1001: is the", id="sum"),
        pytest.param("gpus = [8]", "gpus = []", "[class.idle] gpus = []: is no list of one number", id="no sizes"),
        pytest.param("gpus = [8]", 'gpus = [8, "x"]', '[class.idle] gpus[1] = "x": is no whole', id="a size"),
        pytest.param("gpus = [8]", "gpus = [12]", "gpus = 12: is above one host and no whole hosts of 8", id="a part"),
        pytest.param("[class.idle]", "[class.lazy]", "[class] idle: is missing: the work without a window", id="idle"),
        pytest.param(
            "window_min = [15]", "window_min = [16]", "is above the timeout of 15 minutes: write", id="window"
        ),
        pytest.param("timeout_min = 15", "", "[class.debug] timeout_min = 0: is no time: write", id="no timeout"),
        pytest.param('lane = "debug"', 'lane = "fast"', 'lane = "fast": is none of "", "debug"', id="no such lane"),
        pytest.param('"exponential", mean_s = 390', '"gauss"', 'kind = "gauss": is none of "exponential"', id="kind"),
        pytest.param("mean_s = 390, ", "", "[class.debug.duration] mean_s = 0: is no mean", id="no mean"),
        pytest.param("sigma = 1.2", "sigma = 0", "median_h, sigma = 3, 0: need to be above 0", id="no spread"),
        pytest.param("max_s = 890", "max_s = 20", "max_s = 20: is not above min_s = 20: write max_s", id="no room"),
        pytest.param("resumable = false", "resumable = 0", "resumable = 0: is neither true nor false", id="a switch"),
        pytest.param("high_permille = 600", "high_permille = 601", "low_permille = 1001: make it 1000", id="priority"),
    ],
)
def test_a_problem_is_told_with_table_key_value_and_way_out(tmp_path: Path, old: str, new: str, expected: str) -> None:
    found = told(written(tmp_path, (old, new)))
    assert any(expected in line for line in found), found
    assert all(line.startswith("own.toml: ") for line in found)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(b"", "own.toml: cluster: is missing", id="an empty file"),
        pytest.param(b"a = ", "is no TOML in UTF-8 (Invalid value (at ", id="no TOML"),
        pytest.param(b"\xff\xfea", "is no TOML in UTF-8", id="another encoding"),
        pytest.param(b"a = " + b"[" * 100_000, "is no TOML in UTF-8", id="brackets without end"),
        pytest.param(b"#" * (1 << 20) + b"\n", "is larger than 1048576 bytes", id="larger than any workload"),
        pytest.param(b"cluster = 3", "own.toml: cluster = 3: is no table", id="no table"),
    ],
)
def test_a_file_that_is_no_workload_is_refused(tmp_path: Path, raw: bytes, expected: str) -> None:
    assert any(expected in line for line in told(written(tmp_path, raw=raw)))


def test_all_problems_are_told_at_once_and_the_first_are_shown(tmp_path: Path) -> None:
    path = written(tmp_path, ("hosts = 128", "hosts = 0"), ("stop_s = 5", "stop_s = -5"), ("[priority]", "[prio]"))
    found = told(path)
    assert [line for line in found if "hosts = 0" in line or "stop_s = -5" in line or "prio" in line] == found
    assert len(found) == 4
    many = "".join(f"x{n} = 1\n" for n in range(100))
    assert told(written(tmp_path, ("[cluster]\n", f"[cluster]\n{many}")))[SHOWN_PROBLEMS:] == ["own.toml: and 80 more"]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        pytest.param(lambda path: ["--workload", str(path), "--hosts", "2x4"], 64, "write Nx8", id="other hosts"),
        pytest.param(lambda path: ["--workload", str(path), "--limit", "3"], 64, "--limit is of a trace", id="limit"),
        pytest.param(lambda path: ["--workload", f"{path}x"], 65, "No such file", id="no such file"),
        pytest.param(
            lambda path: ["--workload", str(path.parent)], 65, "is a directory: name a plain file", id="a directory"
        ),
        pytest.param(lambda path: ["--workload", __file__], 65, "is no TOML in UTF-8", id="another file"),
    ],
)
def test_the_command_says_why_there_is_no_report(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: Callable[[Path], list[str]],
    code: int,
    expected: str,
) -> None:
    assert main(["simulate", *words(written(tmp_path))]) == code
    assert expected in capsys.readouterr().err
