import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.aio.client import Client

from fairlease.runtime import api
from fairlease.runtime.bus_server import BusServer
from fairlease.runtime.clock import BusClock
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.errors import InvariantBroken, LogDamaged, LogMoved, OutcomeUnknown
from fairlease.runtime.follower import Entry, Follower
from fairlease.runtime.log import LogClient
from fairlease.runtime.tasks import end
from fairlease_schemas.subjects import Subjects
from tests.services.bench import Proxy, declared, eventually, record, restarted, store


class Sink:
    """Takes what a follower hands over."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    async def __call__(self, batch: list[Entry]) -> None:
        self.entries += batch

    @property
    def positions(self) -> list[int]:
        return [entry[0] for entry in self.entries]


@asynccontextmanager
async def following(
    client: Client, subjects: Subjects, sink: Callable[[list[Entry]], Any], *, position: int = 0
) -> AsyncIterator[tuple[Follower, "asyncio.Task[None]"]]:
    follower = Follower(client, subjects, sink, position=position)
    if isinstance(client, Connection):
        client.guard.on_reconnect(follower.renew)
    task = asyncio.create_task(follower.run())
    try:
        yield follower, task
    finally:
        await end([task])


async def fill(client: Client, subjects: Subjects, count: int) -> None:
    for number in range(count):
        await store(client, subjects.log("ledger", "x"), b"record %d" % number)


# appending ---------------------------------------------------------------------------------------


async def test_of_two_writers_at_once_one_is_refused_and_nothing_of_it_is_stored(
    client: Connection, subjects: Subjects
) -> None:
    log = LogClient(client, subjects)
    outcomes = await asyncio.gather(
        log.append("ranker", "ranked", record("ranker"), 0),
        log.append("health", "hosts", record("health"), 0),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["LogMoved", "int"]
    assert await log.tail() == 1


async def test_a_record_in_the_other_scope_refuses_nobody(client: Connection, subjects: Subjects) -> None:
    log = LogClient(client, subjects)
    assert await log.append("ledger", "x", b"1", 0) == 1
    assert await log.append("ranker", "x", b"2", 0) == 2
    assert await log.append("admission", "x", b"3", 1) == 3
    with pytest.raises(LogMoved):
        await log.append("health", "x", b"4", 0)


async def test_eight_writers_with_two_replicas_each_keep_a_perfect_chain(
    client: Connection, subjects: Subjects
) -> None:
    log = LogClient(client, subjects)

    async def write(name: str, count: int) -> None:
        expected = 0
        while count:
            try:
                expected = await log.append("ranker", "x", f"{name} after {expected}".encode(), expected)
                count -= 1
            except LogMoved:
                expected = await log.tail()

    await asyncio.gather(*(write(f"w{n}", 10) for n in range(8)))
    sink = Sink()
    async with following(client, subjects, sink) as (follower, _):
        await follower.reached(80)
    afters = [int(data.rpartition(b" ")[2]) for _, _, _, data in sink.entries]
    assert afters == list(range(80))


async def test_a_record_the_bus_will_never_take_is_our_fault(client: Connection, subjects: Subjects) -> None:
    log = LogClient(client, subjects)
    with pytest.raises(InvariantBroken, match="262145 bytes"):
        await log.append("ranker", "x", b"x" * (256 * 1024 + 1), 0)
    with pytest.raises(InvariantBroken, match="cannot be sent"):
        await log.append("ranker", "x", b"x" * (600 * 1024), 0)


async def test_a_lost_ack_is_unknown_and_the_record_is_there_once(
    bus: BusServer, client: Connection, subjects: Subjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlease.runtime.log.APPEND_TIMEOUT_S", 0.2)
    async with Proxy(bus.url) as proxy:
        behind = await connect(proxy.url, "behind", exit_on_close=False)
        log = LogClient(behind, subjects)
        await log.tail()
        proxy.is_deaf = True
        with pytest.raises(OutcomeUnknown):
            await log.append("ranker", "x", b"mine", 0)
        assert proxy.swallowed
        proxy.is_deaf = False
        assert await log.tail() == 1
        with pytest.raises(LogMoved):
            await log.append("ranker", "x", b"mine", 0)
        await behind.close()
    assert await LogClient(client, subjects).tail() == 1


async def test_an_append_without_a_bus_is_unknown(own_bus: list[BusServer], subjects: Subjects) -> None:
    await declared(own_bus[0], subjects)
    client = await connect(own_bus[0].url, "writer", exit_on_close=False)
    own_bus[0].kill()
    with pytest.raises(OutcomeUnknown):
        await LogClient(client, subjects).append("ranker", "x", b"1", 0)
    await client.close()


async def test_the_tail_tells_whether_the_clock_agrees_with_the_bus(client: Connection, subjects: Subjects) -> None:
    right, wrong = BusClock(), BusClock(wall_ms=lambda: 1_000_000)
    await LogClient(client, subjects, right).tail()
    await LogClient(client, subjects, wrong).tail()
    assert (right.is_trusted(), wrong.is_trusted()) == (True, False)


# following ---------------------------------------------------------------------------------------


async def test_every_record_comes_once_and_in_order_from_any_position(client: Connection, subjects: Subjects) -> None:
    await fill(client, subjects, 1200)
    whole, rest = Sink(), Sink()
    async with following(client, subjects, whole) as (follower, _):
        await follower.reached(1200)
        await fill(client, subjects, 5)
        await follower.reached(1205)
    async with following(client, subjects, rest, position=1201) as (follower, _):
        await follower.reached(1205)
    assert whole.positions == list(range(1, 1206))
    assert rest.positions == [1202, 1203, 1204, 1205]
    assert whole.entries[0][2:] == (subjects.log("ledger", "x"), b"record 0")


async def test_following_survives_a_killed_bus_and_goes_on_within_a_second(
    own_bus: list[BusServer], subjects: Subjects
) -> None:
    await declared(own_bus[0], subjects)
    client = await connect(own_bus[0].url, "follower", exit_on_close=False)
    sink = Sink()
    async with following(client, subjects, sink) as (follower, _):
        for killed in range(1, 4):
            await fill(client, subjects, 50)
            await follower.reached(killed * 100 - 50)
            own_bus[0].kill()
            own_bus[0] = await restarted(own_bus[0])
            writer = await connect(own_bus[0].url, "writer", exit_on_close=False)
            await fill(writer, subjects, 50)
            async with asyncio.timeout(1):
                await follower.reached(killed * 100)
            await writer.close()
    assert sink.positions == list(range(1, 301))
    await client.close()


async def test_following_survives_cut_connections_without_a_gap(
    bus: BusServer, client: Connection, subjects: Subjects
) -> None:
    sink = Sink()
    async with Proxy(bus.url) as proxy:
        behind = await connect(proxy.url, "behind", exit_on_close=False)
        async with following(behind, subjects, sink) as (follower, _):
            for number in range(5):
                await fill(client, subjects, 40)
                await follower.reached(number * 80 + 20)
                proxy.cut()
                await fill(client, subjects, 40)
            await follower.reached(400)
        await behind.close()
    assert sink.positions == list(range(1, 401))


async def test_a_consumer_that_vanished_is_made_again(client: Connection, subjects: Subjects) -> None:
    sink = Sink()
    async with following(client, subjects, sink) as (follower, _):
        for number in range(1, 4):
            await fill(client, subjects, 10)
            await follower.reached(number * 10)
            names = (await api.request(client, f"CONSUMER.NAMES.{subjects.log_stream}", {}))["consumers"]
            for name in names:
                await api.request(client, f"CONSUMER.DELETE.{subjects.log_stream}.{name}")
        await fill(client, subjects, 10)
        async with asyncio.timeout(1):
            await follower.reached(40)
    assert sink.positions == list(range(1, 41))


async def test_a_failing_callback_ends_the_following(client: Connection, subjects: Subjects) -> None:
    async def fail(_batch: list[Entry]) -> None:
        raise InvariantBroken("no")

    await fill(client, subjects, 1)
    async with following(client, subjects, fail) as (follower, task):
        with pytest.raises(InvariantBroken):
            await asyncio.wait_for(task, 5)
        assert follower.position == 0


# damage ------------------------------------------------------------------------------------------


async def _open_log(client: Connection, subjects: Subjects, **config: object) -> None:
    """Puts a stream without protection in the log's place, which damage can be done to."""
    await client.jsm().delete_stream(subjects.log_stream)
    body = {"name": subjects.log_stream, "subjects": [subjects.log_all()], **config}
    await api.request(client, f"STREAM.CREATE.{subjects.log_stream}", body)


