"""The agent's side of a run directory: what was ever started here, and what is known of it.

A directory appears whole, by rename, with its run.json on disk, and a shim stands ready when it does: an
attempt with a directory was started, or was refused for good, and is never started again. What the shim
wrote is read here; what only the agent writes (the stop, what the bus acknowledged) is written here.
"""

import contextlib
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from fairlease.agent import cgroup, layout
from fairlease.agent.identity import User
from fairlease.agent.process import Process
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.ids import AccountId, AttemptId, GpuUuid, HostId, JobId
from fairlease_schemas.job import End, Mismatch

_T = TypeVar("_T")
_RESERVED: Final = "preempt.reserved"
_MOST_REASON_CHARS: Final = 300
NOBODY: Final = Process(pid=-1, start=0)
"""Who leads a run of which that cannot be read."""
_ACKED_CHECKPOINT: Final = "acked-checkpoint-done"
_MAKING: Final = ".making-"
_REMOVING: Final = ".removing-"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was ordered: run.json. `token` is the address of the grant, `boot` the kernel's boot id.

    `grace_ms` and `margin_ms` are for its keeper, should it have to stop the run by itself.
    """

    attempt: AttemptId
    job: JobId
    token: str
    digest: str
    gpus: tuple[GpuUuid, ...]
    hosts: tuple[HostId, ...]
    rank: int
    boot: str
    grace_ms: int = 0
    margin_ms: int = 30_000
    account: AccountId = ""
    has_terminal: bool = False


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How the first process ended: exit.json. 128 + n after signal n."""

    exit_code: int
    stop_reason: str | None = None


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run on this host: gone.json."""

    end: End
    exit_code: int | None = None
    detail: str = ""
    mismatches: tuple[Mismatch, ...] = ()


class _Leader(msgspec.Struct, frozen=True):
    """What leader.json says beside who the process is."""

    cgroup: str = ""


class RunDirectory:
    """One attempt's directory, `<state>/agent/<host>/runs/<attempt>`. Nothing is kept in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def attempt(self) -> AttemptId:
        return self.path.name

    @property
    def preempt_file(self) -> Path:
        """Appears when the run is asked to stop. Its path is unique to the run, and so marks its processes."""
        return self.path / layout.PREEMPT

    @classmethod
    def create(
        cls,
        root: Path,
        facts: Facts,
        gone: Gone | None = None,
        *,
        ready: Callable[[Path], None] | None = None,
        code: Path | None = None,
        owner: User | None = None,
    ) -> "RunDirectory":
        """A new attempt, or with `gone` one that is over before it began; on disk when this returns.

        `ready` is called with the directory just before it gets its name. `code` becomes its working directory,
        which is empty without it. With `owner` his processes can work in it: where they work and speak is his, their
        notice he can read, and the rest is ours alone. OSError when it is there already, or the disk refuses; `code`
        may be lost then.
        """
        making = root / f"{_MAKING}{facts.attempt}"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        if code is None:
            (making / layout.WORK).mkdir(mode=0o700)
        else:
            code.rename(making / layout.WORK)
            _close_to_others(making / layout.WORK)  # whatever brought it may have made it as open as others are
        (making / layout.SAID).mkdir(mode=0o700)
        for name in (_RESERVED, *layout.RESERVES):
            (making / name).write_bytes(b" " * layout.RESERVED_BYTES)
        if owner is not None:
            _give(making, owner)
        if gone is not None:
            layout.write_whole(str(making / layout.GONE), msgspec.json.encode(gone), is_durable=True)
        layout.write_whole(str(making / layout.RUN), msgspec.json.encode(facts), is_durable=True)
        final = root / facts.attempt
        if ready is not None:
            ready(making)
        making.rename(final)
        layout.sync_directory(str(root))
        return cls(final)

    @classmethod
    def all_in(cls, root: Path) -> tuple[list["RunDirectory"], list[Path]]:
        """Every run of a host by name, and what an earlier agent was still removing. Half-made ones are cleared."""
        found, removing = [], []
        for path in sorted(root.iterdir()):
            if path.name.startswith(_MAKING):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(_REMOVING):
                removing.append(path)
            else:
                found.append(cls(path))
        return found, removing

    def facts(self) -> Facts:
        """What was ordered. FileNotFoundError, or ValueError where the file was spoiled."""
        return understood(layout.content(str(self.path / layout.RUN)), Facts)

    def claim(self) -> Process | None:
        """The keeper's process, once it has claimed the run."""
        return self._read(layout.CLAIM, Process)

    def has_claim(self) -> bool:
        """Whether a keeper ever claimed the run, or something has the name of its claim."""
        return os.path.lexists(self.path / layout.CLAIM)

    def leader(self) -> Process | None:
        """The job's first process, from just before its command begins; nobody's number where the file was spoiled.

        Then what is left of the run is still known, by its mark.
        """
        leader = self._read(layout.LEADER, Process)
        return NOBODY if leader is None and os.path.lexists(self.path / layout.LEADER) else leader

    def group(self) -> str:
        """The cgroup of the job; empty when it has none."""
        leader = self._read(layout.LEADER, _Leader)
        path = leader.cgroup if leader is not None else ""
        return path if cgroup.is_of(path, str(self.path)) else ""

    def exit(self) -> Exit | None:
        return self._read(layout.EXIT, Exit)

    def gone(self) -> Gone | None:
        return self._read(layout.GONE, Gone)

    def is_started(self) -> bool:
        return os.path.exists(self.path / layout.STARTED)  # noqa: PTH110 - False too where nobody may look

    def order_stop(self, reason: str, grace_ms: int, kill_after_ms: int, reserve: str = "") -> None:
        """Gives the job its notice, then writes down when TERM and KILL fall due; a repeat changes none of it.

        In bytes that were reserved when the run was made, those of the order itself (`reserve`) out of its job's
        reach: a job that filled the disk can be stopped. The notice is a help, and goes where the disk refuses it.
        """
        if self.is_stopping():
            return
        term_at_ms = layout.boot_ms() + grace_ms
        order = {
            "reason": reason[:_MOST_REASON_CHARS],
            "term_at_ms": term_at_ms,
            "kill_at_ms": term_at_ms + kill_after_ms,
        }
        data = msgspec.json.encode(order)
        if not os.path.lexists(self.preempt_file):  # else an agent that was killed between the two gave it already
            with contextlib.suppress(OSError):
                layout.fill(str(self.path / _RESERVED), str(self.preempt_file), data)
        layout.fill(reserve, str(self.path / layout.STOP), data)

    def is_stopping(self) -> bool:
        return os.path.lexists(self.path / layout.STOP)

    def conclude(self, gone: Gone) -> None:
        """Writes the end; only for whoever holds the lock."""
        layout.write_whole(str(self.path / layout.GONE), msgspec.json.encode(gone), is_durable=True)

    def lock(self) -> int | None:
        """A descriptor that holds the run's lock until it is closed; None while a keeper has it."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def is_acked(self, kind: str) -> bool:
        """Whether the bus has acknowledged this run's report of that kind."""
        return os.path.exists(self.path / f"acked-{kind}")  # noqa: PTH110 - False too where nobody may look

    def ack(self, kind: str) -> None:
        (self.path / f"acked-{kind}").touch()

    def acked_checkpoint(self) -> str:
        """The digest of the last manifest that the bus has acknowledged; empty for none."""
        try:
            return layout.content(str(self.path / _ACKED_CHECKPOINT)).decode(errors="replace")
        except (FileNotFoundError, layout.Spoiled):
            return ""

    def ack_checkpoint(self, digest: str) -> None:
        layout.write_whole(str(self.path / _ACKED_CHECKPOINT), digest.encode(), is_durable=False)

    def written_ns(self, name: str) -> int:
        """When a file of the run was written, in ns of the local clock: for orders, never for decisions."""
        return (self.path / name).stat().st_mtime_ns

    def set_aside(self) -> Path:
        """Takes the run off the disk's books at once; the path is for `clear`, which may take its time."""
        return _set_aside(self.path)

    def _read(self, name: str, kind: type[_T]) -> _T | None:
        """What a keeper wrote; None when it did not yet, or when its job spoiled it."""
        try:
            return understood(layout.content(str(self.path / name)), kind)
        except (FileNotFoundError, layout.Spoiled, Unreadable):
            return None


