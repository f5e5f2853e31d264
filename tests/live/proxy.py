"""A proxy between one process and the bus: it swallows acknowledgements, holds the log back, and cuts the line.

Without its acknowledgement a message is on its stream and its writer never hears of it (log.md L3); while
the log is held back, the process decides on an old fold. The bus's side of the protocol is read message
by message, so that whole messages are lost or late and nothing else. On a line that is cut nothing comes
through and nobody is told, as on a network that is partitioned; what was sent meanwhile arrives when it heals, late.
"""

import asyncio
import re
from typing import Self

_MESSAGE = re.compile(rb"^(?:MSG|HMSG) .*?(\d+)\r\n$")
_RECORD = (b"MSG fl.lab.log.", b"HMSG fl.lab.log.")
TO_BUS, TO_CLIENT = "to the bus", "to the client"
_ACK = re.compile(rb'^\{"stream":"([^"]+)"')


class Proxy:
    """`url` is where the process connects; of each stream the first `to_lose` acknowledgements are lost."""

    def __init__(self, target: str, to_lose: int = 0) -> None:
        host, _, port = target.removeprefix("nats://").partition(":")
        self._target = (host, int(port))
        self.to_lose = to_lose
        self.lost: dict[str, int] = {}
        self._held_from: bytes | None = None
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.StreamWriter] = set()
        self._open = {TO_BUS: asyncio.Event(), TO_CLIENT: asyncio.Event()}
        self.heal()

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

    def cut(self, *ways: str) -> None:
        """From now on nothing gets through in these directions, also on connections made meanwhile."""
        for way in ways:
            self._open[way].clear()

    def heal(self) -> None:
        """Everything gets through again, what was sent meanwhile first."""
        for gate in self._open.values():
            gate.set()

    def hold_log(self, first: str) -> None:
        """From the next record of this subject on no record reaches the process; all else does."""
        self._held_from = first.encode()

    def release_log(self) -> None:
        """The records held reach the process before the next message."""
        self._held_from = None

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
            await self._open[TO_BUS].wait()
            to_bus.write(data)
            await to_bus.drain()
        to_bus.close()

    async def _tell(self, bus: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        held: list[bytes] = []
        while line := await bus.readline():
            found = _MESSAGE.match(line)
            body = await bus.readexactly(int(found[1]) + 2) if found else b""
            await self._open[TO_CLIENT].wait()
            if self._loses(body):
                continue
            if self._is_held(line, is_behind=bool(held)):
                held.append(line + body)
                continue
            if self._held_from is None:
                to_client.writelines(held)
                held.clear()
            to_client.write(line + body)
            await to_client.drain()
        to_client.close()

    def _is_held(self, line: bytes, *, is_behind: bool) -> bool:
        if self._held_from is None or not line.startswith(_RECORD):
            return False
        return is_behind or line.split()[1] == self._held_from

    def _loses(self, body: bytes) -> bool:
        found = _ACK.match(body)
        stream = found[1].decode() if found else ""
        if not found or self.lost.get(stream, 0) >= self.to_lose:
            return False
        self.lost[stream] = self.lost.get(stream, 0) + 1
        return True
