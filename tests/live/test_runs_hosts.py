"""A machine dies in the middle of a gang, with its agent, its keepers and its jobs, and comes back another.

Its boot id is another one, and its disk may be empty: then nothing there knows what ever ran. The gang keeps
its place and its sound hosts, and no attempt begins twice on any host, however early the machine is back.
"""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from fairlease.runtime.keys import key_path
from fairlease.runtime.supervisor import service_parts
from tests.house.tree import ROOT
from tests.live import process
from tests.live.cell import GPUS, Cell, agent_per_host, patrolled_cell
from tests.live.court import eventually
from tests.live.desk import LEASED, Job
from tests.live.test_runs_unruly import unruly

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENTS = agent_per_host()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    home = tmp_path_factory.mktemp("hosts") / "cell"
    async with patrolled_cell(home, parts=[*service_parts(), *AGENTS.values()], policy=LEASED) as cell:
        yield cell


async def _dies(cell: Cell, host: str, *, has_disk: bool) -> None:
    """Power is cut: everything of the host is gone at once, its disk too where it has none that lasts."""
    cell.lose(AGENTS[host].name, "killed")
    while left := process.on_host(cell.home, host):
        process.kill(*left)
        await asyncio.sleep(0.01)
    if not has_disk:
        cell.forgotten.add(host)
        await asyncio.to_thread(shutil.rmtree, cell.home / "agent" / host)


@asynccontextmanager
async def _booted_anew(cell: Cell, host: str) -> AsyncIterator[None]:
    """The machine is back, under another boot id, as long as the `with` lasts; then it boots once more."""
    boot = cell.home / f"boot-{host}"
    boot.write_text(os.urandom(16).hex())
    env = {**os.environ, "FAIRLEASE_HOME": str(cell.home), "FAIRLEASE_URL": cell.supervisor.url}
    env["FAIRLEASE_CREDS"] = str(key_path(cell.home, AGENTS[host].identity))
    env["PYTHONPATH"] = os.pathsep.join(str(ROOT / name) for name in ("", "schemas", "services"))
    words = ("-m", "tests.live.rebooted", str(boot), *AGENTS[host].arguments)
    with (cell.supervisor.logs / f"{host}-rebooted.log").open("ab") as out:
        agent = await asyncio.create_subprocess_exec(
            sys.executable, *words, env=env, stdin=DEVNULL, stdout=out, stderr=out
        )
    try:
        yield
    finally:
        agent.terminate()
        await agent.wait()
        cell.bring_back(AGENTS[host].name, "killed")
        await eventually(lambda: _is_itself(cell, host), f"{host} is registered as it was at first")


async def _is_itself(cell: Cell, host: str) -> bool:
    await cell.journal.read()
    boots = [e["incarnation"] for e in cell.journal.events("host-registered") if e["host"] == host]
    return len(boots) > 1 and boots[-1] == boots[0]


async def _is_lost(cell: Cell, job: str) -> bool:
    await cell.journal.read()
    return bool(cell.journal.of_job(job, "job-requeued"))


@pytest.mark.parametrize("is_late", [True, False], ids=["after its lease", "at once"])
@pytest.mark.parametrize("has_disk", [True, False], ids=["its disk", "an empty disk"])
async def test_a_machine_that_dies_in_mid_gang_and_comes_back_never_runs_the_same_attempt_again(
    cell: Cell, is_late: bool, has_disk: bool
) -> None:
    # rule: 7.6 7.7
    label = f"{'late' if is_late else 'soon'}-{'disk' if has_disk else 'empty'}"
    gang = Job(f"gang-{label}", unruly("daemonising"), hosts=3, gpus=GPUS, min_runtime="1m", max_retries=1)
    other = Job(f"other-{label}", unruly("linger"), gpus=GPUS, min_runtime="1m", end="job-cancelled")
    # Idle work, to which nobody promises anything.
    waiting = Job(f"waiting-{label}", gpus=GPUS, budget="team-b", min_runtime="0s")
    for job in (gang, other):
        await cell.submit(job)
    await cell.event(gang.id, "attempt-started", count=3)
    await eventually(lambda: len(_begun(cell, gang)) == 3, "all three commands have begun")
    await cell.event(other.id, "attempt-started")
    await cell.submit(waiting)
    await cell.event(waiting.id, "job-admitted")
    parts = [part["host"] for part in (await cell.event(gang.id, "gang-granted"))["parts"]]
    host, sound = parts[1], {parts[0], parts[2]}
    await _dies(cell, host, has_disk=has_disk)
    if is_late:
        await eventually(lambda: _is_lost(cell, gang.id), "the gang is given up for lost")
    async with _booted_anew(cell, host):
        await cell.over(gang.id, waiting.id)
        (first, _) = cell.journal.of_job(gang.id, "attempt-ended")
        assert first["end"] == "fault"
        assert sound < set(cell.journal.oracle.attempts[f"{gang.id}-a2"].parts), "its sound hosts were kept for it"
        assert not sound & _granted_before(cell, waiting, f"{gang.id}-a2"), "they were given to somebody else"
        assert _begun(cell, gang).count(host) == 1
        await cell.cancel(other.id)
        await cell.over(other.id)
    assert process.jobs_of(cell.home) == []
    await cell.submit(Job(f"after-{label}", hosts=4, gpus=GPUS))
    await cell.judge()


def _begun(cell: Cell, job: Job) -> list[str]:
    """The hosts on which the command of the job's first attempt really began, each as often as it did."""
    return [host for attempt, host in cell.started() if attempt == f"{job.id}-a1"]


def _granted_before(cell: Cell, job: Job, attempt: str) -> set[str]:
    """The hosts that a job was granted before that attempt was."""
    attempts = cell.journal.oracle.attempts
    earlier = [a for a in attempts.values() if a.job == job.id and a.token < attempts[attempt].token]
    return {host for attempt in earlier for host in attempt.parts}
