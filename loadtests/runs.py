"""What becomes of runs: evictions, lost agents, resumes and drains, from the log of a live cell.

Instants are the bus's, of the records that say so; what a job says of its own start is the same machine's
clock. Medians of several turns, one after another, each begun when the cell is quiet again.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from figure import Figure
from live import ACCOUNT, Live, contract, processor_ns

import fairlease_sdk
from fairlease.agent.layout import LOG
from fairlease.core.job import Phase
from fairlease.core.world import World
from fairlease_schemas.commands import CancelJob, ChangeBudget, ChangePolicy, RequestDrain, ReturnHost
from fairlease_schemas.cycle import EvictionOrdered, GangGranted
from fairlease_schemas.host import DrainCompleted, DrainPlanned
from fairlease_schemas.ids import AttemptId, JobId, job_id, job_of
from fairlease_schemas.job import CheckpointConfirmed, JobRequeued
from fairlease_schemas.policy import Policy, WindowBound

BUDGETS = ("run-a", "run-b")
FOREVER = ["/bin/sleep", "3600"]
MS = 1_000_000
BUSY_S = 1.2
"""For so long admission gathers messages after a burst; a turn begins after it."""

SDK = Path(fairlease_sdk.__file__).parents[1]
TRAINING = """
import time
import fairlease_sdk as fairlease
saved = fairlease.latest_checkpoint()
print(time.time_ns(), saved.step if saved else 0, flush=True)
if saved is None:
    fairlease.checkpoint_done(1000)
    while not fairlease.preempted():
        time.sleep(0.02)
"""
"""Says when it has its state, saves it when it begins, and is done when it is resumed."""


async def runs(live: Live, load: dict[str, Any]) -> list[Figure]:
    """Every figure, the agent at rest first: the policy's own leases are in force then."""
    for budget in BUDGETS:
        await live.command("change-budget", ChangeBudget(budget=budget, weight=1))
    await live.until(lambda world: BUDGETS[1] in world.tree.nodes, "the budgets")
    hosts = int(load["hosts"].partition("x")[0])
    figures = [await _at_rest(live, hosts, load["rest_s"])]
    await live.command("change-policy", ChangePolicy(name="quick", policy=_policy(load)))
    await live.until(lambda world: world.policy is not None and world.policy.lease_ms == load["lease_ms"], "the policy")
    figures.append(await _evictions(live, hosts, load["evictions"], load["grace_ms"]))
    figures.append(await _resumes(live, load["resumes"]))
    figures.append(await _losses(live, load))
    figures.append(await _drains(live, load["drains"], load["seed"]))
    return figures


def _policy(load: dict[str, Any]) -> Policy:
    """Short windows and leases; a cell of four hosts that loses one lost a quarter, and no person is asked."""
    bounds = (WindowBound(up_to_gpus=1 << 30, shortest_ms=1, longest_ms=4 * 3_600_000),)
    lengths = {name: load[name] for name in ("lease_ms", "lease_margin_ms", "stop_margin_ms")}
    return Policy(window_bounds=bounds, breaker_permille=1_000, **lengths)


async def _submit(live: Live, name: str, command: list[str], budget: str = BUDGETS[0], **spec: Any) -> JobId:  # noqa: ANN401 - fields of a contract
    body = contract(budget, command, **{"gpus_per_host": 8, "min_runtime": "0s", **spec})
    await live.command("submit-job", {"request_id": name, "contract": body})
    return job_id(ACCOUNT, budget, name)


def _attempt(world: World, job: JobId, number: int) -> AttemptId | None:
    """The job's attempt of that number, once all of it runs."""
    found = world.jobs.get(job)
    if found is None or len(found.attempts) < number or found.phase is not Phase.RUNNING:
        return None
    return found.attempts[number - 1].id


async def _running(live: Live, job: JobId, number: int = 1) -> None:
    await live.until(lambda world: _attempt(world, job, number) is not None, f"attempt {number} of {job} runs", 60)


async def _cancel(live: Live, *jobs: JobId) -> None:
    """Cancels, and returns when nothing of them is left."""
    for job in jobs:
        await live.command("cancel-job", CancelJob(job=job))
    await live.until(lambda world: all(world.jobs[job].is_terminal for job in jobs), "all cancelled are over", 60)
    await asyncio.sleep(BUSY_S)


