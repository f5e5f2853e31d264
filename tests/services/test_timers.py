import asyncio
import time

import pytest
from nats.aio.msg import Msg

from fairlease.runtime import streams
from fairlease.runtime.clock import BusClock
from fairlease.runtime.connection import Connection
from fairlease.runtime.errors import BusAway, InvariantBroken
from fairlease.runtime.timers import Timers
from fairlease_schemas.subjects import Subjects, last_token


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _fired(client: Connection, subjects: Subjects, count: int, limit_s: float = 5) -> list[Msg]:
    """The first timers of the ranker, and an assertion that there is no other yet."""
    subscription = await client.jetstream().subscribe(
        streams.timer_subjects(subjects, "ranker"), stream=subjects.timers_stream("ranker"), ordered_consumer=True
    )
    messages = [await subscription.next_msg(limit_s) for _ in range(count)]
    with pytest.raises(TimeoutError):
        await subscription.next_msg(0.05)
    await subscription.unsubscribe()
    return messages


def _late_ms(message: Msg) -> float:
    return message.metadata.timestamp.timestamp() * 1_000 - int(last_token(message.subject))


async def test_a_timer_fires_at_its_due_and_never_before(client: Connection, subjects: Subjects) -> None:
    due_ms = _now_ms() + 600
    await Timers(client, subjects).arm("ranker", due_ms)
    (message,) = await _fired(client, subjects, 1)
    assert message.subject == subjects.timer("ranker", due_ms)
    assert 0 <= _late_ms(message) < 500


async def test_arming_twice_is_the_same_timer(client: Connection, subjects: Subjects) -> None:
    timers, due_ms = Timers(client, subjects), _now_ms() + 400
    for _ in range(3):
        await timers.arm("ranker", due_ms)
    await timers.arm("admission", due_ms)
    assert [m.subject for m in await _fired(client, subjects, 1)] == [subjects.timer("ranker", due_ms)]


async def test_a_due_in_the_past_fires_at_once(client: Connection, subjects: Subjects) -> None:
    timers = Timers(client, subjects)
    began_s = time.monotonic()
    await timers.arm("ranker", 1_000)
    await timers.arm("ranker", _now_ms() - 1)
    assert len(await _fired(client, subjects, 2)) == 2
    assert time.monotonic() - began_s < 0.5


async def test_an_earlier_timer_armed_later_fires_first(client: Connection, subjects: Subjects) -> None:
    timers, now_ms = Timers(client, subjects), _now_ms()
    for after_ms in (900, 500):
        await timers.arm("ranker", now_ms + after_ms)
    fired = [int(last_token(m.subject)) - now_ms for m in await _fired(client, subjects, 2)]
    assert fired == [500, 900]


async def test_a_far_due_is_kept_and_no_year_is_too_much(client: Connection, subjects: Subjects) -> None:
    timers = Timers(client, subjects)
    far_ms = _now_ms() + 366 * 86_400_000
    await timers.arm("ranker", far_ms)
    kept = await client.jsm().get_last_msg(subjects.timers_stream("ranker"), subjects.schedule("ranker", far_ms))
    assert kept.headers is not None
    with pytest.raises(InvariantBroken, match="no time"):
        await timers.arm("ranker", 10**18)


async def test_the_bus_decides_what_has_passed_not_this_machine(client: Connection, subjects: Subjects) -> None:
    clock = BusClock(wall_ms=lambda: _now_ms() + 3_600_000)
    clock.observe(clock.now_ms(), _now_ms(), clock.now_ms())
    await Timers(client, subjects, clock).arm("ranker", _now_ms() + 500)
    (message,) = await _fired(client, subjects, 1)
    assert _late_ms(message) >= 0


async def test_a_timer_without_its_stream_is_a_bus_that_is_away(client: Connection, subjects: Subjects) -> None:
    await client.jsm().delete_stream(subjects.timers_stream("ranker"))
    with pytest.raises(BusAway):
        await asyncio.wait_for(Timers(client, subjects).arm("ranker", 1), 5)
