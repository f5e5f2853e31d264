"""A job's terminal, held by its keeper from the start of the job to its end (1.17).

The keeper owns the master, keeps the newest output, and serves whoever comes to a socket in the run's
directory: only the agent can, for the directory is its own. Nobody need be there, and who is there may be slow:
the job never waits for a reader. One that falls behind loses what is oldest and gets the newest screens instead.

To a client go plain bytes, first the last screens, and the end of file at the job's end. From a client come
frames: a letter, the length in four bytes, and `i` keys or `w` rows and columns in two bytes each.
Surprising: the keeper holds the other side open too, so that the terminal is whole until the job is over,
also when a job closes it and opens it anew. Loads in a shim, so: standard library, little of it.
"""

import contextlib
import fcntl
import os
import select
import socket
import struct
import termios
import time

from fairlease.agent import layout
from fairlease.agent.output import Log

SCROLLBACK_BYTES = 64 * 1024
"""The last screens."""
MOST_WAITING_BYTES = 256 * 1024
"""For one client."""
_MOST_TYPED_BYTES = 64 * 1024
_MOST_CLIENTS = 128
_CHUNK_BYTES = 64 * 1024
_HEAD_BYTES = 5
_GOODBYE_S = 0.5
_KEYS, _WINDOW = b"i", b"w"
_SIZE = struct.Struct("!HH")
_FIRST_ROWS, _FIRST_COLS = 24, 80
_SKIPPED = b"\r\n[fairlease: this was too fast for the link; the newest output follows]\r\n"


def keys(data: bytes) -> bytes:
    """The frame of keys that were pressed."""
    return _framed(_KEYS, data)


def window(rows: int, cols: int) -> bytes:
    """The frame of a size, each from 1 to 65535."""
    return _framed(_WINDOW, _SIZE.pack(rows, cols))


def _framed(kind: bytes, body: bytes) -> bytes:
    return kind + len(body).to_bytes(_HEAD_BYTES - len(kind), "big") + body


class _Client:
    """One connection: what waits for it, and the beginning of a frame."""

    def __init__(self, link: socket.socket, first: bytes) -> None:
        self.link = link
        self.waiting = bytearray(first)
        self.half = bytearray()


