"""Hosts of a loaded cell are drained, one after another and all in a row: every promise is kept, no window broken."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from tests.house.tree import ROOT
from tests.live.cell import GPUS, HOSTS, Up, up_at
from tests.live.court import eventually
from tests.live.desk import Desk, Job

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up_at(tmp_path_factory.mktemp("drains") / "cell") as cell:
        yield cell


NAMES = tuple(f"host-{number:03d}" for number in range(1, HOSTS + 1))


def kept(cell: Desk) -> list[int]:
    """By how many ms each drain that was carried out was early; every one must be."""
    planned: dict[str, int] = {}
    early: list[int] = []
    at_ms = 0
    for record in cell.journal.records:
        at_ms = max(at_ms, record["at_ms"])
        for event in record.get("events", ()):
            if event["type"] == "drain-planned" and not event.get("is_queued"):
                planned[event["host"]] = at_ms + event.get("empty_in_ms", 0)
            elif event["type"] == "drain-completed":
                early.append(planned[event["host"]] - at_ms)
    return early


async def load(cell: Up, seed: int) -> None:
    """More than the cell can run: idle work, small jobs with windows, gangs."""
    chance = Random(seed)
    for number in range(HOSTS * 3):
        window = chance.choice(("0s", "1s", "2s", "4s"))
        await cell.submit(
            Job(
                f"load-{seed}-{number}",
                "exec sleep 600",
                budget=chance.choice(("team-a", "team-b")),
                hosts=1,
                gpus=chance.choice((2, 4, GPUS)),
                min_runtime=window,
                grace="1s",
                end="job-cancelled",
            )
        )
    await cell.submit(Job(f"gang-{seed}", "exec sleep 600", hosts=2, gpus=GPUS, min_runtime="3s", end="job-cancelled"))


@pytest.mark.parametrize("seed", [1])
async def test_every_host_is_emptied_by_the_time_that_was_promised(cell: Up, seed: int) -> None:
    await load(cell, seed)
    await asyncio.sleep(1)
    for host in NAMES:
        done = len(cell.journal.events("drain-completed"))
        await cell.answered("request-drain", {"host": host, "reason": "service"})
        await eventually(lambda done=done: _is_more(cell, "drain-completed", done), f"{host} is empty")  # type: ignore[misc] # bound now
        await cell.answered("return-host", {"host": host})
    early = kept(cell)
    assert len(early) == HOSTS
    assert min(early) >= 0, f"a promise was broken by {-min(early)} ms"
    await cell.cancel_rest()


async def _is_more(cell: Up, tag: str, than: int) -> bool:
    await cell.journal.read()
    return len(cell.journal.events(tag)) > than


async def test_a_bot_that_listens_hears_of_its_drain_on_the_bus(cell: Up) -> None:
    # rule: 7.4
    host = NAMES[0]
    news = await cell.client.subscribe(cell.subjects.host_feed(host, "*"))
    await cell.submit(Job("heard", "exec sleep 600", hosts=1, gpus=GPUS, min_runtime="1s", grace="1s"))
    await cell.answered("request-drain", {"host": host, "reason": "service", "external_id": "T-7"})
    heard: list[str] = []
    while "drain-completed" not in heard:
        told = json.loads((await news.next_msg(timeout=30)).data)
        assert (told["kind"], told["host"]) == ("HostEvent", host)
        heard.append(told["event"])
    assert told["drain"]["state"] == "drained"
    assert told["drain"]["external_id"] == "T-7"
    await cell.answered("return-host", {"host": host})
    assert json.loads((await news.next_msg(timeout=30)).data)["event"] == "host-hold-cleared"
    await news.unsubscribe()
    await cell.cancel_rest()


async def test_a_bot_services_every_host_of_a_loaded_cell_without_a_person(cell: Up) -> None:
    await load(cell, 7)
    bot = await asyncio.to_thread(
        subprocess.run,
        [
            sys.executable,
            str(ROOT / "examples" / "service_hosts.py"),
            "--work",
            "true {host}",
            "--check",
            "idle=echo {host} is idle",
        ],
        env=cell.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert bot.returncode == 0, bot.stderr
    assert [line for line in bot.stdout.splitlines() if "returned" in line] == [f"{host}: returned" for host in NAMES]
    await cell.journal.read()
    assert min(kept(cell)) >= 0
    returned = [event for event in cell.journal.events("host-hold-cleared") if event.get("checks")]
    said = [(one["host"], check["name"], check["code"], check["output"]) for one in returned for check in one["checks"]]
    assert said == [(host, "idle", 0, f"{host} is idle") for host in NAMES]
    await cell.cancel_rest()
