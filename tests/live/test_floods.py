"""One account sends a thousand commands a second, half of them refused or garbage; others are served as before."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fairlease.core.flood import MAX_TOLD
from tests.live.cell import Cell, cell_at
from tests.live.desk import Job
from tests.live.flooding import REFUSALS, fill, flood, p99, served, until_answered

pytestmark = pytest.mark.asyncio(loop_scope="module")

A_SECOND = 10
LOOKS_A_SECOND = 7
NOISE_S = 0.25
"""What a machine with much else to do may add to one answer. A queue behind a second of the flood is longer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path_factory.mktemp("floods") / "cell") as cell:
        yield cell


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.long)])
async def test_a_flood_of_one_account_leaves_the_others_served(cell: Cell, seconds: int) -> None:
    body = cell.body(flooding := Job(f"flooding-{seconds}", account="ci"))
    await cell.submit(flooding)
    whole = await fill(cell, f"whole-{seconds}")
    looks = LOOKS_A_SECOND * seconds
    quiet = await served(cell, f"quiet-{seconds}", looks // 2)
    before, began = await cell.journal.read(), time.monotonic()
    running = asyncio.create_task(flood(cell, seconds, json.dumps(body).encode()))
    amid = await served(cell, f"amid-{seconds}", looks)
    sent = await running
    await until_answered(cell, "ci")
    took_s = time.monotonic() - began
    records = cell.journal.records[before:]
    refusals = sum(event["type"] in REFUSALS for record in records for event in record["events"])
    # What else the machine does changes within a minute: it is looked at on both sides of the flood.
    quiet = sorted(quiet + await served(cell, f"after-{seconds}", looks // 2))
    print(
        f"{sent} commands in {took_s:.1f} s: quiet p50 {quiet[len(quiet) // 2]:.3f} s, p99 {p99(quiet):.3f} s; "
        f"amid p50 {amid[len(amid) // 2]:.3f} s, p99 {p99(amid):.3f} s; {len(records)} records, {refusals} refusals"
    )
    assert refusals <= A_SECOND * (took_s + 1) + MAX_TOLD
    assert p99(amid) <= 2 * p99(quiet) + NOISE_S
    await cell.cancel(whole)
    await cell.over()
    await cell.judge()
