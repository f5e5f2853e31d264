"""Two replicas of every service at once: each decision is made twice and written once (log.md L3)."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from fairlease_schemas.subjects import SERVICES
from tests.live.cell import Cell, cell_at
from tests.live.desk import eventually
from tests.live.workload import mixed


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path / "cell", replicas=2) as cell:
        yield cell


async def _both_wrote(cell: Cell) -> bool:
    """Whether both replicas of every service are ready and at the end of the log."""
    tail = await cell.journal.read()
    for service in SERVICES:
        for replica in "ab":
            pid = cell.pid(f"{service}-{replica}")
            health = await cell.ask(service, "health")
            if health.get("pid") == pid and health["position"] < tail:
                return False
    return True


async def _run(cell: Cell, seed: int, count: int) -> None:
    for job in mixed(Random(seed), count, f"r{seed}"):
        await cell.submit(job)
    await cell.over(limit_s=120)
    await eventually(lambda: _both_wrote(cell), "both replicas follow to the end")
    oracle = await cell.judge()
    assert len(oracle.jobs) == count


@pytest.mark.parametrize("seed", [1])
async def test_two_replicas_of_every_service_write_each_decision_once(cell: Cell, seed: int) -> None:
    await _run(cell, seed, 40)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
async def test_two_replicas_write_each_decision_once_over_two_hundred_jobs(cell: Cell, seed: int) -> None:
    await _run(cell, seed, 200)
