"""Cells of real processes: one whose supervisor is in this process, and one that `fairlease up` keeps."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import nats.errors

from fairlease.runtime.settings import BUS_FILE, Settings
from fairlease.runtime.supervisor import Part, Supervisor, agent_part, service_parts
from fairlease_schemas.policy import Policy
from fairlease_schemas.subjects import SERVICES
from tests.house.tree import ROOT
from tests.live import process
from tests.live.court import LIMIT_S, eventually
from tests.live.desk import ACCOUNTS, QUICK, Desk
from tests.live.patrol import patrolled
from tests.live.witness import witness

HOSTS, GPUS = 4, 8
SIMULATE = f"{HOSTS}x{GPUS}"


def agent_per_host(hosts: int = HOSTS) -> dict[str, Part]:
    """An agent of its own for every host, by the host's name."""
    numbers = range(1, hosts + 1)
    return {f"host-{n:03d}": agent_part(f"1x{GPUS}", f"agent-{n}", first_host=n) for n in numbers}


def known_bus(home: Path) -> str:
    """Where the bus of this cell will listen, so that a proxy can know it before the first start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{probe.getsockname()[1]}"
    home.mkdir(exist_ok=True)
    (home / BUS_FILE).write_text(json.dumps({"url": url}))  # the bus keeps the port of its last start
    return url


class Cell(Desk):
    """A supervised cell; `pid` and `kill` reach its processes by the names the supervisor gives them."""

    def __init__(self, home: Path, parts: list[Part], accounts: tuple[str, ...] = ()) -> None:
        super().__init__(home)
        self.supervisor = Supervisor(Settings(state_dir=home, accounts=ACCOUNTS + accounts), parts, (witness,))

    async def start(self) -> None:
        await self.supervisor.start()
        await self.supervisor.wait_ready(LIMIT_S, hosts=HOSTS)
        await self.open()

    def pid(self, name: str) -> int:
        return self.supervisor.bus_pid if name == "bus" else self.supervisor.pid(name)

    def kill(self, *names: str) -> list[int]:
        """SIGKILL to these parts (`bus`, `agent`, `ranker-a` …); the ids of the processes that were."""
        pids = [self.pid(name) for name in names]
        process.kill(*pids)
        return pids

    def lose(self, name: str, how: str) -> None:
        """The part is `killed`, and nobody starts another; or it is `halted` where it stands."""
        if how == "killed":
            self.supervisor._keepers[name].cancel()
            self.kill(name)
        else:
            process.send(signal.SIGSTOP, self.pid(name))

    def bring_back(self, name: str, how: str) -> None:
        """Undoes `lose`."""
        if how == "killed":
            supervisor = self.supervisor
            supervisor._keepers[name] = asyncio.create_task(supervisor._keep(supervisor.parts[name]))
        else:
            process.send(signal.SIGCONT, self.pid(name))

    async def is_taking_work(self) -> bool:
        """Whether nothing keeps new work from any host."""
        await self.journal.read()
        return not any(self.journal.oracle.holds.values())

    async def replaced(self, name: str, old: int) -> None:
        """Returns once the supervisor has put another process in the place of this one, and it is ready."""
        await eventually(lambda: self.pid(name) not in (0, old), f"another {name} after {old}")
        service = name.rpartition("-")[0]
        if service in SERVICES:
            await eventually(lambda: self._is_ready(service, self.pid(name)), f"{name} is ready")

    async def _is_ready(self, service: str, pid: int) -> bool:
        return any(health["pid"] == pid and health["is_ready"] for health in await self.health(service))

    async def health(self, service: str) -> list[dict[str, Any]]:
        """What each replica of a service says about itself; those that are silent for a moment are left out."""
        inbox = self.client.new_inbox()
        heard = await self.client.subscribe(inbox)
        await self.client.publish(self.subjects.ask(service, "health"), b"{}", reply=inbox)
        found: list[dict[str, Any]] = []
        replicas = sum(part.startswith(f"{service}-") for part in self.supervisor.parts)
        with suppress(nats.errors.Error):
            while len(found) < replicas and (reply := (await heard.next_msg(timeout=0.5)).data):
                found.append(json.loads(reply))
        await heard.unsubscribe()
        return found

    def said(self, name: str) -> str:
        """What a part wrote about itself."""
        path = self.supervisor.logs / f"{name}.log"
        return path.read_text() if path.exists() else ""

    async def stop(self) -> None:
        await self.close()
        await self.supervisor.stop()


@asynccontextmanager
async def patrolled_cell(home: Path, *, parts: list[Part] | None = None, policy: Policy = QUICK) -> AsyncIterator[Cell]:
    """The same, and somebody looks at its jobs' processes all the while."""
    async with patrolled(home) as patrol, cell_at(home, parts=parts, policy=policy) as cell:
        cell.patrol = patrol
        yield cell


