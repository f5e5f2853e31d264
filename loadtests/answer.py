"""How long a person waits for `fairlease queue` and `fairlease why`, interpreter and all."""

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL

from figure import Figure, spread_ms
from live import Live

from fairlease_schemas.ids import JobId


async def answer(live: Live, job: JobId, runs: int) -> list[Figure]:
    """The worse of the two medians, and each beside it."""
    queue, queue_worst = spread_ms([await _asked_ns(live, "queue") for _ in range(runs)])
    why, why_worst = spread_ms([await _asked_ns(live, "why", job) for _ in range(runs)])
    return [
        Figure("cli_answer_ms", max(queue, why), "ms"),
        Figure("cli_queue_ms", queue, "ms", {"p99": queue_worst}),
        Figure("cli_why_ms", why, "ms", {"p99": why_worst}),
    ]


async def _asked_ns(live: Live, *words: str) -> int:
    started_ns = time.perf_counter_ns()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fairlease", *words),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        env=live.environment(),
    )
    if await process.wait() != 0:
        sys.exit(f"`fairlease {' '.join(words)}` left with {process.returncode}")
    return time.perf_counter_ns() - started_ns
