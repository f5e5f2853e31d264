"""The SDK for training code, as a script uses it: with an attempt's environment, and without."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fairlease_sdk as fairlease
from fairlease.agent import layout
from fairlease_sdk import pace
from fairlease_sdk.checkpoint import MANIFEST


@pytest.fixture(autouse=True)
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of attempt 2 of a job, and its environment; the test stands in `work`."""
    for name in [name for name in os.environ if name.startswith("FAIRLEASE_")]:
        monkeypatch.delenv(name)
    (tmp_path / "said").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("FAIRLEASE_PREEMPT_FILE", str(tmp_path / "preempt"))
    monkeypatch.setenv("FAIRLEASE_SAID_DIR", str(tmp_path / "said"))
    monkeypatch.setenv("FAIRLEASE_JOB", "job-a")
    number_is(monkeypatch, 2)
    monkeypatch.setattr(pace, "_last_ms", None)
    return tmp_path


def number_is(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setenv("FAIRLEASE_ATTEMPT_NUMBER", str(number))


def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("FAIRLEASE_")]:
        monkeypatch.delenv(name)


def saved(name: str, text: str = "weights") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_it_loads_nothing_but_a_handful_of_the_standard_library() -> None:
    """Not a time, which would depend on the machine: what is loaded beyond a bare interpreter."""
    code = (
        "import sys; before = set(sys.modules); sys.path.append(sys.argv[1]); import fairlease_sdk; "
        "print(*sorted(set(sys.modules) - before))"
    )
    root = str(Path(fairlease.__file__).parents[1])
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if not name.startswith("fairlease_sdk")}
    of_os = {"os", "os.path", "posixpath", "genericpath", "stat", "_stat", "_collections_abc"}
    assert loaded <= {"__future__", "time", *of_os}


def test_a_script_is_preempted_from_the_notice_on(attempt: Path) -> None:
    # rule: 8.1
    assert (fairlease.preempted(), fairlease.stop_reason(), fairlease.grace_left_ms()) == (False, "", None)
    (attempt / "preempt").write_text(json.dumps({"reason": "drained", "term_at_ms": layout.boot_ms() + 60_000}))
    assert (fairlease.preempted(), fairlease.stop_reason()) == (True, "drained")
    left_ms = fairlease.grace_left_ms()
    assert left_ms is not None
    assert 0 < left_ms <= 60_000


@pytest.mark.parametrize("text", ["", "soon", "[]", '{"term_at_ms": "x"}'])
def test_a_notice_that_says_nothing_is_one_all_the_same(attempt: Path, text: str) -> None:
    # rule: 8.1
    (attempt / "preempt").write_text(text)
    assert (fairlease.preempted(), fairlease.stop_reason(), fairlease.grace_left_ms()) == (True, "", 0)


def test_outside_fairlease_nothing_is_preempted_and_checkpoints_are_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside(monkeypatch)
    assert (fairlease.preempted(), fairlease.stop_reason(), fairlease.grace_left_ms()) == (False, "", None)
    fairlease.progress(1)
    assert fairlease.latest_checkpoint() is None
    fairlease.checkpoint_done(5, [saved("out/w")])
    found = fairlease.latest_checkpoint("out")
    assert found is not None
    assert (found.step, found.attempt, Path(found.path("w")).read_text()) == (5, 0, "weights")


def test_the_manifest_lies_beside_the_files_and_the_agent_reads_the_same_bytes(attempt: Path) -> None:
    # rule: 8.2
    fairlease.checkpoint_done(5, [saved("out/w")], kind="pt", tokens=1000, state={"commit": "abc"})
    data = Path("out", MANIFEST).read_bytes()
    assert (attempt / "said/checkpoint.json").read_bytes() == data
    manifest = json.loads(data)
    assert manifest.pop("written_ms") > 0
    digest = hashlib.sha256(b"weights").hexdigest()
    assert manifest.pop("files") == [{"path": "w", "size": 7, "sha256": digest}]
    assert manifest == {
        "schema": "fairlease/checkpoint/v1",
        "job": "job-a",
        "attempt": 2,
        "step": 5,
        "world_size": 1,
        "gpu_model": "",
        "state": {"commit": "abc"},
        "format": "pt",
        "uri": "",
        "rng": True,
        "tokens": 1000,
        "complete": True,
    }
    assert sorted(path.name for path in (attempt / "said").iterdir()) == ["checkpoint.json"]