def give_tree(top: Path, owner: User) -> None:
    """Hands a tree over that was ours alone so far; what is his already stays as it is.

    For he may change that meanwhile, and it is not for root to walk through: so the top is given last.
    """
    if top.lstat().st_uid == owner.uid:
        return
    for place, directories, files in os.walk(top):  # it enters no link
        for entry in (*directories, *files):
            os.chown(Path(place, entry), owner.uid, owner.gid, follow_symlinks=False)
    os.chown(top, owner.uid, owner.gid)


def _close_to_others(directory: Path) -> None:
    """0700, through no link: its owner may be somebody else."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(fd, 0o700)
    finally:
        os.close(fd)


def _give(making: Path, owner: User) -> None:
    """Hands over what a user needs of his run's directory. Code is his already (source.py)."""
    for name in (layout.WORK, layout.SAID):
        give_tree(making / name, owner)
    for name in (_RESERVED, layout.RESERVED):  # what becomes the notice
        os.chown(making / name, 0, owner.gid)
        (making / name).chmod(0o640)
    for name in layout.RESERVES:
        if name != layout.RESERVED:
            (making / name).chmod(0o600)
    os.chown(making, 0, owner.gid)
    making.chmod(0o710)


def clear(path: Path) -> None:
    """Removes what was set aside, in a thread of its own: a job may have left any amount of files."""
    threading.Thread(target=shutil.rmtree, args=(path,), kwargs={"ignore_errors": True}, daemon=True).start()


def remove(path: Path) -> None:
    """Takes whatever has a run's name off the books; FileNotFoundError never, OSError as usual."""
    try:
        if path.is_dir() and not path.is_symlink():
            clear(_set_aside(path))
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return


def _set_aside(path: Path) -> Path:
    return path.rename(path.with_name(f"{_REMOVING}{path.name}.{time.monotonic_ns()}"))
