"""An agent is lost while a gang runs (7.6): its runs stop by themselves, and begin again elsewhere, never twice."""

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fairlease.runtime.supervisor import agent_part, service_parts
from tests.live import process
from tests.live.cell import GPUS, HOSTS, Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import GRACE_MS, LEASED, LOSS_S, Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENTS = {"agent-1": ("host-001", "host-002"), "agent-2": ("host-003", "host-004")}
STUBBORN = "trap '' TERM; case $FAIRLEASE_ATTEMPT in *-a1) while :; do sleep 0.1; done;; esac"
"""The first attempt hears nothing and never ends; the second has nothing to do."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    agents = [agent_part(f"{HOSTS // 2}x{GPUS}", name, first_host=int(hosts[0][-3:])) for name, hosts in AGENTS.items()]
    home = tmp_path_factory.mktemp("leases") / "cell"
    async with cell_at(home, parts=[*service_parts(), *agents], policy=LEASED) as cell:
        await cell.submit(Job("first", hosts=HOSTS, gpus=GPUS))
        await cell.over()
        yield cell


@pytest.mark.parametrize("how", ["killed", "halted"])
async def test_a_gang_whose_agent_is_lost_runs_again_on_other_hosts_and_never_twice_at_once(
    cell: Cell, how: str
) -> None:
    job = Job(f"gang-{how}", STUBBORN, hosts=2, gpus=GPUS, grace=f"{GRACE_MS}ms", max_retries=1)
    await cell.submit(job)
    await cell.event(job.id, "attempt-started", count=2)
    granted = await cell.event(job.id, "gang-granted")
    hit = {part["host"] for part in granted["parts"]}
    agent = next(name for name, hosts in AGENTS.items() if hit & set(hosts))
    cell.lose(agent, how)
    lost_s = time.monotonic()
    await cell.event(job.id, "job-requeued")
    took_s = time.monotonic() - lost_s
    print(f"{how}: requeued {took_s:.1f} s after its agent was lost; lease, grace and margins are {LOSS_S:.1f} s")
    assert took_s <= LOSS_S + 5
    again = await cell.event(job.id, "gang-granted", count=2)
    assert not {part["host"] for part in again["parts"]} & set(AGENTS[agent])
    await cell.over(job.id)
    lost = [event["host"] for event in cell.journal.events("lease-lost") if f"{job.id}-a1" in event["attempts"]]
    assert set(lost) == hit & set(AGENTS[agent])
    assert process.jobs_of(cell.home) == []
    cell.bring_back(agent, how)
    await eventually(cell.is_taking_work, "its hosts take new work again")
    await cell.submit(Job(f"after-{how}", hosts=HOSTS, gpus=GPUS))
    await cell.over()
    await cell.judge()
