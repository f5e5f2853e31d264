"""The process executor: starts, adopts, stops and buries the runs of one host.

An attempt is started at most once, ever, because its directory is on disk before its shim may go on,
and a directory is never started a second time. The shim is there before the directory has its name, so
that an agent that dies in between leaves either nothing or a run that begins. From then on its keeper
(keeper.py) has it; this module watches keepers, and where one is missing it takes the run's lock and
concludes the run itself. News comes by a pipe in which keepers name their run, by the death of a keeper,
and, should a word be lost, by a look at every living run now and then.

A job of our own user can write in its run directory. So an end that is written there is believed only when no
keeper lives that would write it, and nothing of the run is left; and a run whose directory is gone, or another, or
can no longer be used, is ended here by all that it is known by, and is `lost`.
"""

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fairlease.agent import cgroup, kin, layout, process
from fairlease.agent.begun import Begun
from fairlease.agent.identity import User
from fairlease.agent.process import Process
from fairlease.agent.record import NOBODY, Facts, Gone, RunDirectory, clear, remove
from fairlease.agent.stores import aside
from fairlease_schemas.ids import AttemptId
from fairlease_schemas.job import End

log = logging.getLogger("fairlease.agent")

LOG_BYTES: Final = 16 * 1024 * 1024
"""How much of what a job prints is kept."""
RESTARTED: Final = "the machine was restarted"
SPOILED: Final = "its run directory was removed or spoiled"
PREEMPT_FILE: Final = "FAIRLEASE_PREEMPT_FILE"
SAID_DIR: Final = "FAIRLEASE_SAID_DIR"
_SHIM: Final = Path(__file__).with_name("shim.py")
_SOON_S: Final = 0.02
_SWEEP_S: Final = 5.0
_PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What a disk or a machine refuses for a while; any other refusal is the directory's own."""


class Run:
    """One run of this host, ended ones too, as far as it is known."""

    def __init__(self, directory: RunDirectory, facts: Facts, gone: Gone | None = None) -> None:
        self.directory = directory
        self.facts = facts
        self.is_started = directory.is_started()
        self.leader = directory.leader() if self.is_started else None
        """Its first process as it was told first: a job may write another one there."""
        self.gone = gone
        self.shim = 0
        self.watch: process.Watch | None = None
        self.ending: asyncio.Task[None] | None = None
        """Set while its end is being made here."""

    @property
    def attempt(self) -> AttemptId:
        return self.directory.attempt


