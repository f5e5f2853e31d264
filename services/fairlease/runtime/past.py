"""The world as it was: the log folded again up to a position, for questions about the past.

A snapshot of a service is no help here, because it stands where it was taken. The last answer is
kept, so that several questions about one position fold once; one fold runs at a time.
"""

import asyncio

from nats.aio.client import Client

from fairlease.core.world import World
from fairlease.runtime.follower import Entry, Follower
from fairlease.runtime.tasks import end
from fairlease_schemas.codec import read_record
from fairlease_schemas.subjects import Subjects


class Past:
    """Folds of one cell at earlier positions."""

    def __init__(self, client: Client, subjects: Subjects) -> None:
        self._client = client
        self._subjects = subjects
        self._lock = asyncio.Lock()
        self._world = World()

    async def at(self, position: int) -> World:
        """The world right behind that position, which the log has reached already."""
        async with self._lock:
            if self._world.position > position:
                self._world = World()
            world = self._world
            if world.position < position:
                await self._fold(world, position)
            return world

    async def _fold(self, world: World, position: int) -> None:
        async def apply(entries: list[Entry]) -> None:
            for at, _time_ms, _subject, data in entries:
                if at <= position:
                    world.apply(read_record(data), at)

        follower = Follower(self._client, self._subjects, apply, position=world.position)
        following = asyncio.create_task(follower.run())
        reached = asyncio.create_task(follower.reached(position))
        try:
            await asyncio.wait((following, reached), return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
        finally:
            await end((following, reached))
