"""The process's clock, and whether it may be believed (log.md L3, Log time).

Decisions never read it. It says only how old the log time is, and that a process whose clock is more
than 5 s from the bus's has to stop writing. The bus says its time in every answer about a stream; it
lies between the sending and the receipt, however long the process was stopped in between, so the
check is sound without a guess about the way. Between two samples the wall clock is compared with the
monotonic one, so that a jump is noticed at once and not at the next sample.
"""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

LIMIT_MS: Final = 5_000


class BusClock:
    """Wall time of this machine, judged by the bus's. Untrusted until the first sample."""

    def __init__(
        self,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        steady_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._wall_ms = wall_ms
        self._steady_ms = steady_ms
        self._agrees = False
        self._base_ms = 0
        self._ahead_ms = 0

    def now_ms(self) -> int:
        """Wall time in ms since 1970; a claim of this machine, never part of a record."""
        return self._wall_ms()

    def bus_now_ms(self) -> int:
        """What the bus's clock says now, as far as the last sample tells; may be off by its round trip."""
        return self._wall_ms() - self._ahead_ms

    @property
    def ahead_ms(self) -> int:
        """How far the last sample found this machine's clock ahead of the bus's; within half a round trip."""
        return self._ahead_ms

    def observe(self, sent_ms: int, bus_ms: int, received_ms: int) -> None:
        """One sample: the bus said `bus_ms` between these two readings of `now_ms`."""
        self._agrees = sent_ms - LIMIT_MS <= bus_ms <= received_ms + LIMIT_MS
        self._base_ms = self._wall_ms() - self._steady_ms()
        self._ahead_ms = (sent_ms + received_ms) // 2 - bus_ms

    def is_trusted(self) -> bool:
        """Whether the last sample agreed with the bus, and the clock did not jump since."""
        drift_ms = self._wall_ms() - self._steady_ms() - self._base_ms
        return self._agrees and abs(drift_ms) <= LIMIT_MS


def parse_bus_time_ms(text: str) -> int:
    """Milliseconds since 1970 of the bus's RFC 3339 time with nanoseconds; ValueError otherwise."""
    return int(datetime.fromisoformat(text).timestamp() * 1_000)
