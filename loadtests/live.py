"""A cell started as a person starts it, `fairlease up`, with a guest that follows its log and plays hosts."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from fairlease.core.world import World
from fairlease.runtime.connection import Connection
from fairlease.runtime.follower import Entry, Follower
from fairlease.runtime.settings import Settings, url_in
from fairlease_schemas.codec import read_record
from fairlease_schemas.envelope import Record
from fairlease_schemas.subjects import Subjects
from tests.live.witness import as_witness

ROOT = Path(__file__).resolve().parents[1]
ACCOUNT = "load"
READY_LIMIT_S = 60.0
SERVE = re.compile(r"\0serve\0([a-z]+)\0")


class Live:
    """One cell. `records` has (bus time in ms, record) of every position; `world` is their fold."""

    def __init__(self, home: Path, process: Process, up_s: float) -> None:
        self.home = home
        self.process = process
        self.up_s = up_s
        self.settings = Settings(state_dir=home, url=url_in(home), accounts=(ACCOUNT,))
        self.world = World()
        self.records: list[tuple[int, Record]] = []
        self.heard_s: list[float] = []
        self.news = asyncio.Event()
        self.client: Connection

    @property
    def subjects(self) -> Subjects:
        return self.settings.subjects

    async def fold(self, batch: list[Entry]) -> None:
        """Take a batch of the log."""
        now_s = time.monotonic()
        for position, time_ms, _, data in batch:
            record = read_record(data)
            self.world.apply(record, position)
            self.records.append((time_ms, record))
            self.heard_s.append(now_s)
        self.news.set()

    async def until(self, holds: Callable[[World], bool], what: str, limit_s: float = 30.0) -> None:
        """Return when the fold is so; ends the program when it is not in time."""
        try:
            async with asyncio.timeout(limit_s):
                while not holds(self.world):
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            sys.exit(f"the cell did not come to this within {limit_s:g} s: {what}")

    async def publish(self, subject: str, body: msgspec.Struct | dict[str, Any]) -> int:
        """Store a message on a subject; its place in the stream."""
        plain = msgspec.to_builtins(body)
        plain.pop("type", None)  # the subject says it
        reply = await self.client.request(subject, msgspec.json.encode(plain), timeout=5)
        ack = json.loads(reply.data)
        if "error" in ack:
            sys.exit(f"{subject}: {ack['error']}")
        return int(ack["seq"])

    async def command(self, verb: str, body: msgspec.Struct | dict[str, Any]) -> int:
        """Store a command of the account."""
        return await self.publish(self.subjects.command(ACCOUNT, verb), body)

    def pids(self) -> dict[str, int]:
        """Every process of the cell by name: `up`, `bus`, the services, the agent; no jobs."""
        found = {"up": self.process.pid}
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii")
        for pid in map(int, children.split()):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
                served = SERVE.search(words)
                if served is not None:
                    found[served[1]] = pid
                elif "nats-server" in words:
                    found["bus"] = pid
        return found

    def environment(self) -> dict[str, str]:
        """What a command of this cell's account is started with."""
        return _environment(self.home) | {"FAIRLEASE_ACCOUNT": ACCOUNT}


def _environment(home: Path) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEASE_")}
    return {**plain, "FAIRLEASE_HOME": str(home)}


@asynccontextmanager
async def cell(home: Path, *words: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Live]:
    """A cell in a new state directory, ready, with these variables beside its own; it ends with the `with`."""
    started_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.live.witness", "up", "--account", ACCOUNT, *words),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
        env=_environment(home) | dict(env or {}),
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), READY_LIMIT_S)
        if not line.startswith(b"ready"):
            sys.exit(f"`fairlease up` did not come up: see {home / 'logs'}")
        live = Live(home, process, time.monotonic() - started_s)
        live.client = await as_witness(home, "fairlease-load", READY_LIMIT_S)
        follower = Follower(live.client, live.subjects, live.fold)
        following = asyncio.create_task(follower.run())
        try:
            yield live
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await live.client.close()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


def processor_ns(pid: int) -> int:
    """What all threads of a process have run, by the scheduler's own account."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in tasks)


def contract(budget: str, command: list[str], **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a contract
    """A contract with honest defaults: one GPU, 15 protected minutes, an hour at most."""
    plain = {"budget": budget, "min_runtime": "15m", "timeout": "1h", "command": command, "checkpoint": {"grace": "1s"}}
    return {"apiVersion": "fairlease/v1", "kind": "Job", "spec": {**plain, **spec}}
