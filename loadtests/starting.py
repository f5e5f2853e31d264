"""From the publication of a command to the job's process, one job after another on an idle cell."""

import time

from figure import Figure, spread_ms
from live import ACCOUNT, Live, contract

from fairlease.agent.layout import LOG
from fairlease.core.world import IDLE, World
from fairlease_schemas.commands import ChangeBudget
from fairlease_schemas.cycle import GangGranted
from fairlease_schemas.ids import JobId, job_id

BUDGET = "load-a"
SAY_NOW = ["/bin/date", "+%s%N"]
"""The job writes the wall clock of its own first moments; it is the process itself, no shell before it."""


async def starting(live: Live, jobs: int) -> list[Figure]:
    """Publish to process, and beside it publish to the grant as the bus stored it."""
    await live.command("change-budget", ChangeBudget(budget=BUDGET, weight=1))
    await live.until(lambda world: BUDGET in world.tree.nodes, "a budget")
    published = {}
    for number in range(jobs):
        request_id = f"start-{number}"
        job = job_id(ACCOUNT, BUDGET, request_id)
        published[job] = time.time_ns()
        await live.command("submit-job", {"request_id": request_id, "contract": contract(BUDGET, SAY_NOW)})
        await live.until(lambda world, job=job: _is_at_rest(world, job), "a job that is over")  # type: ignore[misc]
    granted_ns = {
        event.job: time_ms * 1_000_000
        for time_ms, record in live.records
        for event in record.events
        if isinstance(event, GangGranted)
    }
    started = [_started_ns(live, job) - sent_ns for job, sent_ns in published.items()]
    p50, p99 = spread_ms(started)
    grant_p50, grant_p99 = spread_ms([granted_ns[job] - sent_ns for job, sent_ns in published.items()])
    return [
        Figure("submit_to_start_p50_ms", p50, "ms", {"jobs": jobs}),
        Figure("submit_to_start_p99_ms", p99, "ms"),
        Figure("submit_to_grant_p50_ms", grant_p50, "ms", {"p99": grant_p99}),
    ]


def _is_at_rest(world: World, job: JobId) -> bool:
    """Whether the job is over, charged, and the cycle that followed is closed."""
    found = world.jobs.get(job)
    return found is not None and found.is_terminal and not world.uncharged and world.cycle.stage == IDLE


def _started_ns(live: Live, job: JobId) -> int:
    """What the job wrote on its host."""
    attempt = live.world.jobs[job].attempts[0]
    path = live.home / "agent" / attempt.hosts[0] / "runs" / attempt.id / LOG
    return int(path.read_text(encoding="ascii"))
