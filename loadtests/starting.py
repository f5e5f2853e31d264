"""From the publication of a command to the job's process, one job after another on an idle cell.

A cell that wrote ten records of admission within a second is not idle: admission then gathers what
arrives (log.md L3). So the next job waits until that second is over, and the same without the wait is
measured beside it.
"""

import asyncio
import time
from functools import partial

from figure import Figure, spread_ms
from live import ACCOUNT, Live, contract

from fairlease.agent.layout import LOG
from fairlease.core.state import IDLE
from fairlease.core.world import World
from fairlease_schemas.commands import ChangeBudget
from fairlease_schemas.cycle import GangGranted
from fairlease_schemas.ids import JobId, job_id

BUDGET = "load-a"
SAY_NOW = ["/bin/date", "+%s%N"]
"""The job writes the wall clock of its own first moments; it is the process itself, no shell before it."""
BUSY_RECORDS = 10
BUSY_S = 1.1


async def starting(live: Live, jobs: int, hurried_jobs: int) -> list[Figure]:
    """Publish to process, and beside it publish to the grant as the bus stored it."""
    await live.command("change-budget", ChangeBudget(budget=BUDGET, weight=1))
    await live.until(lambda world: BUDGET in world.tree.nodes, "a budget")
    published = await _one_after_another(live, jobs, "calm", is_calm=True)
    hurried = await _one_after_another(live, hurried_jobs, "hurried", is_calm=False)
    granted_ns = {
        event.job: time_ms * 1_000_000
        for time_ms, record in live.records
        for event in record.events
        if isinstance(event, GangGranted)
    }
    p50, p99 = spread_ms(_took_ns(live, published))
    grant_p50, grant_p99 = spread_ms([granted_ns[job] - sent_ns for job, sent_ns in published.items()])
    hurried_p50, hurried_p99 = spread_ms(_took_ns(live, hurried))
    return [
        Figure("submit_to_start_p50_ms", p50, "ms", {"jobs": jobs}),
        Figure("submit_to_start_p99_ms", p99, "ms"),
        Figure("submit_to_grant_p50_ms", grant_p50, "ms", {"p99": grant_p99}),
        Figure("submit_to_start_hurried_p50_ms", hurried_p50, "ms", {"p99": hurried_p99, "jobs": hurried_jobs}),
    ]


async def _one_after_another(live: Live, jobs: int, name: str, *, is_calm: bool) -> dict[JobId, int]:
    """Submit each when the one before is over and the cell at rest; when each was published."""
    published = {}
    for number in range(jobs):
        request_id = f"{name}-{number}"
        job = job_id(ACCOUNT, BUDGET, request_id)
        if is_calm:
            await asyncio.sleep(_busy_for_s(live))
        published[job] = time.time_ns()
        await live.command("submit-job", {"request_id": request_id, "contract": contract(BUDGET, SAY_NOW)})
        await live.until(partial(_is_at_rest, job=job), "a job that is over")
    return published


def _busy_for_s(live: Live) -> float:
    """How long admission will still count as busy."""
    heard_s = [at for at, (_, record) in zip(live.heard_s, live.records, strict=True) if record.by == "admission"]
    since_s = heard_s[-BUSY_RECORDS] if len(heard_s) >= BUSY_RECORDS else 0.0
    return max(0.0, since_s + BUSY_S - time.monotonic())


def _is_at_rest(world: World, job: JobId) -> bool:
    """Whether the job is over, charged, and the cycle that followed is closed."""
    found = world.jobs.get(job)
    return found is not None and found.is_terminal and not world.uncharged and world.cycle.stage == IDLE


def _took_ns(live: Live, published: dict[JobId, int]) -> list[int]:
    return [_started_ns(live, job) - sent_ns for job, sent_ns in published.items()]


def _started_ns(live: Live, job: JobId) -> int:
    """What the job wrote on its host."""
    attempt = live.world.jobs[job].attempts[0]
    path = live.home / "agent" / attempt.hosts[0] / "runs" / attempt.id / LOG
    return int(path.read_text(encoding="ascii"))
