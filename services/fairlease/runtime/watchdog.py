"""Ends a process whose event loop no longer turns (bus.md 0.5): seen from a thread, outside the loop.

Time is not measured but counted: the thread looks once a second and counts the looks in a row at
which the loop had not turned since the last. A process that was stopped and continued has missed
one look, not the whole pause, so a SIGSTOP never looks like a starved loop.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from fairlease.runtime.errors import EXIT_STARVED

log = logging.getLogger("fairlease.watchdog")

LOOKS: Final = 20
EVERY_S: Final = 1.0


def _leave() -> None:
    os._exit(EXIT_STARVED)


class Watchdog:
    """Started from the loop it watches; leaves the process after `looks` looks without a turn."""

    def __init__(
        self, *, looks: int = LOOKS, every_s: float = EVERY_S, on_starved: Callable[[], None] = _leave
    ) -> None:
        self._looks = looks
        self._every_s = every_s
        self._on_starved = on_starved
        self._turns = 0
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        assert self._loop is not None
        self._turns += 1
        self._timer = self._loop.call_later(self._every_s / 2, self._turn)

    def _watch(self) -> None:
        seen, missed = self._turns, 0
        while not self._stopped.wait(self._every_s):
            if self._turns == seen:
                missed += 1
            else:
                seen, missed = self._turns, 0
            if missed >= self._looks:
                log.error("watchdog: the event loop did not turn for %d looks, leaving", missed)
                self._on_starved()
                return
