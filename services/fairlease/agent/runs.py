"""The process executor: starts, adopts, stops and buries the runs of one host.

An attempt is started at most once, ever, because its directory is on disk before its shim may go on,
and a directory is never started a second time. The shim is there before the directory has its name, so
that an agent that dies in between leaves either nothing or a run that begins. From then on its keeper
(keeper.py) has it; this module watches keepers, and where one is missing it takes the run's lock and
concludes the run itself. News comes by a pipe in which keepers name their run, by the death of a keeper,
and, should a word be lost, by a look at every living run now and then.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fairlease.agent import cgroup, layout, process
from fairlease.agent.identity import User
from fairlease.agent.process import Process
from fairlease.agent.record import Facts, Gone, RunDirectory, clear
from fairlease_schemas.ids import AttemptId
from fairlease_schemas.job import End

log = logging.getLogger("fairlease.agent")

LOG_BYTES: Final = 16 * 1024 * 1024
"""How much of what a job prints is kept."""
RESTARTED: Final = "the machine was restarted"
PREEMPT_FILE: Final = "FAIRLEASE_PREEMPT_FILE"
SAID_DIR: Final = "FAIRLEASE_SAID_DIR"
_SHIM: Final = Path(__file__).with_name("shim.py")
_SOON_S: Final = 0.02
_SWEEP_S: Final = 5.0


class Run:
    """One run of this host, ended ones too, as far as it is known."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.facts = directory.facts()
        self.is_started = directory.is_started()
        self.gone = directory.gone()
        self.shim = 0
        self.watch: process.Watch | None = None

    @property
    def attempt(self) -> AttemptId:
        return self.directory.attempt


