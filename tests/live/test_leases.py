"""An agent is lost while a gang runs (7.6): its runs stop by themselves, and begin again elsewhere, never twice."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from fairlease.runtime.supervisor import agent_part, service_parts
from tests.live import process
from tests.live.cell import GPUS, HOSTS, Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import QUICK, Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASED = msgspec.structs.replace(
    QUICK,
    lease_ms=2_500,
    lease_margin_ms=1_000,
    stop_margin_ms=2_000,
    breaker_permille=1_000,  # half of this small cell is lost at once, and it is no disaster
)
GRACE_MS = 1_000
LOSS_S = (LEASED.lease_ms + LEASED.lease_margin_ms + LEASED.stop_margin_ms + GRACE_MS) / 1_000
AGENTS = {"agent-1": ("host-001", "host-002"), "agent-2": ("host-003", "host-004")}
STUBBORN = "trap '' TERM; case $FAIRLEASE_ATTEMPT in *-a1) while :; do sleep 0.1; done;; esac"
"""The first attempt hears nothing and never ends; the second has nothing to do."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    agents = [agent_part(f"{HOSTS // 2}x{GPUS}", name, first_host=int(hosts[0][-3:])) for name, hosts in AGENTS.items()]
    async with cell_at(tmp_path_factory.mktemp("leases") / "cell", parts=[*service_parts(), *agents]) as cell:
        await cell.answered("change-policy", {"name": "leased", "policy": msgspec.to_builtins(LEASED)})
        await cell.submit(Job("first", hosts=HOSTS, gpus=GPUS))
        await cell.over()
        yield cell


async def _lose(cell: Cell, agent: str, how: str) -> None:
    """The agent dies, and nobody starts another; or it stands still."""
    if how == "killed":
        cell.supervisor._keepers[agent].cancel()
        cell.kill(agent)
    else:
        process.send(signal.SIGSTOP, cell.pid(agent))


async def _bring_back(cell: Cell, agent: str, how: str) -> None:
    if how == "killed":
        supervisor = cell.supervisor
        supervisor._keepers[agent] = asyncio.create_task(supervisor._keep(supervisor.parts[agent]))
    else:
        process.send(signal.SIGCONT, cell.pid(agent))


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
    await _lose(cell, agent, how)
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
    await _bring_back(cell, agent, how)
    await eventually(lambda: _is_free(cell), "its hosts take new work again")
    await cell.submit(Job(f"after-{how}", hosts=HOSTS, gpus=GPUS))
    await cell.over()
    await cell.judge()


async def _is_free(cell: Cell) -> bool:
    await cell.journal.read()
    return not any(cell.journal.oracle._holds.values())
