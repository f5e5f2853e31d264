"""Many drains of a cell that has more work than it can run, some of it unruly: every promise is kept.

Some begin at once, some later, in any order; work of all kinds keeps coming. A patrol looks at the processes.
"""

import time
from collections.abc import AsyncIterator
from random import Random

import msgspec
import pytest
import pytest_asyncio

from tests.live.cell import GPUS, Cell, patrolled_cell
from tests.live.court import eventually
from tests.live.desk import BUDGETS, QUICK, Job
from tests.live.test_drains import NAMES, kept
from tests.live.test_runs_unruly import NATURES, unruly

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    policy = msgspec.structs.replace(QUICK, stop_margin_ms=2_000)
    async with patrolled_cell(tmp_path_factory.mktemp("drains") / "cell", policy=policy) as cell:
        yield cell


def _work(name: str, chance: Random) -> Job:
    """One of a stream of jobs that hold GPUs until somebody makes them leave, or for some seconds."""
    is_gang = chance.random() < 0.25
    return Job(
        name,
        chance.choice(
            (unruly(chance.choice(NATURES), attempts=9), f"sleep {chance.uniform(0.5, 4):.1f}", "exec sleep 600")
        ),
        budget=chance.choice(BUDGETS),
        hosts=2 if is_gang else 1,
        gpus=GPUS if is_gang else chance.choice((2, 4, GPUS)),
        min_runtime=chance.choice(("0s", "1s", "2s", "4s")),
        grace=chance.choice(("0s", "500ms", "1s")),
        end="",
    )


async def _drained(cell: Cell, seed: int, count: int) -> None:
    chance = Random(seed)
    before = len(kept(cell))
    for number in range(len(NAMES) * 3):
        await cell.submit(_work(f"load-{seed}-{number}", chance))
    for number in range(count):
        host = chance.choice(NAMES)
        later_ms = chance.choice((0, 0, 1_500))
        not_before_ms = time.time_ns() // 1_000_000 + later_ms if later_ms else 0
        body = {"host": host, "reason": "service", "not_before_ms": not_before_ms}
        await cell.answered("request-drain", body)
        for more in range(2):
            await cell.submit(_work(f"more-{seed}-{number}-{more}", chance))

        async def is_empty(done: int = before + number) -> bool:
            await cell.journal.read()
            return len(cell.journal.events("drain-completed")) > done

        await eventually(is_empty, f"{host} is empty")
        await cell.answered("return-host", {"host": host})
    early = kept(cell)[before:]
    broken = [-ms for ms in early if ms < 0]
    print(f"seed {seed}: {len(early) - len(broken)} of {len(early)} promises kept, the closest by {min(early)} ms")
    assert len(early) == count
    assert not broken, f"promises were broken by {broken} ms"
    assert cell.journal.events("eviction-ordered") != []
    await cell.judge()


@pytest.mark.parametrize("seed", [1])
async def test_three_drains_under_load_keep_their_promises(cell: Cell, seed: int) -> None:
    # rule: 7.2
    await _drained(cell, seed, 3)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
async def test_twenty_drains_under_load_keep_their_promises(cell: Cell, seed: int) -> None:
    await _drained(cell, seed, 20)
