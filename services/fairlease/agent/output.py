"""What a job printed: the head in `log`, the newest tail in at most two segments `log.<offset>`.

Surprising: the middle is thrown away while the job runs, and offsets stay true all the same. An
offset counts every byte that was ever printed, and a segment is named by the offset of its first
byte; a reader who asks for what is no longer there gets one line that says how much was cut, and
goes on where the tail begins. Loads in a shim, so: standard library, little of it.
"""

import os

from fairlease.agent.layout import LOG, made

CUT = "[fairlease: "
"""How the line begins that stands where something was cut."""
_LINE_LIMIT_BYTES = 160
_RACES = 5


class Log:
    """The writing side, in the working directory: never more than `limit` bytes.

    A full disk loses output, never the job.
    """

    def __init__(self, limit: int) -> None:
        self._segment = max(limit // 4, 1)
        self._room = limit - 2 * self._segment
        self._total = 0
        self._segments: list[str] = []
        self._fd = made(LOG, os.O_APPEND)

    def write(self, data: bytes) -> None:
        """Appends; begins a new segment when this one is full, and lets the oldest of two go before a third."""
        while data:
            try:
                if self._room <= 0:
                    self._next_segment()
                written = os.write(self._fd, data[: self._room])
            except OSError:
                return
            self._total += written
            self._room -= written
            data = data[written:]

    def _next_segment(self) -> None:
        if len(self._segments) == 2:
            os.unlink(self._segments.pop(0))
        name = f"{LOG}.{self._total:020d}"
        fd = made(name, os.O_APPEND)
        os.close(self._fd)
        self._fd, self._room = fd, self._segment
        self._segments.append(name)


def read_log(directory: str, offset: int, limit: int) -> tuple[bytes, int, int]:
    """At most about `limit` bytes from `offset` on, the offset to ask for next, and the total printed so far.

    Below 0 counts as 0; at or beyond the total there are no bytes, and next is the total. No log at
    all reads as an empty one. OSError as usual.
    """
    for _ in range(_RACES):
        parts = _parts(directory)
        total = parts[-1][0] + parts[-1][1] if parts else 0
        position, data = max(offset, 0), b""
        try:
            for start, size, path in parts:
                if position < start and len(data) < limit:
                    data += _cut(start - position)
                    position = start
                take = min(limit - len(data), start + size - position)
                if take > 0:
                    piece = _read_at(path, position - start, take)
                    position += len(piece)
                    data += piece
        except FileNotFoundError:
            continue  # the oldest segment went while we looked
        return data, min(position, total), total
    return b"", max(offset, 0), max(offset, 0)


def whole_text(data: bytes) -> bytes:
    """The bytes without a UTF-8 character that begins at their end and is not complete yet."""
    for back in range(1, min(len(data), 3) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if needs > back else data
    return data


def _parts(directory: str) -> list[tuple[int, int, str]]:
    """(first offset, bytes, path) of the head and the segments, in the order they were printed."""
    parts = []
    with os.scandir(directory) as entries:
        for entry in entries:
            name, _, start = entry.name.partition(".")
            if name == LOG and (start == "" or start.isdigit()) and entry.is_file(follow_symlinks=False):
                parts.append((int(start or 0), entry.stat().st_size, entry.path))
    return sorted(parts)


def _read_at(path: str, position: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, position)
    finally:
        os.close(fd)


def _cut(size: int) -> bytes:
    line = f"\n{CUT}{size} bytes were cut here; the log keeps its head and its newest tail]\n".encode()
    assert len(line) <= _LINE_LIMIT_BYTES
    return line
