"""Which processes of this machine belong to a cell under test, and how they are ended.

A cell's services and bus name its directory in their environment or arguments; jobs carry it in
theirs, shims in their argument, and what a job starts works below it. Zombies have none of these.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

LIMIT_S = 20.0


def belonging(home: Path) -> list[int]:
    """Living processes of the cell in this directory, jobs and their shims included."""
    mark = str(home).encode()
    return [pid for pid in pids() if pid != os.getpid() and mark in _words(pid)]


def jobs_of(home: Path) -> list[int]:
    """Those of them that are jobs, or started by jobs."""
    return [pid for pid in belonging(home) if b"FAIRLEASE_JOB=" in read(pid, "environ")]


def on_host(home: Path, host: str) -> list[int]:
    """Jobs of one host and their keepers."""
    runs = f"{home}/agent/{host}/runs/".encode()
    marks = (b"FAIRLEASE_HOST=" + host.encode() + b"\0", runs)
    return [pid for pid in belonging(home) if any(mark in _words(pid) + b"\0" for mark in marks)]


def kill(*pids: int) -> None:
    """SIGKILL to all of them, as close together as can be; gone ones are passed over."""
    send(signal.SIGKILL, *pids)


def send(number: signal.Signals, *pids: int) -> None:
    for pid in pids:
        assert pid > 1, "a process that is away cannot be signalled"
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_all(home: Path) -> None:
    """Ends whatever of the cell is left, and returns when nothing is."""
    until_s = time.monotonic() + LIMIT_S
    while left := belonging(home):
        assert time.monotonic() < until_s, f"these will not die: {[_words(pid)[:200] for pid in left]}"
        kill(*left)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def pids() -> list[int]:
    """Every process of this machine."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208 - names are all we want


def _words(pid: int) -> bytes:
    try:
        cwd = os.readlink(f"/proc/{pid}/cwd").encode()  # noqa: PTH115 - a removed folder is no path
    except OSError:
        cwd = b""
    return b"\0".join((read(pid, "environ"), read(pid, "cmdline"), cwd))


def read(pid: int, name: str) -> bytes:
    """A file of the process in /proc; empty when it is gone, or nobody else's business."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def is_keeper_of(pid: int, attempt: str) -> bool:
    """Whether the process is the shim of this attempt: its last argument is the run's directory."""
    return read(pid, "cmdline").rstrip(b"\0").endswith(f"/{attempt}".encode())


def is_of_a_job(pid: int) -> bool:
    """Whether it is a job, a part of one, or the shim that keeps it."""
    return b"FAIRLEASE_JOB=" in read(pid, "environ") or b"/agent/shim.py" in read(pid, "cmdline")


def is_part(pid: int, name: str) -> bool:
    """Whether it is the bus, the agent, or the service of that name."""
    words = read(pid, "cmdline").split(b"\0")
    return words[0].endswith(b"nats-server") if name == "bus" else name.encode() in words
