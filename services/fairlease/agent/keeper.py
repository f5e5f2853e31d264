"""The keeper: a small process between the agent and one job, so that agents may come and go.

Theory of operation. Only the parent of a process learns its exit code, and an agent is restarted
while jobs run. So every run has a parent of its own, started by shim.py, that does one thing and
needs no restart. The command and its environment come in on standard input, so that secrets are
neither on disk nor in an argument list; all else is said through files (layout.py).

**The gate.** A shim is spawned while its directory still has no name, and waits until the directory is on
disk. So an agent that is killed in between leaves no directory, and the attempt is begun by the next
one; or a directory, and a shim that goes on by itself.

The lock is `flock` on the run directory, held by the keeper for its life: who can take it knows that
no keeper is at work. **The late shim**: an agent may die before the claim of its shim. The
next agent takes the lock, finds no claim and writes gone.json (`start-failed`); a shim that was only
slow then gets the lock, finds the end and leaves. If the shim was first, the agent does not get the
lock, and adopts. Either way one of them decides, and the files tell the other. A missed SIGUSR1 (the
agent's "look for stop.json") does no harm either: the agent writes stop.json and then looks for the
claim, the keeper claims and then looks for stop.json, so at least one of them sees the other.

**The stop** (8.1). The notice file is there already; the declared signal goes to those who catch it;
after the grace TERM to all, and at the last KILL to all, whatever they forked or left (kin.py).

**The fence** (7.6). The host's lease stands in a file, which is read once a second: the machine may have
slept. When it has run out the keeper stops the run by itself, agent or none, with all instants counted from
the lease's end, so that a keeper that was late itself makes up for it. Of two stops the earlier instants hold.

Surprising, and why: the first process stays a zombie until its group was killed, because as long as
it is there nobody else can have its number; and the keeper is a subreaper, so that what the job puts
in the background, in sessions of its own too, becomes its child and can be ended and counted.
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import time

from fairlease.agent import cgroup, kin, layout
from fairlease.agent.output import Log

TYPE_CHECKING = False  # that of typing takes longer to load than all the rest
if TYPE_CHECKING:
    from typing import TypedDict

    from fairlease.agent.terminal import Terminal

    class Order(TypedDict):
        """What comes in on standard input. `signal` is the declared one's name without SIG, or none.

        `user` is whose processes the job's become, by name, user and group; None for our own.
        """

        command: list[str]
        env: dict[str, str]
        log_bytes: int
        signal: str
        cgroup: str
        user: tuple[str, int, int] | None
        terminal: bool


_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_CHUNK_BYTES = 64 * 1024
_KILL_AGAIN_MS = 50
_FULL_DISK_S = 1.0
_LEASE_LOOK_MS = 1_000
_MOST_FDS = 1 << 20


def keep(run_directory: str) -> None:
    """Claims the run and sees it through, or leaves when someone else has decided about it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # an agent that had blocked some must not make it deaf
    os.closerange(3, _MOST_FDS)  # whatever the agent was started with is no business of a job
    if not _is_let_in(run_directory):
        return
    lock = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.exists(layout.CLAIM) or os.path.exists(layout.GONE) or not os.path.exists(layout.RUN):
        return
    with open(0, "rb", closefd=False) as file:
        order = json.load(file)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)  # the order lived in memory alone, and now no longer
    group = cgroup.make(order["cgroup"], os.getcwd())
    fence = Fence()
    keeper = Keeper(order, group=group, fence=fence)
    layout.tell(layout.CLAIM, layout.identity(os.getpid()), reserve=layout.CLAIM_RESERVED)
    if layout.read_stop() is not None:
        end: dict[str, object] = {"end": "cancelled", "exit_code": None, "detail": "never started"}
    elif fence.is_passed():
        end = {"end": "fault", "exit_code": None, "detail": layout.FENCED_DETAIL}
    else:
        become_subreaper()
        end = keeper.run()
    cgroup.remove(group)
    conclude(end)


