"""One cycle with a long queue: live, from the trigger to the record that closes it, and the decisions alone.

The hosts are played here: their agents' reports are published by this program and no process is
started, so that what is measured is the chain that decides and not a thousand forks beside it.
"""

import asyncio
import gc
import itertools
import random
import sys
import time
from collections.abc import Callable

from figure import Figure, spread_ms
from live import ACCOUNT, Live, contract

from fairlease.agent.devices import simulated
from fairlease.core.deciders import RULES
from fairlease.core.decision import record_of
from fairlease.core.state import IDLE
from fairlease.core.world import World
from fairlease_schemas.codec import read_record, sealed
from fairlease_schemas.commands import ChangeBudget
from fairlease_schemas.cycle import CycleClosed, CycleRanked, GangGranted
from fairlease_schemas.envelope import Answer, TimerFired
from fairlease_schemas.ids import AttemptId, HostId, job_id
from fairlease_schemas.job import AttemptEnded, End
from fairlease_schemas.reports import HostUp, RunGone, RunStarted

LEAVES = 10
SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8))
WINDOWS = ("15m", "30m", "1h", "2h")
QUIET_LIMIT_S = 120.0
STEPS = ("ranker", "placement", "preemption")


class Agents:
    """The agents of hosts that do not exist: they say that they are up, and that what was granted runs."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._read = 0

    async def join(self, cluster: str) -> int:
        """Every host of the cluster reports; how many there are."""
        hosts = simulated(cluster)
        for devices in hosts:
            up = HostUp(incarnation="boot-1", inventory=devices.inventory())
            await self._live.publish(self._live.subjects.report(devices.host, "host-up"), up)
        await self._live.until(lambda world: len(world.fleet.hosts) == len(hosts), "all hosts registered")
        return len(hosts)

    async def start_what_is_granted(self) -> None:
        """Report every part of every grant since the last call as started."""
        new, self._read = self._live.records[self._read :], len(self._live.records)
        for position, (_, record) in enumerate(new, start=self._read - len(new) + 1):
            for index, event in enumerate(record.events):
                if isinstance(event, GangGranted):
                    token = f"{record.epoch}-{position}-{index}"
                    for part in event.parts:
                        started = RunStarted(attempt=event.attempt, token=token)
                        await self._live.publish(self._live.subjects.report(part.host, "run-started"), started)

    async def end(self, attempt: AttemptId, host: HostId, token: str) -> None:
        """Report the attempt's one part as gone."""
        gone = RunGone(attempt=attempt, token=token, end=End.SUCCEEDED, exit_code=0)
        await self._live.publish(self._live.subjects.report(host, "run-gone"), gone)


async def cycle(live: Live, cluster: str, queued: int, turns: int, seed: int) -> list[Figure]:
    """Fill the cluster with jobs of a host each, queue `queued` more of many kinds, and free one host a turn."""
    agents = Agents(live)
    hosts = await agents.join(cluster)
    await live.command("change-budget", ChangeBudget(budget="org", weight=1))
    for leaf in range(LEAVES):
        await live.command("change-budget", ChangeBudget(budget=f"leaf-{leaf}", weight=1 + leaf % 3, parent="org"))
    await live.until(lambda world: f"leaf-{LEAVES - 1}" in world.tree.nodes, "the budgets")
    for number in range(hosts):
        body = contract("leaf-0", ["/bin/true"], gpus_per_host=8)
        await live.command("submit-job", {"request_id": f"fill-{number}", "contract": body})
    await _quiet(live, agents, lambda world: len(world.live) == hosts, "a full cluster")
    chance = random.Random(seed)
    numbers = itertools.count()
    took_ns = []
    for turn in range(turns):
        for _ in range(queued - live.world.line.total):
            await _submit(live, chance, next(numbers))
        await _quiet(live, agents, lambda world: world.line.total >= queued, "a full queue")
        took_ns.append(await _turn(live, agents, f"fill-{turn}"))
        await _quiet(live, agents, lambda _: True, "the end of what the turn began")
    p50, p99 = spread_ms(took_ns)
    decided_p50, decided_p99 = spread_ms(_decided_ns(live.world, turns))
    facts = {"p99": p99, "turns": turns, "waiting": live.world.line.total, "classes": len(live.world.line.classes)}
    return [
        Figure("cycle_ms", p50, "ms", facts),
        Figure("cycle_decide_ms", decided_p50, "ms", {"p99": decided_p99}),
    ]


