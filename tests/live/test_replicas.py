"""Two replicas of every service at once: each decision is made twice and written once (log.md L3)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from fairlease_schemas.subjects import SERVICES
from tests.live.cell import Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import ACCOUNTS
from tests.live.workload import mixed


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path / "cell", replicas=2) as cell:
        yield cell


async def _are_all_at_the_end(cell: Cell) -> bool:
    """Whether both replicas of every service follow to the end, and each record has one writer who knows it."""
    tail = await cell.journal.read()
    for service in SERVICES:
        health = await cell.health(service)
        if len({h["pid"] for h in health}) != 2 or any(h["position"] < tail for h in health):
            return False
        if sum(h["records_written"] for h in health) != cell.journal.written_by(service):
            return False
    return True


async def _run(cell: Cell, seed: int, count: int) -> None:
    for job in mixed(Random(seed), count, f"r{seed}"):
        await cell.submit(job)
    await cell.over(limit_s=180)
    oracle = await cell.judge()
    assert len(oracle.jobs) == count
    await eventually(lambda: _are_all_at_the_end(cell), "each record was written by exactly one of two replicas")
    health = [h for service in SERVICES for h in await cell.health(service)]
    assert sum(h["moved"] for h in health) > 0, "the replicas never met at the fence: nothing was tried here"


@pytest.mark.parametrize("seed", [1])
async def test_a_trickle_of_commands_that_keeps_both_replicas_busy_is_answered_once_each(cell: Cell, seed: int) -> None:
    """A busy replica waits for more messages before it decides; meanwhile the other may have answered them."""
    chance = Random(seed)
    for number in range(200):
        verb, body = chance.choice((("cancel-job", {"job": f"job-{number}"}), ("change-budget", {"budget": "no name"})))
        await cell.send(verb, body, chance.choice(ACCOUNTS))
        await asyncio.sleep(chance.uniform(0, 0.02))
    await cell.judge()


@pytest.mark.parametrize("seed", [1])
async def test_two_replicas_of_every_service_write_each_decision_once(cell: Cell, seed: int) -> None:
    await _run(cell, seed, 40)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
async def test_two_replicas_write_each_decision_once_over_two_hundred_jobs(cell: Cell, seed: int) -> None:
    await _run(cell, seed, 200)
