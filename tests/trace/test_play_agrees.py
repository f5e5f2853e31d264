"""A live cell and the simulator play the same trace: the same ends, the same order, the same waits, but for start-up.

What the simulator does not have is the time that processes, a bus and services take. Measured on the live cell, that
is the start-up: from a grant until all parts run. So the simulator is given its median, and N of its 99th percentiles
are what a time of the simulation may part from a live one: one for the start itself, and one for each in the longest
row of starts that waited for one another, because each hands its lateness on.
"""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

from fairlease.core.metrics.quantile import spread
from fairlease.core.world import World
from fairlease.simulator.runs import play_trace
from fairlease.trace.player import play
from fairlease.trace.reading import read_trace
from fairlease.trace.workload import Workload, prepare
from fairlease_schemas.ids import JobId

DATA = Path(__file__).parents[1] / "data"
HOSTS = 4
SPEED = 200
CUT_S = 4.0
MOST_LATE = 8


class Course(NamedTuple):
    """What a job's first attempt was, in ms of the cell; `start_ms` and `end_ms` since the first submission."""

    end: str
    wait_ms: int
    start_ms: int
    end_ms: int = 0


def courses(world: World, workload: Workload) -> dict[JobId, Course]:
    jobs = [world.jobs[task.job] for task in workload.tasks]
    zero_ms = min(job.submitted_ms for job in jobs)
    found = {}
    for job in jobs:
        first = job.attempts[0]
        assert first.started_ms is not None
        waited_ms = first.granted_ms - job.submitted_ms
        found[job.id] = Course(str(job.phase), waited_ms, first.started_ms - zero_ms, job.ended_ms - zero_ms)
    return found


def startups(world: World) -> list[int]:
    attempts = [attempt for job in world.jobs.values() for attempt in job.attempts]
    return [a.started_ms - a.granted_ms for a in attempts if a.started_ms is not None]


def differences(live: dict[JobId, Course], simulated: dict[JobId, Course], most_ms: int) -> list[str]:
    """Every job that ended otherwise, waited otherwise, or began before one that it had to begin long after."""
    found = [
        f"{job}: {live[job].end}, simulated {one.end}" for job, one in simulated.items() if live[job].end != one.end
    ]
    for job, one in simulated.items():
        if abs(live[job].wait_ms - one.wait_ms) > most_ms:
            found.append(f"{job}: waited {live[job].wait_ms} ms, simulated {one.wait_ms} ms")
    latest, latest_ms = "", -1
    for job in sorted(live, key=lambda job: live[job].start_ms):
        if simulated[job].start_ms < latest_ms - most_ms:
            found.append(f"{job}: began after {latest}, simulated {latest_ms - simulated[job].start_ms} ms before it")
        if simulated[job].start_ms > latest_ms:
            latest, latest_ms = job, simulated[job].start_ms
    return found


def longest_chain(simulated: dict[JobId, Course], startup_ms: int) -> int:
    """How many starts at most waited for one another, each for the end of the one before."""
    chain: dict[JobId, int] = {}
    for job, one in sorted(simulated.items(), key=lambda entry: entry[1].start_ms):
        granted_ms = one.start_ms - startup_ms
        freed = [length for other, length in chain.items() if simulated[other].end_ms == granted_ms]
        chain[job] = 1 + max(freed, default=0) if one.wait_ms else 0
    return max(chain.values())


def simulated(workload: Workload, startup_ms: int) -> dict[JobId, Course]:
    run, _ = play_trace(workload, policy="budget-window", seed=1, startup_ms=startup_ms)
    return courses(run.engine.world, workload)


def _workload(hosts: int) -> Workload:
    recorded = read_trace(DATA / "tiny_philly_200.csv")
    return prepare(recorded, hosts=hosts, gpus_per_host=8, speed=SPEED, cut_s=CUT_S)


@pytest.mark.long
def test_a_live_cell_and_the_simulator_agree_on_a_real_trace(tmp_path: Path) -> None:
    workload = _workload(HOSTS)
    world = asyncio.run(play(workload, tmp_path)).world
    live, took = courses(world, workload), spread(startups(world))
    assert took.p50 is not None
    assert took.p99 is not None
    again = simulated(workload, took.p50)
    assert sum(one.wait_ms > 0 for one in again.values()) >= 20, "a cell in which nobody waits shows nothing"
    late = 1 + longest_chain(again, took.p50)
    print(f"N {late}, start-up p50 {took.p50} ms, p99 {took.p99} ms")
    assert late <= MOST_LATE, f"a chain of {late} would excuse anything"
    assert differences(live, again, late * took.p99) == []


def test_a_cell_of_another_size_would_not_agree() -> None:
    found = differences(simulated(_workload(1), 100), simulated(_workload(HOSTS), 100), MOST_LATE * 100)
    assert sum("waited" in line for line in found) > 50
    assert any("began after" in line for line in found)


def test_jobs_that_change_places_are_told_by_how_far_they_are_apart() -> None:
    live = {"job-a": Course("succeeded", 0, 100), "job-b": Course("failed", 0, 90)}
    other = {"job-a": Course("succeeded", 0, 0), "job-b": Course("succeeded", 40, 60)}
    assert differences(live, other, 60) == ["job-b: failed, simulated succeeded"]
    assert differences(live, other, 59) == [
        "job-b: failed, simulated succeeded",
        "job-a: began after job-b, simulated 60 ms before it",
    ]
    assert "job-b: waited 0 ms, simulated 40 ms" in differences(live, other, 39)
