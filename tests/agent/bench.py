"""A bench: one simulated host with a bus that the test can cut, and jobs that are real processes."""

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fairlease.agent import cgroup, contracts, failure, layout
from fairlease.agent.bundles import Bundles
from fairlease.agent.devices import SimulatedDevices
from fairlease.agent.git import Git
from fairlease.agent.host import Host
from fairlease.agent.identity import Users
from fairlease.agent.outbox import Disconnected, Outbox
from fairlease.agent.process import Process, is_alive
from fairlease.agent.record import RunDirectory
from fairlease.agent.source import BUNDLES, Sources
from fairlease.runtime.errors import BusAway
from fairlease_schemas.bundle import MANIFEST_PIECE, PIECE_BYTES, BundleManifest
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.orders import HostOrder, RunOrder
from fairlease_schemas.reports import KINDS, CheckpointDone, HostUp, RunGone, RunReady, RunStarted

PATIENCE_S = 15.0
_T = TypeVar("_T")


async def until(condition: Callable[[], _T], what: str = "") -> _T:
    """The first true answer of the condition; fails when there is none for a long time."""
    loop = asyncio.get_running_loop()
    limit_s = loop.time() + PATIENCE_S
    while not (found := condition()):
        assert loop.time() < limit_s, f"it never came true: {what or condition}"
        await asyncio.sleep(0.005)
    return found


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def stored(body: dict[str, Any]) -> tuple[str, bytes]:
    """A contract body as admission stores it: digest and canonical bytes."""
    data = msgspec.json.encode(body, order="sorted")
    return hashlib.sha256(data).hexdigest(), data


