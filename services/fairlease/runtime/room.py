"""How much room the bus has on its disk, and whether there is enough for new work (log.md L3, A full disk).

A bus whose disk is full does not say so: the stream that it could not write answers nobody until it is started again
[measured with 2.15.1]. So new work is refused while there is room left for the reports and records of the work that
there is. The surprising choice: a part of the disk alone does not close, because a tenth of a large disk is more than
all that can still come; how much that is stands below.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Final

from fairlease.runtime.settings import Settings, url_in

log = logging.getLogger("fairlease.room")

ALARM_PERMILLE: Final = 800
CLOSED_PERMILLE: Final = 900
OPEN_PERMILLE: Final = 850
"""Below this it opens again: not at once, for what opens and closes by the minute serves nobody."""
PLENTY_MIB: Final = 20 * 1024
"""With so much left it stays open: code may take 16 GiB of the bus, an inbox and evidence 1 GiB each."""
LEAST_MIB: Final = 4
"""With less a bus cannot be started: it writes a little where its streams are."""
LOOK_S: Final = 0.5
_MIB: Final = 1024 * 1024


class Room:
    """What was seen of the store's file system at the last look; open where there is none to look at."""

    def __init__(self, store: Path | None) -> None:
        self.used_permille = 0
        self.free_mib = 0
        self.is_closed = False
        self._store = store
        self._is_alarmed = False
        self._is_unseen = False

    async def watch(self) -> None:
        """Looks for ever, twice a second, and says when something changed."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Looks now."""
        if self._store is None:
            return
        try:
            seen = os.statvfs(self._store)
        except OSError as error:
            if not self._is_unseen:
                log.warning("the bus's disk cannot be looked at: %s", error)
            self._is_unseen = True
            return
        self._is_unseen = False
        used, free = seen.f_blocks - seen.f_bfree, seen.f_bavail
        self.used_permille = used * 1_000 // max(1, used + free)
        self.free_mib = free * seen.f_frsize // _MIB
        self._judge()

    def _judge(self) -> None:
        is_tight = self.free_mib < PLENTY_MIB
        is_alarmed = is_tight and self.used_permille >= ALARM_PERMILLE
        limit = OPEN_PERMILLE if self.is_closed else CLOSED_PERMILLE
        is_closed = is_tight and self.used_permille >= limit
        if is_closed != self.is_closed:
            say, what = (log.error, "closed to new work") if is_closed else (log.warning, "open to new work again")
            say("admission is %s: %s", what, self.told())
        elif is_alarmed and not self._is_alarmed:
            closing = CLOSED_PERMILLE // 10
            log.error(
                "the bus's disk is filling up: %s; make room before admission closes at %d %%", self.told(), closing
            )
        self.is_closed, self._is_alarmed = is_closed, is_alarmed

    def told(self) -> str:
        """The last look in words."""
        return f"{self.used_permille // 10} % of the bus's disk is used, {self.free_mib} MiB are left"

    def can_start_bus(self) -> bool:
        """Whether a bus that is started now can write where its streams are."""
        return self._store is None or self.free_mib >= LEAST_MIB


def room_of(settings: Settings) -> Room:
    """The room of the embedded bus of this state directory; nothing to look at where the bus is another."""
    store = settings.state_dir / "jetstream"
    is_here = store.is_dir() and url_in(settings.state_dir) == settings.url
    return Room(store if is_here else None)
