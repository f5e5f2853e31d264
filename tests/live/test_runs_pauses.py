"""A part of the cell stands still for a second or ten while gangs run, in leases of two and a half seconds.

A pause of a second is no event. In ten the leases of hosts run out when it is their agent or the bus that
stands still: their runs stop by themselves and begin again, and nobody else had their GPUs before. Whoever
decides may stand still as long as it likes: nothing that runs takes notice.
"""

import asyncio
import gc
import signal
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from fairlease_schemas.subjects import SERVICES
from tests.live import process
from tests.live.cell import GPUS, Cell, patrolled_cell
from tests.live.court import eventually
from tests.live.desk import LEASED, Job
from tests.live.workload import mixed

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASES = ("bus", "agent")
"""Without these no lease is renewed."""
DECIDERS = tuple(f"{name}-a" for name in SERVICES)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with patrolled_cell(tmp_path_factory.mktemp("pauses") / "cell", policy=LEASED) as cell:
        yield cell


async def _stands_still(cell: Cell, part: str, pause_s: float) -> None:
    """The part is halted in the middle of a gang and of jobs that are still being handed in."""
    label = f"{part}-{pause_s:g}"
    gate = cell.home / f"gate-{label}"
    until_open = f"trap '' TERM; while [ ! -e {gate} ]; do sleep 0.1; done"
    gang = Job(f"gang-{label}", until_open, hosts=2, gpus=GPUS)
    await cell.submit(gang)
    await cell.event(gang.id, "attempt-started", count=2)
    await cell.event(gang.id, "gang-granted")
    old = cell.pid(part)
    process.send(signal.SIGSTOP, old)
    during = [asyncio.create_task(cell.submit(job)) for job in mixed(Random(label), 3, label)]
    await asyncio.sleep(pause_s)  # the length of the pause is the fault itself
    process.send(signal.SIGCONT, old)
    await asyncio.gather(*during)
    is_lost = part in LEASES and pause_s * 1_000 > LEASED.lease_ms
    if is_lost:
        await cell.event(gang.id, "gang-granted", count=2)
    gate.touch()
    await cell.over()
    grants = len(cell.journal.of_job(gang.id, "gang-granted"))
    print(f"seed {label}: {grants} grants of the gang, {len(cell.journal.events('lease-lost'))} leases lost so far")
    assert cell.pid(part) == old, f"{part} was replaced: a pause is no reason to leave"
    assert is_lost or grants == 1, "a gang whose hosts kept their leases began again"
    await eventually(cell.is_taking_work, "every host takes new work")
    await cell.judge()
    gc.collect()  # the sockets that the client forgot are this test's, and not the next one's


# The client forgets a socket on which nobody answered; here that is the desk's, while the bus stands still.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("pause_s", [1, 10])
@pytest.mark.parametrize("part", [*LEASES, *DECIDERS])
async def test_a_part_stands_still_and_nothing_is_lost_or_doubled(cell: Cell, part: str, pause_s: float) -> None:
    # rule: 7.6
    await _stands_still(cell, part, pause_s)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as above
@pytest.mark.parametrize("part", [*LEASES, *(pytest.param(part, marks=pytest.mark.long) for part in DECIDERS)])
async def test_a_part_stands_still_for_ninety_seconds(cell: Cell, part: str) -> None:
    # rule: 7.6
    await _stands_still(cell, part, 90)
