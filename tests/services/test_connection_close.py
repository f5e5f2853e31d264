"""A close that is wanted ends, whatever the client says of a socket that is gone."""

import asyncio

import pytest
from nats.aio.client import Client

from fairlease.runtime.connection import Connection, Guard


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(AttributeError("'NoneType' object has no attribute '_write_appdata'"), id="a lost TLS connection"),
        pytest.param(AssertionError(), id="one that was never made"),
        pytest.param(ConnectionResetError(), id="one that was reset"),
    ],
)
async def test_a_close_of_a_connection_that_is_gone_ends(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(_: Client) -> None:
        raise error

    monkeypatch.setattr(Client, "close", gone)
    await asyncio.wait_for(Connection(Guard("test", exit_on_close=False)).close(), 10)
