"""A storm: parts are killed, stopped and cut off in any order while work goes on, two replicas of each.

What happens is drawn from the seed; when it happens is counted in messages of the log, not in seconds.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.live import process
from tests.live.cell import Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import Ears, Job
from tests.live.workload import mixed


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path / "cell", replicas=2) as cell:
        yield cell


async def _hand_in(cell: Cell, jobs: list[Job], chance: Random) -> None:
    for job in jobs:
        await cell.submit(job)
        if chance.random() < 0.1:
            await cell.cancel(job.id)
            cell.jobs[job.id] = job._replace(end="", code=None)
        await asyncio.sleep(chance.uniform(0, 0.1))


async def _strike(cell: Cell, chance: Random) -> str:
    """One blow: a part, or several, are killed or stand still for a while."""
    parts = ["bus", *cell.supervisor.parts]
    names = chance.sample(parts, chance.choices((1, 2, 5), (6, 3, 1))[0])
    pids = [pid for name in names if (pid := cell.pid(name))]
    if chance.random() < 0.7:
        process.kill(*pids)
        return f"killed {names}"
    process.send(signal.SIGSTOP, *pids)
    await asyncio.sleep(chance.uniform(0.1, 4))
    process.send(signal.SIGCONT, *pids)
    return f"stopped {names} for a while"


async def _storm(cell: Cell, seed: int, count: int, blows: int) -> None:
    chance = Random(seed)
    handing_in = asyncio.create_task(_hand_in(cell, mixed(chance, count, f"storm-{seed}"), Random(seed)))
    for number in range(blows):
        ears = await Ears.at(cell, cell.subjects.log_all())
        with suppress(TimeoutError):
            for _ in range(chance.randint(1, 30)):
                await ears.next(limit_s=2)
        await asyncio.sleep(chance.uniform(0, 0.02))
        print(f"blow {number}: {await _strike(cell, chance)}")
    await handing_in
    await eventually(lambda: cell.supervisor.bus_pid and all(map(cell.pid, cell.supervisor.parts)), "all are back")
    await cell.over(limit_s=120)
    await cell.judge()


@pytest.mark.parametrize("seed", [1])
async def test_a_storm_loses_nothing_and_repeats_nothing(cell: Cell, seed: int) -> None:
    await _storm(cell, seed, 20, 6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
async def test_twenty_longer_storms(cell: Cell, seed: int) -> None:
    await _storm(cell, seed, 60, 30)
