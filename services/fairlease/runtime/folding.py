"""The fold of the log in this process: the one writer of the world, its snapshots, its timers.

A record that cannot be read, or that says of itself what its subject denies, ends the process for good
(exit code 5): deciding on without it would be deciding on another log. The supervisor must not start
the service again, because the next start would read the same record.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

import nats.errors
from nats.aio.client import Client

from fairlease.core.world import World
from fairlease.runtime.errors import BusAway, LogDamaged, OutcomeUnknown
from fairlease.runtime.follower import Entry, Follower
from fairlease.runtime.service import Service
from fairlease.runtime.snapshot import Snapshot, SnapshotStore
from fairlease.runtime.timers import Timers
from fairlease_schemas.codec import Unreadable, read_record
from fairlease_schemas.envelope import Record
from fairlease_schemas.subjects import SCOPES, Subjects, token

log = logging.getLogger("fairlease.folding")

SNAPSHOT_EVERY: Final = 5_000
_RETRY_S: Final = 0.2
_LOST_S: Final = 1.0
_SERVICE_TOKEN: Final = 4


class Fold:
    """Starts at the newest snapshot that verifies. `news` is set after every fold and may be set by others."""

    def __init__(
        self, client: Client, subjects: Subjects, service: Service, store: SnapshotStore, timers: Timers
    ) -> None:
        self.news = asyncio.Event()
        self.world, position, head = _restored(store)
        self._service = service
        self._store = store
        self._timers = timers
        self._armed_ms: int | None = None
        self._due_changed = asyncio.Event()
        self._listener: Callable[[int, Record], None] | None = None
        self._stored = position
        self._storing: asyncio.Task[None] | None = None
        self.follower = Follower(client, subjects, self._fold, position=position, head=head)

    def listen(self, listener: Callable[[int, Record], None]) -> None:
        """Calls it with every record after it was folded."""
        self._listener = listener

    async def reached(self, position: int) -> None:
        """Returns once that position is folded and what follows a fold was done.

        The record is in the log, so when it does not come, the consumer lost it: a fresh one is made.
        """
        while True:
            before = self.follower.position
            try:
                async with asyncio.timeout(_LOST_S):
                    await self.follower.reached(position)
            except TimeoutError:
                if self.follower.position == before:
                    self.follower.renew()
            else:
                return

    async def arm_dues(self) -> None:
        """Keeps the timer of the next due armed, for ever: at the start and whenever it changes."""
        assert self._service.due_ms is not None
        while True:
            due_ms = self._service.due_ms(self.world)
            if due_ms is not None and due_ms != self._armed_ms:
                try:
                    await self._timers.arm(self._service.name, due_ms)
                    self._armed_ms = due_ms
                except BusAway as away:
                    log.info("%s", away)
                    await asyncio.sleep(_RETRY_S)
                continue
            self._due_changed.clear()
            await self._due_changed.wait()

    def rearm(self, fired_ms: Iterable[int]) -> None:
        """Timers with these bus times had no effect: one that came before its due is armed again."""
        times = list(fired_ms)
        if times and self._armed_ms is not None and min(times) < self._armed_ms <= self._timers.now_ms():
            self._armed_ms = None
            self._due_changed.set()

    async def store_last(self) -> None:
        """A snapshot of where the fold stands, for a clean stop.

        None when the stop came amid what follows a fold: a start from there would leave that out.
        """
        if self._storing is not None:
            await asyncio.gather(self._storing, return_exceptions=True)
        if self.follower.position > self._stored and self.world.position == self.follower.position:
            self._write(self._snapshot())

    async def _fold(self, entries: list[Entry]) -> None:
        records: list[tuple[int, Record]] = []
        for position, _time_ms, subject, data in entries:
            record = _readable(position, subject, data)
            self.world.apply(record, position)
            records.append((position, record))
            if self._service.on_record is not None:
                self._service.on_record(self.world, position, record)
            if self._listener is not None:
                self._listener(position, record)
        await self._follow_up(records)
        self._due_changed.set()
        self.news.set()
        if entries[-1][0] - self._stored >= SNAPSHOT_EVERY and (self._storing is None or self._storing.done()):
            # The follower's position moves when this returns; the snapshot is taken right after.
            asyncio.get_running_loop().call_soon(self._store_soon)

    async def _follow_up(self, records: list[tuple[int, Record]]) -> None:
        if self._service.after_fold is None:
            return
        while True:
            try:
                await self._service.after_fold(self.world, records)
            except (BusAway, OutcomeUnknown, nats.errors.Error, OSError) as error:
                log.warning("after fold: %s; again", error, extra={"position": records[-1][0]})
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def _store_soon(self) -> None:
        if self.world.position != self.follower.position:
            return
        snapshot = self._snapshot()
        self._stored = snapshot.position
        self._storing = asyncio.create_task(asyncio.to_thread(self._write, snapshot))

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            epoch=self.world.epoch,
            position=self.world.position,
            head=self.follower.head,
            state=self.world.dump(),
        )

    def _write(self, snapshot: Snapshot) -> None:
        try:
            self._store.store(snapshot)
        except OSError as error:
            log.warning("snapshot at %d not stored: %s; going on without", snapshot.position, error)


def _restored(store: SnapshotStore) -> tuple[World, int, bytes]:
    """The world of the newest good snapshot with its position and head; an empty one otherwise."""
    snapshot = store.load()
    if snapshot is None:
        return World(), 0, b""
    try:
        world = World.load(snapshot.state)
    except (ValueError, KeyError, RecursionError) as error:
        log.warning("snapshot at %d cannot be loaded: %s; folding from the start", snapshot.position, error)
        return World(), 0, b""
    return world, snapshot.position, snapshot.head


def _readable(position: int, subject: str, data: bytes) -> Record:
    """The record at this position; LogDamaged when it cannot be read or is not by whom its subject says."""
    try:
        record = read_record(data)
    except Unreadable as error:
        raise LogDamaged(
            f"record {position} on {subject} cannot be read: {error}; this service stops writing"
        ) from error
    if record.by not in SCOPES or token(subject, _SERVICE_TOKEN) != record.by:
        raise LogDamaged(f"record {position} says it is by {record.by[:80]!r} and stands on {subject}; restore the log")
    if record.basis >= position:
        raise LogDamaged(f"record {position} says it was decided at {record.basis}; restore the log")
    return record