@asynccontextmanager
async def cell_at(
    home: Path,
    *,
    replicas: int = 1,
    parts: list[Part] | None = None,
    policy: Policy = QUICK,
    accounts: tuple[str, ...] = (),
) -> AsyncIterator[Cell]:
    """A furnished cell, judged at the end; afterwards nothing of it is left, whatever happened.

    `accounts` are more of them than every desk has.
    """
    cell = Cell(home, [*service_parts(replicas), agent_part(SIMULATE)] if parts is None else parts, accounts)
    try:
        await cell.start()
        await cell.furnish(policy)
        yield cell
        await cell.judge()
        await cell.stop()
        codes = {name: part.returncode for name, part in cell.supervisor.processes.items()}
        assert not any(codes.values()), f"not all ended in order when asked to: {codes}"
    finally:
        await cell.stop()
        process.kill_all(home)


class Up(Desk):
    """A cell that `fairlease up` keeps: a process like any other, which may be killed."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        """The environment in which every command finds this cell."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEASE_")}
        paths = os.pathsep.join((str(ROOT), str(ROOT / "schemas"), str(ROOT / "services")))
        return {**kept, "PYTHONPATH": paths, "FAIRLEASE_HOME": str(self.home)}

    async def start(self, *more: str) -> None:
        """Starts `up`, with more options where given, and returns when it says that it is ready."""
        self.home.mkdir(exist_ok=True)
        out = self.home / "up.out"
        accounts = [word for account in ACCOUNTS for word in ("--account", account)]
        with out.open("wb") as said, (self.home / "up.err").open("ab") as errors:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - it outlives the loops of tests
                [sys.executable, "-m", "tests.live.witness", "up", "--simulate-gpus", SIMULATE, *accounts, *more],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
            )
        await eventually(lambda: b"ready in" in out.read_bytes() or self._has_left(), "`up` is ready")
        assert not self._has_left(), (self.home / "up.err").read_text()[-2_000:]
        await self.open()

    def _has_left(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def parts(self) -> list[int]:
        """The processes of the cell, `up` first; jobs and their shims are not among them."""
        assert self.process is not None
        up = self.process.pid
        return [up, *_children(up)]

    async def kill_everything(self) -> None:
        """SIGKILL to `up`, the bus, every service and the agent at once; jobs are let be."""
        pids = self.parts()
        assert len(pids) == 1 + 1 + len(SERVICES) + 1, pids
        process.kill(*pids)
        await self.wait_left()
        await eventually(lambda: not set(pids) & set(process.belonging(self.home)), "all that was killed is gone")

    async def wait_left(self) -> int:
        """The exit code of `up`, once it has left; the desk's connection is closed."""
        assert self.process is not None
        code = await asyncio.to_thread(self.process.wait, LIMIT_S)
        self.process = None
        await self.close()
        return code

    async def run(self, *words: str, **more: str) -> tuple[int, str, str]:
        """A command typed into a shell beside the cell: its exit code, its output, its errors."""
        child = await self.spawn(*words, **more)
        out, err = await asyncio.wait_for(child.communicate(), LIMIT_S)
        assert child.returncode is not None
        return child.returncode, out.decode(), err.decode()

    async def spawn(self, *words: str, **more: str) -> asyncio.subprocess.Process:
        return await self.beside(sys.executable, "-m", "fairlease", *words, **more)

    async def beside(self, *words: str, **more: str) -> asyncio.subprocess.Process:
        """Any program beside the cell, in the same environment."""
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *words, env={**self.env, **more}, stdin=-3, stdout=pipe, stderr=pipe
        )


Kept = TypeVar("Kept", bound=Up)


@asynccontextmanager
async def up_at(home: Path, kind: type[Kept] = Up) -> AsyncIterator[Kept]:
    """As `cell_at`, for a cell of this kind that `up` keeps. A test may leave it stopped: it is started again."""
    up = kind(home)
    try:
        await up.start()
        await up.furnish()
        yield up
        if up.process is None:
            await up.start()
        await up.judge()
    finally:
        await up.close()
        process.kill_all(home)
        if up.process is not None:
            with suppress(subprocess.TimeoutExpired):
                up.process.wait(LIMIT_S)


def _children(parent: int) -> list[int]:
    """Direct children by the kernel's account."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent and fields[0] not in "ZX":
                    found.append(int(entry.name))
    return found
