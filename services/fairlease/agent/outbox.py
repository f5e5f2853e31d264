"""Reports of one host on their way to the bus: in order, each repeated until it is acknowledged.

What may be lost says after how many refusals of a bus that is there it is: nothing behind it waits for ever.
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


class Disconnected(BusAway):
    """There is no bus to try it on: nothing was refused."""


class Outbox:
    """A queue with one sender. `put` never waits; `run` is the sender and never returns."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._waiting: deque[tuple[str, bytes, Callable[[], None], int]] = deque()
        self._news = asyncio.Event()

    def put(self, kind: str, body: bytes, on_acked: Callable[[], None], *, tries: int = 0) -> None:
        """Behind all that waits. With `tries` it is given up once a bus that was there did not take it so often."""
        self._waiting.append((kind, body, on_acked, tries))
        self._news.set()

    async def run(self) -> None:
        while True:
            while self._waiting:
                kind, body, on_acked, tries = self._waiting[0]
                is_there = await self._deliver(kind, body, tries)
                self._waiting.popleft()
                if is_there:
                    on_acked()
            self._news.clear()
            await self._news.wait()

    async def _deliver(self, kind: str, body: bytes, tries: int) -> bool:
        """Whether it is on the bus; False when it was given up."""
        pause_s = _PAUSE_S
        refused = 0
        while True:
            try:
                await self._publish(kind, body)
            except BusAway as error:
                log.debug("report %s waits: %s", kind, error)
                refused += not isinstance(error, Disconnected)
                if tries and refused >= tries:
                    log.warning("%s of %d bytes is given up: %s", kind, len(body), error)
                    return False
            else:
                return True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
