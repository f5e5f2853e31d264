"""A bus that fails a write: nobody new is taken, nothing acknowledged is lost, and the bus is started again.

The kernel lets no file of the bus grow beyond a limit, which needs no rights: a write is cut short there, and the next
fails. A full disk and one that is broken are in tests/peers, because they need them.
"""

import asyncio
import json
import resource
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fairlease.cli.exits import LATER
from fairlease.runtime import bus_server
from fairlease.runtime.settings import BUS_FILE
from tests.live import process
from tests.live.cell import Cell, Up, cell_at, up_at
from tests.live.court import eventually
from tests.live.desk import Desk, Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLOSES_S = 2.0 + 3.0
"""Two seconds after a record that the log did not take, and what a busy machine may add: it is one where it is idle."""
WORDS = ("submit", "--budget", "team-a", "--min-runtime", "1s", "--timeout", "1h")
REQUESTS = ("--request-id", "while-closed", "--", "true")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up_at(tmp_path_factory.mktemp("disk") / "cell") as up:
        yield up


def bus_pid(up: Up) -> int:
    return int(json.loads((up.home / BUS_FILE).read_text())["pid"])


def let_no_file_grow(up: Up, name: str) -> None:
    """The newest file of this stream takes ten bytes more, and no file of the bus may be larger than that."""
    files = (up.home / "jetstream").glob(f"**/{name}/msgs/*.blk")
    size = max(files, key=lambda path: int(path.stem)).stat().st_size + 10
    resource.prlimit(bus_pid(up), resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def health(desk: Desk) -> dict[str, Any]:
    return await desk.ask("admission", "health")


async def is_closed(desk: Desk) -> bool:
    return bool((await health(desk)).get("closed"))


async def _is_stalled(desk: Desk) -> bool:
    return bool((await health(desk)).get("is_stalled"))


async def test_a_log_that_fails_a_write_closes_admission_and_its_bus_is_started_again(up: Up) -> None:
    running = await up.submit(Job("runs-on", "exec sleep 600", end="job-cancelled"))
    await up.event(running, "attempt-started")
    await eventually(up.court.is_everything_answered, "the log is at rest")
    before, old = await up.journal.read(), bus_pid(up)
    assert up.process is not None
    process.send(signal.SIGSTOP, up.process.pid)  # nobody starts the bus again while we look
    let_no_file_grow(up, up.subjects.log_stream)
    began = time.monotonic()
    waiting = await up.submit(Job("waits"))
    await eventually(lambda: is_closed(up), "admission is closed", limit_s=CLOSES_S)
    print(f"closed {time.monotonic() - began:.2f} s after the write that failed")
    code, _, errors = await up.run(*WORDS, *REQUESTS)
    assert code == LATER, errors
    assert "admission takes no new work now: the log has taken no record for" in errors
    await eventually(lambda: _is_stalled(up), "the log is seen to take nothing")
    assert bus_pid(up) == old
    process.send(signal.SIGCONT, up.process.pid)
    await eventually(lambda: bus_pid(up) != old, "the bus is started again")
    print(f"started again {time.monotonic() - began:.2f} s after it")
    await up.over(waiting)
    assert not up.journal.of_job(running, "attempt-ending", "attempt-ended")
    assert len(up.journal.records) > before
    assert not (await health(up))["closed"]
    code, _, errors = await up.run(*WORDS, "--wait", *REQUESTS)
    assert code == 0, errors
    await up.cancel(running)
    await up.judge()


async def test_a_bus_that_may_store_no_more_says_so_at_once_and_goes_on_where_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses and is not stalled: nobody starts it again, and with more room everything goes on."""
    config = bus_server._CONFIG
    async with cell_at(tmp_path / "cell") as cell:
        running = await cell.submit(Job("goes-on", "exec sleep 600", end="job-cancelled"))
        await cell.event(running, "attempt-started")
        monkeypatch.setattr(bus_server, "_CONFIG", config.replace("1PB", "1MB"))
        (old,) = cell.kill("bus")
        await cell.replaced("bus", old)
        small = cell.pid("bus")
        refusal = await _refusal(cell)
        assert (refusal["code"], refusal["description"]) == (503, "insufficient resources")
        waiting = asyncio.create_task(cell.submit(Job("waits-for-room")))
        await eventually(lambda: is_closed(cell), "admission is closed")
        assert not (await health(cell))["is_stalled"]
        assert cell.pid("bus") == small
        monkeypatch.setattr(bus_server, "_CONFIG", config)
        cell.kill("bus")
        await cell.replaced("bus", small)
        await cell.over(await waiting)
        assert not cell.journal.of_job(running, "attempt-ending", "attempt-ended")
        await cell.cancel(running)


async def _refusal(cell: Cell) -> dict[str, Any]:
    """What the bus says to the first command that it does not take; garbage of 60 KB each."""
    while True:
        reply = await cell.client.request(cell.subjects.command("ci", "cancel-job"), bytes(60_000), timeout=5)
        answer = json.loads(reply.data)
        if "error" in answer:
            return dict(answer["error"])


async def test_a_bus_that_only_stood_still_is_left_alone(up: Up) -> None:
    """Records without an answer are no sign: the log takes them when the bus goes on."""
    old = bus_pid(up)
    process.send(signal.SIGSTOP, old)
    sent = asyncio.create_task(up.submit(Job("meanwhile")))
    await asyncio.sleep(8)  # longer than two appends wait: what must not happen has no condition to wait for
    process.send(signal.SIGCONT, old)
    await sent
    await up.over()
    await up.judge()
    assert bus_pid(up) == old
