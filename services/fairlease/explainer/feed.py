"""Publishes answers, steps of jobs and news of hosts to the feed: a projection that can be made again.

The feed remembers in its last message how far it came, so a restart goes on from there. Two replicas
publish the same messages under the same ids; the bus keeps one, and a reader that ever sees two
tells them apart by `ce-id`. The explainer folds on only when a record's messages are stored.
"""

import asyncio
import json
import logging
from collections.abc import Iterable
from typing import Final

import msgspec
import nats.errors
from nats.aio.client import Client

from fairlease.core.feed import answers_of, hosts_of, steps_of
from fairlease.core.world import World
from fairlease.runtime import stored
from fairlease.runtime.errors import BusAway
from fairlease_schemas.envelope import Record
from fairlease_schemas.explain import CommandAnswer
from fairlease_schemas.subjects import Subjects

log = logging.getLogger("fairlease.feed")

POSITION_HEADER: Final = "Fairlease-Position"
_TIMEOUT_S: Final = 3.0
_AGAIN_S: Final = 0.2
_AT_ONCE: Final = 64
_ENCODER: Final = msgspec.json.Encoder(order="sorted")

Outgoing = tuple[str, dict[str, str], bytes]


def in_turn(answers: Iterable[CommandAnswer]) -> list[CommandAnswer]:
    """The first answer of every account, then the second of each: who sent one waits behind no other's hundreds."""
    counted: dict[str, int] = {}
    turns = []
    for answer in answers:
        turn = counted[answer.account] = counted.get(answer.account, 0) + 1
        turns.append((turn, answer))
    return [answer for _, answer in sorted(turns, key=lambda one: one[0])]


class Feed:
    """The publisher of one replica."""

    def __init__(self, client: Client, subjects: Subjects) -> None:
        self._client = client
        self._subjects = subjects
        self._done = 0
        self._waiting: list[Outgoing] = []

    async def find_place(self) -> None:
        """Read how far the feed came; that record's messages are published once more, under the same ids."""
        headers = await stored.last_headers(self._client, self._subjects.feed_stream)
        text = headers.get(POSITION_HEADER, "0")
        self._done = max(0, int(text) - 1) if text.isdigit() else 0

    def gather(self, world: World, position: int, record: Record) -> None:
        """Make the messages of this record, while the world stands right behind it."""
        if position > self._done:
            self._waiting.extend(self._messages(world, record, position))

    async def publish(self, _world: World, records: list[tuple[int, Record]]) -> None:
        """Store every message gathered, and return when all are; tries again while the bus is away."""
        while self._waiting:
            outgoing, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            results = await asyncio.gather(*(self._store(message) for message in outgoing), return_exceptions=True)
            failed = [m for m, error in zip(outgoing, results, strict=True) if isinstance(error, BusAway)]
            for error in results:
                if isinstance(error, BaseException) and not isinstance(error, BusAway):
                    raise error
            if failed:
                log.warning("%d messages up to position %d wait for the bus", len(failed), records[-1][0])
                self._waiting = failed + self._waiting
                await asyncio.sleep(_AGAIN_S)
        self._done = max(self._done, records[-1][0])

    def _messages(self, world: World, record: Record, position: int) -> list[Outgoing]:
        outgoing: list[Outgoing] = []
        for answer in in_turn(answers_of(world, record)):
            name = f"{record.epoch}-{position}-answer-{answer.account}-{answer.seq}"
            subject = self._subjects.answer(answer.account, answer.seq)
            outgoing.append((subject, self._headers(name, "answer", position), _ENCODER.encode(answer)))
        for index, budget, step in steps_of(world, record):
            name = f"{record.epoch}-{position}-{index}"
            subject = self._subjects.feed(budget, step.job, step.event)
            outgoing.append((subject, self._headers(name, step.event, position), _ENCODER.encode(step)))
        for index, news in hosts_of(world, record):
            name = f"{record.epoch}-{position}-{index}"
            subject = self._subjects.host_feed(news.host, news.event)
            outgoing.append((subject, self._headers(name, news.event, position), _ENCODER.encode(news)))
        return outgoing

    def _headers(self, name: str, kind: str, position: int) -> dict[str, str]:
        """CloudEvents in binary mode, the id for the bus, and our place."""
        return {
            "Nats-Msg-Id": name,
            POSITION_HEADER: str(position),
            "ce-specversion": "1.0",
            "ce-id": name,
            "ce-source": f"/fairlease/{self._subjects.cell}",
            "ce-type": f"dev.fairlease.{kind}",
            "content-type": "application/json",
        }

    async def _store(self, message: Outgoing) -> None:
        subject, headers, data = message
        try:
            reply = await self._client.request(subject, data, timeout=_TIMEOUT_S, headers=headers)
        except (nats.errors.Error, OSError) as error:
            raise BusAway(f"feed: the bus does not answer ({type(error).__name__})") from error
        refusal = json.loads(reply.data).get("error")
        if refusal is not None:
            raise BusAway(f"feed: {refusal.get('err_code')} {refusal.get('description')}")
