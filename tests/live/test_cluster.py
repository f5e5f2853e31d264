"""Three servers of one bus and two replicas of each service: any one of them may die, and nothing is lost.

The log is on three servers when it is acknowledged, and every decision is made twice and written once. So whoever
leads the log, and every process, is killed in turn while work is handed in; decisions go on, within a limit.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from fairlease_schemas.subjects import SERVICES
from tests.house.tree import ROOT
from tests.live.cluster import REPLICAS, SERVERS, Cluster, cluster_at
from tests.live.court import eventually
from tests.live.workload import mixed

pytestmark = pytest.mark.asyncio(loop_scope="module")

GO_ON_S = 15.0
"""How long the cell may stand still when one server, or one process, is killed."""

HANGING_S = 45.0
"""The same, when a server hangs: connections to it are given up after 15 s, and its followers elect meanwhile."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with cluster_at(tmp_path_factory.mktemp("cluster") / "cell") as cluster:
        yield cluster


async def _hand_in(cluster: Cluster, seed: int, is_over: asyncio.Event) -> int:
    """Jobs, one after the other, until it is over; how many."""
    chance, count = Random(seed), 0
    while not is_over.is_set():
        for job in mixed(chance, 1, f"c{seed}-{count}", longest_s=0.3):
            await cluster.submit(job)
        count += 1
        await asyncio.sleep(chance.uniform(0, 0.2))
    return count


async def _decided_since(cluster: Cluster, position: int, killed_s: float) -> float:
    """Seconds from the kill to a placement that was decided after it: a whole cycle's work is done again."""

    async def found() -> bool:
        await cluster.journal.read()
        return bool(cluster.journal.events("gang-granted", after=position))

    await eventually(found, "a grant after the kill")
    return time.monotonic() - killed_s


async def _killed(cluster: Cluster, names: list[str]) -> dict[str, float]:
    """Kills each in turn while work is handed in; how long each time no grant came.

    `leader` is whichever server leads the log at that moment. The next one dies when the last is whole again.
    """
    is_over, took_s = asyncio.Event(), {}
    handing_in = asyncio.create_task(_hand_in(cluster, len(names), is_over))
    try:
        for number, wanted in enumerate(names):
            await eventually(cluster.is_whole, "every stream stands on three servers")
            name = await cluster.leader() if wanted == "leader" else wanted
            position = await cluster.journal.read()
            killed_s = time.monotonic()
            await cluster.kill(name)
            took_s[f"{number} {wanted} {name}"] = await _decided_since(cluster, position, killed_s)
    finally:
        is_over.set()
        count = await handing_in
    print(count, "jobs;", {name: round(s, 1) for name, s in took_s.items()})
    return took_s


def _check(took_s: dict[str, float]) -> None:
    late = {name: seconds for name, seconds in took_s.items() if seconds > GO_ON_S}
    assert not late, f"stood still for longer than {GO_ON_S:g} s: {late}"


async def test_whoever_leads_the_log_may_die_and_no_record_is_lost_or_written_twice(cluster: Cluster) -> None:
    took_s = await _killed(cluster, ["leader", "placement-a", "admission-b"])
    await cluster.over(limit_s=120)
    await cluster.judge()
    _check(took_s)


async def test_the_streams_stand_on_three_servers_and_declaring_them_again_changes_nothing(cluster: Cluster) -> None:
    await eventually(cluster.is_whole, "every stream stands on three servers")
    await cluster.declare()
    said = (cluster.home / "logs" / "declare.log").read_text()
    assert said.endswith("every stream is there, and as it must be\n"), said


async def test_the_probe_of_the_image_finds_every_server_well(cluster: Cluster) -> None:
    await eventually(cluster.is_whole, "every stream stands on three servers")
    for server in cluster.cell.servers:
        asked = (str(ROOT / "infra/probe.py"), f"http://127.0.0.1:{server.monitor_port}/healthz")

        async def is_well(words: tuple[str, str] = asked) -> bool:
            probe = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=asyncio.subprocess.DEVNULL)
            return await probe.wait() == 0

        await eventually(is_well, f"{server.name} is well")


@pytest.mark.long
async def test_a_leader_that_hangs_is_left_and_knows_the_rest_when_it_comes_back(cluster: Cluster) -> None:
    """Its sockets stay open: whoever is connected to it notices by three pings without an answer."""
    is_over = asyncio.Event()
    handing_in = asyncio.create_task(_hand_in(cluster, 77, is_over))
    try:
        await eventually(cluster.is_whole, "every stream stands on three servers")
        name = await cluster.leader()
        position = await cluster.journal.read()
        halted_s = time.monotonic()
        cluster.halt(name)
        try:
            took_s = await _decided_since(cluster, position, halted_s)
        finally:
            cluster.go_on(name)
    finally:
        is_over.set()
        await handing_in
    print(f"{name} hung; a grant after {took_s:.1f} s")
    assert took_s <= HANGING_S
    await cluster.over(limit_s=120)
    await cluster.judge()
    await eventually(cluster.is_whole, "the one that hung has all of it again")


@pytest.mark.long
async def test_every_server_and_every_replica_may_die_in_turn_under_load(cluster: Cluster) -> None:
    services = [f"{name}-{replica}" for name in SERVICES for replica in REPLICAS]
    took_s = await _killed(cluster, ["leader", *services, *SERVERS, "agent", "leader", "leader"])
    await cluster.over(limit_s=180)
    await cluster.judge()
    _check(took_s)