def _events(live: Live) -> Iterator[tuple[int, Any]]:
    """Every event so far, with the bus's instant of its record."""
    for time_ms, record in live.records:
        for event in record.events:
            yield time_ms, event


# the agent at rest ---------------------------------------------------------------------------------
async def _at_rest(live: Live, hosts: int, rest_s: int) -> Figure:
    """Processor time of the agent, in per cent of one core, while a job that does nothing runs on every host.

    Beside it that of the dearest keeper of these jobs.
    """
    jobs = [await _submit(live, f"rest-{number}", FOREVER) for number in range(hosts)]
    for job in jobs:
        await _running(live, job)
    await asyncio.sleep(BUSY_S)
    pids = [live.pids()["agent"], *_keepers(live.home)]
    before_ns, since_ns = [processor_ns(pid) for pid in pids], time.monotonic_ns()
    await asyncio.sleep(rest_s)
    took_ns = time.monotonic_ns() - since_ns
    agent, *keepers = (
        round(100 * (processor_ns(pid) - before) / took_ns, 3) for pid, before in zip(pids, before_ns, strict=True)
    )
    await _cancel(live, *jobs)
    beside = {"hosts": hosts, "seconds": rest_s, "keepers": len(keepers), "keeper_worst": max(keepers)}
    return Figure("agent_at_rest_cpu_percent", agent, "%", beside)


