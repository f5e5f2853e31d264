"""What the bus itself can do to a cell: forget consumers, die again and again, die while timers are armed."""

import asyncio
import signal
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from fairlease_schemas.subjects import VERBS
from tests.live import process
from tests.live.cell import GPUS, HOSTS, Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import Ears, Job
from tests.live.journal import api
from tests.live.workload import mixed

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOREVER = "exec sleep 600"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path_factory.mktemp("bus") / "cell") as cell:
        yield cell


async def _forget_every_consumer(cell: Cell) -> int:
    """Deletes all consumers of all streams; how many there were."""
    found = 0
    for stream in (*(await api(cell.client, "STREAM.NAMES"))["streams"], cell.subjects.log_stream):
        for name in (await api(cell.client, f"CONSUMER.NAMES.{stream}")).get("consumers") or ():
            reply = await cell.client.request(f"{VERBS}.CONSUMER.DELETE.{stream}.{name}", b"", timeout=2)
            found += b'"success":true' in reply.data
    return found


@pytest.mark.parametrize("seed", [1])
async def test_services_whose_consumers_are_deleted_make_new_ones_and_miss_nothing(cell: Cell, seed: int) -> None:
    jobs = mixed(Random(seed), 9, f"forgotten-{seed}")
    for n, job in enumerate(jobs):
        await cell.submit(job)
        if n % 3 == 0:
            assert await _forget_every_consumer(cell) > 0
    await cell.over()
    await cell.judge()


async def test_a_bus_killed_five_times_as_soon_as_it_is_back_loses_nothing(cell: Cell) -> None:
    jobs = mixed(Random(2), 10, "crash-loop")
    handing_in = asyncio.create_task(_hand_in(cell, jobs))
    for _ in range(5):
        ears = await Ears.at(cell, cell.subjects.lease("*"))
        await ears.next()
        (old,) = cell.kill("bus")
        await cell.replaced("bus", old)
    await handing_in
    await cell.over()
    await cell.judge()


async def _hand_in(cell: Cell, jobs: list[Job]) -> None:
    for job in jobs:
        await cell.submit(job)


async def _falls_due(cell: Cell, victims: tuple[str, ...]) -> None:
    label = "+".join(victims)
    late = await cell.submit(Job(f"late-{label}", FOREVER, timeout="3s", end="job-timed-out"))
    failing = Job(f"failing-{label}", '[ "$FAIRLEASE_ATTEMPT_NUMBER" = 3 ] || exit 2', max_retries=2)
    await cell.submit(failing)
    await cell.event(late, "attempt-started")
    await cell.event(failing.id, "job-requeued")
    old = cell.kill(*victims)
    for name, pid in zip(victims, old, strict=True):
        await cell.replaced(name, pid)
    await cell.over()
    assert len(cell.journal.of_job(failing.id, "job-released")) == 2
    await cell.judge()


@pytest.mark.parametrize("victims", [("bus", "admission-a")], ids="+".join)
async def test_a_time_out_and_a_backoff_fall_due_although_who_armed_them_died(
    cell: Cell, victims: tuple[str, ...]
) -> None:
    await _falls_due(cell, victims)


@pytest.mark.long
@pytest.mark.parametrize("victims", [("bus",), ("admission-a",), ("agent", "bus"), ("ranker-a", "bus")], ids="+".join)
async def test_they_fall_due_whoever_else_died(cell: Cell, victims: tuple[str, ...]) -> None:
    await _falls_due(cell, victims)


async def test_a_cycle_whose_next_step_does_not_come_is_abandoned_and_the_next_one_grants(cell: Cell) -> None:
    process.send(signal.SIGSTOP, cell.pid("placement-a"))
    before = await cell.journal.read()
    job = await cell.submit(Job("left-alone", hosts=HOSTS, gpus=GPUS))
    await _written(cell, "cycle-abandoned", before)
    process.send(signal.SIGCONT, cell.pid("placement-a"))
    await cell.over(job)
    (abandoned,) = {event["missing"] for event in cell.journal.events("cycle-abandoned", after=before)}
    assert abandoned == "cycle-placed"
    await cell.judge()


async def _written(cell: Cell, tag: str, after: int) -> None:
    async def found() -> bool:
        await cell.journal.read()
        return bool(cell.journal.events(tag, after=after))

    await eventually(found, f"{tag} after {after}")
