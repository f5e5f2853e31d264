"""The run directory: what agent and shim must agree on, and the calls both need.

Everything here loads in a shim, whose start every job waits for: standard library, as little of it
as possible. Paths are text and may be relative, because a shim works inside its run directory.

    run.json      agent   the order's facts; on disk before a shim goes on
    shim.json     shim    the claim: this run was begun, by this process
    leader.json   shim    the job's first process and its cgroup; on disk before its command may begin
    started.json  shim    the command runs
    stop.json     agent   why it shall stop, and the instants of the TERM and the KILL
    preempt       agent   the same, for the job: the notice, there before any signal
    said/         job     checkpoint.json and progress.json, as fairlease_sdk writes them
    attach        shim    the socket of the run's terminal, where it has one (terminal.py)
    exit.json     shim    how the first process ended
    gone.json     either  the end; nothing of the run is left. Whoever holds the lock writes it
    evidence.json agent   what is kept of an end that was no good one
    ../../lease   agent   until when this host may run anything; keepers of all its runs read it
    ../../begun/  agent   what was ever begun here, and the bytes for stop.json, out of the run's own way (begun.py)

Each is written whole and renamed, so that a reader finds all of it or none; but the lease is written in
its place, so that a full disk does not end it.

A job of our own user can put anything in the place of any of them. So all are read by `content` and made by `made`,
which follow no link, wait for no pipe and read no more than they must; what cannot be read so is spoiled.
"""

import contextlib
import errno
import json
import os
import stat
import time

RUN, CLAIM, LEADER, STARTED = "run.json", "shim.json", "leader.json", "started.json"
STOP, EXIT, GONE = "stop.json", "exit.json", "gone.json"
LOG, WORK, PREEMPT, ATTACH = "log", "work", "preempt", "attach"
EVIDENCE = "evidence.json"
SAID, CHECKPOINT, PROGRESS = "said", "checkpoint.json", "progress.json"
RESERVED = "fence.reserved"
"""Bytes for the notice of a keeper, taken before a job could fill the disk."""
CLAIM_RESERVED, LEADER_RESERVED, STARTED_RESERVED = "shim.reserved", "leader.reserved", "started.reserved"
"""Bytes for what a keeper says until the command runs: no full disk costs a run its start."""
RESERVES = (RESERVED, CLAIM_RESERVED, LEADER_RESERVED, STARTED_RESERVED)
KILL_AFTER_MS = 10_000
"""Between TERM and KILL, but never more than half the stop margin: the whole stop must fit it (8.1)."""
WAKE = "../../wake"
"""From a run directory: the pipe in which a shim names its run, so that the agent need not poll."""
LEASE = "lease"
OWN_LEASE = "../../lease"
"""The name in a host's home, and the same from a run directory."""
LIFE = "life"
"""Beside the hosts' homes, where the cell was restored from a backup: marks a life that knows nothing of before."""
FENCED = "lease"
"""Why a run was stopped whose host's lease ran out."""
FENCED_DETAIL = "its host's lease ran out"
UNREADABLE = "its order to stop cannot be read"
RESERVED_BYTES = 2_048
MOST_BYTES = 1 << 20
"""Of a file that a job may have written."""
_LEASE_BYTES = 4_096


class Spoiled(ValueError):
    """What is there is no plain file of bounded size that can be read."""


def content(path: str, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of a plain file. FileNotFoundError when nothing is there, Spoiled for all else that may be there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Spoiled("no plain file")
            data = os.read(fd, most_bytes + 1)
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Spoiled(f"no file that can be read: {error.strerror}") from error
    if len(data) > most_bytes:
        raise Spoiled(f"above {most_bytes} bytes")
    return data


def made(path: str, options: int = 0) -> int:
    """A new file of our own, opened to be written; whatever had its name makes way. OSError as usual."""
    options |= os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, options, 0o600)
    except FileExistsError:
        make_way(path)
        return os.open(path, options, 0o600)


def make_way(path: str) -> None:
    """Takes its name from whatever has it: a directory gets another, all else is gone."""
    with contextlib.suppress(FileNotFoundError):
        try:
            os.unlink(path)
        except IsADirectoryError:
            os.rename(path, f"{path}.spoiled-{time.monotonic_ns()}")


def _rename(path: str, final: str) -> None:
    try:
        os.rename(path, final)
    except IsADirectoryError:
        make_way(final)
        os.rename(path, final)


def write_whole(path: str, data: bytes, *, is_durable: bool) -> None:
    """Writes a file so that a reader finds all of it or none; durable: also after a power cut. OSError as usual."""
    fd = made(path + ".new")
    try:
        while data:
            data = data[os.write(fd, data) :]
        if is_durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    _rename(path + ".new", path)
    if is_durable:
        sync_directory(os.path.dirname(path) or ".")