async def test_a_hole_in_the_log_is_damage(client: Connection, subjects: Subjects) -> None:
    await _open_log(client, subjects)
    await fill(client, subjects, 10)
    await client.jsm().delete_msg(subjects.log_stream, 6)
    sink = Sink()
    async with following(client, subjects, sink) as (_, task):
        with pytest.raises(LogDamaged, match="9 of 10"):
            await asyncio.wait_for(task, 5)
    assert sink.positions == []


async def test_a_hole_that_only_the_reading_shows_is_damage(
    client: Connection, subjects: Subjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _open_log(client, subjects)
    await fill(client, subjects, 10)
    await client.jsm().delete_msg(subjects.log_stream, 6)

    async def whole(_self: LogClient) -> dict[str, Any]:
        return {"last_seq": 10, "messages": 10}

    monkeypatch.setattr(LogClient, "state", whole)
    sink = Sink()
    async with following(client, subjects, sink) as (_, task):
        with pytest.raises(LogDamaged, match="asked for record 6, got 7"):
            await asyncio.wait_for(task, 5)
    assert sink.positions == [1, 2, 3, 4, 5]


async def test_a_last_record_that_is_never_handed_out_is_damage(
    client: Connection, subjects: Subjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client, subjects, 3)

    async def longer(_self: LogClient) -> dict[str, Any]:
        return {"last_seq": 4, "messages": 4}

    monkeypatch.setattr(LogClient, "state", longer)
    async with following(client, subjects, Sink()) as (_, task):
        with pytest.raises(LogDamaged, match="hands out none from 4 on"):
            await asyncio.wait_for(task, 8)


async def test_a_log_shorter_than_the_fold_is_damage(client: Connection, subjects: Subjects) -> None:
    await fill(client, subjects, 3)
    async with following(client, subjects, Sink(), position=4) as (_, task):
        with pytest.raises(LogDamaged, match="ends at 3, and 4 was folded"):
            await asyncio.wait_for(task, 5)


async def test_a_log_that_was_replaced_while_followed_is_damage(client: Connection, subjects: Subjects) -> None:
    sink = Sink()
    async with following(client, subjects, sink) as (follower, task):
        await fill(client, subjects, 3)
        await follower.reached(3)
        await _open_log(client, subjects)
        for _ in range(5):
            await store(client, subjects.log("ledger", "x"), b"another history")
        # It is seen while the other history is still shorter, or when that has gone past the place.
        with pytest.raises(LogDamaged, match=r"another record stands at 3|ends at [0-2], and 3 was folded already"):
            await asyncio.wait_for(task, 5)
    assert sink.positions == [1, 2, 3]


async def test_a_log_that_is_gone_is_damage_after_a_while(
    client: Connection, subjects: Subjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlease.runtime.follower._GONE_LIMIT_S", 0.3)
    async with following(client, subjects, Sink()) as (follower, task):
        await fill(client, subjects, 1)
        await follower.reached(1)
        await client.jsm().delete_stream(subjects.log_stream)
        with pytest.raises(LogDamaged, match="is gone"):
            await asyncio.wait_for(task, 5)


async def test_a_bus_that_stands_still_is_waited_for(own_bus: list[BusServer], subjects: Subjects) -> None:
    import signal

    await declared(own_bus[0], subjects)
    client = await connect(own_bus[0].url, "follower", exit_on_close=False)
    sink = Sink()
    async with following(client, subjects, sink) as (follower, task):
        await fill(client, subjects, 3)
        await follower.reached(3)
        stale = asyncio.create_task(_session_ends(follower))
        own_bus[0].process.send_signal(signal.SIGSTOP)
        await stale
        own_bus[0].process.send_signal(signal.SIGCONT)
        await fill(client, subjects, 3)
        await follower.reached(6)
        assert not task.done()
    assert sink.positions == [1, 2, 3, 4, 5, 6]
    await client.close()


async def _session_ends(follower: Follower) -> None:
    """Returns when the follower gave its consumer up."""
    inbox = follower._inbox
    asked = follower._wanted
    await eventually(lambda: (follower._inbox, follower._wanted) != (inbox, asked))