def contract(
    command: Sequence[str],
    env: dict[str, str] | None = None,
    checkpoint: dict[str, Any] | None = None,
    state: dict[str, Any] | None = None,
    source: dict[str, str] | None = None,
    *,
    terminal: bool = False,
) -> tuple[str, bytes]:
    spec: dict[str, Any] = {"budget": "b", "command": list(command), "env": env or {}, "hosts": 1, "timeout_ms": 1000}
    spec["checkpoint"] = {"grace_ms": 30_000, **(checkpoint or {})}
    if state is not None:
        spec["state"] = state
    if source is not None:
        spec["source"] = source
    if terminal:
        spec["terminal"] = True
    return stored({"apiVersion": "fairlease/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec})


class Bench:
    """Host 1 of a cluster with eight GPUs; `home` is its state, `reports` what the bus acknowledged."""

    def __init__(
        self,
        state: Path,
        *,
        log_bytes: int = 1 << 20,
        kept: int = 500,
        users: Users | None = None,
        registered_s: float = 0.2,
    ) -> None:
        self.devices = SimulatedDevices(1, 8)
        self.home = state / "agent" / self.devices.host
        self.reports: list[HostUp | RunReady | RunStarted | RunGone | CheckpointDone] = []
        self.bodies: dict[str, bytes] = {}
        self.pieces: dict[tuple[str, str, int], bytes] = {}
        self.asked: list[tuple[str, str, int]] = []
        self.cache_bytes = 1 << 30
        self.git = "git"
        self.git_s = 30.0
        self.git_bytes = 1 << 30
        self.evidence: dict[str, bytes] = {}
        self.refuses_evidence = False
        self.is_bus_there = True
        self.has_lease = True
        self.lease_ms = 60_000
        self.patience_s = 10.0
        self._options: dict[str, Any] = {
            "log_bytes": log_bytes,
            "kept": kept,
            "users": users,
            "registered_s": registered_s,
        }
        self._position = 0
        self._sender: asyncio.Task[None] | None = None
        self.host: Host = self._made()

    def _made(self) -> Host:
        bundles = Bundles(self.home / BUNDLES, self._piece, patience_s=self.patience_s, cache_bytes=self.cache_bytes)
        git = Git(("file",), timeout_s=self.git_s, program=self.git, most_bytes=self.git_bytes)
        sources = Sources(self.home, bundles, git)
        return Host(self.devices, self.home, self._fetch, Outbox(self._publish), sources, **self._options)

    async def _fetch(self, digest: str) -> contracts.Command:
        return await contracts.fetch(self._last, digest, self.patience_s)

    async def _last(self, digest: str) -> bytes | None:
        if not self.is_bus_there:
            raise BusAway("cut")
        return self.bodies.get(digest)

    async def _piece(self, account: str, digest: str, number: int) -> bytes | None:
        if not self.is_bus_there:
            raise BusAway("cut")
        self.asked.append((account, digest, number))
        return self.pieces.get((account, digest, number))

    def upload(self, account: str, data: bytes) -> str:
        """Keeps a bundle as the command line leaves it on the bus; its name in a contract."""
        digest = hashlib.sha256(data).hexdigest()
        parts = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
        for number, part in enumerate(parts, start=1):
            self.pieces[account, digest, number] = part
        manifest = msgspec.json.encode(BundleManifest(size=len(data), pieces=len(parts)))
        self.pieces[account, digest, MANIFEST_PIECE] = manifest
        return f"sha256:{digest}"

    async def _publish(self, kind: str, body: bytes) -> None:
        if not self.is_bus_there:
            raise Disconnected("cut")
        if kind == failure.KIND:
            if self.refuses_evidence:
                raise BusAway("refused")
            self.evidence[hashlib.sha256(body).hexdigest()] = body
            return
        self.reports.append(msgspec.json.decode(body, type=KINDS[kind]))

    # the agent -----------------------------------------------------------------------------------
    def open(self) -> "Bench":
        self.host.open()
        if self.has_lease:
            self.renew()
        self._sender = asyncio.get_running_loop().create_task(self.host.outbox.run())
        return self

    def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            self._sender = None
            self.host.close()

    def renew(self) -> None:
        """As if a renewal had been acknowledged just now."""
        self.host.lease.renewed(layout.boot_ms(), self.lease_ms)

    def restart(self) -> None:
        """Another agent on the same disk: nothing of the old one's memory is left."""
        self.close()
        self.host = self._made()
        self.open()

    # orders --------------------------------------------------------------------------------------
    def part(
        self,
        name: str,
        command: Sequence[str] = ("true",),
        *,
        gpus: Sequence[int] = (0,),
        env: dict[str, str] | None = None,
        stop: str = "",
        grace_ms: int = 0,
        margin_ms: int = 200,
        checkpoint: dict[str, Any] | None = None,
        state: dict[str, Any] | None = None,
        source: dict[str, str] | None = None,
        account: str = "ada",
        terminal: bool = False,
    ) -> RunOrder:
        digest, body = contract(command, env, checkpoint, state, source, terminal=terminal)
        self.bodies[digest] = body
        return RunOrder(
            attempt=attempt_id(f"job-{name}", 1),
            job=f"job-{name}",
            token="1-7-0",
            digest=digest,
            gpus=tuple(self.devices.inventory().gpus[k] for k in gpus),
            hosts=(self.devices.host, "host-002"),
            rank=0,
            stop=stop,
            grace_ms=grace_ms,
            margin_ms=margin_ms,
            account=account,
        )

    def order(self, *runs: RunOrder, position: int | None = None) -> None:
        """Hands over an order; each one without a position is newer than the last."""
        self._position = self._position + 1 if position is None else position
        name, lease_ms = self.devices.host, self.lease_ms
        self.host.obey(HostOrder(epoch=1, position=self._position, host=name, runs=runs, lease_ms=lease_ms))

    def stop(self, part: RunOrder, grace_ms: int = 0, reason: str = "asked") -> RunOrder:
        return msgspec.structs.replace(part, stop=reason, grace_ms=grace_ms)

    # what came of it -----------------------------------------------------------------------------
    def directory(self, part: RunOrder) -> RunDirectory:
        return RunDirectory(self.home / "runs" / part.attempt)

    def log(self, part: RunOrder) -> str:
        path = self.directory(part).path / layout.LOG
        return path.read_text() if path.exists() else ""

    async def started(self, part: RunOrder) -> None:
        await until(lambda: self.of(part, RunStarted), f"{part.attempt} starts")

    async def gone(self, part: RunOrder) -> RunGone:
        found = await until(lambda: self.of(part, RunGone), f"{part.attempt} is gone")
        assert isinstance(found[0], RunGone)
        return found[0]

    async def printed(self, part: RunOrder, text: str) -> str:
        await until(lambda: text in self.log(part), f"{part.attempt} prints {text!r}")
        return self.log(part)

    def of(self, part: RunOrder, kind: type) -> list[Any]:
        return [
            report
            for report in self.reports
            if isinstance(report, kind) and getattr(report, "attempt", "") == part.attempt
        ]


def keeper_of(directory: RunDirectory) -> Process:
    claim = directory.claim()
    assert claim is not None
    return claim


def marked(state: Path) -> list[int]:
    """Living processes that belong to runs under this state directory: jobs by environment, shims by argument."""
    found = []
    for pid in layout.pids():
        stat = layout.read_stat(pid)
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/environ").read_bytes() + b"\0" + Path(f"/proc/{pid}/cmdline").read_bytes()
            if stat and stat[0] not in "ZX" and pid != os.getpid() and str(state).encode() in words:
                found.append(pid)
    return found


def kill_all(state: Path) -> None:
    """Ends and reaps whatever runs under this state directory."""
    shims = [json.loads(path.read_bytes())["pid"] for path in state.rglob(layout.CLAIM)]
    while left := marked(state):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    for pid in shims:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    for path in state.rglob(layout.LEADER):
        cgroup.remove(RunDirectory(path.parent).group())


def alive(pid: int) -> bool:
    stat = layout.read_stat(pid)
    return stat is not None and is_alive(Process(pid, stat[3]))