def fill(reserved: str, path: str, data: bytes) -> None:
    """Writes a file whole in bytes that were reserved for it, or in others where these were spoiled. OSError."""
    data = data.ljust(RESERVED_BYTES)
    try:
        fd = os.open(reserved, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size != RESERVED_BYTES:
                raise OSError(errno.EBADF, "not what was reserved")
            os.pwrite(fd, data, 0)
        finally:
            os.close(fd)
        _rename(reserved, path)
    except OSError:
        write_whole(path, data, is_durable=False)


def sync_directory(path: str) -> None:
    """Makes the names in a directory survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def tell(name: str, body: dict[str, object], *, is_durable: bool = False, reserve: str = "") -> None:
    """Writes a file of the run that is the working directory, and wakes the agent; in reserved bytes where there are.

    If no agent listens, nothing is lost: the next one looks at every run when it starts.
    """
    data = json.dumps(body).encode()
    if reserve:
        fill(reserve, name, data)
    else:
        write_whole(name, data, is_durable=is_durable)
    try:
        fd = os.open(WAKE, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, os.path.basename(os.getcwd()).encode() + b"\n")
    except OSError:
        pass
    finally:
        os.close(fd)


def kill_after_ms(margin_ms: int) -> int:
    """How long after the TERM the KILL comes."""
    return min(KILL_AFTER_MS, margin_ms // 2)


def give_notice(reason: str, term_at_ms: int, kill_at_ms: int) -> None:
    """The notice file of the working directory's run, by its keeper; the one the agent gave stands."""
    if os.path.exists(PREEMPT):
        return
    notice = {"reason": reason, "term_at_ms": term_at_ms, "kill_at_ms": kill_at_ms}
    fill(RESERVED, PREEMPT, json.dumps(notice).encode())


def read_stop() -> tuple[str, int, int] | None:
    """Reason and instants (`boot_ms`) of TERM and KILL from the working directory's stop.json; None without one.

    One that cannot be read is an order all the same, and means now: a job may write there, and must not be rid of
    its keeper by it.
    """
    try:
        order = json.loads(content(STOP))
        return str(order["reason"]), int(order.get("term_at_ms", 0)), int(order["kill_at_ms"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return UNREADABLE, 0, 0


def write_lease(path: str, boot: str, until_ms: int, length_ms: int) -> None:
    """Notes until when (`boot_ms`) a host may run anything, and the lease's length. OSError as usual.

    In place, and said twice: a reader in between finds two that differ. All of it has one length, always.
    """
    line = f"{max(until_ms, 0):020d} {max(length_ms, 0):020d}\n"
    data = f"{boot}\n{line}{line}".encode()
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # there is none, or it was spoiled
        write_whole(path, data, is_durable=False)
        return
    try:
        is_lease = os.fstat(fd).st_size == len(data)
        if is_lease:
            os.pwrite(fd, data, 0)
    finally:
        os.close(fd)
    if not is_lease:
        write_whole(path, data, is_durable=False)


def read_lease(path: str, boot: str) -> tuple[int, int] | None:
    """End and length of the lease; zeros when there is none of this boot, None amid a change: look again.

    What is no lease at all is none, so that a run whose file was spoiled ends.
    """
    try:
        lines = content(path, _LEASE_BYTES).decode(errors="replace").split("\n")
    except (FileNotFoundError, Spoiled):
        return 0, 0
    if len(lines) < 3 or lines[1] != lines[2]:
        return None
    if lines[0] != boot:
        return 0, 0
    try:
        until, length = map(int, lines[1].split())
    except ValueError:
        return 0, 0
    return until, length


def end_of(exit_code: int, stop_reason: str | None) -> tuple[str, str]:
    """End and detail of a run whose first process ended: `cancelled`, and why, when it had been asked to stop."""
    if stop_reason == FENCED:
        return "fault", FENCED_DETAIL
    if stop_reason is not None:
        return "cancelled", stop_reason
    return "failed" if exit_code else "succeeded", ""


def boot_ms() -> int:
    """Milliseconds since the kernel booted, sleep included: an instant that no setting of a clock moves."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def read_stat(pid: int) -> tuple[str, int, int, int] | None:
    """State letter, parent, session and start (clock ticks since boot) of a process; None when there is none."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fields = os.read(fd, 4096).rpartition(b")")[2].split()
    except OSError:
        return None
    finally:
        os.close(fd)
    return fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19])


def identity(pid: int) -> dict[str, object]:
    """A process as it is named on disk: the number alone may be somebody else's tomorrow."""
    stat = read_stat(pid)
    return {"pid": pid, "start": stat[3] if stat else 0}


def pids() -> list[int]:
    """Every process of this machine, in the order of /proc."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
