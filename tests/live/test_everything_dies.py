"""Everything dies at once, at any moment, and is started again on the same directory: no job notices.

Bus, services, agent and supervisor are killed within a millisecond of each other, in the middle of a
set of jobs that are still being handed in. What runs goes on without any of them. After the start each
acknowledged job comes to the end that was expected of it, none starts twice, and no GPU stays held.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random

import pytest
import pytest_asyncio

from tests.live.cell import Up, up_at
from tests.live.desk import Ears, Job
from tests.live.workload import mixed

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up_at(tmp_path_factory.mktemp("dies") / "cell") as up:
        yield up


async def _handed_in(up: Up, jobs: list[Job]) -> None:
    for job in jobs:
        await up.submit(job)


async def _everything_dies(up: Up, seed: int, count: int) -> None:
    chance = Random(seed)
    jobs = mixed(chance, count, f"die-{seed}", longest_s=0.8)
    records = chance.randint(1, 3 * count)
    ears = await Ears.at(up, up.subjects.log_all())
    handing_in = asyncio.create_task(_handed_in(up, jobs))
    with suppress(TimeoutError):  # the set may be through before: everything dies at rest then
        for _ in range(records):
            await ears.next(limit_s=3)
    await asyncio.sleep(chance.uniform(0, 0.01))
    handing_in.cancel()
    await asyncio.gather(handing_in, return_exceptions=True)
    acknowledged = set(up.jobs)
    await up.kill_everything()
    await up.start()
    await up.over(*acknowledged)
    # Whoever had no acknowledgement asks again, under the same request ids.
    await _handed_in(up, jobs)
    await up.over()
    oracle = await up.judge()
    assert {job.id for job in jobs} <= oracle.jobs.keys()


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
async def test_everything_dies_and_every_acknowledged_job_still_comes_to_its_end(up: Up, seed: int) -> None:
    await _everything_dies(up, seed, 30)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6, 26))
async def test_everything_dies_at_twenty_more_moments(up: Up, seed: int) -> None:
    await _everything_dies(up, seed, 60)
