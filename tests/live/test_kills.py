"""SIGKILL in the middle of a decision: work goes on without it, and the killed one decides again.

The moment is found, not waited for: the message that makes a service decide is heard as it is stored,
and a seeded pause of some milliseconds later the service is dead, before or after its append.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random

import pytest
import pytest_asyncio

from tests.live.cell import Cell, cell_at
from tests.live.desk import Ears, Job
from tests.live.workload import mixed

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRIGGERS = {
    "admission": "fl.lab.report.*.run-gone",
    "ledger": "fl.lab.log.intake.admission.jobs",
    "ranker": "fl.lab.log.intake.admission.jobs",
    "placement": "fl.lab.log.alloc.ranker.cycle-ranked",
    "preemption": "fl.lab.log.alloc.placement.cycle-placed",
    "health": "fl.lab.cmd.local.cordon-host",
    "explainer": "fl.lab.log.>",
    "bus": "fl.lab.log.>",
}
"""What each of them is about to work on when it is killed."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path_factory.mktemp("kills") / "cell") as cell:
        yield cell


async def _hand_in(cell: Cell, victim: str, jobs: list[Job]) -> None:
    if victim == "health":
        await cell.send("cordon-host", {"host": "host-004"})
        await cell.send("return-host", {"host": "host-004"})
    for job in jobs:
        await cell.submit(job)


async def _killed_at_work(cell: Cell, victim: str, chance: Random, jobs: list[Job]) -> None:
    """Hands the jobs in, and kills the victim some milliseconds after one of its triggers."""
    name = victim if victim == "bus" else f"{victim}-a"
    ears = await Ears.at(cell, TRIGGERS[victim])
    handing_in = asyncio.create_task(_hand_in(cell, victim, jobs))
    await ears.next()
    for _ in range(chance.randint(0, 2)):
        with suppress(TimeoutError):  # there may be no other: then this moment is as good
            await ears.next(limit_s=0.1)
    await asyncio.sleep(chance.uniform(0, 0.012))
    (pid,) = cell.kill(name)
    await handing_in
    await cell.replaced(name, pid)


async def _works_again(cell: Cell, victim: str, seed: int) -> None:
    """Whatever the victim does for others, it does again."""
    tail = await cell.journal.read()
    await cell.submit(Job(f"after-{victim}-{seed}", script="exit 5", end="job-failed", code=5))
    if victim == "health":
        await cell.answered("cordon-host", {"host": "host-004"})
        await cell.answered("return-host", {"host": "host-004"})
    await cell.over()
    if victim not in ("bus", "explainer"):
        await cell.written(victim, tail)


@pytest.mark.parametrize("victim", TRIGGERS)
@pytest.mark.parametrize("seed", [1])
async def test_a_service_killed_in_the_middle_of_a_decision_is_replaced_and_decides_again(
    cell: Cell, victim: str, seed: int
) -> None:
    chance = Random(f"{victim} {seed}")
    await _killed_at_work(cell, victim, chance, mixed(chance, 6, f"{victim}-{seed}"))
    await _works_again(cell, victim, seed)
    await cell.judge()


@pytest.mark.long
@pytest.mark.parametrize("victim", TRIGGERS)
@pytest.mark.parametrize("seed", range(2, 22))
async def test_twenty_more_moments_to_kill_it(cell: Cell, victim: str, seed: int) -> None:
    chance = Random(f"{victim} {seed}")
    await _killed_at_work(cell, victim, chance, mixed(chance, 10, f"{victim}-{seed}"))
    await _works_again(cell, victim, seed)
    await cell.judge()


@pytest.mark.parametrize("seed", [1])
async def test_the_bus_and_the_explainer_die_together_and_no_answer_is_lost(cell: Cell, seed: int) -> None:
    chance = Random(seed)
    ears = await Ears.at(cell, "fl.lab.log.intake.>")
    await asyncio.gather(*(cell.submit(job) for job in mixed(chance, 8, f"both-{seed}")))
    await ears.next()
    await asyncio.sleep(chance.uniform(0, 0.01))
    (bus, explainer) = cell.kill("bus", "explainer-a")
    await cell.replaced("bus", bus)
    await cell.replaced("explainer-a", explainer)
    await cell.over()
    await cell.judge()