class Runs:
    """All runs of one host. `on_change` is called after a run started, ended or was refused."""

    def __init__(self, home: Path, on_change: Callable[[Run], None], log_bytes: int = LOG_BYTES) -> None:
        self._root = home / "runs"
        self._wake = home / "wake"
        self._on_change = on_change
        self._log_bytes = log_bytes
        self._boot = process.boot_id()
        self._cgroups = cgroup.home()
        self._runs: dict[AttemptId, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pipe = -1

    def open(self) -> None:
        """Learns every run on disk and adopts those that live. To be called in the loop, once."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._wake.is_fifo() or self._wake.is_symlink():
            layout.make_way(str(self._wake))
            os.mkfifo(self._wake, 0o600)
        self._pipe = os.open(self._wake, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        asyncio.get_running_loop().add_reader(self._pipe, self._listen)
        found, removing = RunDirectory.all_in(self._root)
        for path in removing:
            clear(path)
        for directory in found:
            try:
                run = Run(directory)
            except (OSError, ValueError) as error:  # one spoiled directory must not cost the host
                log.warning("%s: no run can be read there, and it is left alone: %s", directory.path, error)
                continue
            self._runs[directory.attempt] = run
            self._follow(run)
        self._sweep()

    def close(self) -> None:
        """Stops watching. The runs go on; the next agent adopts them."""
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        for run in self._runs.values():
            if run.watch is not None:
                run.watch.cancel()

    def get(self, attempt: AttemptId) -> Run | None:
        return self._runs.get(attempt)

    def all(self) -> list[Run]:
        return list(self._runs.values())

    def live(self) -> list[Run]:
        """Runs of which something may be left: their GPUs are held."""
        return [run for run in self._runs.values() if run.gone is None]

    # what the host asks for ----------------------------------------------------------------------
    def start(
        self,
        facts: Facts,
        command: tuple[str, ...],
        env: dict[str, str],
        *,
        signal_name: str = "TERM",
        at_gate: Callable[[], None] = lambda: None,
        code: Path | None = None,
        user: User | None = None,
    ) -> None:
        """Starts an attempt that was never started; `signal_name` is the one its contract declares.

        As this user, or as the one we are. `code` is the directory that it works in and has to itself, instead of an
        empty one. `at_gate` is called in the last moment before the command may begin. OSError when the disk refuses
        its record: nothing began, and the code must be brought again.
        """
        assert facts.attempt not in self._runs
        final = RunDirectory(self._root / facts.attempt)
        env = {**env, PREEMPT_FILE: str(final.preempt_file), SAID_DIR: str(final.path / layout.SAID)}
        gate, opener = os.pipe2(os.O_CLOEXEC)
        shim = 0

        def ready(making: Path) -> None:
            nonlocal shim
            try:
                shim = self._spawn(
                    final.path,
                    command,
                    env,
                    signal_name=signal_name,
                    user=user,
                    has_terminal=facts.has_terminal,
                    errors_in=making,
                    gate=gate,
                )
            except OSError as error:
                log.warning("%s: no shim for it: %s", facts.attempt, error)

        try:
            run = Run(RunDirectory.create(self._root, facts, ready=ready, code=code, owner=user))
        except OSError:
            if shim:
                os.kill(shim, signal.SIGKILL)  # it waits at the gate, and nothing began
                os.waitpid(shim, 0)
            raise
        else:
            at_gate()
            with contextlib.suppress(BrokenPipeError):
                os.write(opener, b"1")
        finally:
            os.close(gate)
            os.close(opener)
        self._runs[facts.attempt] = run
        if not shim:
            self._follow(run)
            return
        run.shim = shim
        stat = layout.read_stat(run.shim)
        run.watch = process.Watch(Process(run.shim, stat[3] if stat else 0), lambda: self._follow(run))

    def refuse(self, facts: Facts, gone: Gone) -> None:
        """Writes down that an attempt is over before it began, and will never begin. OSError as for `start`."""
        assert facts.attempt not in self._runs
        run = self._runs[facts.attempt] = Run(RunDirectory.create(self._root, facts, gone))
        self._on_change(run)

    def stop(self, run: Run, reason: str, grace_ms: int, margin_ms: int) -> None:
        """Notice now, TERM after the grace, KILL within the margin; a repeat restarts nothing, it only reminds."""
        if run.gone is not None:
            return
        run.directory.order_stop(reason, grace_ms, layout.kill_after_ms(margin_ms))
        claim = run.directory.claim()
        if claim is not None:
            process.tell(claim, signal.SIGUSR1)

    def forget(self, run: Run) -> None:
        """Takes a run that is gone off the books and off the disk."""
        assert run.gone is not None
        clear(self._runs.pop(run.attempt).directory.set_aside())

    # how it comes about --------------------------------------------------------------------------
    def _spawn(
        self,
        directory: Path,
        command: tuple[str, ...],
        env: dict[str, str],
        *,
        signal_name: str = "TERM",
        user: User | None = None,
        has_terminal: bool = False,
        errors_in: Path | None = None,
        gate: int | None = None,
    ) -> int:
        """The process of a new shim, with the order in memory it alone can read; where there is a gate, it waits."""
        order = os.memfd_create("fairlease-order", os.MFD_CLOEXEC)
        try:
            body = {
                "command": command,
                "env": env,
                "log_bytes": self._log_bytes,
                "signal": signal_name,
                "cgroup": self._cgroups,
                "user": None if user is None else [user.name, user.uid, user.gid],
                "terminal": has_terminal,
            }
            with open(order, "wb", closefd=False) as file:
                file.write(json.dumps(body).encode())
            os.lseek(order, 0, os.SEEK_SET)
            with open((errors_in or directory) / "shim.err", "wb", opener=_ours) as errors:
                return os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-I", "-S", "-X", "utf8", str(_SHIM), str(directory)],
                    {},
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, order, 0),
                        (os.POSIX_SPAWN_DUP2, errors.fileno() if gate is None else gate, 1),
                        (os.POSIX_SPAWN_DUP2, errors.fileno(), 2),
                    ],
                    setsid=True,
                )
        finally:
            os.close(order)

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for name in os.read(self._pipe, 65536).decode(errors="replace").split():
                run = self._runs.get(name)
                if run is not None:
                    self._look(run)

    def _sweep(self) -> None:
        for run in self.live():
            self._look(run)
        self._later("", _SWEEP_S, self._sweep)

    def _look(self, run: Run) -> None:
        """Reads what the keeper wrote; says so when it is new."""
        if run.gone is not None:
            return
        was_started = run.is_started
        run.is_started = run.is_started or run.directory.is_started()
        run.gone = run.directory.gone()
        if run.gone is not None or run.is_started != was_started:
            self._on_change(run)

    def _follow(self, run: Run) -> None:
        """Finds who has the run: a living keeper is watched, without one the run is concluded here.

        Neither lock nor living claim is a shim between the two, a matter of milliseconds.
        """
        if run.shim:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(run.shim, os.WNOHANG)
            run.shim = 0
        self._look(run)
        if run.gone is not None:
            return
        lock = run.directory.lock()
        if lock is not None:
            task = asyncio.get_running_loop().create_task(self._conclude(run, lock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        claim = run.directory.claim()
        if claim is not None and process.is_alive(claim):
            run.watch = process.Watch(claim, lambda: self._follow(run))
        else:
            self._later(run.attempt, _SOON_S, lambda: self._follow(run))

    async def _conclude(self, run: Run, lock: int) -> None:
        """Ends what a dead keeper left behind and writes the end down. Holds the lock meanwhile."""
        try:
            if run.directory.gone() is None:
                run.directory.conclude(await self._verdict(run))
        except OSError as error:
            log.warning("%s: its end cannot be written: %s", run.attempt, error)
            self._later(run.attempt, _SWEEP_S, lambda: self._follow(run))
        except Exception:  # nobody else ends this run
            log.exception("%s: its end cannot be found, trying again", run.attempt)
            self._later(run.attempt, _SWEEP_S, lambda: self._follow(run))
        finally:
            os.close(lock)
        self._look(run)

    async def _verdict(self, run: Run) -> Gone:
        directory = run.directory
        leader = directory.leader()
        is_of_before = run.facts.boot != self._boot
        if leader is None:
            if directory.is_stopping():
                return Gone(end=End.CANCELLED, detail="never started")
            if is_of_before:
                return Gone(end=End.FAULT, detail=RESTARTED)
            return Gone(
                end=End.START_FAILED, detail=f"interrupted before its command began {_last_line(directory)}".strip()
            )
        if is_of_before:
            return Gone(end=End.FAULT, detail=RESTARTED)  # no doing of the job (1.8)
        mark = f"{PREEMPT_FILE}={directory.preempt_file}".encode()
        await process.kill_remains(leader, mark, directory.group())
        seen = directory.exit()
        if seen is None:
            return Gone(end=End.LOST, detail="its keeper was killed: nobody saw the end")
        end, detail = layout.end_of(seen.exit_code, seen.stop_reason)
        return Gone(end=End(end), exit_code=seen.exit_code, detail=detail)

    def _later(self, name: str, delay_s: float, call: Callable[[], None]) -> None:
        """One pending call per name: a newer one replaces it."""
        if (pending := self._timers.pop(name, None)) is not None:
            pending.cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(delay_s, call)


def _ours(path: str, flags: int) -> int:
    """Opens what is for nobody else to read."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _last_line(directory: RunDirectory) -> str:
    """What a shim that failed said last, in parentheses; empty when it said nothing."""
    try:
        lines = layout.content(str(directory.path / "shim.err")).decode(errors="replace").split("\n")
    except (FileNotFoundError, layout.Spoiled):
        return ""
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"({last[:200]})" if last else ""
