"""One agent for a host on its machine, wherever its state is.

The lock on a host's home keeps two agents apart that have the same one. Two with different state directories would
serve the same GPUs, each by the same orders, and begin every attempt twice. So an agent of real GPUs takes the host's
name on this machine as well: root a file that nobody else can make or hold, anybody else a name of the kernel's that
goes with its process. Simulated hosts are as many as their state directories.
"""

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fairlease.runtime.errors import ConfigWrong
from fairlease_schemas.ids import HostId

PATIENCE_S: Final = 10.0
"""How long is waited for an agent that is leaving."""
_AGAIN_S: Final = 0.1
_RUN: Final = Path("/run")


@contextlib.contextmanager
def alone(cell: str, host: HostId, *, patience_s: float = PATIENCE_S, place: Path = _RUN) -> Iterator[None]:
    """Holds the name of a cell's host on this machine. ConfigWrong when another agent keeps it."""
    limit_s = time.monotonic() + patience_s
    name = f"fairlease-agent-{cell}-{host}"
    while (held := _held(name, place)) is None:
        if time.monotonic() >= limit_s:
            raise ConfigWrong(
                f"another agent serves host {host} of cell {cell} on this machine, perhaps with another "
                "FAIRLEASE_HOME, and its GPUs would be given twice: stop that one first"
            )
        time.sleep(_AGAIN_S)
    with held:
        yield


def _held(name: str, place: Path) -> contextlib.AbstractContextManager[object] | None:
    """What holds the name until it is left; None while another process has it."""
    if os.geteuid() == 0 and os.access(place, os.W_OK):
        fd = os.open(place / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        held = contextlib.ExitStack()
        held.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            return None
        return held
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        bound.bind(f"\0{name}")
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return bound
