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

Each is written whole and renamed, so that a reader finds all of it or none; but the lease is written in
its place, so that a full disk does not end it.
"""

import json
import os
import time

RUN, CLAIM, LEADER, STARTED = "run.json", "shim.json", "leader.json", "started.json"
STOP, EXIT, GONE = "stop.json", "exit.json", "gone.json"
LOG, WORK, PREEMPT, ATTACH = "log", "work", "preempt", "attach"
EVIDENCE = "evidence.json"
SAID, CHECKPOINT, PROGRESS = "said", "checkpoint.json", "progress.json"
RESERVED = "fence.reserved"
"""Bytes for the notice of a keeper, taken before a job could fill the disk."""
KILL_AFTER_MS = 10_000
"""Between TERM and KILL, but never more than half the stop margin: the whole stop must fit it (8.1)."""
WAKE = "../../wake"
"""From a run directory: the pipe in which a shim names its run, so that the agent need not poll."""
LEASE = "lease"
OWN_LEASE = "../../lease"
"""The name in a host's home, and the same from a run directory."""
FENCED = "lease"
"""Why a run was stopped whose host's lease ran out."""
FENCED_DETAIL = "its host's lease ran out"
UNREADABLE = "its order to stop cannot be read"


def write_whole(path: str, data: bytes, *, is_durable: bool) -> None:
    """Writes a file so that a reader finds all of it or none; durable: also after a power cut. OSError as usual."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(fd, data) :]
        if is_durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".new", path)
    if is_durable:
        sync_directory(os.path.dirname(path) or ".")


def sync_directory(path: str) -> None:
    """Makes the names in a directory survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def tell(name: str, body: dict[str, object], *, is_durable: bool = False) -> None:
    """Writes a file of the run that is the working directory, and wakes the agent.

    If no agent listens, nothing is lost: the next one looks at every run when it starts.
    """
    write_whole(name, json.dumps(body).encode(), is_durable=is_durable)
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
    with open(RESERVED, "r+b") as file:
        file.write(json.dumps(notice).encode())
    os.rename(RESERVED, PREEMPT)


def read_stop() -> tuple[str, int, int] | None:
    """Reason and instants (`boot_ms`) of TERM and KILL from the working directory's stop.json; None without one.

    One that cannot be read is an order all the same, and means now: a job may write there, and must not be rid of
    its keeper by it.
    """
    try:
        with open(STOP, "rb") as file:
            order = json.load(file)
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
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        write_whole(path, data, is_durable=False)
        return
    try:
        os.pwrite(fd, data, 0)
    finally:
        os.close(fd)


def read_lease(path: str, boot: str) -> tuple[int, int] | None:
    """End and length of the lease; zeros when there is none of this boot, None amid a change: look again.

    What is no lease at all is none, so that a run whose file was spoiled ends.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0, 0
    try:
        lines = os.read(fd, 4096).decode(errors="replace").split("\n")
    finally:
        os.close(fd)
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
