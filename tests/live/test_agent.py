"""The agent dies or stands still while jobs run: they go on, and their ends are told all the same."""

import asyncio
import signal
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from tests.live import process
from tests.live.cell import GPUS, HOSTS, Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import Ears, Job
from tests.live.workload import mixed

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path_factory.mktemp("agent") / "cell") as cell:
        yield cell


async def test_jobs_outlive_their_agent_and_the_next_one_tells_how_they_ended(cell: Cell) -> None:
    gate = cell.home / "gate"
    scripts = {
        "short": "sleep 0.2; exit 7",
        "long": f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 8",
        "gang": f"while [ ! -e {gate} ]; do sleep 0.05; done; exit $((10 + FAIRLEASE_RANK))",
    }
    codes = {"short": 7, "long": 8, "gang": None}
    jobs = [
        Job(name, script, hosts=2 if name == "gang" else 1, gpus=GPUS, end="job-failed", code=codes[name])
        for name, script in scripts.items()
    ]
    for job in jobs:
        await cell.submit(job)
    await eventually(lambda: len(cell.started()) >= HOSTS, "all parts began")
    (old,) = cell.kill("agent")
    await cell.replaced("agent", old)
    gate.touch()
    await cell.over()
    assert len(cell.started()) == HOSTS
    await cell.judge()


async def test_a_running_job_is_cancelled_by_an_agent_that_did_not_start_it(cell: Cell) -> None:
    job = await cell.submit(Job("adopted", "exec sleep 600", end="job-cancelled"))
    await cell.event(job, "attempt-started")
    (old,) = cell.kill("agent")
    await cell.cancel(job)
    await cell.replaced("agent", old)
    await cell.over(job)
    assert process.jobs_of(cell.home) == []


async def _killed_while_starting(cell: Cell, seed: int) -> None:
    """Kills the agent some milliseconds after it was told what to run."""
    chance = Random(seed)
    ears = await Ears.at(cell, cell.subjects.order("*"))
    jobs = mixed(chance, 8, f"starting-{seed}")
    handing_in = [asyncio.create_task(cell.submit(job)) for job in jobs]
    await ears.next()
    await asyncio.sleep(chance.uniform(0, 0.15))
    (old,) = cell.kill("agent")
    await asyncio.gather(*handing_in)
    await cell.replaced("agent", old)
    await cell.over()
    await cell.judge()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_an_agent_killed_while_it_starts_jobs_starts_none_of_them_twice(cell: Cell, seed: int) -> None:
    await _killed_while_starting(cell, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 44))
async def test_forty_more_moments_to_kill_a_starting_agent(cell: Cell, seed: int) -> None:
    await _killed_while_starting(cell, seed)


async def test_a_keeper_that_is_killed_loses_its_run_and_takes_it_along(cell: Cell) -> None:
    job = await cell.submit(Job("keeperless", "exec sleep 600", end="job-failed"))
    await cell.event(job, "attempt-started")
    keepers = [pid for pid in process.belonging(cell.home) if process.is_keeper_of(pid, f"{job}-a1")]
    assert len(keepers) == 1, keepers
    process.kill(*keepers)
    await cell.over(job)
    (end,) = cell.journal.of_job(job, "attempt-ended")
    assert end["end"] == "lost"
    assert process.jobs_of(cell.home) == []


async def _stands_still(cell: Cell, name: str, pause_s: float, label: str) -> None:
    """A part is stopped while jobs run and others are handed in, and continued after the pause."""
    jobs = [
        Job(f"{label}-running", "sleep 0.5; exit 3", end="job-failed", code=3),
        Job(f"{label}-gang", "sleep 0.5", hosts=2, gpus=GPUS),
    ]
    for job in jobs:
        await cell.submit(job)
    await cell.event(jobs[1].id, "attempt-started", count=2)
    pid = cell.pid(name)
    process.send(signal.SIGSTOP, pid)
    during = [asyncio.create_task(cell.submit(job)) for job in mixed(Random(label), 4, f"{label}-during")]
    await asyncio.sleep(pause_s)  # the length of the pause is the fault itself
    process.send(signal.SIGCONT, pid)
    await asyncio.gather(*during)
    await cell.over()
    assert cell.pid(name) == pid, f"{name} was replaced: a pause is no reason to leave"
    await cell.judge()


async def test_an_agent_that_stood_still_for_three_seconds_goes_on_as_if_nothing_was(cell: Cell) -> None:
    await _stands_still(cell, "agent", 3, "still")


# The client forgets a socket on which nobody answered; here that is the desk's, while the bus stands still.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.long
@pytest.mark.parametrize("pause_s", [10, 90])
@pytest.mark.parametrize(
    "name", ["bus", "agent", "admission-a", "ledger-a", "ranker-a", "placement-a", "preemption-a", "health-a"]
)
async def test_a_part_that_stood_still_for_longer_goes_on_as_if_nothing_was(
    cell: Cell, name: str, pause_s: float
) -> None:
    await _stands_still(cell, name, pause_s, f"still-{name}-{pause_s}")


@pytest.mark.long
async def test_an_explainer_that_stood_still_leaves_out_no_answer(cell: Cell) -> None:
    await _stands_still(cell, "explainer-a", 10, "still-explainer")
