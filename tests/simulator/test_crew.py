import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlease.simulator.crew import Play, Result, Tell, Wrong, played
from fairlease.simulator.plays import play_lab
from fairlease_schemas.units import HOUR_MS, MINUTE_MS

TINY = ("--hosts", "2x8", "--days", "0.01", "--warm-up", "0.01")


def fine(tell: Tell, *, name: str) -> dict[str, Any]:
    tell(500)
    return {"name": name}


def wrong(_tell: Tell) -> dict[str, Any]:
    raise Wrong("job-1 was refused")


def broken(_tell: Tell) -> dict[str, Any]:
    return {"half": 1 // 0}


def killed(_tell: Tell) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def endless(tell: Tell, *, mark: str) -> dict[str, Any]:
    Path(mark).write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)
        tell(1)


def results(*plays: Play, workers: int = 2) -> list[Result]:
    return sorted(played(plays, workers, lambda _permille: None))


def is_running(pid: int) -> bool:
    """Whether the process is there, and not merely waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(what: Callable[[], bool], seconds: float = 60) -> None:
    end_s = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end_s, "it did not come to that in time"
        time.sleep(0.05)


def test_one_run_that_crashes_takes_no_other_with_it() -> None:
    first, second, third, fourth, last = results(
        partial(fine, name="first"), wrong, broken, killed, partial(fine, name="last")
    )
    assert (first.report, last.report) == ({"name": "first"}, {"name": "last"})
    assert second == Result(1, None, "job-1 was refused")
    assert third.report is None
    assert third.why.startswith("ZeroDivisionError:")
    assert "broken" in third.why
    assert fourth == Result(3, None, "its process ended with -9 and no report")


def test_progress_grows_to_all_of_it() -> None:
    seen: list[int] = []
    list(played([partial(fine, name="a"), partial(fine, name="b")], 1, seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == 2000


def test_who_stops_reading_leaves_no_process(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    crew = played([partial(fine, name="a"), partial(endless, mark=str(mark))], 2, lambda _permille: None)
    assert next(crew).report == {"name": "a"}
    until(mark.exists)
    until(lambda: mark.read_text() != "")
    crew.close()
    until(lambda: not is_running(int(mark.read_text())))


def test_a_comparison_is_the_same_whatever_the_number_of_workers() -> None:
    plays = [
        partial(play_lab, policy="budget-window", seed=seed, hosts=2, measured_ms=HOUR_MS, warm_up_ms=MINUTE_MS)
        for seed in (1, 2, 3)
    ]
    runs = [results(*plays, workers=workers) for workers in (1, 3)]
    without_speed = [[{**one.report, "speed": None} for one in found if one.report] for found in runs]
    assert len(without_speed[0]) == 3
    assert without_speed[0] == without_speed[1]


def test_a_cell_that_refuses_the_workload_is_told_as_such() -> None:
    play = partial(play_lab, policy="budget-window", seed=1, hosts=0, measured_ms=1, warm_up_ms=1)
    assert results(play)[0].report is not None
    impossible = partial(play_lab, policy="no-policy", seed=1, hosts=1, measured_ms=1, warm_up_ms=1)
    assert "no-policy" in results(impossible)[0].why


def begun() -> tuple["subprocess.Popen[bytes]", set[str]]:
    """A comparison whose second run is under way, and all processes that it has made so far."""
    words = ["compare", "--policies", "budget-window", "--seeds", "1-9", "--workers", "1", *TINY, "-o", "json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlease", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    known: set[str] = set()

    def has_done_some() -> bool:
        known.update(children.read_text().split())
        return len(known) > 3  # beside the tracker of resources

    until(has_done_some, 120)
    return process, known


@pytest.mark.parametrize("is_group", [True, False], ids=["from the terminal", "to the command alone"])
def test_an_interruption_tells_what_is_known_and_leaves_no_process(is_group: bool) -> None:
    process, known = begun()
    if is_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    found = json.loads(out)
    assert 1 <= len(found["runs"]) < 9
    assert len(found["runs"]) + len(found["missing"]) == 9
    assert {one["why"] for one in found["missing"]} == {"stopped before its end"}
    assert b"Traceback" not in err
    until(lambda: not any(is_running(int(pid)) for pid in known))


def test_runs_whose_comparison_was_killed_end_by_themselves() -> None:
    process, known = begun()
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not any(is_running(int(pid)) for pid in known))
