"""The line between an agent and the bus is cut, both ways or one, for less than a lease and for more.

For less nothing happens. For more the agent stops its runs itself, the log gives the GPUs away only when they
are gone, and the gang begins again on the other side; when the line heals nothing of it is left, and the
agent says so. What was sent into the cut arrives late.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from random import Random

import msgspec
import pytest
import pytest_asyncio

from fairlease.agent.layout import FENCED_DETAIL
from fairlease.runtime.supervisor import agent_part, service_parts
from tests.live import process
from tests.live.cell import GPUS, Cell, known_bus, patrolled_cell
from tests.live.court import eventually
from tests.live.desk import GRACE_MS, LEASED, Ears, Job
from tests.live.journal import read_stream
from tests.live.proxy import TO_BUS, TO_CLIENT, Proxy
from tests.live.test_runs_unruly import unruly
from tests.live.workload import mixed

# The client forgets a socket on which nobody answered.
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

AGENTS = {"agent-1": ("host-001", "host-002"), "agent-2": ("host-003", "host-004")}
WAYS = {"both-ways": (TO_BUS, TO_CLIENT), "to-the-bus": (TO_BUS,), "to-the-agent": (TO_CLIENT,)}


class Parted:
    """A cell whose agents each have a line of their own."""

    def __init__(self, cell: Cell, lines: dict[str, Proxy]) -> None:
        self.cell = cell
        self.lines = lines


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parted]:
    home = tmp_path_factory.mktemp("parted") / "cell"
    url = known_bus(home)
    async with AsyncExitStack() as stack:
        lines = {name: await stack.enter_async_context(Proxy(url)) for name in AGENTS}
        agents = [
            msgspec.structs.replace(
                agent_part(f"{len(hosts)}x{GPUS}", name, first_host=int(hosts[0][-3:])),
                env={"FAIRLEASE_URL": lines[name].url},
            )
            for name, hosts in AGENTS.items()
        ]
        parts = [*service_parts(), *agents]
        cell = await stack.enter_async_context(patrolled_cell(home, parts=parts, policy=LEASED))
        yield Parted(cell, lines)


async def _gang(cell: Cell, name: str) -> tuple[Job, str]:
    """A gang of which nothing hears a request, over two hosts; and one of the agents that have it."""
    job = Job(name, unruly("daemonising"), hosts=2, gpus=GPUS, grace=f"{GRACE_MS}ms")
    await cell.submit(job)
    await cell.event(job.id, "attempt-started", count=2)
    granted = await cell.event(job.id, "gang-granted")
    first = granted["parts"][0]["host"]
    return job, next(agent for agent, hosts in AGENTS.items() if first in hosts)


async def _is_away_from(cell: Cell, job: str, hosts: tuple[str, ...]) -> bool:
    """Whether an attempt of the job started on hosts that are all others."""
    await cell.journal.read()
    started = {event["attempt"] for event in cell.journal.of_job(job, "attempt-started")}
    grants = cell.journal.of_job(job, "gang-granted")
    return any(not {p["host"] for p in g["parts"]} & set(hosts) for g in grants if g["attempt"] in started)


def _ends(cell: Cell, attempt: str, hosts: set[str]) -> list[dict[str, object]]:
    """What the agents of these hosts wrote down as the end of the attempt."""
    paths = [cell.home / "agent" / host / "runs" / attempt / "gone.json" for host in sorted(hosts)]
    return [json.loads(path.read_bytes()) for path in paths]


async def _reported_gone(cell: Cell, attempt: str) -> set[str]:
    """The hosts whose agents reported that nothing of the attempt is left."""
    stored = await read_stream(cell.client, cell.subjects.reports_stream)
    gone = (message for message in stored if message.subject.endswith(".run-gone"))
    return {message.subject.split(".")[3] for message in gone if json.loads(message.data)["attempt"] == attempt}


@pytest.mark.parametrize("way", WAYS)
async def test_a_gang_behind_a_line_that_is_cut_for_longer_than_its_lease_runs_again_on_the_other_side(
    parted: Parted, way: str
) -> None:
    # rule: 7.6
    cell = parted.cell
    job, agent = await _gang(cell, f"longer-{way}")
    granted = await cell.event(job.id, "gang-granted")
    line, away = parted.lines[agent], AGENTS[agent]
    hit = {part["host"] for part in granted["parts"]} & set(away)
    line.cut(*WAYS[way])
    await eventually(lambda: _is_away_from(cell, job.id, away), "the gang runs on the other side", limit_s=90)
    await cell.over(job.id)
    fenced = [(end["end"], end["detail"]) for end in _ends(cell, f"{job.id}-a1", hit)]
    assert fenced == [("fault", FENCED_DETAIL)] * len(hit), "the agent's side stopped by its own lease"
    assert process.jobs_of(cell.home) == []
    line.heal()
    await eventually(cell.is_taking_work, "its hosts take new work again")
    (first, *_) = cell.journal.of_job(job.id, "attempt-ended")
    assert first["end"] == "fault"

    async def is_told() -> bool:
        return hit <= await _reported_gone(cell, f"{job.id}-a1")

    await eventually(is_told, "the agent reports what it ended")
    after = Job(f"after-{way}", hosts=4, gpus=GPUS)
    await cell.submit(after)
    await cell.over(after.id)
    await cell.judge()


@pytest.mark.parametrize("way", WAYS)
async def test_a_line_that_is_cut_for_less_than_a_lease_changes_nothing(parted: Parted, way: str) -> None:
    cell = parted.cell
    lost = len(cell.journal.events("lease-lost"))
    gate = cell.home / f"gate-{way}"
    job = Job(f"shorter-{way}", f"trap '' TERM; while [ ! -e {gate} ]; do sleep 0.1; done", hosts=4, gpus=GPUS)
    await cell.submit(job)
    await cell.event(job.id, "attempt-started", count=4)
    for line in parted.lines.values():
        line.cut(*WAYS[way])
    await asyncio.sleep(1)  # the length of the cut is the fault itself
    for line in parted.lines.values():
        line.heal()
    await cell.event(job.id, "gang-granted")
    during = mixed(Random(way), 3, f"during-{way}")
    for other in during:
        await cell.submit(other)
    gate.touch()
    await cell.over()
    assert len(cell.journal.of_job(job.id, "gang-granted")) == 1
    assert len(cell.journal.events("lease-lost")) == lost
    await cell.judge()


async def _flapping(parted: Parted, seed: int, count: int, cuts: int) -> None:
    """Lines are cut in any direction, for up to twice a lease, while work goes on."""
    cell, chance = parted.cell, Random(seed)
    jobs = [*mixed(chance, count, f"flap-{seed}"), Job(f"unruly-{seed}", unruly("forking"), hosts=2, gpus=GPUS)]
    for job in jobs:
        unsure = job.end != "job-succeeded" or job.name.startswith("unruly")
        await cell.submit(job._replace(end="", code=None) if unsure else job)
    for _ in range(cuts):
        ears = await Ears.at(cell, cell.subjects.log_all())
        with suppress(TimeoutError):
            for _ in range(chance.randint(1, 10)):
                await ears.next(limit_s=1)
        line = parted.lines[chance.choice(list(parted.lines))]
        line.cut(*chance.choice(list(WAYS.values())))
        await asyncio.sleep(chance.uniform(0.1, LEASED.lease_ms / 500))
        line.heal()
    lost = len(cell.journal.events("lease-lost"))
    print(f"seed {seed}: {cuts} cuts; leases of hosts lost so far: {lost}")
    await cell.cancel(next(job.id for job in jobs if job.name.startswith("unruly")))
    await cell.over(limit_s=120)
    await eventually(cell.is_taking_work, "every host takes new work")
    await cell.judge()


@pytest.mark.parametrize("seed", [1])
async def test_lines_that_flap_lose_nothing_and_double_nothing(parted: Parted, seed: int) -> None:
    await _flapping(parted, seed, 8, 4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
async def test_lines_that_flap_for_longer(parted: Parted, seed: int) -> None:
    await _flapping(parted, seed, 20, 12)
