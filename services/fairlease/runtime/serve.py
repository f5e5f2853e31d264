"""One service's process, from its settings to its exit code (log.md L3).

Start: connect, assert the streams that it uses, take the clock's first sample, fold from the newest snapshot to
the end of the log, then read inputs from the fold's cursors and decide. Stop on SIGTERM within a
second. Whatever cannot be mended here ends the process with a code of its own (`errors`); what a
supervisor should do about it is written there.
"""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, TypeVar

import nats.errors
from nats.aio.client import Client
from prometheus_client import Metric

from fairlease.core.world import World
from fairlease.runtime import api, streams, telemetry
from fairlease.runtime.bus import Bus, Message
from fairlease.runtime.clock import BusClock
from fairlease.runtime.deciding import Deciding
from fairlease.runtime.deciding_spans import DecidingSpans
from fairlease.runtime.edge import read_timer
from fairlease.runtime.errors import EXIT_INVARIANT, BusAway, InvariantBroken, LogDamaged, OutcomeUnknown, ShellError
from fairlease.runtime.folding import Fold
from fairlease.runtime.inbox import Pending
from fairlease.runtime.log import LogClient
from fairlease.runtime.metrics import Sample, counter, gauge, process_figures
from fairlease.runtime.probe import Probe
from fairlease.runtime.service import Define, Service
from fairlease.runtime.settings import Settings
from fairlease.runtime.snapshot import SnapshotStore, fold_version
from fairlease.runtime.spans import spans_of
from fairlease.runtime.tasks import Tasks
from fairlease.runtime.timers import Timers
from fairlease.runtime.version import version
from fairlease_schemas import explain
from fairlease_schemas.codec import canonical
from fairlease_schemas.commands import OWNERS
from fairlease_schemas.envelope import Answer
from fairlease_schemas.subjects import Subjects

log = logging.getLogger("fairlease.serve")

UPKEEP_S: Final = 2.0
_RETRY_S: Final = 0.2
_READ_AT_ONCE: Final = 32
_QUEUED: Final = 1_024

T = TypeVar("T")


