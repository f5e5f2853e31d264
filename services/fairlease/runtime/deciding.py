"""The one loop of every deciding service (log.md L3): fold, decide, append, fold on.

It sleeps until something was folded or arrived, and makes at most one record a turn. The fence of the
bus does the excluding: a refused or unknown append is answered by folding to the end of the log and
deciding again, and it does not matter in which order a lost and a repeated append arrive.
"""

import asyncio
import logging
import time
from collections import deque
from typing import Final

from structlog.contextvars import bind_contextvars

from fairlease.core.decision import Decision, record_of
from fairlease.core.flood import refused
from fairlease.runtime.clock import BusClock
from fairlease.runtime.deciding_spans import DecidingSpans, Told
from fairlease.runtime.errors import BusAway, InvariantBroken, LogMoved, OutcomeUnknown
from fairlease.runtime.folding import Fold
from fairlease.runtime.inbox import MAX_BATCH, MAX_FLOOD_BATCH, Pending
from fairlease.runtime.log import LogClient
from fairlease.runtime.metrics import DECISION_BOUNDS_S, histogram
from fairlease.runtime.pace import Pace
from fairlease.runtime.service import Service
from fairlease.runtime.timers import Timers
from fairlease_schemas.codec import sealed
from fairlease_schemas.envelope import MAX_RECORD_BYTES, Answer, Record, TimerFired
from fairlease_schemas.subjects import SCOPES

log = logging.getLogger("fairlease.deciding")

REFUSALS_BEFORE_ONE: Final = 8
BUSY_RECORDS_PER_S: Final = 10
FRESH_MS: Final = 1_000
_RETRY_S: Final = 0.1
SLOW_S: Final = 1.0
"""A record that the bus has not stored for so long: new work would only wait behind it."""
_STALLED: Final = 2
"""So many records in a row without an answer, and nothing in the log meanwhile though the bus answers."""
_FALSE_REFUSALS: Final = 20
_ASK_TIME_AGAIN_MS: Final = 500


