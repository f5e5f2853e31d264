"""An upgrade under running jobs: each process is asked to end, and another is started in its place, one by one.

That is what a site does with a new release: services first, one replica after the other, then the agent, whose runs it
finds again, then the bus. Meanwhile work is handed in. No job ends by it, nothing acknowledged is lost.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from fairlease_schemas.subjects import SERVICES
from tests.live import process
from tests.live.cell import GPUS, HOSTS, Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import Job
from tests.live.workload import mixed


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.long)], ids=["one of each service", "two of each service"])
async def cell(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path / "cell", replicas=request.param) as cell:
        yield cell


async def _hand_in(cell: Cell, seed: int, is_over: asyncio.Event) -> int:
    """Small jobs beside those that run, until it is over; how many."""
    chance, count = Random(seed), 0
    while not is_over.is_set():
        for job in mixed(chance, 1, f"u{seed}-{count}", longest_s=0.2):
            await cell.submit(job._replace(hosts=1, gpus=1))
        count += 1
        await asyncio.sleep(chance.uniform(0.05, 0.25))
    return count


async def _replaced_in_order(cell: Cell, name: str) -> None:
    """The process ends because it was asked to, leaves with 0, and its successor is ready."""
    old = cell.pid(name)
    ended = cell.supervisor.processes.get(name)
    process.send(signal.SIGTERM, old)
    await cell.replaced(name, old)
    assert ended is None or ended.returncode == 0, f"{name} left with {ended.returncode}"


async def _decides_on(cell: Cell) -> None:
    """A grant that was decided after now: a whole cycle's work is done."""
    position = await cell.journal.read()

    async def found() -> bool:
        await cell.journal.read()
        return bool(cell.journal.events("gang-granted", after=position))

    await eventually(found, "a grant after the restart")


@pytest.mark.parametrize("seed", [1])
async def test_a_cell_is_upgraded_process_by_process_and_no_job_notices(cell: Cell, seed: int) -> None:
    gate = cell.home / "gate"
    until_open = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    long = [
        Job("gang", until_open, hosts=HOSTS - 1, gpus=GPUS),
        Job("single", f"{until_open}; exit 5", gpus=4, end="job-failed", code=5),
    ]
    for job in long:
        await cell.submit(job)
        await cell.event(job.id, "attempt-started", count=job.hosts)
    is_over = asyncio.Event()
    handing_in = asyncio.create_task(_hand_in(cell, seed, is_over))
    try:
        replicas = [name for name in cell.supervisor.parts if name.rpartition("-")[0] in SERVICES]
        for name in (*replicas, "agent", "bus"):
            await _replaced_in_order(cell, name)
            await _decides_on(cell)
    finally:
        is_over.set()
        print(await handing_in, "jobs handed in meanwhile")
    assert not cell.journal.ends.keys() & {job.id for job in long}, "a job ended that should have gone on"
    gate.touch()
    await cell.over(limit_s=180)
    for job in long:
        assert [event["attempt"] for event in cell.journal.of_job(job.id, "gang-granted")] == [f"{job.id}-a1"]
    await cell.judge()
