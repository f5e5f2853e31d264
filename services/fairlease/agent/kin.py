"""All processes of an attempt, as its keeper sees them: found, told, ended.

Three things hold them together, and each is enough for what the others may lose. Descent: the keeper
is a subreaper, so whatever forked, left its session or became a daemon is still below it. The session
of the first process, where the kernel knows no subreapers. The cgroup, where the machine has one.
Surprising: a signal that a job declared goes only to those who catch it (the SigCgt mask), because
for everybody else its default is to die: data loaders, launchers, the `sleep` of a script.
Loads in a shim, so: standard library, little of it.
"""

import contextlib
import os
import signal
import time

from fairlease.agent import cgroup, layout

_MOST_ROUNDS = 40
_SETTLE_S = 0.02


def of(keeper: int, leader: int, group: str) -> dict[int, int]:
    """Living processes of the attempt, pid to start, without zombies, by pid; the keeper is none of them."""
    stats = {pid: stat for pid in layout.pids() if (stat := layout.read_stat(pid)) is not None}
    children: dict[int, list[int]] = {}
    for pid, (_, parent, _, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    found, waiting = set(cgroup.members(group)), [keeper]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found.update(below)
        waiting += below
    found.update(pid for pid, stat in stats.items() if stat[2] == leader)
    return {pid: stats[pid][3] for pid in sorted(found - {keeper}) if pid in stats and stats[pid][0] not in "ZX"}


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal; False when it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            mask = next((line for line in file if line.startswith(b"SigCgt:")), b"SigCgt: 0")
    except OSError:
        return False
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def tell(pid: int, start: int, number: int) -> None:
    """A signal to exactly this process, or to nobody: the number alone may be somebody else's by now."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (OSError, AttributeError):
        fd = -1  # no pidfds here: between looking and telling is a moment, and it must do
    try:
        stat = layout.read_stat(pid)
        if stat is not None and stat[3] == start:
            with contextlib.suppress(ProcessLookupError):
                if fd < 0:
                    os.kill(pid, number)
                else:
                    signal.pidfd_send_signal(fd, number)
    finally:
        if fd >= 0:
            os.close(fd)


def warn(found: dict[int, int], number: int) -> None:
    """The declared signal to those who catch it, at two looks: between fork and exec a child still seems to."""
    seeming = {pid: start for pid, start in found.items() if catches(pid, number)}
    time.sleep(_SETTLE_S)
    _tell_awake({pid: start for pid, start in seeming.items() if catches(pid, number)}, number)


def terminate(found: dict[int, int]) -> None:
    """TERM to all."""
    _tell_awake(found, signal.SIGTERM)


def hang_up(found: dict[int, int]) -> None:
    """HUP to all: what a shell at a terminal heeds, which ignores TERM."""
    _tell_awake(found, signal.SIGHUP)


def _tell_awake(found: dict[int, int], number: int) -> None:
    """CONT after it, so that a halted one hears it; to all, because who was halted just now does not show it yet."""
    for one in (number, signal.SIGCONT):
        for pid, start in found.items():
            tell(pid, start, one)


def kill(keeper: int, leader: int, group: str) -> None:
    """KILL to all. What forks faster than it is found is halted first, until a look finds nobody new."""
    cgroup.kill(group)
    halted: dict[int, int] = {}
    for _ in range(_MOST_ROUNDS):
        found = of(keeper, leader, group)
        new = {pid: start for pid, start in found.items() if halted.get(pid) != start}
        if not new:
            break
        for pid, start in new.items():
            tell(pid, start, signal.SIGSTOP)
        halted |= new
    for pid, start in halted.items():
        tell(pid, start, signal.SIGKILL)
