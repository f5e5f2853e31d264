"""Who reads too slowly, or not at all, is cut off by the bus and slows nobody else; and gets later what was missed."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.live import process
from tests.live.cell import Cell, cell_at
from tests.live.court import eventually
from tests.live.crowd import Crowd, resident_mib
from tests.live.desk import Job
from tests.live.flooding import fill, flood, p99, served
from tests.live.test_crowds import BUS_MIB, NOISE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEAF_MIB = 3 * 64
"""What one connection may cost the bus: 64 MiB wait for it before it is cut off, and its memory is tidied up late."""
TIMES = 20
"""So often each message is sent to a connection that reads none: the buffers of the kernel are full in a second."""
SECONDS = 12
LOOKS = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path_factory.mktemp("slow") / "cell") as cell:
        yield cell


async def test_who_listens_and_never_reads_is_cut_off_and_finds_its_answers_later(cell: Cell) -> None:
    whole = await fill(cell, "whole")
    body = cell.body(repeated := Job("repeated", account="ci"))
    await cell.submit(repeated)
    quiet = await served(cell, "quiet", LOOKS)
    first = await cell.send("submit-job", body, "ci")
    async with Crowd(cell.supervisor.url) as crowd:
        deaf = await crowd.listen(cell.home, "ci", cell.subjects.answer("ci", 0).rpartition(".")[0] + ".*", TIMES)
        running = asyncio.create_task(flood(cell, SECONDS, json.dumps(body).encode()))
        amid = await served(cell, "amid", LOOKS)
        sent = await running
        await eventually(lambda: "Slow Consumer" in (cell.home / "bus.log").read_text(), "the bus cuts it off")
        has_mib = resident_mib(cell.pid("bus"))
        await eventually(lambda: _is_cut(deaf), "its connection is closed")
    await eventually(cell.court.is_everything_answered, "every command of the flood is answered")
    print(f"bus {has_mib:.0f} MiB; p99 quiet {p99(quiet):.3f} s, amid {p99(amid):.3f} s")
    assert p99(amid) <= 2 * p99(quiet) + NOISE_S
    assert has_mib < BUS_MIB + DEAF_MIB
    for seq in (first, first + 1, first + sent // 2, first + sent):
        assert (await cell.answer("ci", seq))["seq"] == seq
    await cell.cancel(whole)
    await cell.over()
    await cell.judge()


def _is_cut(deaf: asyncio.StreamWriter) -> bool:
    """Whether the bus has closed it: what is written then comes back as an error."""
    deaf.write(b"PING\r\n")
    return deaf.transport.is_closing()


async def test_a_service_that_is_stopped_for_long_slows_no_answer_and_misses_nothing(cell: Cell) -> None:
    whole = await fill(cell, "whole-2")
    body = cell.body(repeated := Job("repeated-2", account="ci"))
    await cell.submit(repeated)
    quiet = await served(cell, "quiet-2", LOOKS // 2)
    process.send(signal.SIGSTOP, cell.pid("ranker-a"))
    running = asyncio.create_task(flood(cell, SECONDS, json.dumps(body).encode()))
    amid = await served(cell, "amid-2", LOOKS)
    await running
    job = await cell.submit(Job("behind-it"))
    await cell.cancel(whole)
    process.send(signal.SIGCONT, cell.pid("ranker-a"))
    await cell.over(job)
    print(f"p99 quiet {p99(quiet):.3f} s, amid {p99(amid):.3f} s")
    assert p99(amid) <= 2 * p99(quiet) + NOISE_S
    await cell.over()
    await cell.judge()
