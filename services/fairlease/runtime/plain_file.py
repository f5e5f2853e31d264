"""Small files that somebody names, or could put in our place: read whole, but only a plain file, and so much of it.

A device without an end fills the memory, and a pipe that nobody writes to is waited for: both are told at once, as an
`OSError` whose `strerror` is a sentence, so that who reads a file has one kind of error to tell.
"""

import errno
import os
import stat
from pathlib import Path
from typing import IO, Final

MOST_BYTES: Final = 1 << 20
"""Of what people write by hand: a hundred times the largest that anybody needs."""


def read(path: str | Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of a plain file of at most that size; OSError for what is none, or larger."""
    with opened(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"has more than {most_bytes} bytes, the limit: is it the right file?", str(path))
    return data


def text(path: str | Path, most_bytes: int = MOST_BYTES) -> str:
    """The same as text; UnicodeDecodeError when it is no UTF-8."""
    return read(path, most_bytes).decode("utf-8")


def opened(path: str | Path) -> IO[bytes]:
    """A plain file of any size, to be read; OSError for what is none."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(fd, "rb")
    os.close(fd)
    what = "a directory" if stat.S_ISDIR(kind) else "a pipe" if stat.S_ISFIFO(kind) else "a device"
    raise OSError(errno.EINVAL, f"is {what}: name a plain file", str(path))


def why(error: Exception) -> str:
    """What is wrong with a file, without its name, which who tells it says first."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
