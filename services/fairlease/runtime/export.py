"""The live log copied to disk, a record a line, for whoever wants to read all of it in peace.

Replay and the figures read a file: so the cell waits for nobody, memory does not grow with the log, and what was
read can be kept and read again. A line has no room for when the bus stored it, which the caller may want beside.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import IO, Final

from fairlease.runtime import keys
from fairlease.runtime.connection import connect
from fairlease.runtime.errors import BusAway
from fairlease.runtime.follower import Entry, Follower
from fairlease.runtime.log import LogClient
from fairlease.runtime.settings import Settings, read_settings
from fairlease.runtime.tasks import end

SILENCE_S: Final = 10.0
"""How long a bus may hand out nothing, before it is not waited for."""

OnStored = Callable[[int, int], None]
"""Told of every record: its position, and when the bus stored it in ms."""


async def export(
    log: IO[bytes], name: str, on_stored: OnStored | None = None, settings: Settings | None = None
) -> None:
    """Write the live log, as far as it went when this was called; `name` is who asks, by an auditor's key.

    `settings` say whose log, else the environment does.

    NoKey where that key is missing or the bus does not know it. BusAway when no bus answers or it does not hand
    out the records; LogDamaged when some are missing.
    """
    logging.getLogger("fairlease").addHandler(logging.NullHandler())
    settings = settings or read_settings()
    key = keys.find(settings, keys.AUDIT)
    if key is not None and not keys.is_auditor(key.identity):
        # The bus would refuse it and say nothing more.
        raise keys.NoKey(f"the whole log is read with an auditor's key, and FAIRLEASE_CREDS is {key.identity}'s")
    client = await connect(settings, name, key=key, exit_on_close=False)

    async def write(batch: list[Entry]) -> None:
        mine = [entry for entry in batch if entry[0] <= tail]
        log.writelines(data + b"\n" for _, _, _, data in mine)
        for position, time_ms, _, _ in mine if on_stored is not None else ():
            assert on_stored is not None
            on_stored(position, time_ms)

    try:
        tail = await LogClient(client, settings.subjects).tail()
        follower = Follower(client, settings.subjects, write)
        client.guard.on_reconnect(follower.renew)
        following = asyncio.create_task(follower.run())
        reached = asyncio.create_task(follower.reached(tail))
        try:
            await patiently(follower, following, reached)
        finally:
            await end((following, reached))
    finally:
        await client.close()
    log.flush()


async def patiently(follower: Follower, following: asyncio.Task[None], reached: asyncio.Task[None]) -> None:
    """Until the tail is reached; BusAway when nothing comes for a while, what ended the follower when it ended."""
    while not reached.done():
        position = follower.position
        await asyncio.wait((following, reached), timeout=SILENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            await following
        if follower.position == position and not reached.done():
            raise BusAway(f"the bus hands out nothing after record {position}")
