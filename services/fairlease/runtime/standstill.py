"""A copy of the bus's store as it was at one instant, while the cell goes on.

The simple way: stop the server, copy, start it again. Here most is copied while it writes, and only what changed since
is copied once more while its process stands still (SIGSTOP), which is a pause of milliseconds for whoever waits for an
answer, and none for running jobs. What such a copy holds is what a crash at that instant would have left, of all
streams together: acknowledged is what was on disk (bus_server.py), so nothing of it is missing, and the server starts
from it as after any crash.

Surprising: whoever lets the server go on again is another process, for ours may be killed while it stands still.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from fairlease.runtime.errors import ShellError
from fairlease.runtime.settings import BUS_FILE

STORE: Final = "jetstream"
"""Where the embedded bus keeps its streams, in the state directory."""
LIMIT_S: Final = 10.0
"""The longest pause: hosts that renew their leases in vain for longer would have to stop what runs."""
_PASSES: Final = 5
_FEW_BYTES: Final = 16 << 20
"""So much may be left to copy while the bus stands still."""
_UNSURE_NS: Final = 1_000_000_000
"""A file written so shortly before it was copied may have been written again under the same time."""
_STOPPED: Final = "TtZX"
_LET_GO: Final = 'read -r _; kill -CONT "$0"'
_POLL_S: Final = 0.001


class CannotCopy(ShellError):
    """The store could not be copied; the text says why, and the cell goes on as it was."""


class Seen(NamedTuple):
    """By what a file is told to be as it was copied."""

    inode: int
    size: int
    mtime_ns: int


def copy(home: Path, to: Path) -> int:
    """Copies the store of the state directory `home` below `to`, which is made; how many ms the bus stood still.

    0 where no bus runs there, and none can be started meanwhile. CannotCopy when there is no store, the bus belongs to
    somebody else, ended meanwhile, or the disk is too slow for it; OSError as usual. What was copied is not removed.
    """
    store = home / STORE
    if not store.is_dir():
        raise CannotCopy(f"{home} has no cell: {STORE}/ is not there; name the one of your cell by FAIRLEASE_HOME")
    to.mkdir(mode=0o700, parents=True)
    seen: dict[Path, Seen] = {}
    with _locked(home) as is_ours:
        if not is_ours:
            return _copied_live(_bus_of(home), store, to, seen)
        _pass(store, to, seen)
        return 0


def is_running(home: Path) -> bool:
    """Whether a bus runs on this state directory."""
    with _locked(home) as is_ours:
        return not is_ours


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[bool]:
    """Keeps a bus from being started here meanwhile; False where one runs."""
    try:
        lock = os.open(home / "bus.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # no directory, no bus
        yield True
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


def _copied_live(pid: int, store: Path, to: Path, seen: dict[Path, Seen]) -> int:
    """Most while the bus writes, the rest while it stands still; for how many ms."""
    for _ in range(_PASSES):
        if _pass(store, to, seen) <= _FEW_BYTES:
            break
    begun_s = time.monotonic()
    with _halted(pid):
        _pass(store, to, seen, until_s=begun_s + LIMIT_S)
        if not _is_halted(pid):
            raise CannotCopy("the bus ended while it was copied; ask again once it is back")
    return round((time.monotonic() - begun_s) * 1_000)


def _bus_of(home: Path) -> int:
    """The process that holds the lock of this directory: the one that its bus wrote down."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        pid = int(json.loads((home / BUS_FILE).read_bytes())["pid"])
        if Path(f"/proc/{pid}/cwd").samefile(home):
            return pid
    raise CannotCopy(
        f"a bus runs on {home}, and {BUS_FILE} does not say which process it is, or it is another user's: "
        "ask as the user who started the cell, or stop the cell first"
    )


def _pass(store: Path, to: Path, seen: dict[Path, Seen], until_s: float = float("inf")) -> int:
    """Makes `to` equal to the store as far as it stands still; how many bytes that took. `seen` is kept up to date."""
    copied, there = 0, set[Path]()
    for place, directories, files in os.walk(store):
        below = Path(place).relative_to(store)
        for name in directories:
            (to / below / name).mkdir(mode=0o700, exist_ok=True)
            there.add(below / name)
        for name in files:
            if time.monotonic() > until_s:
                raise CannotCopy(
                    f"more was written within {LIMIT_S:g} s than this disk copies; name a faster one, or stop the cell"
                )
            with contextlib.suppress(FileNotFoundError):  # it went meanwhile, and so will its copy
                copied += _copied(store, to, below / name, seen)
                there.add(below / name)
    _remove_but(there, to)
    return copied


def _copied(store: Path, to: Path, path: Path, seen: dict[Path, Seen]) -> int:
    """Copies the file unless it is as it was; its bytes, 0 when it was."""
    now_ns = time.time_ns()
    found = (store / path).stat()
    stands = Seen(found.st_ino, found.st_size, found.st_mtime_ns)
    if seen.get(path) == stands:
        return 0
    shutil.copyfile(store / path, to / path)
    if found.st_mtime_ns < now_ns - _UNSURE_NS:
        seen[path] = stands
    else:
        seen.pop(path, None)
    return found.st_size


def _remove_but(there: set[Path], to: Path) -> None:
    """What the store has no more, the copy has no more."""
    for path in sorted(to.rglob("*"), reverse=True):  # what is in a directory before the directory
        if path.relative_to(to) not in there:
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()


@contextlib.contextmanager
def _halted(pid: int) -> Iterator[None]:
    """The process stands still meanwhile, never longer than we live, and no Ctrl-Z lets both stand still."""
    before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    guard = subprocess.Popen(  # noqa: S603 - the script is ours, and its one argument a number
        ["/bin/sh", "-c", _LET_GO, str(pid)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            raise CannotCopy("the bus ended while it was copied; ask again once it is back") from None
        while not _is_halted(pid) and Path(f"/proc/{pid}").exists():
            time.sleep(_POLL_S)
        yield
    finally:
        guard.communicate(b"\n")
        signal.signal(signal.SIGTSTP, before)


def _is_halted(pid: int) -> bool:
    """Whether every thread of the process has come to a halt: one may still be amid a write when the first has."""
    try:
        threads = [task.read_bytes() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # one ended meanwhile: look again
        return False
    return bool(threads) and all(stat.rpartition(b") ")[2][:1].decode() in _STOPPED for stat in threads)
