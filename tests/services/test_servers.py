"""A bus of several servers, as clients know it: whichever of them is there will do."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlease.runtime import bus_server
from fairlease.runtime.bus import Bus
from fairlease.runtime.connection import connect
from fairlease.runtime.errors import BusAway
from fairlease.runtime.settings import Settings, servers_in
from tests.services.bench import eventually


@pytest.fixture
def server(tmp_path: Path) -> Iterator[bus_server.BusServer]:
    found = bus_server.start(tmp_path / "bus", dies_with_parent=True)
    yield found
    found.stop()


@pytest.fixture
def dead() -> str:
    """The address of a server that is gone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"nats://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """One that takes connections and says nothing, as a machine that hangs does."""
    with socket.socket() as hanging:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        yield f"nats://127.0.0.1:{hanging.getsockname()[1]}"


def test_servers_stand_between_commas_and_spaces_do_not_matter() -> None:
    assert servers_in(" nats://a:1, nats://b:2 ,,") == ["nats://a:1", "nats://b:2"]


async def test_a_command_reaches_the_server_that_is_there_beside_one_that_is_gone_and_one_that_hangs(
    server: bus_server.BusServer, dead: str, silent: str
) -> None:
    client = await connect(f"{dead},{silent},{server.url}", "test", exit_on_close=False)
    assert client.connected_url is not None
    assert client.connected_url.netloc == server.url.removeprefix("nats://")
    await client.close()


async def test_a_service_reaches_the_server_that_is_there(
    tmp_path: Path, server: bus_server.BusServer, dead: str
) -> None:
    settings = Settings(state_dir=tmp_path / "home", url=f"{dead},{server.url}", service="ranker")
    bus = Bus(settings, exit_on_close=False)
    async with asyncio.timeout(30):
        await bus.start()
    assert bus.client.is_connected
    await bus.stop()


async def test_where_no_server_is_there_all_of_them_are_named(dead: str) -> None:
    with pytest.raises(BusAway, match="does not answer within 4 s") as away:
        await connect(f"{dead},{dead}", "test", exit_on_close=False)
    assert f"{dead},{dead}" in str(away.value)


def test_an_address_without_a_server_is_none(tmp_path: Path) -> None:
    with pytest.raises(BusAway, match="no bus is known"):
        Settings(state_dir=tmp_path, url=" , ").bus_url()


async def test_who_gives_up_connecting_leaves_nothing_open() -> None:
    opened: list[asyncio.StreamReader] = []

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(reader)
        await reader.read()
        opened.remove(reader)
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    connecting = asyncio.create_task(connect(url, "test", exit_on_close=False, first_connect_s=60))
    await eventually(lambda: opened)
    connecting.cancel()
    await asyncio.wait((connecting,))
    assert connecting.cancelled()
    gc.disable()
    await eventually(lambda: not opened, limit_s=2)
    gc.enable()
    server.close()
