"""Falling due, by the bus's clock (log.md L1, L3).

A timer is a scheduled message: armed on `subjects.schedule(service, due)`, fired by the bus on
`subjects.timer(service, due)`. Arming twice replaces the schedule, so it is the same timer; when one
fired before the second arming, the second fires at once and has no effect. Two facts of the bus shape
this [measured with 2.15.1]: a schedule whose due has passed fires 250 ms late, so such a timer is
published directly and its bus timestamp says the same; and schedules fire on a grid of up to 250 ms
when several are near, so dues are exact to a quarter of a second, never early.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final

import nats.errors
from nats.aio.client import Client

from fairlease.runtime.clock import BusClock
from fairlease.runtime.errors import BusAway, InvariantBroken
from fairlease_schemas.subjects import Subjects

KEPT: Final = "24h"
"""How long a fired timer stays in the stream; a service that was away longer arms its dues anew at start."""
_TIMEOUT_S: Final = 3.0
_FURTHEST_MS: Final = 253_402_300_799_000  # the last second of the year 9999, the end of RFC 3339


class Timers:
    """Arms timers of one cell. `clock` decides only between 'schedule' and 'publish at once'."""

    def __init__(self, client: Client, subjects: Subjects, clock: BusClock | None = None) -> None:
        self._client = client
        self._subjects = subjects
        self._clock = clock or BusClock()

    def now_ms(self) -> int:
        """The bus's time, as this machine knows it."""
        return self._clock.bus_now_ms()

    async def arm(self, service: str, due_ms: int) -> None:
        """Makes the bus say, at `due_ms` or as soon as possible after, that it has passed.

        The message's bus timestamp is at least `due_ms`, or a few milliseconds less when the clock's
        last sample was poor: a reader compares, and arms again. BusAway when the bus did not answer;
        the timer may be armed then, and arming again does no harm.
        """
        if not 0 <= due_ms <= _FURTHEST_MS:
            raise InvariantBroken(f"timer of {service}: {due_ms} is no time in ms since 1970")
        if due_ms <= self._clock.bus_now_ms():
            await self._publish(self._subjects.timer(service, due_ms), {"Nats-TTL": KEPT})
            return
        await self._publish(
            self._subjects.schedule(service, due_ms),
            {
                "Nats-Schedule": f"@at {_rfc3339(due_ms)}",
                "Nats-Schedule-Target": self._subjects.timer(service, due_ms),
                "Nats-Schedule-TTL": KEPT,
            },
        )

    async def _publish(self, subject: str, headers: dict[str, str]) -> None:
        try:
            reply = await self._client.request(subject, b"", timeout=_TIMEOUT_S, headers=headers)
        except (nats.errors.Error, OSError) as error:
            raise BusAway(f"timer {subject}: the bus does not answer ({type(error).__name__})") from error
        answer: dict[str, Any] = json.loads(reply.data)
        if (refusal := answer.get("error")) is not None:
            text = f"timer {subject}: {refusal.get('err_code')} {refusal.get('description')}"
            if int(refusal.get("code", 0)) >= 500:
                raise BusAway(text)
            raise InvariantBroken(text)


def _rfc3339(instant_ms: int) -> str:
    seconds, ms = divmod(instant_ms, 1_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"
