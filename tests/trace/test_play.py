"""Recorded workloads through a whole live cell: real processes, real kills, and a log that replays."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlease.core.job import Phase
from fairlease.replay.verify import verify
from fairlease.runtime.supervisor import Supervisor
from fairlease.trace.player import Progress, Result, play
from fairlease.trace.reading import read_trace
from fairlease.trace.recorded import Outcome
from fairlease.trace.report import is_good, report_of
from fairlease.trace.workload import Workload, prepare

DATA = Path(__file__).parents[1] / "data"
PHILLY = ("tiny_philly_200.csv", 20)
HELIOS = ("tiny_helios_200.csv", 22)
SPEED = 2000
SEED = 20_171_017


def _workload(trace: tuple[str, int], limit: int, cut_s: float = 1.0) -> Workload:
    name, hosts = trace
    recorded = read_trace(DATA / name)
    return prepare(recorded, hosts=hosts, gpus_per_host=8, speed=SPEED, cut_s=cut_s, limit=limit)


def _assert_whole(workload: Workload, result: Result) -> None:
    """Nothing was lost, everything ended as it was recorded, and the log comes out the same again."""
    ends = {job.id: str(job.phase) for job in result.world.jobs.values()}
    assert (result.lost, result.refused) == ((), {})
    assert ends == {task.job: str(task.outcome) for task in workload.tasks}
    lines = result.log.read_bytes().splitlines()
    report = verify(enumerate(lines, start=1))
    assert (report.first, report.positions) == (None, result.world.position)
    assert report.digest == result.world.digest()


@pytest.mark.parametrize("trace", [PHILLY, HELIOS], ids=["philly", "helios"])
async def test_the_first_forty_jobs_of_a_real_trace_are_played(trace: tuple[str, int], tmp_path: Path) -> None:
    workload = _workload(trace, limit=40)
    seen: list[Progress] = []

    async def look(now: Progress) -> None:
        seen.append(now)

    result = await play(workload, tmp_path, on_progress=look)
    _assert_whole(workload, result)
    assert (seen[-1].total, seen[-1].submitted, seen[-1].over, seen[-1].live) == (40, 40, 40, 0)
    recorded = read_trace(DATA / trace[0])
    replay = {"decisions": 1, "divergences": 0, "first": None, "events_per_s": 1.0, "events": 1, "digest": ""}
    report = report_of(trace[0], recorded, workload, result, replay)
    assert is_good(report)
    assert (report["jobs"]["started"], report["jobs"]["finished"], report["jobs"]["otherwise"]) == (40, 40, 0)


class _Killer:
    """Kills a process of the cell at seeded moments of the play, told by how many jobs are over."""

    def __init__(self, seed: int, names: list[str], total: int) -> None:
        chance = random.Random(seed)
        moments = sorted(chance.sample(range(2, total - 2), len(names)))
        chance.shuffle(names)
        self.plan = list(zip(moments, names, strict=True))
        self.done: list[str] = []

    async def __call__(self, now: Progress) -> None:
        while self.plan and now.over >= self.plan[0][0]:
            pid = _pid(now.cell, self.plan[0][1])
            if not pid:
                return
            os.kill(pid, signal.SIGKILL)
            self.done.append(self.plan.pop(0)[1])


def _pid(cell: Supervisor, name: str) -> int:
    return cell.bus_pid if name == "bus" else cell.pid(name)


async def test_nothing_is_lost_when_every_process_of_the_cell_is_killed_once(tmp_path: Path) -> None:
    workload = _workload(PHILLY, limit=30)
    services = ("admission", "ledger", "ranker", "placement", "preemption", "health", "explainer")
    killer = _Killer(SEED, ["bus", "agent", *(f"{name}-a" for name in services)], total=30)
    planned = list(killer.plan)
    result = await play(workload, tmp_path, on_progress=killer)
    assert killer.plan == [], f"seed {SEED}: {planned}"
    _assert_whole(workload, result)


async def test_a_play_that_is_broken_off_leaves_nothing_running(tmp_path: Path) -> None:
    workload = _workload(PHILLY, limit=3, cut_s=300)
    running = asyncio.Event()

    async def look(now: Progress) -> None:
        if now.live:
            running.set()

    playing = asyncio.create_task(play(workload, tmp_path, on_progress=look))
    await asyncio.wait_for(running.wait(), 30)
    assert _of_the_cell(str(tmp_path).encode()) != []
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert _of_the_cell(str(tmp_path).encode()) == []


def _of_the_cell(mark: bytes) -> list[str]:
    """Processes that name the cell's directory in their arguments or their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "cmdline").read_bytes() + (process / "environ").read_bytes():
                found.append(process.name)
    return found


def _trace_play(*words: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, "-m", "fairlease", "trace", "play", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.mark.long
@pytest.mark.parametrize("trace", [PHILLY, HELIOS], ids=["philly", "helios"])
def test_a_whole_trace_is_played_and_its_log_replays(trace: tuple[str, int], tmp_path: Path) -> None:
    name, hosts = trace
    kept = tmp_path / "kept"
    words = ("--hosts", f"{hosts}x8", "--speed", str(SPEED), "--cut", "3", "--keep", str(kept), "--json")
    code, report, errors = _trace_play(str(DATA / name), *words)
    assert (code, errors) == (0, "")
    assert report["kind"] == "TraceReport"
    outcomes = [job.outcome for job in read_trace(DATA / name).jobs]
    expected = {
        "submitted": 200,
        "started": 200,
        "finished": 200,
        "succeeded": outcomes.count(Outcome.SUCCEEDED),
        "failed": outcomes.count(Outcome.FAILED),
        "cancelled": outcomes.count(Outcome.CANCELLED),
        "timed_out": 0,
        "otherwise": 0,
        "refused": 0,
        "lost": 0,
    }
    assert report["jobs"] == expected
    assert report["replay"]["decisions"] == report["positions"]
    assert report["replay"]["divergences"] == 0
    assert report["wall_s"] < 360
    assert len((kept / "log.jsonl").read_bytes().splitlines()) == report["positions"]


def test_a_wrong_trace_is_told_before_any_cell_is_started(tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-17 00:00:00,-1,1,1,a\n", encoding="utf-8")
    code, report, errors = _trace_play(str(path), "--json")
    assert (code, report) == (65, {})
    told = json.loads(errors)
    assert (told["kind"], told["exit_code"]) == ("Error", 65)
    assert "row 2, column duration: '-1' is negative" in told["text"]


def test_the_phases_of_a_job_are_named_as_the_outcomes_are() -> None:
    assert {str(outcome) for outcome in Outcome} <= {str(phase) for phase in Phase}
