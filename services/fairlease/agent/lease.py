"""A host's lease: until when it may run anything, and how the agent keeps it (decisions.md 7.6).

The agent renews by a message that the bus stores; the lease then holds until the instant at which the
*acknowledged* renewal was sent, plus the lease, on the clock that counts since boot: an acknowledgement that
came late, or a machine that slept, adds nothing. The end stands in a file in the host's home, and every
keeper reads it there for itself (keeper.py), so that runs end in time also when no agent lives.

Surprising: an end once passed opens a new term when a renewal comes through, and a term begins with nothing
to do. What was ordered before may long be another host's; the order is read again first.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from fairlease.agent import layout
from fairlease.runtime.errors import BusAway
from fairlease_schemas.codec import canonical

log = logging.getLogger("fairlease.agent")

Publish = Callable[[bytes, float], Awaitable[None]]
"""Stores a renewal; returns when the bus has acknowledged it, BusAway when it did not within so many seconds."""

FIRST_MS: Final = 60_000
"""The length before any order said one; nothing runs before an order."""
RENEWALS: Final = 4
"""Renewals in one lease, so that a few may be lost."""
_LEAST_S: Final = 0.05
_LONGEST_TRY_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 1.0


class Lease:
    """One host's. `home` is the host's directory, `boot` the kernel's boot id. All instants are `layout.boot_ms`."""

    def __init__(self, home: Path, boot: str) -> None:
        self.length_ms = FIRST_MS
        self.term = 0
        """Counts the terms: each begins when a lease that had run out, or never was, is renewed."""
        self.changed = asyncio.Event()
        """Set when the length changed, so that whoever renews need not sleep by the old one."""
        self._path = str(home / layout.LEASE)
        self._boot = boot
        self._until_ms = 0
        self._sent_ms = 0

    @property
    def is_valid(self) -> bool:
        return layout.boot_ms() < self._until_ms

    def open(self) -> None:
        """Takes over what an earlier agent of this boot was granted."""
        found = layout.read_lease(self._path, self._boot)
        if found is not None and found[1]:
            self._until_ms, self.length_ms = found
            self._sent_ms = self._until_ms - self.length_ms
            self.term += self.is_valid

    def set_length(self, length_ms: int) -> None:
        """Leases of another length: a shorter one from the last renewal on, a longer one from the next.

        So no lease ends later than its renewal said it would.
        """
        if length_ms == self.length_ms:
            return
        self.length_ms = length_ms
        self.changed.set()
        if self._until_ms:
            self._write(min(self._until_ms, self._sent_ms + length_ms))

    def renewed(self, sent_ms: int, length_ms: int) -> bool:
        """The renewal sent at that instant, for a lease of that length, was acknowledged; True when a term begins."""
        was_valid = self.is_valid
        self._sent_ms = sent_ms
        self._write(sent_ms + min(length_ms, self.length_ms))
        if was_valid or not self.is_valid:
            return False
        self.term += 1
        return True

    def _write(self, until_ms: int) -> None:
        """What keepers cannot read does not hold."""
        try:
            layout.write_lease(self._path, self._boot, until_ms, self.length_ms)
        except OSError as error:
            log.warning("%s: the lease cannot be noted, and is not renewed: %s", self._path, error)
        else:
            self._until_ms = until_ms


async def keep(lease: Lease, publish: Publish, incarnation: str, on_term: Callable[[], None]) -> None:
    """Renews for ever, four times in a lease and more often while nobody answers. `on_term`: a new term began."""
    counter = 0
    while True:
        counter += 1
        lease.changed.clear()
        length_ms, sent_ms = lease.length_ms, layout.boot_ms()
        length_s = max(length_ms, 0) / 1_000
        body = canonical({"counter": counter, "incarnation": incarnation, "lease_ms": length_ms})
        longest_s = _LONGEST_TRY_S if lease.is_valid else _LONGEST_PAUSE_S
        try:
            await publish(body, max(min(length_s / RENEWALS, longest_s), _LEAST_S))
        except BusAway as error:
            log.debug("a renewal waits: %s", error)
            pause_s = min(length_s / RENEWALS / 2, _LONGEST_PAUSE_S)
        else:
            if lease.renewed(sent_ms, length_ms):
                on_term()
            pause_s = length_s / RENEWALS - (layout.boot_ms() - sent_ms) / 1_000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(pause_s, _LEAST_S)):
                await lease.changed.wait()
