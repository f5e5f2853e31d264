"""A proxy between one process and the bus: it swallows acknowledgements, and holds the log back.

Without its acknowledgement a message is on its stream and its writer never hears of it (log.md L3); while
the log is held back, the process decides on an old fold. The bus's side of the protocol is read message
by message, so that whole messages are lost or late and nothing else.
"""

import asyncio
import re
from typing import Self

_MESSAGE = re.compile(rb"^(?:MSG|HMSG) .*?(\d+)\r\n$")
_RECORD = (b"MSG fl.lab.log.", b"HMSG fl.lab.log.")
_ACK = re.compile(rb'^\{"stream":"([^"]+)"')


class Proxy:
    """`url` is where the process connects; of each stream the first `to_lose` acknowledgements are lost."""

    def __init__(self, target: str, to_lose: int) -> None:
        host, _, port = target.removeprefix("nats://").partition(":")
        self._target = (host, int(port))
        self.to_lose = to_lose
        self.lost: dict[str, int] = {}
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        assert self._server is not None, "enter it first"
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._links:
            writer.transport.abort()

    def hold_log(self) -> None:
        """From now on no record reaches the process; all else does."""
        self._flows.clear()

    def release_log(self) -> None:
        self._flows.set()

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
        held: list[bytes] = []
        while line := await bus.readline():
            found = _MESSAGE.match(line)
            body = await bus.readexactly(int(found[1]) + 2) if found else b""
            if self._loses(body):
                continue
            if not self._flows.is_set() and line.startswith(_RECORD):
                held.append(line + body)
                continue
            if self._flows.is_set():
                to_client.writelines(held)
                held.clear()
            to_client.write(line + body)
            await to_client.drain()
        to_client.close()

    def _loses(self, body: bytes) -> bool:
        found = _ACK.match(body)
        stream = found[1].decode() if found else ""
        if not found or self.lost.get(stream, 0) >= self.to_lose:
            return False
        self.lost[stream] = self.lost.get(stream, 0) + 1
        return True
