"""What it costs to be seen: the same bursts of jobs through two cells, one plain, one with traces and figures on.

Turn by turn, and every other turn the seen cell first, so that what else the machine does meets both. Throughput is
jobs over wall time of a burst; beside it stands the processor time of bus, services and agent for the same burst,
which other people's work moves less. A burst is compared with the one beside it; each cost is the median of the turns.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from figure import Figure
from live import ACCOUNT, Live, cell, contract, processor_ns

from fairlease_schemas.commands import ChangeBudget
from fairlease_schemas.explain import Health
from fairlease_schemas.ids import job_id
from fairlease_schemas.subjects import SERVICES

BUDGET = "seen"
QUIET_S = 1.5
"""For so long admission gathers messages after a burst; a turn begins after it."""


async def seeing(folder: Path, load: dict[str, Any]) -> list[Figure]:
    """The two costs, in per cent of the plain cell."""
    traces = folder / "traces.jsonl"
    told = {"FAIRLEASE_TRACES": f"file:{traces}", "FAIRLEASE_METRICS_PORT": "0"}
    words = ("--simulate-gpus", load["hosts"])
    async with cell(folder / "plain", *words) as plain, cell(folder / "seen", *words, env=told) as seen:
        for live in (plain, seen):
            await live.command("change-budget", ChangeBudget(budget=BUDGET, weight=1))
            await live.until(lambda world: BUDGET in world.tree.nodes, "a budget")
        rates: dict[str, list[float]] = {"plain": [], "seen": []}
        busy_s: dict[str, list[float]] = {"plain": [], "seen": []}
        async with _asked(seen, load["scrape_s"]) as scrapes:
            for turn in range(load["turns"]):
                for name, live in (("plain", plain), ("seen", seen))[:: -1 if turn % 2 else 1]:
                    rate, processor_s = await _burst(live, f"{name}-{turn}", load["jobs"])
                    if turn:
                        rates[name].append(rate)
                        busy_s[name].append(processor_s)
    spans = sum(line.count(b'"startTimeUnixNano"') for line in traces.read_bytes().splitlines())
    if spans < load["jobs"] * load["turns"] or not scrapes[0]:
        sys.exit(f"the cell that should be seen told {spans} spans and was asked {scrapes[0]} times")
    rate = {name: round(median(found), 1) for name, found in rates.items()}
    processor = {name: round(median(found), 3) for name, found in busy_s.items()}
    beside = {"plain_jobs_per_s": rate["plain"], "seen_jobs_per_s": rate["seen"], "turns": load["turns"] - 1}
    more = {"plain_s": processor["plain"], "seen_s": processor["seen"], "spans": spans, "scrapes": scrapes[0]}
    return [
        Figure("seen_throughput_cost_percent", _paired(rates["plain"], rates["seen"]), "%", beside),
        Figure("seen_processor_cost_percent", _paired(busy_s["seen"], busy_s["plain"]), "%", more),
    ]


def _paired(more: list[float], less: list[float]) -> float:
    """How much is missing in the second of each turn, in per cent of its first, in the median; below 0: the reverse."""
    return round(median(100 * (a - b) / a for a, b in zip(more, less, strict=True)), 1)


async def _burst(live: Live, name: str, jobs: int) -> tuple[float, float]:
    """All these jobs at once: jobs a second until the last is over, and the processor time of the cell for them."""
    await asyncio.sleep(QUIET_S)
    pids = [pid for part, pid in live.pids().items() if part != "up"]
    before_ns, begun_s = [processor_ns(pid) for pid in pids], time.monotonic()
    ids = [job_id(ACCOUNT, BUDGET, f"{name}-{number}") for number in range(jobs)]
    for number in range(jobs):
        body = {"request_id": f"{name}-{number}", "contract": contract(BUDGET, ["/bin/true"])}
        await live.command("submit-job", body)
    await live.until(
        lambda world: all(job in world.jobs and world.jobs[job].is_terminal for job in ids), "a burst that is over", 120
    )
    took_s = time.monotonic() - begun_s
    used_ns = sum(processor_ns(pid) for pid in pids) - sum(before_ns)
    return jobs / took_s, used_ns / 1_000_000_000


@asynccontextmanager
async def _asked(live: Live, every_s: float) -> AsyncIterator[list[int]]:
    """Asks every service for its figures again and again meanwhile; how often it did."""
    count = [0]

    async def ask() -> None:
        ports = []
        for service in SERVICES:
            reply = await live.client.request(live.subjects.ask(service, "health"), b"{}", timeout=5)
            ports.append(msgspec.json.decode(reply.data, type=Health).metrics_port)
        while True:
            for port in ports:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
                count[0] += (await reader.read()).startswith(b"HTTP/1.1 200")
                writer.close()
            await asyncio.sleep(every_s)

    asking = asyncio.create_task(ask())
    try:
        yield count
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
