"""Processes of this machine by who they are, not by number: found, watched and ended.

A process is its number and the tick it started at; the number alone may be somebody else's by the
time it is used. A pidfd is held while a process is looked at and signalled, so that it cannot be
replaced in between. Where the kernel has no pidfd (before 5.3), death is seen by looking again.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from fairlease.agent import cgroup, layout

LOOK_AGAIN_S: Final = 0.2
_KILL_AGAIN_S: Final = 0.005
_KILL_AGAIN_MOST_S: Final = 1.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Process(msgspec.Struct, frozen=True):
    """Who a process is: `start` is in clock ticks since boot."""

    pid: int
    start: int


def boot_id() -> str:
    """The id the kernel drew at this boot, 32 hex digits; another boot has another one."""
    return _BOOT_ID.read_text(encoding="ascii").strip().replace("-", "")


def is_alive(process: Process) -> bool:
    """Whether exactly this process is there; a zombie is not alive."""
    stat = layout.read_stat(process.pid)
    return stat is not None and stat[0] not in "ZX" and stat[3] == process.start


def hold(process: Process) -> int | None:
    """A pidfd of exactly this process, which the caller closes; None when it is gone or there are no pidfds."""
    try:
        fd = os.pidfd_open(process.pid)
    except (OSError, AttributeError):
        return None
    if not is_alive(process):
        os.close(fd)
        return None
    return fd


def tell(process: Process, number: signal.Signals) -> None:
    """Sends a signal to exactly this process, or to nobody."""
    fd = hold(process)
    if fd is not None:
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)
    elif is_alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


class Watch:
    """Calls `on_death` once when the process ends, soon if it is gone already; `cancel` forgets it."""

    def __init__(self, process: Process, on_death: Callable[[], None]) -> None:
        self._process = process
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._fd = hold(process)
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._died)
        else:
            self._look()

    def cancel(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if is_alive(self._process):
            self._timer = self._loop.call_later(LOOK_AGAIN_S, self._look)
        else:
            self._timer = self._loop.call_later(0, self._died)

    def _died(self) -> None:
        self.cancel()
        self._on_death()


def remains(leader: Process, mark: bytes, group: str = "", place: str = "") -> list[Process]:
    """Living processes of a run whose keeper was killed, by pid.

    Those in the session of its first process, those that carry `mark` (`NAME=value`, unique to the run)
    in their environment, which leaving the session does not shed, and those in its cgroup, if it had one.
    Our own session is never among them.

    A session has its leader's number, which may be another's by now. Where a leader is there, its start says whose
    it is. Where it has gone, one of the session must be known otherwise: by mark or cgroup, or because it works
    in `place`, the run's directory, or below.
    """
    own = os.getsid(0)
    grouped = set(cgroup.members(group))
    found, session, is_ours = [], [], False
    for pid in layout.pids():
        stat = layout.read_stat(pid)
        if stat is None or stat[0] in "ZX" or stat[2] == own or stat[3] < leader.start:
            continue
        is_known = pid in grouped or mark in _environment(pid)
        if is_known:
            found.append(Process(pid, stat[3]))
        if stat[2] == leader.pid:
            is_ours = is_ours or is_known or (bool(place) and _works_in(pid, place))
            session.append(Process(pid, stat[3]))
    there = layout.read_stat(leader.pid) if session else None
    if session and (there[3] == leader.start if there is not None else is_ours):
        found += session
    return sorted(set(found), key=lambda process: process.pid)


def with_words(*words: str) -> list[Process]:
    """Living processes whose command line ends in these words, by pid."""
    wanted = "".join(f"\0{word}" for word in words).encode() + b"\0"
    found = []
    for pid in sorted(layout.pids()):
        stat = layout.read_stat(pid)
        if stat is None or stat[0] in "ZX":
            continue
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(wanted):
                found.append(Process(pid, stat[3]))
    return found


def _works_in(pid: int, place: str) -> bool:
    try:
        return f"{Path(f'/proc/{pid}/cwd').readlink()}/".startswith(f"{place}/")
    except OSError:
        return False


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


async def kill_remains(leader: Process, mark: bytes, group: str = "", place: str = "") -> None:
    """Returns when nothing is left; a process the kernel will not let go keeps it waiting, as it must.

    Nothing twice in a row: in the middle of an exec a process has no environment to be known by.
    """
    pause_s, looks = _KILL_AGAIN_S, 0
    while looks < 2:
        found = remains(leader, mark, group, place)
        looks = 0 if found else looks + 1
        if found:
            cgroup.kill(group)
        for process in found:
            tell(process, signal.SIGKILL)
        await asyncio.sleep(pause_s if found else _KILL_AGAIN_S)
        pause_s = min(2 * pause_s, _KILL_AGAIN_MOST_S)
    cgroup.remove(group)
