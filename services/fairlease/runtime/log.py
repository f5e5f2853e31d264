"""The log's writing end: one record behind the fence, and the tail to fold to (log.md L3).

Reading is the follower's. What an append says is believed only where it is certain: stored, or refused
by the fence; everything else is unknown, and the log itself is asked.
"""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import nats.errors
from nats.aio.client import Client

from fairlease.runtime import api
from fairlease.runtime.clock import BusClock, parse_bus_time_ms
from fairlease.runtime.errors import BusAway, InvariantBroken, LogDamaged, LogMoved, OutcomeUnknown
from fairlease_schemas.subjects import SCOPES, Subjects

T = TypeVar("T")

APPEND_TIMEOUT_S: Final = 3.0


class LogClient:
    """The writing end of the log, and its tail as the stream's leader sees it.

    Call `renew` after a reconnection: what was asked before it will not be answered any more.
    """

    def __init__(self, client: Client, subjects: Subjects, clock: BusClock | None = None) -> None:
        self._client = client
        self._subjects = subjects
        self._asked: set[asyncio.Task[Any]] = set()
        self.clock = clock or BusClock()

    def renew(self) -> None:
        """Gives up what waits for an answer: `append` is then unknown, `tail` finds the bus away."""
        for task in self._asked:
            task.cancel()

    async def append(self, service: str, kind: str, data: bytes, expected_scope_position: int) -> int:
        """Stores one record behind the fence and returns its position.

        LogMoved when somebody wrote in the scope since `expected_scope_position`: nothing was stored.
        The number in the bus's refusal is never read; one in five has none (log.md L3). OutcomeUnknown
        when no answer came: the record may be stored, or may yet be. BusAway when the bus said that
        it cannot store now. InvariantBroken for what the bus will never take.
        """
        headers = {
            "Nats-Expected-Stream": self._subjects.log_stream,
            "Nats-Expected-Last-Subject-Sequence": str(expected_scope_position),
            "Nats-Expected-Last-Subject-Sequence-Subject": self._subjects.log_scope(SCOPES[service]),
        }
        subject = self._subjects.log(service, kind)
        try:
            reply = await self._ask(self._client.request(subject, data, timeout=APPEND_TIMEOUT_S, headers=headers))
        except (nats.errors.MaxPayloadError, nats.errors.BadSubjectError) as error:
            raise InvariantBroken(f"record {kind} of {len(data)} bytes cannot be sent: {error}") from error
        except (nats.errors.Error, OSError, BusAway) as error:
            raise OutcomeUnknown(f"append {kind}: {type(error).__name__}: {error}") from error
        answer: dict[str, Any] = json.loads(reply.data)
        if (refusal := answer.get("error")) is None:
            return int(answer["seq"])
        code, text = int(refusal.get("err_code", 0)), str(refusal.get("description"))
        if code == api.WRONG_LAST_SEQUENCE:
            raise LogMoved(f"append {kind}: somebody wrote after {expected_scope_position}")
        if int(refusal.get("code", 0)) >= 500:
            raise BusAway(f"append {kind}: the bus cannot store now ({code} {text}); free space, or restart the bus")
        raise InvariantBroken(f"append {kind} of {len(data)} bytes was refused for good: {code} {text}")

    async def tail(self) -> int:
        """The position of the last record, from the stream's leader; also a sample for the clock.

        BusAway when the bus does not answer or does not know the stream (yet): whether that is
        damage is for the follower to judge.
        """
        try:
            return int((await self.state())["last_seq"])
        except LogDamaged as gone:
            raise BusAway(str(gone)) from gone

    async def state(self) -> dict[str, Any]:
        """The bus's own account of the stream; LogDamaged, caused by `Refused`, when there is none."""
        sent_ms = self.clock.now_ms()
        try:
            info = await self._ask(api.request(self._client, f"STREAM.INFO.{self._subjects.log_stream}"))
        except api.Refused as refused:
            raise LogDamaged(f"stream {self._subjects.log_stream} is gone ({refused}); restore it") from refused
        self.clock.observe(sent_ms, parse_bus_time_ms(info["ts"]), self.clock.now_ms())
        state: dict[str, Any] = info["state"]
        return state

    async def _ask(self, request: Coroutine[Any, Any, T]) -> T:
        """The answer; BusAway when `renew` was called before it came."""
        task = asyncio.create_task(request)
        self._asked.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
            raise BusAway("the connection was lost before the answer came") from None
        finally:
            self._asked.discard(task)