class Terminal:
    """The terminal of the run in the working directory. OSError when the machine has none to give."""

    def __init__(self, poller: select.poll, log: Log) -> None:
        self._poller = poller
        self._log = log
        self._clients: dict[int, _Client] = {}
        self._typed = bytearray()
        self._screens = bytearray()
        self._master, self.slave = os.openpty()
        os.set_blocking(self._master, False)
        self._resize(_FIRST_ROWS, _FIRST_COLS)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(0)
        mask = os.umask(0o177)
        try:
            self._listener.bind(layout.ATTACH)
        finally:
            os.umask(mask)
        self._listener.listen(_MOST_CLIENTS)
        poller.register(self._master, select.POLLIN)
        poller.register(self._listener, select.POLLIN)

    def adopt(self) -> None:
        """In the job's first process, which leads its session: the terminal is its own, and all its standard files."""
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
        for standard in (0, 1, 2):
            os.dup2(self.slave, standard)

    def turn(self, fd: int, events: int) -> None:
        """Does what a descriptor of the poller is ready for."""
        if fd == self._master:
            if events & select.POLLIN:
                self._pump()
            if events & select.POLLOUT:
                self._press()
        elif fd == self._listener.fileno():
            self._welcome()
        elif (client := self._clients.get(fd)) is not None:
            if events & ~select.POLLOUT:
                self._hear(client)
            if events & select.POLLOUT and fd in self._clients:
                self._send(client)

    def say(self, text: str) -> None:
        """A line of ours, to all who are attached; it is no output of the job's."""
        for client in list(self._clients.values()):
            self._queue(client, f"\r\n[fairlease: {text}]\r\n".encode())

    def close(self) -> None:
        """The job is over: what it printed last goes to all who take it at once, and the terminal is gone."""
        while self._pump():
            pass
        until_s = time.monotonic() + _GOODBYE_S
        while any(client.waiting for client in self._clients.values()) and time.monotonic() < until_s:
            for fd, events in self._poller.poll(_GOODBYE_S * 100):
                self.turn(fd, events)
        with contextlib.suppress(OSError):
            os.unlink(layout.ATTACH)  # so that whoever is let go knows that it is over
        for client in list(self._clients.values()):
            self._drop(client)
        self._listener.close()
        os.close(self._master)
        os.close(self.slave)

    # what the job prints -------------------------------------------------------------------------
    def _pump(self) -> bool:
        """Takes what was printed; False when there is nothing."""
        try:
            data = os.read(self._master, _CHUNK_BYTES)
        except OSError:  # nothing to read now
            return False
        self._log.write(data)
        self._screens += data
        if len(self._screens) > SCROLLBACK_BYTES:
            del self._screens[:-SCROLLBACK_BYTES]
            del self._screens[: self._screens.find(b"\n", 0, 4096) + 1]  # not from the middle of a line
        for client in list(self._clients.values()):
            self._queue(client, data)
        return bool(data)

    def _queue(self, client: _Client, data: bytes) -> None:
        if len(client.waiting) + len(data) > MOST_WAITING_BYTES:
            client.waiting = bytearray(_SKIPPED + self._screens)
        else:
            client.waiting += data
        self._send(client)

    def _send(self, client: _Client) -> None:
        try:
            sent = client.link.send(client.waiting) if client.waiting else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(client)
            return
        del client.waiting[:sent]
        self._watch(client)

    # what is typed -------------------------------------------------------------------------------
    def _welcome(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return
        if len(self._clients) >= _MOST_CLIENTS:
            link.close()
            return
        link.settimeout(0)
        client = self._clients[link.fileno()] = _Client(link, bytes(self._screens))
        self._poller.register(link, select.POLLIN)
        self._send(client)

    def _hear(self, client: _Client) -> None:
        try:
            data = client.link.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.half += data
        if not data or not self._obey(client.half):
            self._drop(client)

    def _obey(self, half: bytearray) -> bool:
        """Takes whole frames off; False for one that is none."""
        while len(half) >= _HEAD_BYTES:
            size = int.from_bytes(half[1:_HEAD_BYTES], "big")
            if size > _MOST_TYPED_BYTES:
                return False
            if len(half) < _HEAD_BYTES + size:
                break
            kind, body = half[:1], bytes(half[_HEAD_BYTES : _HEAD_BYTES + size])
            del half[: _HEAD_BYTES + size]
            if kind == _KEYS:
                self._typed += body
                self._press()
            elif kind == _WINDOW and size == _SIZE.size:
                self._resize(*_SIZE.unpack(body))
            else:
                return False
        return True

    def _press(self) -> None:
        """Hands over what was typed, as much as the terminal takes now."""
        try:
            while self._typed:
                del self._typed[: os.write(self._master, self._typed)]
        except OSError:  # it takes no more until the job reads
            pass
        self._poller.modify(self._master, select.POLLIN | (select.POLLOUT if self._typed else 0))
        for client in self._clients.values():
            self._watch(client)

    def _resize(self, rows: int, cols: int) -> None:
        """The kernel tells the processes in front, by SIGWINCH, if it is another size."""
        if rows and cols:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def _watch(self, client: _Client) -> None:
        """Nobody types on while the job does not read."""
        is_open = len(self._typed) < _MOST_TYPED_BYTES
        wanted = (select.POLLIN if is_open else 0) | (select.POLLOUT if client.waiting else 0)
        self._poller.modify(client.link, wanted)

    def _drop(self, client: _Client) -> None:
        if self._clients.pop(client.link.fileno(), None) is not None:
            self._poller.unregister(client.link)
            client.link.close()
