"""The file of an exploration: what is in it after a crash, and what is refused before anything is changed."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlease.simulator import kept as kept_module
from fairlease.simulator.exploration import digest_of_policy, whole_of
from fairlease.simulator.kept import Kept, KeptBusy, KeptWrong, Setting
from fairlease_schemas.comparison import ExploredRun
from fairlease_schemas.policy import Policy

SETTING = Setting(workload_digest="a" * 64, hosts=4, warm_up_ms=10, measured_ms=20)
CODE = "c" * 64
FIGURES = {"occupancy": 0.5, "jobs.finished": 9, "wait.gangs_128.p90_s": None}


def ran(seed: int = 1, policy: Policy | None = None, **other: Any) -> ExploredRun:  # noqa: ANN401 - any field of a line
    policy = policy or Policy(margin_permille=10)
    told: dict[str, Any] = {
        **SETTING._asdict(),
        "code": CODE,
        "numbers": whole_of(policy),
        "policy_digest": digest_of_policy(policy),
        "seed": seed,
        "digest": f"{seed:064x}",
        "figures": FIGURES,
    }
    return ExploredRun(**(told | other))


def line(run: ExploredRun) -> bytes:
    return msgspec.json.encode(run) + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept.jsonl"


def opened(path: Path, **options: bool) -> Kept:
    return Kept(str(path), SETTING, CODE, ("occupancy", "wait.gangs_128.p90_s"), **options)


def seeds(path: Path) -> list[int]:
    kept = opened(path)
    kept.close()
    return [seed for _, seed in kept.runs]


def keep(path: Path, *runs: ExploredRun) -> None:
    kept = opened(path)
    for run in runs:
        kept.keep(run)
    kept.close()


def test_what_was_kept_is_taken_up_with_the_figures_that_matter(path: Path) -> None:
    keep(path, ran(1), ran(2))
    keep(path, ran(3))
    kept = opened(path)
    kept.close()
    digest = digest_of_policy(Policy(margin_permille=10))
    assert list(kept.runs) == [(digest, seed) for seed in (1, 2, 3)]
    assert kept.points == {digest: Policy(margin_permille=10)}
    assert kept.runs[digest, 1].figures == {"occupancy": 0.5, "wait.gangs_128.p90_s": None}
    assert path.read_bytes() == line(ran(1)) + line(ran(2)) + line(ran(3))


LINES = line(ran(1)) + line(ran(2))


@given(st.integers(0, len(LINES)), st.integers(0, 300))
def test_a_file_cut_anywhere_goes_on_from_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, cut: int, zeros: int
) -> None:
    """A kill leaves the first part of a line; a power cut may leave zeros where the rest should be."""
    path = tmp_path_factory.mktemp("cut") / "kept.jsonl"
    path.write_bytes(LINES[:cut] + bytes(zeros))
    whole = LINES[:cut].count(b"\n")
    assert seeds(path) == [1, 2][:whole]
    keep(path, ran(9))
    assert path.read_bytes() == b"".join(map(line, [ran(1), ran(2)][:whole])) + line(ran(9))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"a note of mine", "line 1 is no run", id="another file without a line end"),
        pytest.param(b"a note of mine\n", "line 1 is no run", id="another file"),
        pytest.param(LINES + b"\n", "line 3 is no run", id="an empty line"),
        pytest.param(line(ran(1))[:50] + b"\n" + line(ran(2)), "line 1 is no run", id="torn in the middle"),
        pytest.param(b'{"kind":"Comparison"}\n', "line 1 is no run", id="another kind"),
        pytest.param(b"[" * 5_000 + b"\n", "line 1 is no run", id="a bomb of brackets"),
        pytest.param(LINES + b"\xff\xfe\n", "line 3 is no run", id="no text"),
        pytest.param(line(ran(1)).replace(b'"seed":1', b'"seed":1,"sed":2'), "line 1 is no run", id="a field more"),
        pytest.param(line(ran(1)).replace(b"0.5", b"1e999"), "line 1 is no run", id="a number beyond all"),
    ],
)
def test_what_holds_no_runs_is_refused_and_left_as_it_is(path: Path, content: bytes, expected: str) -> None:
    path.write_bytes(content)
    with pytest.raises(KeptWrong, match=expected):
        opened(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(ran(workload_digest="b" * 64), "workload_digest is bbb", id="another workload"),
        pytest.param(ran(hosts=5), "hosts is 5, and that of this exploration 4", id="another size"),
        pytest.param(ran(measured_ms=21), "measured_ms is 21", id="another length"),
        pytest.param(ran(warm_up_ms=0), "warm_up_ms is 0", id="another warm-up"),
        pytest.param(ran(code="d" * 64), "they may decide otherwise", id="other rules"),
        pytest.param(ran(numbers={"margin_permille": 11}), "policy_digest is not that of its numbers", id="changed"),
        pytest.param(ran(policy=Policy(lookback_ms=0)), "policy.lookback_ms 0 is not within 100-", id="no policy"),
        pytest.param(ran(numbers={"margin_permille": "x"}), "line 2 is no run", id="no number"),
        pytest.param(ran(numbers={"marjin": 1}), "numbers has marjin, which no policy here has", id="no such number"),
    ],
)
def test_a_run_that_does_not_belong_here_is_refused_with_its_line(path: Path, run: ExploredRun, expected: str) -> None:
    path.write_bytes(line(ran(1)) + line(run))
    before = path.read_bytes()
    with pytest.raises(KeptWrong, match="line 2") as caught:
        opened(path)
    assert expected in str(caught.value)
    assert "name a file that does not exist yet" in caught.value.way_out
    assert path.read_bytes() == before


def test_the_same_run_twice_is_one(path: Path) -> None:
    path.write_bytes(LINES + line(ran(2)))
    assert seeds(path) == [1, 2]


def test_one_run_with_two_outcomes_is_refused(path: Path) -> None:
    path.write_bytes(LINES + line(ran(2, figures=FIGURES | {"occupancy": 0.9})))
    with pytest.raises(KeptWrong, match="line 3 has other figures of seed 2"):
        opened(path)


@pytest.mark.parametrize("is_ours_first", [True, False])
def test_runs_of_other_code_are_taken_up_when_asked_for_and_ours_go_before(path: Path, is_ours_first: bool) -> None:
    both = [line(ran(1)), line(ran(1, code="d" * 64, figures=FIGURES | {"occupancy": 0.9}))]
    path.write_bytes(b"".join(both if is_ours_first else both[::-1]) + line(ran(2, code="d" * 64)))
    kept = opened(path, is_any_code=True)
    kept.close()
    assert [(seed, run.code) for (_, seed), run in kept.runs.items()] == [(1, CODE), (2, "d" * 64)]


def test_a_point_that_other_code_knew_by_another_digest_is_the_same_by_its_numbers(path: Path) -> None:
    """Its default was another one, and a number that came later was not there yet."""
    policy = Policy(margin_permille=10)
    older = {name: value for name, value in whole_of(policy).items() if name != "quiet_period_ms"}
    path.write_bytes(line(ran(1, code="d" * 64, numbers=older, policy_digest="e" * 64)))
    kept = opened(path, is_any_code=True)
    kept.close()
    assert list(kept.runs) == [(digest_of_policy(policy), 1)]
    assert kept.points == {digest_of_policy(policy): policy}


def test_an_endless_line_is_refused_and_none_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MAX_LINE", len(line(ran(1))))
    kept = opened(path)
    kept.keep(ran(1))
    with pytest.raises(OSError, match="is full"):
        kept.keep(ran(1, figures=FIGURES | {"more": 1}))
    kept.close()
    assert path.read_bytes() == line(ran(1))
    path.write_bytes(b"x" * 10_000)
    with pytest.raises(KeptWrong, match="a line is longer than"):
        opened(path)


def test_a_file_grows_no_larger_than_what_is_taken_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MAX_BYTES", len(LINES))
    keep(path, ran(1), ran(2))
    kept = opened(path)
    with pytest.raises(OSError, match="is full"):
        kept.keep(ran(3))
    kept.close()
    assert seeds(path) == [1, 2]


def test_a_second_exploration_waits_for_the_first(path: Path) -> None:
    first = opened(path)
    first.keep(ran(1))
    with pytest.raises(KeptBusy):
        opened(path)
    shown = opened(path, is_shown=True)
    shown.close()
    assert [seed for _, seed in shown.runs] == [1]
    first.close()
    assert seeds(path) == [1]


def test_whoever_looks_changes_nothing(path: Path) -> None:
    path.write_bytes(LINES[:-5])
    shown = opened(path, is_shown=True)
    shown.close()
    assert [seed for _, seed in shown.runs] == [1]
    assert path.read_bytes() == LINES[:-5]
    with pytest.raises(FileNotFoundError):
        opened(path.with_name("none"), is_shown=True)


def test_a_file_that_is_refused_is_locked_no_longer(path: Path) -> None:
    path.write_bytes(b"a note\n")
    with pytest.raises(KeptWrong):
        opened(path)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    yield path
    path.unlink()


def test_devices_and_pipes_are_refused_and_not_waited_for(pipe: Path) -> None:
    for place in (pipe, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(KeptWrong, match="is no file"):
            opened(place)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(kept_module.MAX_BYTES + 1)
    with pytest.raises(KeptWrong, match="is larger than 1024 MiB"):
        opened(path)


def test_a_disk_that_is_full_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = opened(path)
    kept.keep(ran(1))
    wrote = os.pwrite

    def full(file: int, data: bytes, at: int) -> int:
        if at > len(line(ran(1))):
            raise OSError(28, "No space left on device")
        return wrote(file, data[:10], at)

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(OSError, match="No space"):
        kept.keep(ran(2))
    assert path.read_bytes() == line(ran(1))
    monkeypatch.undo()
    kept.keep(ran(3))
    kept.close()
    assert seeds(path) == [1, 3]


def test_a_run_is_on_disk_before_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    kept = opened(path)
    monkeypatch.setattr("os.fsync", lambda _file: synced.append(path.stat().st_size))
    kept.keep(ran(1))
    kept.keep(ran(2))
    kept.close()
    assert synced == [len(line(ran(1))), len(LINES)]
