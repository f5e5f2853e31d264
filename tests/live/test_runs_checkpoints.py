"""A host is drained while a gang on it writes a checkpoint: it finishes, and goes on elsewhere from that very step.

If its grace is too short for that, half a checkpoint is none, and it goes on from the one before.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import fairlease_sdk
from tests.live import process
from tests.live.cell import GPUS, Cell, patrolled_cell
from tests.live.court import eventually
from tests.live.desk import LEASED, Job
from tests.live.test_drains import kept

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = Path(__file__).with_name("slow_saver.py")
SDK = Path(fairlease_sdk.__file__).parents[1]
SAVES_S = 2


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with patrolled_cell(tmp_path_factory.mktemp("checkpoints") / "cell", policy=LEASED) as cell:
        yield cell


def _told(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("grace", "step"), [("6s", 50), ("500ms", 25)])
async def test_a_gang_that_is_drained_while_it_saves_goes_on_from_what_it_could_save(
    cell: Cell, rank: int, grace: str, step: int
) -> None:
    # rule: 7.2 8.1 8.2 8.3
    name = f"saver-{rank}-{step}"
    told = cell.home / f"told-{name}"
    script = f"TOLD={told} SAVES_S={SAVES_S} PYTHONPATH={SDK} exec {sys.executable} {SCRIPT}"
    job = Job(name, script, hosts=2, gpus=GPUS, grace=grace, uri="store:shared/saver", min_runtime="1ms")
    await cell.submit(job)
    first, second = f"{job.id}-a1", f"{job.id}-a2"
    await eventually(lambda: f"{first} 0 saving 50" in _told(told), "it is in the middle of saving")
    assert f"{first} 0 saved 50" not in _told(told)
    host = (await cell.event(job.id, "gang-granted"))["parts"][rank]["host"]
    done = len(cell.journal.events("drain-completed"))
    await cell.answered("request-drain", {"host": host, "reason": "service"})
    await cell.over(job.id)
    assert (f"{first} 0 saved 50" in _told(told)) == (step == 50)
    assert sorted(line for line in _told(told) if "begins" in line and line.startswith(second)) == [
        f"{second} {number} begins {step}" for number in (0, 1)
    ]
    again = await cell.event(job.id, "gang-granted", count=2)
    assert host not in {part["host"] for part in again["parts"]}
    steps = [event.get("step") for event in cell.journal.of_job(job.id, "checkpoint-confirmed")]
    assert steps[-1] == step, steps
    assert [event["end"] for event in cell.journal.of_job(job.id, "attempt-ended")] == ["preempted", "succeeded"]
    assert process.jobs_of(cell.home) == []

    async def is_drained() -> bool:
        await cell.journal.read()
        return len(cell.journal.events("drain-completed")) > done

    await eventually(is_drained, f"{host} is empty")
    assert min(kept(cell)) >= 0
    await cell.answered("return-host", {"host": host})
    await cell.judge()