def test_only_rank_0_speaks(attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEASE_RANK", "1")
    fairlease.checkpoint_done(5, [saved("out/w")])
    assert not Path("out", MANIFEST).exists()
    assert list((attempt / "said").iterdir()) == []


def test_the_latest_is_by_attempt_then_step_and_what_is_not_whole_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # rule: 8.3
    for number, step in ((1, 900), (2, 100), (2, 300), (2, 400), (2, 500), (2, 600)):
        number_is(monkeypatch, number)
        fairlease.checkpoint_done(step, [saved(f"out/{step}/w")])
    saved("out/700/w")
    Path("out/600/w").write_text("cut")
    Path("out/500/w").unlink()
    Path("out/400", MANIFEST).write_text('{"step": 4')
    found = fairlease.latest_checkpoint("out")
    assert found is not None
    assert (found.attempt, found.step) == (2, 300)


@pytest.mark.parametrize(
    ("there", "here"),
    [
        pytest.param((3, 10), (2, 20), id="of a later attempt: this one should be dead"),
        pytest.param((1, 20), (2, 10), id="of a later step: this one forgot to resume"),
        pytest.param((2, 20), (2, 19), id="of a later step of its own"),
    ],
)
def test_newer_state_is_not_written_over(
    monkeypatch: pytest.MonkeyPatch, there: tuple[int, int], here: tuple[int, int]
) -> None:
    # rule: 8.3
    number_is(monkeypatch, there[0])
    fairlease.checkpoint_done(there[1], [saved("out/w")])
    before = Path("out", MANIFEST).read_bytes()
    number_is(monkeypatch, here[0])
    with pytest.raises(fairlease.NewerState, match=f"holds step {there[1]} of attempt {there[0]}"):
        fairlease.checkpoint_done(here[1], [saved("out/w")])
    assert Path("out", MANIFEST).read_bytes() == before
    fairlease.checkpoint_done(here[1], [saved("out/w")], can_overwrite=True)


def test_the_same_step_may_be_saved_again_and_a_later_attempt_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 8.3
    for number, step in ((1, 10), (1, 10), (2, 10), (2, 11)):
        number_is(monkeypatch, number)
        fairlease.checkpoint_done(step, [saved("out/w")])
    found = fairlease.latest_checkpoint("out")
    assert found is not None
    assert (found.attempt, found.step) == (2, 11)


def test_a_file_that_is_not_there_or_lies_elsewhere_is_an_error_and_no_checkpoint() -> None:
    with pytest.raises(FileNotFoundError):
        fairlease.checkpoint_done(5, ["out/w"])
    with pytest.raises(ValueError, match="does not lie in"):
        fairlease.checkpoint_done(5, [saved("out/w"), saved("else/w")])
    assert not Path("out", MANIFEST).exists()


def test_the_directory_of_the_contract_is_where_checkpoints_are_looked_for(
    attempt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEASE_CHECKPOINT_DIR", str(attempt / "store"))
    assert fairlease.latest_checkpoint() is None
    fairlease.checkpoint_done(3)
    found = fairlease.latest_checkpoint()
    assert found is not None
    assert (found.directory, found.step) == (str(attempt / "store"), 3)


def test_progress_is_one_file_that_is_not_written_at_every_step(attempt: Path) -> None:
    for step in range(1000):
        fairlease.progress(step, 1000, loss=1 / (step + 1))
    said = json.loads((attempt / "said/progress.json").read_bytes())
    assert said["total"] == 1000
    assert said["step"] < 999
    fairlease.progress(1000, 1000, loss=0.5)
    assert json.loads((attempt / "said/progress.json").read_bytes()) == {
        "step": 1000,
        "total": 1000,
        "figures": {"loss": 0.5},
    }


def test_progress_on_a_full_disk_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEASE_SAID_DIR", "/dev/null/nowhere")
    fairlease.progress(1)