class Deciding:
    """One replica's loop. `news` wakes it; `reports_stream` names messages whose causes are in the log."""

    def __init__(
        self,
        service: Service,
        fold: Fold,
        pending: Pending,
        writer: LogClient,
        timers: Timers,
        *,
        reports_stream: str,
        spans: DecidingSpans,
    ) -> None:
        self.durations = histogram(
            "decision_duration_seconds", "From the beginning of a decision to its record stored.", DECISION_BOUNDS_S
        )
        self.moved = 0
        self.written = 0
        self._service = service
        self._fold = fold
        self._pending = pending
        self._writer = writer
        self._timers = timers
        self._clock: BusClock = writer.clock
        self._reports_stream = reports_stream
        self._spans = spans
        self._scope = SCOPES[service.name]
        self._limit = MAX_FLOOD_BATCH
        self._pace = Pace()
        self._refusals = 0
        self._false_refusals = 0
        self._in_flight, self._is_stored = "", False
        self._unsure = ""
        self._asked_s: float | None = None
        self._unanswered = 0
        self._reports_seen = 0
        self._time_asked_ms = 0
        self._written_s: deque[float] = deque(maxlen=BUSY_RECORDS_PER_S)

    async def run(self) -> None:
        """Decides for ever. Raises what ends the process: InvariantBroken."""
        assert self._service.decide is not None
        while True:
            self._fold.news.clear()
            bind_contextvars(position=self._fold.world.position)  # of what is logged in this turn (telemetry)
            if not await self._turn():
                await self._fold.news.wait()

    @property
    def is_stalled(self) -> bool:
        """Whether the log takes nothing though the bus answers: so it is after a write that failed [measured]."""
        return self._unanswered >= _STALLED

    def trouble(self) -> str:
        """What keeps records from the log now; empty when nothing does."""
        if self._asked_s is None or time.monotonic() - self._asked_s < SLOW_S:
            return ""
        return f"the log has taken no record for {time.monotonic() - self._asked_s:.0f} s"

    async def _turn(self) -> bool:
        """One record or none; whether to look again at once."""
        if not self._clock.is_trusted():
            return False
        self._drop_answered()
        if self._is_busy() and not self._pending.full.is_set():
            await self._gather()
        await self._fold_causes_of_reports()
        # Both may have waited, and folded on meanwhile: a replica may have answered what waited here.
        self._drop_answered()
        batch = self._batch()
        assert self._service.decide is not None
        begun_ns = time.time_ns()
        decision = self._service.decide(self._fold.world, batch)
        if decision is None:
            return self._without_effect(batch)
        if self._service.needs_fresh_time and self._is_stale(decision.at_ms):
            return await self._ask_time()
        return await self._append(decision, batch, begun_ns)

    def _batch(self) -> tuple[Answer, ...]:
        """The messages to decide on now: one where the fence is fought for, more at a time while an inbox floods."""
        now_s = time.monotonic()
        limit = min(self._limit, MAX_FLOOD_BATCH if self._pace.is_flooded(now_s) else MAX_BATCH)
        limit = 1 if self._refusals >= REFUSALS_BEFORE_ONE else limit
        return self._pending.batch(limit, leave_out=self._pace.resting(now_s))

    def _drop_answered(self) -> None:
        world, name = self._fold.world, self._service.name
        self._pending.drop(lambda stream: world.cursor(name, stream))

    def _without_effect(self, batch: tuple[Answer, ...]) -> bool:
        """Nothing to write: what had no effect is dropped, and read again only after a restart.

        Before the first policy nobody can decide, and messages wait for it; timers do not.
        """
        if not self._fold.world.policy_name:
            batch = tuple(answer for answer in batch if isinstance(answer.said, TimerFired))
        self._pending.forget(batch)
        self._fold.rearm(answer.time_ms for answer in batch if isinstance(answer.said, TimerFired))
        return bool(batch)

    def _is_stale(self, at_ms: int) -> bool:
        return self._clock.bus_now_ms() - at_ms > FRESH_MS

    async def _ask_time(self) -> bool:
        """Asks the bus for a timer of now; its message is the next turn's input."""
        now_ms = self._clock.bus_now_ms()
        if now_ms - self._time_asked_ms > _ASK_TIME_AGAIN_MS:
            self._time_asked_ms = now_ms
            try:
                await self._timers.arm(self._service.name, now_ms)
            except BusAway as away:
                log.warning("%s", away)
                await asyncio.sleep(_RETRY_S)
                return True
        return False

    def _is_busy(self) -> bool:
        written = self._written_s
        return len(written) == BUSY_RECORDS_PER_S and time.monotonic() - written[0] < 1.0

    async def _gather(self) -> None:
        """Waits for a full batch, at most the service's time: a flood shall not become a flood of records."""
        if self._service.gather_ms and len(self._pending):
            try:
                async with asyncio.timeout(self._service.gather_ms / 1_000):
                    await self._pending.full.wait()
            except TimeoutError:
                return

    async def _fold_causes_of_reports(self) -> None:
        """Folds to the end of the log when reports arrived since it was last done.

        An agent reports on an order that followed from a record; the record was in the log before the
        report was sent, and must be in the fold before the report is judged.
        """
        newest = self._pending.has_from(self._reports_stream)
        if newest > self._reports_seen:
            await self._catch_up()
            self._reports_seen = newest

    async def _append(self, decision: Decision, batch: tuple[Answer, ...], begun_ns: int) -> bool:
        world = self._fold.world
        record, data = sealed(record_of(world, self._service.name, decision))
        if len(data) > MAX_RECORD_BYTES:
            return self._with_less(decision, batch, len(data))
        self._limit = MAX_FLOOD_BATCH
        expected = world.scope_position(self._scope)
        self._in_flight, self._is_stored = record.id, False
        self._asked_s = self._asked_s or time.monotonic()
        before = self._fold.follower.position
        try:
            position = await self._writer.append(self._service.name, decision.kind, data, expected)
        except LogMoved:
            await self._refused(expected)
            return True
        except OutcomeUnknown as unknown:
            log.warning("%s; folding to the end of the log", unknown, extra={"record": record.id})
            if self._is_stored:  # it was folded while its lost acknowledgement was waited for
                self._count()
            else:
                self._unsure = record.id
            await self._catch_up()
            if self._fold.follower.position == before:
                self._unanswered += 1
            return True
        except BusAway as away:
            log.warning("%s", away)
            await asyncio.sleep(_RETRY_S)
            return True
        ended_ns = time.time_ns()
        self.durations.observe(max(0, ended_ns - begun_ns) / 1_000_000_000)
        self._answered()
        self._refusals = self._false_refusals = 0
        self._count()
        await self._fold.reached(position)
        self._spans.stored(Told(position, decision.kind, (begun_ns, ended_ns)))
        return True

    def folded(self, position: int, record: Record) -> None:
        """Told of every record: the one in flight, or one whose fate was unknown, may be among them."""
        self._spans.folded(position, record)
        self._answered()
        if record.id == self._in_flight:
            self._is_stored = True
        if self._unsure and record.id == self._unsure:
            self._unsure = ""
            self._count()
        if record.by == self._service.name:
            for stream, found in refused(record.answers, record.events).items():
                rest_s = self._pace.count(stream, len(found), time.monotonic())
                if rest_s:
                    asyncio.get_running_loop().call_later(rest_s, self._fold.news.set)

    def _answered(self) -> None:
        """The log moves."""
        self._asked_s, self._unanswered = None, 0

    def _count(self) -> None:
        self.written += 1
        self._written_s.append(time.monotonic())

    async def _refused(self, expected: int) -> None:
        """The fence said that the log moved: fold to its end. A refusal that nobody caused is a defect."""
        self.moved += 1
        self._refusals += 1
        await self._catch_up()
        is_false = self._fold.world.scope_position(self._scope) == expected
        self._false_refusals = self._false_refusals + 1 if is_false else 0
        if self._false_refusals >= _FALSE_REFUSALS:
            raise InvariantBroken(
                f"{self._service.name}: the bus refuses to append after {expected}, "
                f"and nobody wrote in {self._scope} since"
            )

    def _with_less(self, decision: Decision, batch: tuple[Answer, ...], size: int) -> bool:
        """The record is too big: decide again on half of the messages."""
        if len(batch) <= 1:
            raise InvariantBroken(
                f"{self._service.name}: a {decision.kind} record of {size} bytes for one message or none; "
                f"the bound is {MAX_RECORD_BYTES}"
            )
        self._limit = len(batch) // 2
        return True

    async def _catch_up(self) -> None:
        """Folds to the end that the log's leader names, however long the bus is away."""
        while True:
            try:
                tail = await self._writer.tail()
            except BusAway as away:
                log.info("%s", away)
                await asyncio.sleep(_RETRY_S)
                continue
            await self._fold.reached(tail)
            return