def _keepers(home: Path) -> list[int]:
    """The processes that keep the runs of this cell."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes()
            if b"/agent/shim.py" in words and str(home).encode() in words:
                found.append(int(path.parent.name))
    return found


# evictions -----------------------------------------------------------------------------------------
async def _evictions(live: Live, hosts: int, turns: int, grace_ms: int) -> Figure:
    """From the eviction of a job that uses all of its grace to the grant of its GPUs, less that grace."""
    idle = [await _submit(live, f"idle-{number}", FOREVER, BUDGETS[1]) for number in range(hosts)]
    for job in idle:
        await _running(live, job)
    beyond_ms = []
    for turn in range(turns):
        claim = await _submit(live, f"claim-{turn}", FOREVER, min_runtime="1s")
        await _running(live, claim)
        ordered_ms = next(ms for ms, e in _events(live) if isinstance(e, EvictionOrdered) and e.claim == claim)
        granted_ms = next(ms for ms, e in _events(live) if isinstance(e, GangGranted) and e.job == claim)
        beyond_ms.append(granted_ms - ordered_ms - grace_ms)
        await _cancel(live, claim)
        await live.until(lambda world: all(world.jobs[job].phase is Phase.RUNNING for job in idle), "idle work again")
    await _cancel(live, *idle)
    return _spread("evicted_to_granted_beyond_grace_s", beyond_ms)


def _spread(name: str, lengths_ms: list[int], **beside: Any) -> Figure:  # noqa: ANN401 - more numbers
    beside = {"worst": max(lengths_ms) / 1_000, "best": min(lengths_ms) / 1_000, "turns": len(lengths_ms), **beside}
    return Figure(name, round(median(lengths_ms) / 1_000, 3), "s", beside)


# lost agents ---------------------------------------------------------------------------------------
async def _losses(live: Live, load: dict[str, Any]) -> Figure:
    """From the instant at which the agent of a running job stands still to the requeue of the job."""
    took_ms = []
    for turn in range(load["losses"]):
        job = await _submit(live, f"lost-{turn}", FOREVER, min_runtime="1h", timeout="2h")
        await _running(live, job)
        agent = live.pids()["agent"]
        os.kill(agent, signal.SIGSTOP)
        lost_ms = time.time_ns() // MS
        await live.until(lambda world, job=job: world.jobs[job].phase is Phase.WAITING, "the job is requeued", 60)  # type: ignore[misc] # bound now
        took_ms.append(next(ms for ms, e in _events(live) if isinstance(e, JobRequeued) and e.job == job) - lost_ms)
        os.kill(agent, signal.SIGCONT)
        await _running(live, job, 2)
        await _cancel(live, job)
    terms = ("lease_ms", "grace_ms", "stop_margin_ms", "lease_margin_ms")
    return _spread("agent_lost_to_requeued_s", took_ms, terms=sum(load[name] for name in terms) / 1_000)


# resumes -------------------------------------------------------------------------------------------
async def _resumes(live: Live, turns: int) -> Figure:
    """How much later after its grant a resumed run has its state than a fresh one has begun."""
    script = [sys.executable, "-c", TRAINING]
    fresh_ms, resumed_ms = [], []
    for turn in range(turns):
        checkpoint = {"uri": "store:runs/state", "grace": "1s", "signal": "none"}
        more = {"checkpoint": checkpoint, "env": {"PYTHONPATH": str(SDK)}, "hosts": 4}
        job = await _submit(live, f"train-{turn}", script, BUDGETS[1], **more)
        await _running(live, job)
        await _saved(live, job)
        claim = await _submit(live, f"room-{turn}", FOREVER, min_runtime="1s")
        await live.until(lambda world, job=job: world.jobs[job].phase is Phase.WAITING, "evicted", 60)  # type: ignore[misc] # bound now
        await _running(live, claim)
        await _cancel(live, claim)
        await live.until(lambda world, job=job: world.jobs[job].is_terminal, "a resumed run that is over", 60)  # type: ignore[misc] # bound now
        fresh_ms.append(_began_ms(live, job, 1, step=0))
        resumed_ms.append(_began_ms(live, job, 2, step=1000))
        await asyncio.sleep(BUSY_S)
    beside = {"fresh_ms": median(fresh_ms), "resumed_ms": median(resumed_ms)}
    return _spread("resume_adds_s", [b - a for a, b in zip(fresh_ms, resumed_ms, strict=True)], **beside)


async def _saved(live: Live, job: JobId) -> None:
    def is_saved(_: World) -> bool:
        return any(isinstance(e, CheckpointConfirmed) and job_of(e.attempt) == job for _, e in _events(live))

    await live.until(is_saved, "a checkpoint")


def _began_ms(live: Live, job: JobId, number: int, *, step: int) -> int:
    """From the grant of the attempt to what its first rank says of its start; ends the program at another step."""
    attempt = live.world.jobs[job].attempts[number - 1]
    granted_ms = next(ms for ms, e in _events(live) if isinstance(e, GangGranted) and e.attempt == attempt.id)
    path = live.home / "agent" / attempt.hosts[0] / "runs" / attempt.id / LOG
    began_ns, began_at = map(int, path.read_text(encoding="ascii").split())
    if began_at != step:
        sys.exit(f"{attempt.id} began at step {began_at}, not {step}")
    return began_ns // MS - granted_ms


# drains --------------------------------------------------------------------------------------------
async def _drains(live: Live, count: int, seed: int) -> Figure:
    """How many of so many drains, one after another on a cell with more work than it has GPUs, kept their promise."""
    chance = random.Random(seed)
    hosts = sorted(live.world.fleet.hosts)
    before = len(live.records)
    jobs = []
    for number in range(len(hosts) * 3):
        window, gpus = chance.choice(("0s", "1s", "2s", "4s")), chance.choice((2, 4, 8))
        jobs.append(
            await _submit(
                live, f"load-{number}", FOREVER, chance.choice(BUDGETS), min_runtime=window, gpus_per_host=gpus
            )
        )
    jobs.append(await _submit(live, "load-gang", FOREVER, hosts=2, min_runtime="3s"))
    await asyncio.sleep(BUSY_S)
    for number in range(count):
        host = hosts[number % len(hosts)]
        done = len(_drained(live, before))
        await live.command("request-drain", RequestDrain(host=host, reason="service"))
        await live.until(lambda _, done=done: len(_drained(live, before)) > done, f"{host} is empty", 60)  # type: ignore[misc] # bound now
        await live.command("return-host", ReturnHost(host=host))
        await asyncio.sleep(chance.uniform(0.3, 1))
    early_ms = _drained(live, before)
    await _cancel(live, *jobs)
    beside = {"of": count, "least_early_s": min(early_ms) / 1_000, "median_early_s": median(early_ms) / 1_000}
    return Figure("drains_kept", sum(early >= 0 for early in early_ms), "", beside)


def _drained(live: Live, since: int) -> list[int]:
    """By how many ms each drain that was carried out was early."""
    empty_ms: dict[str, int] = {}
    early: list[int] = []
    now_ms = 0
    for _, record in live.records[since:]:
        now_ms = max(now_ms, record.at_ms)
        for event in record.events:
            if isinstance(event, DrainPlanned) and not event.is_queued:
                empty_ms[event.host] = now_ms + event.empty_in_ms
            elif isinstance(event, DrainCompleted):
                early.append(empty_ms[event.host] - now_ms)
    return early
