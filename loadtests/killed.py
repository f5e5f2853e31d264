"""Every service killed once, while there is something for each to decide: from its restart to its next decision."""

import asyncio
import itertools
import os
import signal
import sys
import time

import nats.errors
from figure import Figure
from live import Live, contract
from starting import BUDGET

from fairlease_schemas.commands import ChangeBudget, CordonHost, ReturnHost
from fairlease_schemas.ids import HostId
from fairlease_schemas.subjects import SCOPES

EVERY_S = 0.1
LIMIT_S = 30.0
LOOK_S = 0.005


async def killed(live: Live, host: HostId) -> list[Figure]:
    """The slowest of the seven. The explainer decides nothing: its next answer counts.

    `host` is one whose hold matters to nobody; the cell is full, so that what is submitted meanwhile waits.
    """
    pressing = asyncio.create_task(_press(live, host))
    took_s = {}
    since_kill_s = {}
    try:
        for name in SCOPES:
            took_s[name], since_kill_s[name] = await _decides_again(live, name)
        took_s["explainer"], since_kill_s["explainer"] = await _answers_again(live)
    finally:
        pressing.cancel()
        await asyncio.gather(pressing, return_exceptions=True)
    worst = max(took_s.values())
    return [
        Figure("killed_service_decides_again_s", worst, "s", {"by_service": took_s, "since_kill": since_kill_s}),
    ]


async def _press(live: Live, host: HostId) -> None:
    """Something to decide for everyone, ten times a second."""
    for number in itertools.count():
        is_even = number % 2 == 0
        body = contract(BUDGET, ["/bin/true"], gpus_per_host=8)
        await live.command("submit-job", {"request_id": f"press-{number}", "contract": body})
        await live.command("change-budget", ChangeBudget(budget="load-b", weight=1 + number % 5))
        if is_even:
            await live.command("cordon-host", CordonHost(host=host))
        else:
            await live.command("return-host", ReturnHost(host=host))
        await asyncio.sleep(EVERY_S)


async def _decides_again(live: Live, name: str) -> tuple[float, float]:
    """Seconds from the restart, and from the kill, to the service's next record."""
    killed_s, restarted_s = await _restart(live, name)
    looked_at = next((at for at, heard_s in enumerate(live.heard_s) if heard_s >= restarted_s), len(live.heard_s))
    while time.monotonic() < restarted_s + LIMIT_S:
        for at in range(looked_at, len(live.records)):
            if live.records[at][1].by == name:
                decided_s = live.heard_s[at]
                return round(decided_s - restarted_s, 2), round(decided_s - killed_s, 2)
        looked_at = len(live.records)
        live.news.clear()
        await live.news.wait()
    sys.exit(f"{name} did not decide within {LIMIT_S:g} s of its restart")


async def _answers_again(live: Live) -> tuple[float, float]:
    killed_s, restarted_s = await _restart(live, "explainer")
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        try:
            await live.client.request(live.subjects.ask("explainer", "queue"), b"{}", timeout=0.2)
        except nats.errors.Error:
            await asyncio.sleep(LOOK_S)
            continue
        answered_s = time.monotonic()
        return round(answered_s - restarted_s, 2), round(answered_s - killed_s, 2)
    sys.exit(f"the explainer did not answer within {LIMIT_S:g} s of its restart")


async def _restart(live: Live, name: str) -> tuple[float, float]:
    """Kill it; when that was, and when its successor was there."""
    old = live.pids()[name]
    os.kill(old, signal.SIGKILL)
    killed_s = time.monotonic()
    while time.monotonic() < killed_s + LIMIT_S:
        if live.pids().get(name, old) != old:
            return killed_s, time.monotonic()
        await asyncio.sleep(LOOK_S)
    sys.exit(f"{name} was not started again within {LIMIT_S:g} s")