class Runs:
    """All runs of one host. `on_change` is called after a run started, ended or was refused."""

    def __init__(self, home: Path, on_change: Callable[[Run], None], log_bytes: int = LOG_BYTES) -> None:
        self._root = home / "runs"
        self._begun = Begun(home)
        self._wake = home / "wake"
        self._on_change = on_change
        self._log_bytes = log_bytes
        self._boot = process.boot_id()
        self._cgroups = cgroup.home()
        self._runs: dict[AttemptId, Run] = {}
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
        noted = self._begun.open()
        for directory in found:
            note = self._begun.get(directory.attempt)
            try:
                self._adopt(directory, note.facts if note is not None else directory.facts())
            except (OSError, ValueError) as error:  # one spoiled directory must not cost the host
                log.warning("%s: no run can be read there; it waits for an order: %s", directory.path, error)
        for attempt in noted:
            note = self._begun.get(attempt)
            if note is None:
                log.warning("%s: what was begun of it cannot be read, and nothing of it is here", attempt)
            elif attempt not in self._runs:
                self._adopt(RunDirectory(self._root / attempt), note.facts)
        self._sweep()

    def find(self, facts: Facts) -> Run | None:
        """The run of this attempt; one whose directory or note cannot be read is taken to be what was ordered."""
        path = self._root / facts.attempt
        if facts.attempt not in self._runs and (os.path.lexists(path) or self._begun.has(facts.attempt)):
            self._adopt(RunDirectory(path), facts)
        return self._runs.get(facts.attempt)

    def _adopt(self, directory: RunDirectory, facts: Facts) -> None:
        """Takes over a run as an earlier agent left it. The end that the log has is believed, as it is told no more."""
        gone = directory.gone()
        is_over = gone is not None and (
            facts.boot != self._boot or directory.is_acked("run-gone") or not self._is_anything_left(directory)
        )
        run = self._runs[directory.attempt] = Run(directory, facts, gone if is_over else None)
        self._follow(run)

    def _is_anything_left(self, directory: RunDirectory) -> bool:
        """Whether a keeper or a process may be left of a run that is said to be gone; of one never begun is nothing."""
        try:
            lock = directory.lock()
        except OSError:
            return True
        if lock is None:
            return True
        os.close(lock)
        has_begun = self._begun.get(directory.attempt) is not None or directory.has_claim()
        return has_begun and bool(process.remains(*_known_by(directory, directory.leader())))

    def close(self) -> None:
        """Stops watching. The runs go on; the next agent adopts them."""
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
        for timer in self._timers.values():
            timer.cancel()
        for run in self._runs.values():
            if run.watch is not None:
                run.watch.cancel()
            if run.ending is not None:
                run.ending.cancel()

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
            self._begun.prepare(facts, making)
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
            run = Run(RunDirectory.create(self._root, facts, ready=ready, code=code, owner=user), facts)
            self._note(facts.attempt)
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
        run = self._runs[facts.attempt] = Run(RunDirectory.create(self._root, facts, gone), facts, gone)
        self._on_change(run)

    def _note(self, attempt: AttemptId) -> None:
        """An agent that ends before it came here is made up for by the next one."""
        try:
            self._begun.keep(attempt)
        except OSError as error:
            log.warning("%s: it is not noted as begun: %s", attempt, error)

    def stop(self, run: Run, reason: str, grace_ms: int, margin_ms: int) -> None:
        """Notice now, TERM after the grace, KILL within the margin; a repeat restarts nothing, it only reminds."""
        if run.gone is not None or run.ending is not None:
            return
        try:
            reserve = self._begun.reserve(run.attempt)
            run.directory.order_stop(reason, grace_ms, layout.kill_after_ms(margin_ms), reserve)
        except OSError as error:
            if error.errno in _PASSING:
                raise
            self._end(run, None)  # nobody can tell it anything there
            return
        claim = run.directory.claim()
        if claim is not None:
            process.tell(claim, signal.SIGUSR1)

    def forget(self, run: Run) -> None:
        """Takes a run that is gone off the books and off the disk."""
        assert run.gone is not None
        self._begun.forget(run.attempt)  # first, or what is then removed would be missed
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
            if run.ending is None and not self._is_usable(run):
                self._follow(run)
        self._later("", _SWEEP_S, self._sweep)

    def _look(self, run: Run) -> None:
        """Reads whether its command began; says so when it is new. The end is found by `_follow`."""
        if run.gone is None and not run.is_started and run.directory.is_started():
            run.is_started = True
            run.leader = run.directory.leader()
            self._on_change(run)

    def _over(self, run: Run, gone: Gone) -> None:
        """Says that a run is gone, by an end that can be believed."""
        run.is_started = run.is_started or run.directory.is_started()
        run.gone = gone
        self._on_change(run)

    def _is_usable(self, run: Run) -> bool:
        """Whether the run's directory is there, its own, and can be worked in. One of an earlier boot is believed."""
        return run.facts.boot != self._boot or self._begun.has_its_directory(run.attempt)

    def _follow(self, run: Run) -> None:
        """Finds who has the run: a living keeper is watched, without one the run is concluded here.

        Neither lock nor living claim is a shim between the two, a matter of milliseconds.
        """
        is_orderly = False
        if run.shim:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(run.shim, os.WNOHANG)
                is_orderly = pid == run.shim and status == 0
            run.shim = 0
        self._look(run)
        if run.gone is not None or run.ending is not None:
            return
        if not self._is_usable(run):
            self._end(run, None)
            return
        if is_orderly and (gone := run.directory.gone()) is not None:
            self._over(run, gone)  # it leaves when it has written this, and nothing is left
            return
        try:
            lock = run.directory.lock()
        except OSError as error:
            if error.errno not in _PASSING:
                self._end(run, None)
            else:
                self._later(run.attempt, _SWEEP_S, lambda: self._follow(run))
            return
        if lock is not None:
            self._end(run, lock)
            return
        claim = run.directory.claim()
        if claim is not None and process.is_alive(claim):
            run.watch = process.Watch(claim, lambda: self._follow(run))
        else:
            self._later(run.attempt, _SOON_S, lambda: self._follow(run))

    def _end(self, run: Run, lock: int | None) -> None:
        """Begins to end a run here, whose lock this is; without one its directory is of no use."""
        if run.watch is not None:
            run.watch.cancel()
            run.watch = None
        run.ending = asyncio.get_running_loop().create_task(self._conclude(run, lock))

    async def _conclude(self, run: Run, lock: int | None) -> None:
        """Ends what a dead keeper left behind and writes the end down. Holds the lock meanwhile."""
        gone: Gone | None = None
        is_spoiled = lock is None
        try:
            if lock is not None:
                gone = await self._verdict(run)
                if run.directory.gone() != gone:
                    run.directory.conclude(gone)
            else:
                gone = await self._given_up(run)
        except OSError as error:
            log.warning("%s: its end cannot be written: %s", run.attempt, error)
            gone, is_spoiled = None, error.errno not in _PASSING
        except Exception:  # nobody else ends this run
            log.exception("%s: its end cannot be found, trying again", run.attempt)
            gone = None
        finally:
            run.ending = None
            if lock is not None:
                os.close(lock)
        if gone is not None:
            self._over(run, gone)
        elif is_spoiled:
            self._later(run.attempt, _SOON_S if lock is not None else _SWEEP_S, lambda: self._end(run, None))
        else:
            self._later(run.attempt, _SWEEP_S, lambda: self._follow(run))

    async def _given_up(self, run: Run) -> Gone:
        """Ends a run whose directory is of no use, its keeper too, and gives it another one that says so."""
        if run.facts.boot != self._boot:
            gone = Gone(end=End.FAULT, detail=RESTARTED)
        else:
            log.warning("%s: %s: what is left of it is ended", run.attempt, SPOILED)
            leader, mark, _, place = _known_by(run.directory, run.leader)
            await aside(lambda: _kill_kept(run.directory.path))
            for group in cgroup.of(self._cgroups, str(run.directory.path)) or [""]:
                await process.kill_remains(leader, mark, group, place)
            gone = Gone(end=End.LOST, detail=SPOILED)
        await aside(lambda: remove(run.directory.path))

        def note(making: Path) -> None:
            self._begun.prepare(run.facts, making)

        run.directory = RunDirectory.create(self._root, run.facts, gone, ready=note)
        self._note(run.attempt)
        return gone

    async def _verdict(self, run: Run) -> Gone:
        """How a run ended that has no keeper; nothing of it is left then."""
        directory = run.directory
        is_of_before = run.facts.boot != self._boot
        said = directory.gone()
        if not is_of_before:
            await process.kill_remains(*_known_by(directory, run.leader or directory.leader()))
        if said is not None:
            return said
        leader = directory.leader()
        has_begun = leader is not None or run.is_started
        if not has_begun and directory.is_stopping():
            return Gone(end=End.CANCELLED, detail="never started")
        if is_of_before:
            return Gone(end=End.FAULT, detail=RESTARTED)  # no doing of the job (1.8)
        if not has_begun:
            return Gone(
                end=End.START_FAILED, detail=f"interrupted before its command began {_last_line(directory)}".strip()
            )
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


def _known_by(directory: RunDirectory, leader: Process | None) -> tuple[Process, bytes, str, str]:
    """All that processes of a run are known by: the first one's session, their mark, cgroup and where they work."""
    mark = f"{PREEMPT_FILE}={directory.preempt_file}".encode()
    return leader or NOBODY, mark, directory.group(), str(directory.path)


def _kill_kept(path: Path) -> None:
    """KILL to the keeper of a run, found by its argument, and to all below it: these first, while it holds them."""
    for keeper in process.with_words(str(_SHIM), str(path)):
        kin.kill(keeper.pid, NOBODY.pid, "")
        process.tell(keeper, signal.SIGKILL)


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