def _is_let_in(run_directory: str) -> bool:
    """Waits at the gate on descriptor 1, and enters the directory; False when there will be none.

    The agent opens the gate when the directory is on disk. If it died instead, a directory that has
    its name is brought to disk here and entered all the same: nobody else would begin this run.
    """
    try:
        is_on_disk = os.read(1, 1) == b"1"
    except OSError:
        is_on_disk = True  # there is no gate: the directory was there first
    os.dup2(2, 1)
    try:
        os.chdir(run_directory)
    except FileNotFoundError:
        return False
    if not is_on_disk:
        layout.sync_directory("..")
    return True


def conclude(end: dict[str, object]) -> None:
    """Writes the end down, and while the disk is full waits for room: nobody else knows the exit code."""
    while True:
        try:
            layout.tell(layout.GONE, end, is_durable=True)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            time.sleep(_FULL_DISK_S)
        else:
            return


def note(name: str, body: dict[str, object], reserve: str = "") -> None:
    """Tells what the end will tell again: on a full disk the job goes first."""
    with contextlib.suppress(OSError):
        layout.tell(name, body, reserve=reserve)


def become_subreaper() -> None:
    """Orphans of the job become children of this process; where the kernel has no such thing, its session must do."""
    try:
        import ctypes  # noqa: PLC0415 - what asks for nothing but the names of this module need not load it

        unused = ctypes.c_ulong(0)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), unused, unused, unused)
    except (ImportError, OSError, AttributeError):
        return


def become(name: str, uid: int, gid: int) -> None:
    """This process is that user's from now on, with his groups, and for good; NotAllowed when it cannot be so.

    No program gives it more than it has (no_new_privs): not one that runs as its owner, nor as root.
    """
    try:
        import ctypes  # noqa: PLC0415 - what stays who it is need not load it; afterwards it may not be readable

        unused = ctypes.c_ulong(0)
        os.initgroups(name, gid)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        refused = ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), unused, unused, unused)
    except (OSError, ImportError, AttributeError) as error:
        raise NotAllowed(f"cannot become user {name}: {error}") from error
    if refused or os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise NotAllowed(f"cannot become user {name}, and nobody else may run it")


class NotAllowed(Exception):
    """The command cannot run as the user it belongs to, and so not at all."""


class Fence:
    """The end of the lease of this run's host, and how the run is to be stopped at it: by run.json."""

    def __init__(self) -> None:
        facts = json.loads(layout.content(layout.RUN))
        self.until_ms = 0
        self._boot = facts["boot"]
        self._grace_ms = facts.get("grace_ms", 0)
        self._kill_after_ms = layout.kill_after_ms(facts.get("margin_ms", 0))

    def is_passed(self) -> bool:
        """Whether the lease has run out, by the file as it is now."""
        found = layout.read_lease(layout.OWN_LEASE, self._boot)
        if found is not None:
            self.until_ms = found[0]
        return layout.boot_ms() >= self.until_ms

    def instants(self) -> tuple[int, int]:
        """When TERM and KILL are due."""
        term_at_ms = self.until_ms + self._grace_ms
        return term_at_ms, term_at_ms + self._kill_after_ms


