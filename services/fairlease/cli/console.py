"""The terminal in front of a person, or the pipes of a script, for as long as a command is attached to a job.

While attached, and only then, a terminal is raw, so that every key goes to the job; it is put back as it was
however the command ends. Pipes are read and written as they are. Keys are read by a thread of their own, because
a file cannot be waited for otherwise, and output is written aside too, so that a reader that stands still does
not end the session.
"""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

PREFIX: Final = 0x1D
"""Ctrl-]."""
DETACH: Final = ord("d")
END_OF_INPUT: Final = b"\x04"
"""What a terminal takes for the end of what is typed, at the beginning of a line."""
_READ_BYTES: Final = 4_096
_MOST_READ: Final = 16
"""Pieces that are read ahead of what the job takes."""


_Modes = list[Any]


class Window(NamedTuple):
    """The size of a terminal."""

    rows: int
    cols: int


class Keys:
    """What is typed, looked through for the two keys that detach: the prefix, then d."""

    def __init__(self) -> None:
        self._is_after_prefix = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """What goes to the job, and whether to detach; the prefix twice is the key itself, once."""
        passed = bytearray()
        for key in data:
            if self._is_after_prefix:
                self._is_after_prefix = False
                if key == DETACH:
                    return bytes(passed), True
                passed += bytes((PREFIX,)) if key == PREFIX else bytes((PREFIX, key))
            elif key == PREFIX:
                self._is_after_prefix = True
            else:
                passed.append(key)
        return bytes(passed), False


class Console:
    """Standard input and output of a command that attaches. To be made in the loop."""

    def __init__(self, *, is_read_only: bool = False) -> None:
        self._is_read_only = is_read_only
        self.is_raw = False
        """Whether a person's terminal is ours, key by key."""
        self.window: Window | None = None
        """The size of the terminal in front; None where there is none, or nothing is typed there."""
        self.is_detached = False
        self.is_at_end = False
        """Whether a script's input has ended: whoever reads from now on in the job is to find that it has."""
        self.news = asyncio.Event()
        """Set when something was typed, the window changed, or the person wants to leave."""
        self._keys = Keys()
        self._turn = threading.Lock()
        self._typed = bytearray()
        self._ahead = threading.Semaphore(_MOST_READ)
        self._held: list[int] = []
        self._is_at_line_start = True
        self._is_reading = False
        self._is_terminal = sys.stdin.isatty()
        if self._is_terminal and not is_read_only:
            self._resized()

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        """Every key goes to the job; keys that were typed before, while nobody took them, do not.

        Of who reads along none does: the terminal gives the keys at once, so that the two that detach are heard, and
        Ctrl-C keeps its meaning.
        """
        if self._is_read_only and not self._is_terminal:
            yield
            return
        loop = asyncio.get_running_loop()
        if not self._is_reading:
            self._is_reading = True
            threading.Thread(target=self._read, args=(loop,), daemon=True).start()
        was = self._modes()
        if was is None:
            yield
            return
        self.take(len(self._typed))
        try:
            if self._is_read_only:
                tty.setcbreak(sys.stdin.fileno())
            else:
                tty.setraw(sys.stdin.fileno())
                self.is_raw = True
                self._resized()
                loop.add_signal_handler(signal.SIGWINCH, self._resized)
            yield
        finally:
            self.is_raw = False
            loop.remove_signal_handler(signal.SIGWINCH)
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, was)

    def take(self, limit: int) -> bytes:
        """What was typed and goes to the job, at most so many bytes of it."""
        data = bytes(self._typed[:limit])
        del self._typed[:limit]
        if not self._typed:
            for _ in self._held:
                self._ahead.release()
            self._held.clear()
        return data

    async def show(self, data: bytes) -> None:
        """Writes what the job showed; OSError when nobody reads any more."""
        from fairlease.agent.stores import aside  # a worker of the loop's would keep a command that was told to end

        await aside(lambda: self._write(sys.stdout.fileno(), data))

    def tell(self, text: str) -> None:
        """A line of ours, on standard error, also on a raw terminal."""
        line = f"\r\n{text}\r\n" if self.is_raw else f"{text}\n"
        sys.stderr.write(line)
        sys.stderr.flush()

    @contextlib.contextmanager
    def ended_by(self, *numbers: signal.Signals) -> Iterator[None]:
        """These signals cancel the task that is running now, so that the terminal is put back."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in numbers:
            loop.add_signal_handler(number, task.cancel)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _modes(self) -> _Modes | None:
        """How the terminal is set; None where there is none, or it has just gone."""
        with contextlib.suppress(termios.error):
            return termios.tcgetattr(sys.stdin.fileno()) if self._is_terminal else None
        return None

    def _resized(self) -> None:
        with contextlib.suppress(OSError):
            cols, rows = os.get_terminal_size(sys.stdin.fileno())
            self.window = Window(rows, cols)
            self.news.set()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: what comes on standard input, until its end."""
        data = b"more"
        while data:
            self._ahead.acquire()
            try:
                data = os.read(sys.stdin.fileno(), _READ_BYTES)
            except OSError:
                data = b""
            try:
                loop.call_soon_threadsafe(self._heard, data)
            except RuntimeError:  # the loop is closed: the command is over
                return

    def _write(self, fd: int, data: bytes) -> None:
        """In a thread: all of it, after all that came before, also of a session that is over."""
        with self._turn:
            while data:
                data = data[os.write(fd, data) :]

    def _heard(self, data: bytes) -> None:
        self._held.append(len(data))
        if not data and not self._is_terminal:
            # A line that has no end is ended by the first of two, and then they are the end of input.
            self._typed += END_OF_INPUT if self._is_at_line_start else END_OF_INPUT * 2
            self.is_at_end = True
        elif not data:
            self.is_detached = True  # the terminal is gone
        elif self._is_terminal:
            passed, is_detached = self._keys.feed(data)
            self.is_detached = self.is_detached or is_detached
            self._typed += b"" if self._is_read_only else passed
        else:
            self._is_at_line_start = data.endswith(b"\n")
            self._typed += data
        self.news.set()
