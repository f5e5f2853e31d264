"""Looks at the processes of a cell's jobs while it works: which attempts live on which GPUs, by the kernel's word.

A second opinion beside the agents' records, which say when a run began and ended: a process that left its
session, its parent and its run behind still carries its attempt and its GPUs in its environment.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from fairlease.agent.layout import read_stat
from tests.live.process import pids, read

_EVERY_S = 0.05
_LOOKS = 40
"""How often a process is asked whether it is a job before it is taken for none: a child becomes one when it execs."""
_MARKS = (b"FAIRLEASE_ATTEMPT=", b"FAIRLEASE_HOST=", b"CUDA_VISIBLE_DEVICES=")


class Seen(NamedTuple):
    """A living process of a job."""

    pid: int
    start: int
    attempt: str
    host: str
    gpus: tuple[str, ...]

    @property
    def is_alive(self) -> bool:
        """Whether it still lives, by number and start; a zombie does not."""
        stat = read_stat(self.pid)
        return stat is not None and stat[3] == self.start and stat[0] not in "ZX"


class Patrol:
    """`findings` says which GPUs two attempts had at once; `last_ms` when each (attempt, host) was last seen alive."""

    def __init__(self, home: Path) -> None:
        self.findings: list[str] = []
        self.last_ms: dict[tuple[str, str], int] = {}
        self._mark = str(home).encode()
        self._known: dict[tuple[int, int], Seen] = {}
        self._others: dict[tuple[int, int], int] = {}

    def look(self) -> None:
        """One round through all processes of the machine."""
        holders: dict[str, Seen] = {}
        known: dict[tuple[int, int], Seen] = {}
        others: dict[tuple[int, int], int] = {}
        for pid in pids():
            stat, now_ms = read_stat(pid), time.time_ns() // 1_000_000
            if stat is None or stat[0] in "ZX":
                continue
            key = (pid, stat[3])
            seen, looks = self._known.get(key), self._others.get(key, 0)
            if seen is None and looks < _LOOKS:
                seen = self._identify(pid, stat[3])
            if seen is None:
                others[key] = looks + 1
                continue
            known[key] = seen
            self.last_ms[seen.attempt, seen.host] = now_ms
            for gpu in seen.gpus:
                self._compare(gpu, holders.setdefault(gpu, seen), seen)
        self._known, self._others = known, others

    def _compare(self, gpu: str, first: Seen, second: Seen) -> None:
        """Two attempts on one GPU are at once only if the one that was seen first is still there."""
        if first.attempt != second.attempt and first.is_alive and second.is_alive:
            self.findings.append(f"{gpu} has {first} and {second} at once")

    def _identify(self, pid: int, start: int) -> Seen | None:
        """Who it is; None for whoever is no job of this cell."""
        environ = read(pid, "environ")
        if self._mark not in environ:
            return None
        found = {word.partition(b"=")[0] + b"=": word.partition(b"=")[2].decode() for word in environ.split(b"\0")}
        attempt, host, gpus = (found.get(mark, "") for mark in _MARKS)
        return Seen(pid, start, attempt, host, tuple(gpus.split(","))) if attempt else None


@asynccontextmanager
async def patrolled(home: Path) -> AsyncIterator[Patrol]:
    """A patrol that looks many times a second, until the end of the `with`."""
    patrol = Patrol(home)

    async def walk() -> None:
        while True:
            patrol.look()
            await asyncio.sleep(_EVERY_S)

    walking = asyncio.create_task(walk())
    try:
        yield patrol
    finally:
        walking.cancel()
        await asyncio.gather(walking, return_exceptions=True)