class Process:
    """One running service; it is the `Shell` its definition is made with."""

    def __init__(self, settings: Settings, define: Define) -> None:
        self.settings = settings
        self.clock = BusClock()
        self.is_ready = False
        self.ready = asyncio.Event()
        self.spans = spans_of(settings, settings.service)
        self._probe = Probe(self._figures, self._trouble)
        self._tail = 0
        self._bus = Bus(settings)
        self._define = define
        self._service: Service | None = None
        self._fold: Fold | None = None
        self._deciding: Deciding | None = None
        self._closed: Callable[[], str] | None = None
        self._version = fold_version()
        self._tasks = Tasks()
        self._stopping = asyncio.Event()
        self._pending = Pending(settings.subjects.timers_prefix)
        self._reading: set[str] = set()

    @property
    def subjects(self) -> Subjects:
        return self.settings.subjects

    @property
    def client(self) -> Client:
        return self._bus.client

    @property
    def world(self) -> World:
        return self.fold.world

    @property
    def fold(self) -> Fold:
        assert self._fold is not None, "the fold begins with `run`"
        return self._fold

    def stop(self) -> None:
        """Asks for a clean stop; safe in a signal handler of the loop."""
        self._stopping.set()

    async def run(self) -> None:
        """Serves until `stop`. Raises the ShellError that ended it."""
        self._tasks.start(self._serve())
        try:
            await self._tasks.watch(self._stopping)
            log.info("stopping", extra={"position": self._fold.follower.position if self._fold else 0})
        finally:
            await self._tasks.end()
            await self._probe.stop()
            if self._fold is not None and self.is_ready:
                await self._fold.store_last()
            await self._bus.stop()
            self.spans.close()

    async def _serve(self) -> None:
        """The start, in its order; what runs for ever is left running."""
        if self.settings.metrics_port is not None:
            await self._probe.start(self.settings.metrics_port)
        await self._bus.start()
        service = self._service = self._define(self)
        self._closed = service.closed
        uses = partial(service.uses, self.subjects)
        await _persist(lambda: streams.assert_config(self.client, self.subjects, uses))
        writer = LogClient(self.client, self.subjects, self.clock)
        timers = Timers(self.client, self.subjects, self.clock)
        store = SnapshotStore(self.settings.own_dir, self._version)
        fold = self._fold = Fold(self.client, self.subjects, service, store, timers)
        for renew in (writer.renew, fold.follower.renew):
            self._bus.guard.on_reconnect(renew)
        await self._bus.questions(service.name, {**service.questions, "health": self._health})
        if service.decide is not None:
            self._deciding = Deciding(
                service,
                fold,
                self._pending,
                writer,
                timers,
                reports_stream=self.subjects.reports_stream,
                spans=DecidingSpans(self.spans, service.name),
            )
            fold.listen(self._deciding.folded)
        if service.prepare is not None:
            await _persist(service.prepare)
        tail = self._tail = await _persist(writer.tail)
        gc.disable()  # the fold makes no cycles, and collecting while it grows doubles the time
        self._tasks.start(fold.follower.run())
        try:
            await fold.reached(tail)
        finally:
            gc.enable()
        gc.collect()
        gc.freeze()
        await _persist(lambda: self._open_inputs(service))
        self.is_ready = True
        self.ready.set()
        log.info("ready", extra={"position": fold.follower.position})
        self._tasks.start(self._upkeep(service, writer))
        for task in service.tasks:
            self._tasks.start(_for_ever(task))
        if service.due_ms is not None:
            self._tasks.start(fold.arm_dues())
        if self._deciding is not None:
            self._tasks.start(self._deciding.run())

    async def _open_inputs(self, service: Service) -> None:
        """Begins to read every stream with messages for this service that is not read yet."""
        name, subjects = service.name, self.subjects
        if service.read is not None and service.verbs:
            for stream in await streams.inboxes(self.client, subjects):
                account = subjects.account_of_inbox(stream)
                named = [subjects.command(account, verb, "*") for verb in service.verbs if verb in OWNERS["health"]]
                plain = [subjects.command(account, verb) for verb in service.verbs]
                await self._open(service, stream, [*plain, *named])
        if service.read is not None and service.kinds:
            filters = [subjects.report("*", kind) for kind in service.kinds]
            await self._open(service, subjects.reports_stream, filters)
        if service.has_timers:
            await self._open(service, subjects.timers_stream(name), [streams.timer_subjects(subjects, name)])

    async def _open(self, service: Service, stream: str, filters: list[str]) -> None:
        if stream in self._reading:
            return
        cursor = self.world.cursor(service.name, stream)
        last = int((await api.request(self.client, f"STREAM.INFO.{stream}"))["state"]["last_seq"])
        if last < cursor:
            raise LogDamaged(
                f"{stream} ends at {last}, and {service.name} answered {cursor}: it lost messages; restore it"
            )
        self._reading.add(stream)
        arrived: asyncio.Queue[Message] = asyncio.Queue(_QUEUED)

        async def put(messages: list[Message]) -> None:
            for message in messages:
                await arrived.put(message)

        self._tasks.start(self._read(service, stream, arrived))
        await self._bus.inputs(stream, filters, cursor, put)

    async def _read(self, service: Service, stream: str, arrived: asyncio.Queue[Message]) -> None:
        """Makes answers of one stream's messages, several at once, and keeps their order.

        Nothing is lost when it stops midway: the cursor is in the log, and the next start reads again.
        """
        while True:
            messages = [await arrived.get()]
            while len(messages) < _READ_AT_ONCE and not arrived.empty():
                messages.append(arrived.get_nowait())
            for answer in await asyncio.gather(*(self._answer(service, message) for message in messages)):
                if answer is not None:
                    self._pending.add(answer)
            self.fold.news.set()
            await self._pending.room(stream).wait()

    async def _answer(self, service: Service, message: Message) -> Answer | None:
        read = service.read
        if message.stream == self.subjects.timers_stream(service.name):
            fired = read_timer(service.name, message)
            if fired is None or service.read_timer is None:
                return fired
            read = service.read_timer
        assert read is not None
        while True:
            try:
                return await read(message)
            except (BusAway, OutcomeUnknown, nats.errors.Error, OSError) as error:
                log.warning("reading %s %d: %s; again", message.stream, message.seq, error)
                await asyncio.sleep(_RETRY_S)

    async def _upkeep(self, service: Service, writer: LogClient) -> None:
        """Every two seconds: the clock against the bus's, new inboxes, a fold that hangs; and a wake-up call."""
        seen_tail, was_trusted = 0, True
        while True:
            await asyncio.sleep(UPKEEP_S)
            position = self.fold.follower.position
            try:
                tail = await writer.tail()
                await self._open_inputs(service)
            except BusAway as away:
                log.info("%s", away)
                continue
            if position < seen_tail and position == self.fold.follower.position:
                self.fold.follower.renew()
            seen_tail = self._tail = tail
            if self.clock.is_trusted() != was_trusted:
                was_trusted = not was_trusted
                say = log.info if was_trusted else log.error
                say("clock: %s", "agrees with the bus again" if was_trusted else _CLOCK_OFF)
            self.fold.news.set()

    def _trouble(self) -> str:
        """Why this process is not ready for work; empty when it is."""
        if not self.is_ready:
            return "the log is not folded yet"
        if not self.client.is_connected:
            return "the bus is away"
        return "" if self.clock.is_trusted() else f"clock: {_CLOCK_OFF}"

    def _figures(self) -> Iterator[Metric]:
        """The figures of this process, and those of its service."""
        who = {"service": self.settings.service, "replica": self.settings.replica}
        yield gauge("build_info", "What runs here.", Sample(1, {**who, "version": version()}))
        yield gauge("ready", "Whether this process does its work.", Sample(int(not self._trouble())))
        yield from process_figures()
        yield counter("spans_lost_total", "Spans that reached no collector.", Sample(self.spans.lost))
        yield gauge("clock_ahead_seconds", "This clock against the bus's.", Sample(self.clock.ahead_ms / 1_000))
        if self._fold is not None:
            position = self._fold.follower.position
            yield gauge("log_position", "The last record folded.", Sample(position))
            yield gauge(
                "log_lag_records", "Records not folded yet, of those known.", Sample(max(0, self._tail - position))
            )
        if self._deciding is not None:
            yield counter("records_written_total", "Records of this replica's own.", Sample(self._deciding.written))
            yield counter(
                "appends_moved_total", "Decisions made again: the log had moved.", Sample(self._deciding.moved)
            )
            yield from self._deciding.durations.collect()
        if self._service is not None and self._service.figures is not None and self.is_ready:
            yield from self._service.figures(self.world)

    async def _health(self, _question: bytes) -> bytes:
        deciding, closed = self._deciding, self._closed
        return canonical(
            explain.Health(
                service=self.settings.service,
                replica=self.settings.replica,
                pid=os.getpid(),
                is_ready=self.is_ready,
                position=self.fold.follower.position,
                records_written=deciding.written if deciding else 0,
                moved=deciding.moved if deciding else 0,
                fold_version=self._version,
                version=version(),
                metrics_port=self._probe.port,
                closed=(closed() if closed else "") or (deciding.trouble() if deciding else ""),
                is_stalled=deciding is not None and deciding.is_stalled,
            )
        )


_CLOCK_OFF: Final = "more than 5 s from the bus's: nothing is written until it is set right"


async def serve(settings: Settings, define: Define) -> int:
    """Runs the service in this process until SIGTERM or SIGINT; returns the exit code, and has said why."""
    telemetry.configure(settings.service, settings.replica)
    try:
        process = Process(settings, define)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, process.stop)
        await process.run()
    except ShellError as error:
        log.error("%s", error)  # noqa: TRY400 - its text is for people; a trace would hide it
        return error.exit_code
    except Exception:
        log.exception("our own code is wrong; the log was kept as it is")
        return EXIT_INVARIANT
    return 0


async def _for_ever(task: Callable[[], Awaitable[None]]) -> None:
    await task()
    raise InvariantBroken("a task of the service ended, and it should run for ever")


async def _persist(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer to a question at the start, asked until the bus gives one."""
    while True:
        try:
            return await ask()
        except BusAway as away:
            log.warning("%s; asking again", away)
            await asyncio.sleep(_RETRY_S)
