"""Reports of one host on their way to the bus: in order, each repeated until it is acknowledged.

Nothing is kept on disk here. What was reported and acknowledged is known by the run directories, and
a restarted agent fills its outbox from them; so a report is delivered once or more, never lost.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from fairlease.runtime.errors import BusAway

log = logging.getLogger("fairlease.agent")

Publish = Callable[[str, bytes], Awaitable[None]]
"""Stores a report of a kind; returns when the bus has acknowledged it, BusAway when that is not known."""

_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.25


class Outbox:
    """A queue with one sender. `put` never waits; `run` is the sender and never returns."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._waiting: deque[tuple[str, bytes, Callable[[], None]]] = deque()
        self._news = asyncio.Event()

    def put(self, kind: str, body: bytes, on_acked: Callable[[], None]) -> None:
        self._waiting.append((kind, body, on_acked))
        self._news.set()

    async def run(self) -> None:
        while True:
            while self._waiting:
                kind, body, on_acked = self._waiting[0]
                await self._deliver(kind, body)
                self._waiting.popleft()
                on_acked()
            self._news.clear()
            await self._news.wait()

    async def _deliver(self, kind: str, body: bytes) -> None:
        pause_s = _PAUSE_S
        while True:
            try:
                await self._publish(kind, body)
            except BusAway as error:
                log.debug("report %s waits: %s", kind, error)
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
