"""One account sends a thousand commands a second, half of them refused or garbage; others are served as before."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fairlease.core.flood import MAX_TOLD
from tests.live.cell import Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import Ears, Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

RATE = 1_000
PULSE_S = 0.05
LOOKS = 40
REFUSALS = ("message-refused", "command-refused", "job-refused", "refusals-gathered")
A_SECOND = 10
SLOWEST_S = 2.0
"""What a busy machine may add to an answer, whatever else it does; a queue behind 5,000 commands takes longer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path_factory.mktemp("floods") / "cell") as cell:
        yield cell


async def served(cell: Cell, name: str, count: int) -> list[float]:
    """Commands of `local` one after another, a tenth of a second apart: the seconds until each was answered, sorted."""
    ears = await Ears.at(cell, cell.subjects.answer("local", 0).rpartition(".")[0] + ".*")
    took = []
    for number in range(count):
        body = cell.body(job := Job(f"{name}-{number}", min_runtime="0s", end=""))
        cell.jobs[job.id] = job
        began = time.monotonic()
        subject = cell.subjects.answer("local", await cell.send("submit-job", body))
        answer = json.loads((await ears.next(lambda message, subject=subject: message.subject == subject)).data)
        took.append(time.monotonic() - began)
        assert answer["outcome"] == "accepted", answer
        await cell.cancel(job.id)
        await asyncio.sleep(0.1)
    return sorted(took)


async def flood(cell: Cell, seconds: float, repeated: bytes) -> int:
    """A thousand commands a second by `ci`, unasked for what became of them; how many."""
    kinds = (
        ("submit-job", repeated),
        ("cancel-job", b'{"job": "job-aaaaaaaaaaaaaaaaaaaa"}'),
        ("submit-job", repeated),
        ("cancel-job", b"\xff not JSON"),
    )
    sent, began = 0, time.monotonic()
    while sent < RATE * seconds:
        for _ in range(int(RATE * PULSE_S)):
            verb, body = kinds[sent % len(kinds)]
            await cell.client.publish(cell.subjects.command("ci", verb), body)
            sent += 1
        await asyncio.sleep(max(0.0, began + sent / RATE - time.monotonic()))
    return sent


def p99(took: list[float]) -> float:
    return took[min(len(took) - 1, len(took) * 99 // 100)]


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.long)])
async def test_a_flood_of_one_account_leaves_the_others_served(cell: Cell, seconds: int) -> None:
    body = cell.body(flooding := Job(f"flooding-{seconds}", account="ci"))
    await cell.submit(flooding)
    quiet = await served(cell, f"quiet-{seconds}", LOOKS)
    before, began = await cell.journal.read(), time.monotonic()
    running = asyncio.create_task(flood(cell, seconds, json.dumps(body).encode()))
    amid = await served(cell, f"amid-{seconds}", LOOKS)
    sent = await running
    await eventually(cell.court.is_everything_answered, "every command of the flood is answered")
    took_s = time.monotonic() - began
    await cell.journal.read()
    records = cell.journal.records[before:]
    refusals = sum(event["type"] in REFUSALS for record in records for event in record["events"])
    print(
        f"{sent} commands in {took_s:.1f} s: quiet p50 {quiet[len(quiet) // 2]:.3f} s, p99 {p99(quiet):.3f} s; "
        f"amid p50 {amid[len(amid) // 2]:.3f} s, p99 {p99(amid):.3f} s; {len(records)} records, {refusals} refusals"
    )
    assert refusals <= A_SECOND * (took_s + 1) + MAX_TOLD
    assert p99(amid) < max(2 * p99(quiet), SLOWEST_S)
    await cell.over()
    await cell.judge()
