"""Connections that do nothing, or less: by the bus's plain protocol, so that ten thousand cost a test little."""

import asyncio
import base64
import json
import resource
import socket
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import nkeys

from fairlease.runtime import keys

_AT_ONCE = 100


class Crowd:
    """Connections to one bus; all are closed at the end."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._where = (parts.hostname, parts.port)
        self.writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def join(self, home: Path, account: str, count: int) -> list[str]:
        """So many connections of the account, and what the bus said to each: `PONG`, or why it is refused."""
        key = keys.read(keys.key_path(home, keys.client_name(account)))
        said = []
        for first in range(0, count, _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, count))
            said += await asyncio.gather(*(self._joined(key) for _ in some))
        return said

    async def listen(self, home: Path, account: str, subject: str, times: int) -> asyncio.StreamWriter:
        """A connection that subscribes so many times and reads nothing; the kernel keeps little for it."""
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        link.connect(self._where)
        link.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=link, limit=4_096)
        key = keys.read(keys.key_path(home, keys.client_name(account)))
        assert await self._greeted(key, reader, writer) == "PONG"
        writer.writelines(f"SUB {subject} {number}\r\n".encode() for number in range(times))
        await writer.drain()
        self.writers.append(writer)
        return writer

    async def open(self, home: Path, identity: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of anybody's, greeted, that speaks as it likes."""
        reader, writer = await asyncio.open_connection(*self._where)
        self.writers.append(writer)
        assert await self._greeted(keys.read(keys.key_path(home, identity)), reader, writer) == "PONG"
        return reader, writer

    async def _joined(self, key: keys.Key) -> str:
        reader, writer = await asyncio.open_connection(*self._where)
        self.writers.append(writer)
        return await self._greeted(key, reader, writer)

    async def _greeted(self, key: keys.Key, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """What the bus says to who it is."""
        nonce = json.loads((await reader.readline()).removeprefix(b"INFO "))["nonce"]
        signed = nkeys.from_seed(bytearray(key.seed.reveal().encode())).sign(nonce.encode())
        signature = base64.urlsafe_b64encode(signed).rstrip(b"=").decode()
        hello = {
            "nkey": key.public(),
            "sig": signature,
            "verbose": False,
            "pedantic": False,
            "lang": "x",
            "version": "1",
        }
        writer.write(b"CONNECT " + json.dumps(hello).encode() + b"\r\nPING\r\n")
        while line := await reader.readline():
            if not line.startswith(b"INFO"):
                return line.decode().strip().strip("'").removeprefix("-ERR '")
        return ""


async def served_slowly(url: str) -> bytes:
    """Who connects and says its first words letter by letter: all that the bus answers before it hangs up."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        talking = asyncio.create_task(_talk(writer))
        heard = await reader.read(1 << 20)
        while more := await reader.read(1 << 20):
            heard += more
        talking.cancel()
        return heard
    finally:
        writer.transport.abort()


async def _talk(writer: asyncio.StreamWriter) -> None:
    for letter in b"CONNECT {" + b" " * 10_000:
        writer.write(bytes((letter,)))
        await asyncio.sleep(0.05)


def resident_mib(pid: int) -> float:
    """What the process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
