"""Publishes what hosts shall run: a projection of the log, written by any replica (log.md L3).

A host's order is published when the log changed it, fenced by the host's own subject, and only over
a lower position: two publishers write the same or the later one wins. What cannot be published now
is kept and tried again; the newest state of a host replaces an older one that still waits.
"""

import asyncio
import json
import logging
import time
from typing import Final

import msgspec
import nats.errors
from nats.aio.client import Client

from fairlease.core.order import host_order
from fairlease.core.world import World
from fairlease.runtime import api, stored
from fairlease.runtime.errors import BusAway
from fairlease.runtime.spans import Spans, order_span
from fairlease_schemas.codec import canonical
from fairlease_schemas.envelope import parse_address
from fairlease_schemas.ids import AttemptId, HostId
from fairlease_schemas.orders import HostOrder
from fairlease_schemas.subjects import Subjects

log = logging.getLogger("fairlease.orders")

_TIMEOUT_S: Final = 3.0
_AGAIN_S: Final = 0.2
_ORDERS: Final = msgspec.json.Decoder(HostOrder)


class Orders:
    """The publisher of one replica. `changed` is called after folds; `run` does the publishing."""

    def __init__(self, client: Client, subjects: Subjects, spans: Spans) -> None:
        self._client = client
        self._subjects = subjects
        self._spans = spans
        self._told: dict[HostId, set[AttemptId]] = {}
        self._published: dict[HostId, tuple[int, int]] = {}
        self._sequences: dict[HostId, int] = {}
        self._stored: dict[HostId, tuple[int, int]] = {}
        self._waiting: dict[HostId, HostOrder] = {}
        self._wake = asyncio.Event()

    def changed(self, world: World) -> None:
        """Take up every host whose order the log has changed since the last call."""
        for host, position in world.ordered.items():
            if self._published.get(host, (0, 0)) < (world.epoch, position):
                self._published[host] = (world.epoch, position)
                self._waiting[host] = host_order(world, host)
        if self._waiting:
            self._wake.set()

    async def run(self) -> None:
        """Publish for ever, all waiting hosts at once; what fails stays waiting."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, {}
            done = await asyncio.gather(*(self._publish(order) for order in waiting.values()), return_exceptions=True)
            failed = [order for order, error in zip(waiting.values(), done, strict=True) if error is not None]
            if failed:
                log.warning("orders of %d hosts wait for the bus: %s", len(failed), next(e for e in done if e))
                for order in failed:
                    self._waiting.setdefault(order.host, order)
                await asyncio.sleep(_AGAIN_S)
                self._wake.set()

    async def _publish(self, order: HostOrder) -> None:
        """Store one order unless the subject already holds this or a later one."""
        subject, place = self._subjects.order(order.host), (order.epoch, order.position)
        if order.host not in self._sequences:
            await self._look(order.host)
        if self._stored.get(order.host, (0, 0)) >= place:
            return
        begun_ns = time.time_ns()
        headers = {
            "Nats-Expected-Last-Subject-Sequence": str(self._sequences.get(order.host, 0)),
            "Nats-Msg-Id": f"{order.host}-{order.epoch}-{order.position}",
        }
        try:
            reply = await self._client.request(subject, canonical(order), timeout=_TIMEOUT_S, headers=headers)
        except (nats.errors.Error, OSError) as error:
            self._sequences.pop(order.host, None)
            raise BusAway(f"order of {order.host}: the bus does not answer ({type(error).__name__})") from error
        answer = json.loads(reply.data)
        if (refusal := answer.get("error")) is None:
            self._sequences[order.host], self._stored[order.host] = int(answer["seq"]), place
            self._tell(order, (begun_ns, time.time_ns()))
            return
        self._sequences.pop(order.host, None)
        if refusal.get("err_code") == api.WRONG_LAST_SEQUENCE:
            await self._look(order.host)
            if self._stored.get(order.host, (0, 0)) >= place:
                return
        raise BusAway(f"order of {order.host}: {refusal.get('err_code')} {refusal.get('description')}")

    def _tell(self, order: HostOrder, times_ns: tuple[int, int]) -> None:
        """A span for each run that this order is the first of ours to name."""
        if not self._spans.is_on:
            return
        told = self._told.get(order.host, set())
        for run in order.runs:
            if run.attempt not in told:
                grant = str(parse_address(run.token).position)
                more: dict[str, str | int] = {"fairlease.host": order.host, "fairlease.position": order.position}
                what = order_span(run.attempt, order.host)
                self._spans.add(run.job, "preemption order", what, times_ns, [grant], more)
        self._told[order.host] = {run.attempt for run in order.runs}

    async def _look(self, host: HostId) -> None:
        """Read which order of the host is stored, and where: what stands there is only ever replaced by a later one."""
        found = await stored.last_message(self._client, self._subjects.orders_stream, self._subjects.order(host))
        self._sequences[host], self._stored[host] = 0, (0, 0)
        if found is not None:
            self._sequences[host], data = found
            self._stored[host] = _place(data)


def _place(data: bytes) -> tuple[int, int]:
    """Epoch and position of a stored order; that of none for what cannot be read, so that it is replaced."""
    try:
        order = _ORDERS.decode(data)
    except (ValueError, RecursionError):
        return (0, 0)
    return (order.epoch, order.position)
