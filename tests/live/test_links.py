"""What lies between a process and the bus: acknowledgements are lost, and records come late."""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random

import msgspec
import pytest
import pytest_asyncio

from fairlease.runtime.supervisor import Part, agent_part
from fairlease_schemas.subjects import SCOPES, SERVICES
from tests.live import process
from tests.live.cell import SIMULATE, Cell, cell_at, known_bus
from tests.live.court import eventually
from tests.live.desk import Job
from tests.live.proxy import Proxy
from tests.live.workload import mixed

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMS = {
    **dict.fromkeys(SCOPES, ("FL_LAB_LOG",)),
    "admission": ("FL_LAB_LOG", "FL_LAB_CONTRACTS", "FL_LAB_TIMERS_ADMISSION"),
    "ranker": ("FL_LAB_LOG", "FL_LAB_TIMERS_RANKER"),
    "preemption": ("FL_LAB_LOG", "FL_LAB_ORDERS"),
    "explainer": ("FL_LAB_FEED",),
    "health": ("FL_LAB_LOG", "FL_LAB_TIMERS_HEALTH"),
    "agent": ("FL_LAB_REPORTS", "FL_LAB_LEASES", "FL_LAB_EVIDENCE"),
}
"""Who stores where: each loses the first acknowledgement of each of these."""


class Deaf:
    """A cell in which each process has a proxy of its own before the bus."""

    def __init__(self, cell: Cell, proxies: dict[str, Proxy]) -> None:
        self.cell = cell
        self.proxies = proxies


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deaf(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deaf]:
    home = tmp_path_factory.mktemp("acks") / "cell"
    url = known_bus(home)
    async with AsyncExitStack() as stack:
        proxies = {name: await stack.enter_async_context(Proxy(url, 1)) for name in STREAMS}
        cell = await stack.enter_async_context(cell_at(home, parts=_parts(proxies)))
        assert cell.supervisor.url == url
        yield Deaf(cell, proxies)


def _parts(proxies: dict[str, Proxy]) -> list[Part]:
    agent = agent_part(SIMULATE)
    parts = [Part(name=f"{name}-a", arguments=("serve", name)) for name in SERVICES]
    return [
        msgspec.structs.replace(part, env={"FAIRLEASE_REPLICA": "a", "FAIRLEASE_URL": proxies[part.arguments[1]].url})
        for part in (*parts, agent)
    ]


async def _is_counted_once(cell: Cell) -> bool:
    """Whether every service knows of exactly the records that stand in the log under its name."""
    await cell.journal.read()
    for name in SCOPES:
        (health,) = await cell.health(name) or [{"records_written": -1}]
        if health["records_written"] != cell.journal.written_by(name):
            return False
    return True


@pytest.mark.parametrize("seed", [1])
async def test_whatever_loses_its_acknowledgement_is_stored_once_and_nobody_waits_for_ever(
    deaf: Deaf, seed: int
) -> None:
    cell = deaf.cell
    for job in mixed(Random(seed), 6, f"lost-{seed}"):
        await cell.submit(job)
    for verb in ("cordon-host", "return-host"):
        await cell.answered(verb, {"host": "host-004"})
    await cell.over()
    await cell.judge()
    await eventually(lambda: _is_counted_once(cell), "each service knows of its records")
    lost = {name: proxy.lost for name, proxy in deaf.proxies.items()}
    assert lost == {name: dict.fromkeys(streams, 1) for name, streams in STREAMS.items()}


async def test_an_explainer_asked_to_end_while_it_waits_for_acknowledgements_ends_in_order(deaf: Deaf) -> None:
    cell, proxy = deaf.cell, deaf.proxies["explainer"]
    proxy.to_lose = 10**6
    before = dict(proxy.lost)
    await cell.submit(Job("unheard"))
    await eventually(lambda: proxy.lost != before, "an acknowledgement for the feed is lost")
    old, service = cell.pid("explainer-a"), cell.supervisor.processes["explainer-a"]
    process.send(signal.SIGTERM, old)
    await eventually(lambda: service.returncode is not None, "the explainer has left")
    assert service.returncode == 0, cell.said("explainer-a")[-1_500:]
    proxy.to_lose = 0
    await cell.replaced("explainer-a", old)
    await cell.over()
    await cell.judge()


async def test_a_job_cancelled_while_its_grant_was_on_the_way_to_admission_does_not_run_on(deaf: Deaf) -> None:
    """Grant and cancel are written in two scopes, neither knowing of the other; the job is over, and its run too."""
    cell, proxy = deaf.cell, deaf.proxies["admission"]
    await cell.submit(Job("before"))
    await cell.over()
    await eventually(lambda: len(proxy.lost) == len(STREAMS["admission"]), "no more acknowledgements are lost")
    job = Job("overtaken", "exec sleep 600", hosts=2, gpus=8, end="job-cancelled")
    process.send(signal.SIGSTOP, cell.pid("agent"))  # a report would make admission fold to the end first
    proxy.hold_log(cell.subjects.log("placement", "cycle-placed"))
    await cell.submit(job)
    try:
        await cell.event(job.id, "gang-granted")
        await cell.cancel(job.id)
        await cell.over(job.id)
    finally:
        proxy.release_log()
    assert [e["type"] for e in cell.journal.of_job(job.id)][1:] == ["gang-granted", "job-cancelled"], "no race"
    process.send(signal.SIGCONT, cell.pid("agent"))
    await cell.event(job.id, "attempt-ended")
    assert process.jobs_of(cell.home) == []
    await cell.judge()
