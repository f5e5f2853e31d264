"""A thousand commands a second by one account, ten thousand idle connections: what others feel, what is kept."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from figure import Figure

from fairlease.runtime.pace import OWED_S
from tests.live.cell import Cell, cell_at
from tests.live.crowd import Crowd, resident_mib
from tests.live.desk import Job
from tests.live.flooding import REFUSALS, fill, flood, p99, served, until_answered

ACCOUNTS = tuple(f"crowd-{number}" for number in range(10))


async def floods(folder: Path, load: dict[str, Any]) -> list[Figure]:
    """The figures of both, in a cell whose GPUs one gang holds; the cell is judged at its end."""
    async with cell_at(folder / "floods", accounts=ACCOUNTS) as cell:
        whole = await fill(cell, "whole")
        quiet = await served(cell, "quiet", load["looks"] // 2)
        flooded = await _flooded(cell, load)
        crowded = await _crowded(cell, load)
        quiet = sorted(quiet + await served(cell, "after", load["looks"] // 2))
        await cell.cancel(whole)
        await cell.over()
    figures = [Figure("quiet_submit_p99_ms", _ms(p99(quiet)), "ms", {"p50": _ms(quiet[len(quiet) // 2])})]
    for name, (took, more) in (("flood", flooded), ("crowd", crowded)):
        figures.append(Figure(f"{name}_submit_p99_ms", _ms(p99(took)), "ms", {"p50": _ms(took[len(took) // 2])}))
        figures.append(Figure(f"{name}_p99_to_quiet_permille", round(1_000 * p99(took) / p99(quiet)), "permille"))
        figures += more
    return figures


async def _flooded(cell: Cell, load: dict[str, Any]) -> tuple[list[float], list[Figure]]:
    body = cell.body(flooding := Job("flooding", account="ci"))
    await cell.submit(flooding)
    before, began = await cell.journal.read(), time.monotonic()
    running = asyncio.create_task(flood(cell, load["seconds"], json.dumps(body).encode()))
    took = await served(cell, "amid", load["looks"])
    sent = await running
    await until_answered(cell, "ci")
    took_s = time.monotonic() - began
    records = cell.journal.records[before:]
    refusals = sum(event["type"] in REFUSALS for record in records for event in record["events"])
    return took, [
        # An inbox may owe a second of its refusals (runtime/pace.py): they are those of so much longer a time.
        Figure("flood_refusals_per_s", round(refusals / (took_s + OWED_S), 1), "1/s"),
        Figure("flood_answered_per_s", round(sent / took_s), "1/s", {"commands": sent, "records": len(records)}),
    ]


async def _crowded(cell: Cell, load: dict[str, Any]) -> tuple[list[float], list[Figure]]:
    async with Crowd(cell.supervisor.url) as crowd:
        for account in ACCOUNTS:
            said = await crowd.join(cell.home, account, load["idle"] // len(ACCOUNTS))
            assert set(said) == {"PONG"}, set(said)
        took = await served(cell, "crowded", load["looks"] // 4)
        return took, [Figure("crowd_bus_mib", round(resident_mib(cell.pid("bus"))), "MiB")]


def _ms(seconds: float) -> float:
    return round(seconds * 1_000, 1)
