"""A log that cannot be read: every service stops writing, says why, and is not started again.

These logs are damaged for good, so what is judged is the part before the damage, and that nothing
was written behind it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from fairlease.runtime.errors import EXIT_LOG_DAMAGED
from fairlease.runtime.supervisor import agent_part, service_parts
from fairlease_schemas.subjects import SERVICES
from tests.live import process
from tests.live.cell import SIMULATE, Cell
from tests.live.court import eventually
from tests.live.desk import Job

DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "garbage": ("intake.admission.jobs", lambda _: b"\xff\x00 no record"),
    "an event nobody knows": ("intake.ledger.ledger", lambda last: last.replace(b'"type":"', b'"type":"x-')),
    "another version": ("intake.ledger.ledger", lambda last: last.replace(b'"v":1', b'"v":2')),
    "another writer's name": ("alloc.ranker.cycle-ranked", lambda last: last),
    "a decision on the future": ("intake.ledger.ledger", lambda last: _with(last, basis=10**6)),
}
"""What somebody with the power over the bus puts into the log: where, and made of the last record."""


def _with(data: bytes, **changes: object) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(data), **changes}, order="sorted")


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    cell = Cell(tmp_path / "cell", [*service_parts(), agent_part(SIMULATE)])
    try:
        await cell.start()
        await cell.furnish()
        yield cell
    finally:
        await cell.stop()
        process.kill_all(cell.home)


async def _stops_writing(cell: Cell, what: str) -> None:
    await cell.submit(Job("before"))
    await cell.over()
    job = await cell.submit(Job("running", "sleep 1", end="job-succeeded"))
    await cell.event(job, "attempt-started")
    await eventually(lambda: _is_quiet(cell), "nobody writes")
    await cell.court.judge_log()
    last = cell.journal.messages[-1]
    subject, damage = DAMAGE[what]
    position = await cell.publish(f"fl.lab.log.{subject}", damage(last.data))
    await eventually(lambda: not any(cell.pid(f"{name}-a") for name in SERVICES), "every service has left")
    for name in SERVICES:
        assert cell.supervisor.processes[f"{name}-a"].returncode == EXIT_LOG_DAMAGED, name
        assert f"{position}" in cell.said(f"{name}-a").splitlines()[-1], cell.said(f"{name}-a")[-500:]
        assert await cell.ask(name, "health") == {}
    await cell.submit(Job("after"))
    # The agent goes on: its job ends, and the report waits in the bus for better days.
    acked = f"agent/*/runs/{job}-a1/acked-run-gone"
    await eventually(lambda: list(cell.home.glob(acked)), "the report is stored")
    assert await cell.journal.read() == position
    assert not any(cell.pid(f"{name}-a") for name in SERVICES), "started again although nobody mended the log"


async def _is_quiet(cell: Cell) -> bool:
    before = await cell.journal.read()
    await asyncio.sleep(0.2)
    return before == await cell.journal.read()


async def test_garbage_in_the_log_stops_every_service_from_writing(cell: Cell) -> None:
    await _stops_writing(cell, "garbage")


@pytest.mark.long
@pytest.mark.parametrize("what", [what for what in DAMAGE if what != "garbage"])
async def test_whatever_else_cannot_be_a_record_stops_them_too(cell: Cell, what: str) -> None:
    await _stops_writing(cell, what)