class Keeper:
    """One job from its claim to its end. To be made before the claim: it takes the signals."""

    def __init__(self, order: "Order", *, group: str, fence: Fence) -> None:
        self._command = order["command"]
        self._user = order["user"]
        self._env = order["env"]
        self._log = Log(order["log_bytes"])
        self._signal = 0 if order["signal"] == "none" else signal.Signals[f"SIG{order['signal']}"]
        self._has_terminal = order["terminal"]
        self._terminal: Terminal | None = None
        self._poller = select.poll()
        self._group = group
        self._fence = fence
        self._wakeups, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        self._output = -1
        self._leader = 0
        self._exit_code: int | None = None
        self._is_ordered = False
        self._is_fenced = False
        self._stop_reason: str | None = None
        self._term_at_ms: int | None = None
        self._kill_at_ms: int | None = None

    def run(self) -> dict[str, object]:
        """Starts the command and returns the body of gone.json when nothing of it is left."""
        problem = self._start()
        if problem:
            return {"end": "start-failed", "exit_code": None, "detail": problem}
        note(layout.STARTED, {}, layout.STARTED_RESERVED)
        if self._terminal is None:
            self._poller.register(self._output, select.POLLIN)
        self._poller.register(self._wakeups, select.POLLIN)
        self._obey()
        self._heed_lease()
        while not self._is_over():
            for fd, events in self._poller.poll(self._patience_ms()):
                if fd == self._wakeups:
                    os.read(self._wakeups, 4096)
                elif self._terminal is not None:
                    self._terminal.turn(fd, events)
                elif not self._pump():
                    self._poller.unregister(self._output)
            self._obey()  # also unasked: a job that spoils our claim must not be out of the agent's reach
            self._heed_lease()
        if self._terminal is not None:
            self._poller.unregister(self._wakeups)
            self._terminal.close()
        else:
            os.set_blocking(self._output, False)
            while self._pump():
                pass
        self._bury()
        assert self._exit_code is not None
        end, detail = layout.end_of(self._exit_code, self._stop_reason)
        return {"end": end, "exit_code": self._exit_code, "detail": detail}

    # the start -----------------------------------------------------------------------------------
    def _start(self) -> str:
        """Forks; the command begins once leader.json names its process. Returns what went wrong, empty when nothing.

        The child waits at a gate. If the keeper dies before it opened the gate, the child reads
        end-of-file and leaves, so that no command ever runs whose process is not on disk.
        """
        gate, opener = os.pipe2(os.O_CLOEXEC)
        failure, teller = os.pipe2(os.O_CLOEXEC)
        try:
            printer = self._open_output()
        except OSError as error:
            return f"no terminal for it: {error.strerror}"
        try:
            pid = os.fork()
        except OSError as error:
            return f"no process for it: {error.strerror}"
        if pid == 0:
            os.close(opener)
            self._become(gate, teller, printer)
        for fd in (gate, teller, *([printer] if self._terminal is None else ())):
            os.close(fd)
        self._leader = pid
        leader = {**layout.identity(pid), "cgroup": self._group}
        layout.tell(layout.LEADER, leader, reserve=layout.LEADER_RESERVED)
        os.write(opener, b"1")
        os.close(opener)
        problem = b""
        while chunk := os.read(failure, 4096):  # a command that begins closes it
            problem += chunk
        os.close(failure)
        if problem:
            os.waitpid(pid, 0)
        return problem.decode(errors="replace")

    def _open_output(self) -> int:
        """Where the job prints: the end of a pipe, or a terminal's side of it."""
        if not self._has_terminal:
            self._output, printer = os.pipe2(os.O_CLOEXEC)
            return printer
        from fairlease.agent.terminal import Terminal  # noqa: PLC0415 - few jobs have one, and each waits for its load

        self._terminal = Terminal(self._poller, self._log)
        return self._terminal.slave

    def _become(self, gate: int, teller: int, printer: int) -> None:
        """In the child: the command itself, in its own session, with no signal masked, ignored or handled."""
        try:
            os.setsid()
            if os.read(gate, 1) != b"1":
                os._exit(127)
            cgroup.join(self._group)
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if self._terminal is not None:
                self._terminal.adopt()
            else:
                for standard in (1, 2):
                    os.dup2(printer, standard)
            os.umask(0o022)
            os.chdir(layout.WORK)
            if self._user is not None:
                os.fchown(printer, self._user[1], self._user[2])  # some reopen /dev/stdout, by their own rights
                os.get_exec_path(self._env)  # loads what the search below needs, which the user may not read
                become(*self._user)
            os.execvpe(self._command[0], self._command, self._env)  # noqa: S606 - the contract's command, by intent
        except OSError as error:
            os.write(teller, f"cannot run {self._command[0]!r}: {error.strerror}".encode(errors="replace")[:2048])
        except NotAllowed as error:
            os.write(teller, str(error).encode(errors="replace")[:2048])
        except BaseException as error:  # noqa: BLE001 - the child must not return into the keeper's own code
            os.write(teller, f"cannot run: {error}".encode(errors="replace")[:2048])
        os._exit(127)

    # while it runs -------------------------------------------------------------------------------
    def _pump(self) -> bool:
        """Moves output to the log; False at its end, or when there is nothing to read without waiting."""
        try:
            data = os.read(self._output, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        self._log.write(data)
        return bool(data)

    def _patience_ms(self) -> int:
        """How long to wait for news: until TERM or KILL is due, and after KILL in short steps until it worked.

        Never past the next look at the lease, nor past its end.
        """
        now_ms = layout.boot_ms()
        wait_ms = _LEASE_LOOK_MS if self._is_fenced else min(max(self._fence.until_ms - now_ms, 1), _LEASE_LOOK_MS)
        due_ms = self._kill_at_ms if self._term_at_ms is None else self._term_at_ms
        if due_ms is None:
            return wait_ms
        return min(due_ms - now_ms, wait_ms) if due_ms > now_ms else _KILL_AGAIN_MS

    def _obey(self) -> None:
        """Reads stop.json, once."""
        if self._is_ordered or self._exit_code is not None:
            return
        order = layout.read_stop()
        if order is None or self._has_ended():
            return
        self._is_ordered = True
        self._stop(*order)

    def _heed_lease(self) -> None:
        """Once the host's lease has run out the stop begins, or the one that began is hastened."""
        if self._is_fenced or not self._fence.is_passed() or (self._kill_at_ms is None and self._has_ended()):
            return
        self._is_fenced = True
        term_at_ms, kill_at_ms = self._fence.instants()
        with contextlib.suppress(OSError):
            layout.give_notice(layout.FENCED, term_at_ms, kill_at_ms)
        self._stop(layout.FENCED, term_at_ms, kill_at_ms)

    def _stop(self, reason: str, term_at_ms: int, kill_at_ms: int) -> None:
        """The declared signal now, TERM and KILL when they are due. The second of two only brings these forward."""
        if self._kill_at_ms is not None:
            if self._term_at_ms is not None:
                self._term_at_ms = min(self._term_at_ms, term_at_ms)
            self._kill_at_ms = min(self._kill_at_ms, kill_at_ms)
            return
        self._stop_reason, self._term_at_ms, self._kill_at_ms = reason, term_at_ms, kill_at_ms
        if self._terminal is not None:
            in_s = max(term_at_ms - layout.boot_ms(), 0) / 1000
            self._terminal.say(f"the job is asked to stop: {reason}; TERM in {in_s:.0f} s")
        if self._signal and term_at_ms > layout.boot_ms():  # without a grace the TERM is the notice
            kin.warn(self._kin(), self._signal)

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self._leader, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _is_over(self) -> bool:
        """Buries the dead, writes the exit down, sends what is due; True when nothing is left.

        Without a stop, what the first process left behind is killed at once. During a stop it has
        the rest of the grace: a launcher may leave before the program it started has saved itself.
        """
        if self._exit_code is None:
            self._see_the_dead()
        if self._exit_code is not None and not self._kin():
            return True
        now_ms = layout.boot_ms()
        if self._term_at_ms is not None and now_ms >= self._term_at_ms:
            self._term_at_ms = None
            kin.terminate(self._kin())
            if self._terminal is not None:
                kin.hang_up(self._kin())
        if self._kill_at_ms is not None and now_ms >= self._kill_at_ms:
            kin.kill(os.getpid(), self._leader, self._group)
        return False

    def _kin(self) -> dict[int, int]:
        return kin.of(os.getpid(), self._leader, self._group)

    def _see_the_dead(self) -> None:
        """Reaps orphans until the first process is among the dead; that one is written down and left a zombie."""
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return
            if found.si_pid == self._leader:
                break
            os.waitpid(found.si_pid, os.WNOHANG)
        self._exit_code = found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status
        note(layout.EXIT, {"exit_code": self._exit_code, "stop_reason": self._stop_reason})
        if self._stop_reason is None:
            self._kill_at_ms = layout.boot_ms()

    def _bury(self) -> None:
        """Reaps all zombies, the first process too; a host whose init is lazy would keep them."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