async def _submit(live: Live, chance: random.Random, number: int) -> None:
    hosts, gpus = chance.choice(SHAPES)
    window = chance.choice(WINDOWS)
    body = contract(
        f"leaf-{chance.randrange(LEAVES)}",
        ["/bin/true"],
        hosts=hosts,
        gpus_per_host=gpus,
        min_runtime=window,
        timeout="4h",
    )
    await live.command("submit-job", {"request_id": f"wait-{number}", "contract": body})


async def _quiet(live: Live, agents: Agents, holds: Callable[[World], bool], what: str) -> None:
    """Until it is so, all that was granted runs, and nothing more is going on."""

    def is_quiet(world: World) -> bool:
        is_started = all(world.jobs[job].phase == "running" for job in world.live.values())
        is_seen = world.cycle.news_position <= world.cycle.ranked_basis
        return holds(world) and world.cycle.stage == IDLE and is_seen and is_started and not world.uncharged

    try:
        async with asyncio.timeout(QUIET_LIMIT_S):
            while not is_quiet(live.world):
                live.news.clear()
                await agents.start_what_is_granted()
                await live.news.wait()
    except TimeoutError:
        sys.exit(f"the cell did not come to this within {QUIET_LIMIT_S:g} s: {what}")


async def _turn(live: Live, agents: Agents, request_id: str) -> int:
    """End one job; from the record that says so to the end of the first cycle that saw it, by the bus's clock."""
    job = live.world.jobs[job_id(ACCOUNT, "leaf-0", request_id)]
    attempt = job.attempts[-1]
    before = len(live.records)
    await agents.end(attempt.id, attempt.hosts[0], str(attempt.token))
    trigger = ranked = 0
    while True:
        for at in range(before, len(live.records)):
            time_ms, record = live.records[at]
            for event in record.events:
                if isinstance(event, AttemptEnded) and event.attempt == attempt.id:
                    trigger = at + 1
                elif isinstance(event, CycleRanked) and trigger and record.basis >= trigger:
                    ranked = event.cycle
                elif isinstance(event, CycleClosed) and ranked and event.cycle == ranked:
                    return (time_ms - live.records[trigger - 1][0]) * 1_000_000
        before = len(live.records)
        live.news.clear()
        await asyncio.wait_for(live.news.wait(), 30)


def _decided_ns(world: World, count: int) -> list[int]:
    """Processor time of the three steps of a cycle that its period starts, on copies of this world, without a bus."""
    dump = world.dump()
    found = []
    gc.collect()
    gc.disable()
    for _ in range(count):
        copy = World.load(dump)
        due_ms = RULES["ranker"].due_ms(copy)
        if due_ms is None:
            sys.exit("nothing waits: there is no cycle to decide")
        answers: tuple[Answer, ...] = (
            Answer(stream="TIMERS", seq=1, time_ms=due_ms, who="ranker", said=TimerFired(due_ms=due_ms)),
        )
        total_ns = 0
        for step in STEPS:
            started_ns = time.process_time_ns()
            decision = RULES[step].decide(copy, answers)
            total_ns += time.process_time_ns() - started_ns
            if decision is None:
                sys.exit(f"{step} has nothing to decide")
            _, data = sealed(record_of(copy, step, decision))
            copy.apply(read_record(data), copy.position + 1)
            answers = ()
        found.append(total_ns)
    gc.enable()
    return found
