"""Where the ranks of an attempt meet (1.15): this host's address, and a port kept free until its command begins.

A port is kept by a socket that is bound and never listened on, so that nobody else on this machine gets it,
jobs of our own least of all; it is closed in the moment in which the command may begin, for that one shall
have it. Surprising: ports are taken from below the range that the kernel gives to connections by itself, and
each attempt begins to look at another place, so that in that moment hardly anybody else asks for the same.
The port that was promised to a gang is noted on disk: an agent that is restarted before the gang begins keeps
that one again, because the others may have been told.
"""

import contextlib
import errno
import logging
import os
import socket
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from fairlease.agent import layout
from fairlease_schemas.address import is_address
from fairlease_schemas.ids import AttemptId

log = logging.getLogger("fairlease.agent")

LOOPBACK: Final = "127.0.0.1"
PORTS: Final = range(20_000, 32_000)
_BUS_PORT: Final = 4222
_LOOKS: Final = 200
_NOTE_BYTES: Final = 64
_NO_IP6: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def own_address(told: str, bus_url: str) -> str:
    """The address at which other hosts reach this one: what was told, else that of the route to the bus.

    Where no route says it, the machine's name. May wait for a name to be looked up.
    """
    if told:
        return told
    bus = urlsplit(bus_url.partition(",")[0])
    try:
        family, kind, _, _, where = socket.getaddrinfo(bus.hostname, bus.port or _BUS_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)  # nothing is sent: the kernel only chooses the way
            found = str(probe.getsockname()[0])
    except (OSError, ValueError) as error:  # the latter for what is no address of a bus at all
        log.warning("no route to the bus says this host's address, its name must do: %s", error)
        found = ""
    name = socket.gethostname()
    return next(text for text in (found, name, LOOPBACK) if is_address(text))


class PortTaken(Exception):
    """The port that was promised to a gang is somebody else's now; the text says which."""


class Ports:
    """The ports that one host keeps for attempts. Notes lie in `<home>/ports`, one file an attempt."""

    def __init__(self, home: Path) -> None:
        self._notes = home / "ports"
        self._kept: dict[AttemptId, socket.socket] = {}
        self._noted: set[AttemptId] = set()

    def open(self) -> None:
        """Learns what an earlier agent noted. OSError when the disk refuses."""
        self._notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._noted = {path.name for path in self._notes.iterdir() if not path.name.endswith(".new")}

    def close(self) -> None:
        """Lets go of all ports; the notes stay."""
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()

    def keep(self, attempt: AttemptId, *, is_noted: bool) -> int:
        """A port that is kept from now on, the noted one if there is one. OSError when there is none, or no disk.

        PortTaken when somebody has the noted one: whoever was told of it would go there.
        """
        if attempt not in self._kept:
            before = self._read(attempt) if is_noted else 0
            found = _bound(before) if before else _free(attempt)
            if found is None:
                raise PortTaken(f"port {before}, where the gang was to meet, was taken while no agent kept it")
            kept = self._kept[attempt] = found
            if is_noted and not before:
                self._note(attempt, int(kept.getsockname()[1]))
        return int(self._kept[attempt].getsockname()[1])

    def is_noted(self, attempt: AttemptId) -> bool:
        """Whether its port was promised to others."""
        return attempt in self._noted

    def let_go(self, attempt: AttemptId) -> None:
        """The port is free for whoever asks first: the attempt's command, which begins now."""
        if attempt in self._kept:
            self._kept.pop(attempt).close()

    def forget_but(self, named: Collection[AttemptId]) -> None:
        """Nothing is kept for others than these, and nothing noted."""
        for attempt in [attempt for attempt in self._kept if attempt not in named]:
            self.let_go(attempt)
        for attempt in [attempt for attempt in self._noted if attempt not in named]:
            self._noted.discard(attempt)
            with contextlib.suppress(OSError):
                (self._notes / attempt).unlink()

    def _note(self, attempt: AttemptId, port: int) -> None:
        try:
            layout.write_whole(str(self._notes / attempt), str(port).encode(), is_durable=False)
        except OSError:
            self.let_go(attempt)
            raise
        self._noted.add(attempt)

    def _read(self, attempt: AttemptId) -> int:
        """The noted port; 0 for none, and for a note that cannot be read."""
        try:
            text = layout.content(str(self._notes / attempt), _NOTE_BYTES)
        except (FileNotFoundError, layout.Spoiled):
            return 0
        return int(text) if text.isdigit() and 0 < int(text) < 1 << 16 else 0


def _free(attempt: AttemptId) -> socket.socket:
    """The first port that nobody has, from a place on that depends on the attempt; at last any that the kernel has."""
    first = zlib.crc32(attempt.encode())
    for step in range(_LOOKS):
        kept = _bound(PORTS[(first + step) % len(PORTS)])
        if kept is not None:
            return kept
    kept = _bound(0)
    if kept is None:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    return kept


def _bound(port: int) -> socket.socket | None:
    """A socket on this port of every address of both kinds; None when somebody has it."""
    for family, anywhere in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        kept = None
        try:
            kept = socket.socket(family)
            if family == socket.AF_INET6:
                kept.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            kept.bind((anywhere, port))
        except OSError as error:
            if kept is not None:
                kept.close()
            if family == socket.AF_INET6 and error.errno in _NO_IP6:
                continue
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return None
            raise
        return kept
    return None
