"""The cgroup of an attempt, where this machine lets the agent make one (version 2, writable).

A cgroup holds what descent and marks can lose: a process that left its session, its parents and its
environment is still in it, and `cgroup.kill` ends all of it in one step, faster than it can fork.
Where there is none every function here does nothing, and the other ways of finding must do. Loads in
a shim, so: standard library, little of it; paths are text, empty for no cgroup.
"""

import contextlib
import os
import zlib

_PREFIX = "fairlease-"
_PROCS, _KILL = "cgroup.procs", "cgroup.kill"


def home() -> str:
    """Where this process may make cgroups: its own one, if it may write there; else empty."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own = next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), "")
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return ""
    for mount in mounts:
        if own and mount[mount.index("-") + 1] == "cgroup2":
            path = os.path.normpath(os.path.join(mount[4], os.path.relpath(own, mount[3])))
            if path.startswith(mount[4]) and os.access(path, os.W_OK) and os.access(f"{path}/{_PROCS}", os.W_OK):
                return path
    return ""


def make(parent: str, directory: str) -> str:
    """A new cgroup for the run in this directory, of the keeper that asks; empty where there can be none."""
    path = f"{parent}/{_name(directory)}{os.getpid()}"
    try:
        if not parent:
            return ""
        with contextlib.suppress(FileExistsError):  # left by a keeper that had this number and was killed
            os.mkdir(path)
        return path if os.access(f"{path}/{_PROCS}", os.W_OK) else ""
    except OSError:
        return ""


def is_of(path: str, directory: str) -> bool:
    """Whether this can be the cgroup of the run there: what a job may have written on disk is not believed."""
    return os.path.basename(path).startswith(_name(directory)) and ".." not in path.split("/")


def _name(directory: str) -> str:
    """How cgroups of a run are called, but for the keeper's number.

    By its directory: an attempt of another cell on this machine may have the same id.
    """
    place, attempt = os.path.split(directory)
    mark = zlib.crc32(os.path.join(os.path.realpath(place), attempt).encode())
    return f"{_PREFIX}{attempt}-{mark:08x}-"


def of(parent: str, directory: str) -> list[str]:
    """Every cgroup that keepers of the run in this directory made there, by name."""
    if not parent:
        return []
    try:
        return sorted(f"{parent}/{name}" for name in os.listdir(parent) if is_of(name, directory))
    except OSError:
        return []


def join(path: str) -> None:
    """Puts the calling process there, and with it all that it will start."""
    if path:
        with contextlib.suppress(OSError):
            _write(f"{path}/{_PROCS}", b"0")


def members(path: str) -> list[int]:
    """Every process there, also in the cgroups that the job made below; zombies are none."""
    found: list[int] = []
    for directory, _, _ in os.walk(path) if path else ():
        with contextlib.suppress(OSError), open(f"{directory}/{_PROCS}", "rb") as file:
            found += map(int, file.read().split())
    return found


def kill(path: str) -> None:
    """KILL to all of it at once; nothing on kernels before 5.14, where members must be told one by one."""
    if path:
        with contextlib.suppress(OSError):
            _write(f"{path}/{_KILL}", b"1")


def remove(path: str) -> None:
    """Takes an empty cgroup away, and those that the job made below."""
    for directory, _, _ in os.walk(path, topdown=False) if path else ():
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
