"""A proxy between one service and the bus that swallows acknowledgements of log appends.

The record is stored and its writer never hears of it: the outcome is unknown (log.md L3). It reads the
bus's side of the protocol message by message, so that whole messages are lost and nothing else.
"""

import asyncio
import re

_MESSAGE = re.compile(rb"^(?:MSG|HMSG) .*?(\d+)\r\n$")
_ACK = b'{"stream":"FL_LAB_LOG"'


class Proxy:
    """`url` is where the service connects; `to_swallow` acknowledgements are lost, then none."""

    def __init__(self, target: str, to_swallow: int) -> None:
        host, _, port = target.removeprefix("nats://").partition(":")
        self._target = (host, int(port))
        self.to_swallow = to_swallow
        self.swallowed = 0
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        assert self._server is not None, "enter it first"
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._links:
            writer.transport.abort()

    async def _link(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            bus, to_bus = await asyncio.open_connection(*self._target)
        except OSError:
            to_client.close()
            return
        self._links |= {to_client, to_bus}
        try:
            await asyncio.gather(self._pass(client, to_bus), self._tell(bus, to_client))
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            for writer in (to_client, to_bus):
                writer.close()
                self._links.discard(writer)

    async def _pass(self, client: asyncio.StreamReader, to_bus: asyncio.StreamWriter) -> None:
        while data := await client.read(65536):
            to_bus.write(data)
            await to_bus.drain()
        to_bus.close()

    async def _tell(self, bus: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        while line := await bus.readline():
            found = _MESSAGE.match(line)
            body = await bus.readexactly(int(found[1]) + 2) if found else b""
            if self.to_swallow and body.startswith(_ACK):
                self.to_swallow -= 1
                self.swallowed += 1
                continue
            to_client.write(line + body)
            await to_client.drain()
        to_client.close()
