import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from fairlease.runtime import api, streams
from fairlease.runtime.bus import Bus, Message, _Input
from fairlease.runtime.bus_server import BusServer
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.errors import EXIT_BUS_CLOSED, EXIT_STARVED
from fairlease.runtime.log import LogClient
from fairlease.runtime.settings import Settings
from fairlease.runtime.watchdog import Watchdog
from fairlease_schemas.explain import Trouble
from fairlease_schemas.subjects import Subjects
from tests.services.bench import declared, eventually, restarted, store


class Sink:
    """Takes messages; can fail, and sees whether two calls overlap."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.failures = 0
        self.running = 0
        self.overlapped = False

    async def __call__(self, messages: list[Message]) -> None:
        self.running += 1
        self.overlapped |= self.running > 1
        await asyncio.sleep(0)
        self.running -= 1
        if self.failures:
            self.failures -= 1
            raise ValueError("this time not")
        self.messages += messages

    @property
    def bodies(self) -> list[bytes]:
        return [message.data for message in self.messages]


@asynccontextmanager
async def open_bus(settings: Settings) -> AsyncIterator[Bus]:
    bus = Bus(settings, exit_on_close=False)
    await bus.start()
    try:
        yield bus
    finally:
        await bus.stop()


async def read_inbox(bus: Bus, subjects: Subjects, sink: Sink, start_after: int = 0) -> None:
    await bus.inputs(subjects.inbox_stream("local"), [subjects.command("local", "cancel-job")], start_after, sink)


async def send(client: Connection, subjects: Subjects, *bodies: bytes, verb: str = "cancel-job") -> None:
    for body in bodies:
        await store(client, subjects.command("local", verb), body)


# inputs ------------------------------------------------------------------------------------------


async def test_messages_come_in_order_one_call_after_another(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    bodies = [b"%d" % number for number in range(150)]
    sink = Sink()
    async with open_bus(settings) as bus:
        await send(client, subjects, *bodies[:75])
        await read_inbox(bus, subjects, sink)
        await send(client, subjects, *bodies[75:])
        await eventually(lambda: len(sink.messages) >= 150)
    assert sink.bodies == bodies
    assert not sink.overlapped
    assert [message.seq for message in sink.messages] == list(range(1, 151))
    assert abs(sink.messages[-1].time_ms - time.time() * 1_000) < 10_000


async def test_an_error_that_nobody_thought_of_ends_no_inputs(
    client: Connection, subjects: Subjects, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, made, failed = Sink(), _Input._subscriber, []

    class Broken:
        async def start(self) -> None:
            failed.append("start")
            raise RuntimeError("of the library")

        async def stop(self) -> None:
            failed.append("stop")
            raise AttributeError("of the library too")

    monkeypatch.setattr(_Input, "_subscriber", lambda feed: made(feed) if len(failed) == 4 else Broken())
    async with open_bus(settings) as bus:
        await send(client, subjects, b"first")
        await read_inbox(bus, subjects, sink)
        await eventually(lambda: sink.bodies == [b"first"])
    assert failed == ["start", "stop"] * 2


async def test_a_single_message_is_not_held_back(client: Connection, subjects: Subjects, settings: Settings) -> None:
    sink = Sink()
    async with open_bus(settings) as bus:
        await read_inbox(bus, subjects, sink)
        await send(client, subjects, b"first")
        await eventually(lambda: len(sink.messages) == 1)
        began_s = time.monotonic()
        await send(client, subjects, b"second")
        await eventually(lambda: len(sink.messages) == 2)
        assert time.monotonic() - began_s < 0.5


async def test_only_the_own_verbs_come_and_only_those_after_the_cursor(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    sink = Sink()
    await send(client, subjects, b"1", b"2")
    await send(client, subjects, b"other", verb="submit-job")
    await send(client, subjects, b"4")
    async with open_bus(settings) as bus:
        await read_inbox(bus, subjects, sink, start_after=1)
        await eventually(lambda: len(sink.messages) == 2)
    assert [(message.seq, message.data) for message in sink.messages] == [(2, b"2"), (4, b"4")]


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"{", b"[" * 20_000, b'{"a":NaN}'])
async def test_no_body_stops_the_reading(
    client: Connection, subjects: Subjects, settings: Settings, body: bytes
) -> None:
    sink = Sink()
    async with open_bus(settings) as bus:
        await read_inbox(bus, subjects, sink)
        headers = {"content-type": "application/json", "correlation_id": "x", "message_id": "\x1b[31m"}
        await client.request(subjects.command("local", "cancel-job"), body, timeout=10, headers=headers)
        await send(client, subjects, b"next")
        await eventually(lambda: len(sink.messages) == 2)
    assert sink.bodies == [body, b"next"]


async def test_a_failed_call_gets_the_same_messages_again(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    sink = Sink()
    sink.failures = 3
    async with open_bus(settings) as bus:
        await read_inbox(bus, subjects, sink)
        await send(client, subjects, b"1", b"2", b"3")
        await eventually(lambda: len(sink.messages) == 3)
    assert sink.bodies == [b"1", b"2", b"3"]


async def test_a_deleted_consumer_is_made_again(client: Connection, subjects: Subjects, settings: Settings) -> None:
    sink, stream = Sink(), subjects.inbox_stream("local")
    async with open_bus(settings) as bus:
        await read_inbox(bus, subjects, sink)
        await send(client, subjects, b"1")
        await eventually(lambda: len(sink.messages) == 1)
        for name in (await api.request(client, f"CONSUMER.NAMES.{stream}", {}))["consumers"]:
            await api.request(client, f"CONSUMER.DELETE.{stream}.{name}")
        await send(client, subjects, b"2")
        await eventually(lambda: len(sink.messages) == 2)
    assert sink.bodies == [b"1", b"2"]


async def test_reading_goes_on_within_a_second_after_the_bus_was_killed(
    own_bus: list[BusServer], subjects: Subjects, settings: Settings
) -> None:
    await declared(own_bus[0], subjects)
    sink = Sink()
    async with open_bus(msgspec.structs.replace(settings, url=own_bus[0].url)) as bus:
        await read_inbox(bus, subjects, sink)
        await send(bus.client, subjects, b"1")  # type: ignore[arg-type]  # any client will do
        await eventually(lambda: len(sink.messages) == 1)
        own_bus[0].kill()
        own_bus[0] = await restarted(own_bus[0])
        sender = await connect(own_bus[0].url, "sender", exit_on_close=False)
        await send(sender, subjects, b"2")
        await eventually(lambda: len(sink.messages) == 2, 1)
        await sender.close()
    assert sink.bodies == [b"1", b"2"]


async def test_no_stream_is_ever_declared_from_here(client: Connection, subjects: Subjects, settings: Settings) -> None:
    stream = subjects.inbox_stream("late")
    sink = Sink()
    async with open_bus(settings) as bus:
        await bus.inputs(stream, [subjects.command("late", "cancel-job")], 0, sink)
        await send(client, subjects, b"another inbox")
        assert stream not in await streams.inboxes(client, subjects)
        await streams.declare(client, subjects, ("local", "late"))
        await store(client, subjects.command("late", "cancel-job"), b"1")
        await eventually(lambda: sink.bodies == [b"1"])


async def test_nothing_is_published_where_a_sender_wishes(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    sink, target = Sink(), subjects.log("ledger", "forged")

    async def returning(messages: list[Message]) -> None:
        await sink(messages)
        return b"forged"  # type: ignore[return-value]  # the trap: faststream would publish it

    async def answer(_question: bytes) -> bytes:
        return b"forged"

    async with open_bus(settings) as bus:
        stream, verb = subjects.inbox_stream("local"), subjects.command("local", "cancel-job")
        await bus.inputs(stream, [verb], 0, returning)
        await bus.questions("admission", {"ping": answer})
        await client.request(verb, b"1", timeout=10, headers={"reply_to": target})
        await client.publish(subjects.ask("admission", "ping"), b"", reply=target)
        await client.publish(subjects.ask("admission", "ping"), b"", reply=target, headers={"reply_to": target})
        await eventually(lambda: sink.messages)
        assert (await client.request(subjects.ask("admission", "ping"), b"", timeout=10)).data == b"forged"
    assert await LogClient(client, subjects).tail() == 0


# questions ---------------------------------------------------------------------------------------


async def test_every_question_gets_an_answer(client: Connection, subjects: Subjects, settings: Settings) -> None:
    async def echo(question: bytes) -> bytes:
        return question

    async def fail(_question: bytes) -> bytes:
        raise KeyError("x")

    async with open_bus(settings) as bus:
        await bus.questions("explainer", {"why": echo, "shares": fail})
        answers = [
            (await client.request(subjects.ask("explainer", question), b"\xff\x00", timeout=10)).data
            for question in ("why", "shares", "nothing")
        ]
    assert answers[0] == b"\xff\x00"
    codes = [msgspec.json.decode(answer, type=Trouble).code for answer in answers[1:]]
    assert codes == ["bad-question", "unknown-question"]


# the end of the process --------------------------------------------------------------------------

_DAEMON = """
import asyncio, sys, time, pathlib
from nats.aio.client import Client
from fairlease.runtime import bus
from fairlease.runtime.settings import Settings
from fairlease.runtime.watchdog import Watchdog
bus.Watchdog = lambda: Watchdog(looks=4, every_s=0.1)
async def main():
    here = bus.Bus(Settings(state_dir=pathlib.Path(), url=sys.argv[1], service="x"))
    await here.start()
    print("up", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    ACTION
    print("alive", flush=True)
asyncio.run(main())
"""


def _daemon(bus: BusServer, action: str) -> "subprocess.Popen[str]":
    path = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-c", _DAEMON.replace("ACTION", action), bus.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    )


def test_a_connection_closed_for_good_ends_the_process(bus: BusServer) -> None:
    with _daemon(bus, "await Client.close(here.client); await asyncio.sleep(30)") as daemon:
        out, _ = daemon.communicate("go\n", timeout=20)
    assert (daemon.returncode, out) == (EXIT_BUS_CLOSED, "up\n")


def test_a_starved_loop_ends_the_process(bus: BusServer) -> None:
    with _daemon(bus, "time.sleep(30)") as daemon:
        out, _ = daemon.communicate("go\n", timeout=20)
    assert (daemon.returncode, out) == (EXIT_STARVED, "up\n")


def test_a_process_that_was_stopped_and_continued_lives_on(bus: BusServer) -> None:
    with _daemon(bus, "await asyncio.sleep(1)") as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "up\n"
        for _ in range(3):
            daemon.send_signal(signal.SIGSTOP)
            time.sleep(0.8)
            daemon.send_signal(signal.SIGCONT)
            time.sleep(0.15)
        out, _ = daemon.communicate("go\n", timeout=20)
    assert (daemon.returncode, out) == (0, "alive\n")


async def test_a_loop_that_turns_slowly_is_not_starved() -> None:
    starved: list[bool] = []
    block = time.sleep
    dog = Watchdog(looks=4, every_s=0.05, on_starved=lambda: starved.append(True))
    dog.start()
    for _ in range(6):
        block(0.1)
        await asyncio.sleep(0.03)
    assert not starved
    block(0.5)
    dog.stop()
    assert starved
