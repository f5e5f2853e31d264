"""Lost acknowledgements: a record is stored, and its writer never hears of it. It stands there once."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from fairlease.runtime.settings import BUS_FILE
from fairlease.runtime.supervisor import Part, agent_part
from fairlease_schemas.subjects import SCOPES, SERVICES
from tests.live.cell import SIMULATE, Cell, cell_at
from tests.live.desk import eventually
from tests.live.proxy import Proxy
from tests.live.workload import mixed

LOST = 2
"""How many acknowledgements each service loses, beginning with its first."""


class Deaf:
    """A cell in which every deciding service has a proxy of its own before it."""

    def __init__(self, cell: Cell, proxies: dict[str, Proxy]) -> None:
        self.cell = cell
        self.proxies = proxies


@pytest.fixture
async def deaf(tmp_path: Path) -> AsyncIterator[Deaf]:
    home = tmp_path / "cell"
    home.mkdir()
    url = f"nats://127.0.0.1:{_free_port()}"
    (home / BUS_FILE).write_text(json.dumps({"url": url}))
    async with AsyncExitStack() as stack:
        proxies = {name: await stack.enter_async_context(Proxy(url, LOST)) for name in SCOPES}
        parts = [_part(name, proxies[name].url if name in proxies else url) for name in SERVICES]
        cell = await stack.enter_async_context(cell_at(home, parts=[*parts, agent_part(SIMULATE)]))
        assert cell.supervisor.url == url
        yield Deaf(cell, proxies)


def _part(name: str, url: str) -> Part:
    return Part(name=f"{name}-a", arguments=("serve", name), env={"FAIRLEASE_REPLICA": "a", "FAIRLEASE_URL": url})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _is_counted_once(cell: Cell) -> bool:
    """Whether every service knows of exactly the records that stand in the log under its name."""
    await cell.journal.read()
    for name in SCOPES:
        (health,) = await cell.health(name) or [{"records_written": -1}]
        if health["records_written"] != cell.journal.written_by(name):
            return False
    return True


@pytest.mark.parametrize("seed", [1])
async def test_a_record_whose_acknowledgement_is_lost_stands_in_the_log_once(deaf: Deaf, seed: int) -> None:
    cell = deaf.cell
    for job in mixed(Random(seed), 6, f"lost-{seed}"):
        await cell.submit(job)
    for verb in ("cordon-host", "return-host"):
        await cell.answered(verb, {"host": "host-004"})
    await cell.over()
    assert {name: proxy.swallowed for name, proxy in deaf.proxies.items()} == dict.fromkeys(SCOPES, LOST)
    await cell.judge()
    await eventually(lambda: _is_counted_once(cell), "each service knows of its records")
