"""Very many connections: those of one account are counted; idle ones cost the bus some memory, and others nothing."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fairlease.runtime.permissions import CLIENT_CONNECTIONS
from tests.live.cell import Cell, cell_at
from tests.live.court import eventually
from tests.live.crowd import Crowd, resident_mib, served_slowly
from tests.live.flooding import fill, p99, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

CROWDED = tuple(f"crowd-{number}" for number in range(10))
"""Accounts to which ten thousand belong."""
EACH_KIB = 112
"""What an idle connection may cost the bus: 85 are measured, for buffers, routines and rights; 1.1 GiB for all."""
BUS_MIB = 128
"""What a small cell's bus has besides."""
LOOKS = 40
NOISE_S = 0.25
"""As in test_floods: what a machine with much else to do may add to one answer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path_factory.mktemp("crowds") / "cell", accounts=CROWDED) as cell:
        yield cell


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.long)])
async def test_idle_connections_cost_little_memory_and_nobody_time(cell: Cell, count: int) -> None:
    whole = await fill(cell, f"whole-{count}")
    quiet = await served(cell, f"quiet-{count}", LOOKS)
    async with Crowd(cell.supervisor.url) as crowd:
        for account in CROWDED:
            assert set(await crowd.join(cell.home, account, count // len(CROWDED))) == {"PONG"}
        amid = await served(cell, f"amid-{count}", LOOKS)
        has_mib = resident_mib(cell.pid("bus"))
    quiet = sorted(quiet + await served(cell, f"after-{count}", LOOKS))
    print(f"{count} idle: bus {has_mib:.0f} MiB; p99 quiet {p99(quiet):.3f} s, amid {p99(amid):.3f} s")
    assert has_mib < BUS_MIB + count * EACH_KIB / 1024
    assert p99(amid) <= 2 * p99(quiet) + NOISE_S
    await cell.cancel(whole)
    await cell.over()
    await cell.judge()


async def test_an_account_has_so_many_connections_and_no_more_and_others_have_theirs(cell: Cell) -> None:
    async with Crowd(cell.supervisor.url) as crowd:
        said = await crowd.join(cell.home, CROWDED[0], CLIENT_CONNECTIONS + 20)
        assert said.count("PONG") == CLIENT_CONNECTIONS
        assert set(said) == {"PONG", "maximum account active connections exceeded"}
        assert await crowd.join(cell.home, CROWDED[1], 1) == ["PONG"]
        await served(cell, "beside-them", 1)

    async def is_free() -> bool:
        async with Crowd(cell.supervisor.url) as again:
            return await again.join(cell.home, CROWDED[0], 1) == ["PONG"]

    await eventually(is_free, "connections that were closed are given back")


async def test_who_never_says_who_he_is_is_hung_up_on(cell: Cell) -> None:
    assert b"-ERR 'Authentication Timeout'" in await served_slowly(cell.supervisor.url)
