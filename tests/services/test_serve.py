import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from fairlease.core.decision import Decision, decision_ms
from fairlease.core.world import World
from fairlease.runtime import api, streams
from fairlease.runtime.bus import Message
from fairlease.runtime.bus_server import BusServer
from fairlease.runtime.clock import BusClock
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.errors import (
    EXIT_CONFIG,
    EXIT_LOG_DAMAGED,
    BusAway,
    ConfigWrong,
    LogDamaged,
    LogMoved,
    ShellError,
)
from fairlease.runtime.log import LogClient
from fairlease.runtime.serve import Process
from fairlease.runtime.settings import Settings
from fairlease_schemas.codec import canonical
from fairlease_schemas.envelope import Answer, LeasesRead, Record, TimerFired
from fairlease_schemas.explain import Health
from fairlease_schemas.job import End
from fairlease_schemas.policy import Policy, PolicyChanged
from fairlease_schemas.reports import RunGone
from fairlease_schemas.subjects import Subjects
from tests.services.bench import (
    FIRST,
    Proxy,
    command,
    declared,
    eventually,
    read_log,
    record,
    refuse_all,
    restarted,
    serving,
    store,
    toy,
)


def _answered(log: list[Record]) -> list[int]:
    return [answer.seq for entry in log for answer in entry.answers if "INBOX" in answer.stream]


async def _until_answered(process: Process, subjects: Subjects, seq: int, limit_s: float = 30) -> None:
    stream = subjects.inbox_stream("local")
    await eventually(lambda: process.world.cursor(process.settings.service, stream) >= seq, limit_s)


# the loop ----------------------------------------------------------------------------------------


async def test_every_command_is_answered_once_in_order_and_the_cursor_follows(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    for number in range(30):
        await command(client, subjects, f"job-{number}")
    async with serving(settings, toy()) as process:
        for number in range(30, 60):
            await command(client, subjects, f"job-{number}")
        await _until_answered(process, subjects, 60)
    log = await read_log(client, subjects)
    assert _answered(log) == list(range(1, 61))
    assert log[0].events == (FIRST,)
    assert {answer.who for entry in log for answer in entry.answers} == {"local"}
    assert [entry.basis for entry in log] == list(range(len(log)))
    assert all(entry.at_ms == max(a.time_ms for a in entry.answers) for entry in log if entry.answers)


async def test_two_replicas_make_one_record_for_each_decision(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    other = msgspec.structs.replace(settings, replica="b")
    async with serving(settings, toy()) as one, serving(other, toy()) as two:
        for number in range(100):
            await command(client, subjects, f"job-{number}")
            if number % 10 == 0:
                await asyncio.sleep(0.002)
        await _until_answered(one, subjects, 100)
        await _until_answered(two, subjects, 100)
        assert one.world.digest() == two.world.digest()
    log = await read_log(client, subjects)
    assert _answered(log) == list(range(1, 101))
    assert len({entry.id for entry in log}) == len(log)


async def test_the_other_replica_goes_on_where_one_stopped(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    other = msgspec.structs.replace(settings, replica="b")
    async with serving(other, toy()) as two:
        async with serving(settings, toy()) as one:
            await command(client, subjects, "job-1")
            await _until_answered(one, subjects, 1)
        await command(client, subjects, "job-2")
        await _until_answered(two, subjects, 2)
    assert _answered(await read_log(client, subjects)) == [1, 2]


async def test_a_lost_ack_leaves_exactly_one_record(
    bus: BusServer, client: Connection, subjects: Subjects, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlease.runtime.log.APPEND_TIMEOUT_S", 0.2)
    monkeypatch.setattr("fairlease.runtime.api.TIMEOUT_S", 0.2)
    heard = LogClient(client, subjects)
    async with Proxy(bus.url) as proxy:
        real = LogClient.append

        async def deaf(self: LogClient, service: str, kind: str, data: bytes, expected: int) -> int:
            proxy.is_deaf = True
            try:
                return await real(self, service, kind, data, expected)
            finally:
                assert proxy.swallowed
                proxy.is_deaf = False

        async with serving(msgspec.structs.replace(settings, url=proxy.url), toy()) as process:
            await eventually(lambda: process.world.position == 1)
            for number in range(1, 4):
                monkeypatch.setattr(LogClient, "append", deaf)
                await command(client, subjects, f"job-{number}")
                await _until_answered(process, subjects, number)
            monkeypatch.setattr(LogClient, "append", real)
            await eventually(lambda: process._deciding is not None and process._deciding.written == 4)
    assert await heard.tail() == 4
    assert _answered(await read_log(client, subjects)) == [1, 2, 3]


async def test_a_bus_killed_again_and_again_loses_and_repeats_nothing(
    own_bus: list[BusServer], subjects: Subjects, settings: Settings
) -> None:
    await declared(own_bus[0], subjects)
    settings = msgspec.structs.replace(settings, url=own_bus[0].url)
    other = msgspec.structs.replace(settings, replica="b")
    async with serving(settings, toy()) as one, serving(other, toy()) as two:
        for killed in range(1, 5):
            client = await connect(own_bus[0].url, "sender", exit_on_close=False)
            for number in range(20):
                await command(client, subjects, f"job-{killed}-{number}")
            await client.close()
            own_bus[0].kill()
            own_bus[0] = await restarted(own_bus[0])
        await _until_answered(one, subjects, 80)
        await _until_answered(two, subjects, 80)
        client = await connect(own_bus[0].url, "reader", exit_on_close=False)
        assert _answered(await read_log(client, subjects)) == list(range(1, 81))
        await client.close()


async def test_after_eight_refusals_in_a_row_one_message_is_decided_alone(
    client: Connection, subjects: Subjects, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = LogClient.append, 8

    async def beaten(self: LogClient, service: str, kind: str, data: bytes, expected: int) -> int:
        nonlocal left
        if service == "admission" and kind == "refused" and left:
            left -= 1
            await store(client, subjects.log("ledger", "x"), record())
            with pytest.raises(LogMoved):
                await real(self, service, kind, data, expected)
            raise LogMoved
        return await real(self, service, kind, data, expected)

    monkeypatch.setattr(LogClient, "append", beaten)
    for number in range(5):
        await command(client, subjects, f"job-{number}")
    async with serving(settings, toy()) as process:
        await _until_answered(process, subjects, 5)
        health = await _health(client, subjects)
    sizes = [len(entry.answers) for entry in await read_log(client, subjects) if entry.answers]
    assert sizes == [1, 4]
    assert (health.moved, health.records_written) == (8, 3)


async def test_a_record_that_is_too_big_is_decided_in_parts(
    client: Connection, subjects: Subjects, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlease.runtime.deciding.MAX_RECORD_BYTES", 2_000)
    for number in range(40):
        await command(client, subjects, f"job-{number}")
    async with serving(settings, toy()) as process:
        await _until_answered(process, subjects, 40)
    log = await read_log(client, subjects)
    assert _answered(log) == list(range(1, 41))
    assert max(len(canonical(entry)) for entry in log) <= 2_000


async def test_a_flood_of_messages_is_no_flood_of_records(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    async with serving(settings, toy(gather_ms=100)) as process:
        for number in range(400):
            await command(client, subjects, f"job-{number}")
        await _until_answered(process, subjects, 400)
    log = await read_log(client, subjects)
    assert _answered(log) == list(range(1, 401))
    assert len(log) < 120


async def test_commands_wait_for_the_first_policy(client: Connection, subjects: Subjects, settings: Settings) -> None:
    def patient(world: World, answers: tuple[Answer, ...]) -> Decision | None:
        return None if world.policy is None else refuse_all(world, answers)

    await command(client, subjects, "job-1")
    async with serving(settings, toy(decide=patient)) as process:
        await eventually(lambda: len(process._pending) == 1)
        await store(client, subjects.log("ledger", "policy"), record(events=(FIRST,)))
        await _until_answered(process, subjects, 1)


async def test_a_report_is_judged_on_a_fold_that_holds_its_causes(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    async def slow(_world: World, _records: list[tuple[int, Record]]) -> None:
        await asyncio.sleep(0.1)

    async with serving(settings, toy(after_fold=slow, kinds=("run-gone",))) as process:
        await eventually(lambda: process.world.policy is not None)
        gone = canonical(RunGone(attempt="job-1-a1", token="1-1-0", end=End.LOST))
        for _ in range(3):
            basis = await LogClient(client, subjects).tail()
            await store(client, subjects.log("ranker", "x"), record("ranker", basis=basis))
            await store(client, subjects.report("host-1", "run-gone"), gone)
        await eventually(lambda: process.world.cursor("admission", subjects.reports_stream) == 3)
    log = await read_log(client, subjects)
    cause = 0
    for position, entry in enumerate(log, start=1):
        if entry.by == "ranker":
            cause = position
        if entry.answers:
            assert entry.answers[0].who == "host-1"
            assert entry.basis >= cause


async def test_an_inbox_made_while_the_service_runs_is_read(
    client: Connection, subjects: Subjects, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlease.runtime.serve.UPKEEP_S", 0.05)
    async with serving(settings, toy()) as process:
        await streams.declare(client, subjects, ("local", "new"))
        await command(client, subjects, "job-1", account="new")
        stream = subjects.inbox_stream("new")
        await eventually(lambda: process.world.cursor("admission", stream) == 1)


async def test_a_hook_is_called_again_when_the_bus_was_away(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    calls: list[tuple[int, list[int]]] = []

    async def hook(world: World, records: list[tuple[int, Record]]) -> None:
        calls.append((world.position, [position for position, _ in records]))
        if len(calls) == 1:
            raise BusAway("this time not")

    async with serving(settings, toy(after_fold=hook)) as process:
        await command(client, subjects, "job-1")
        await _until_answered(process, subjects, 1)
    assert calls[:2] == [(1, [1]), (1, [1])]
    assert calls[-1] == (2, [2])


# time --------------------------------------------------------------------------------------------


def _tick(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """Writes one record when 300 ms have passed since the policy, and none before."""
    if world.policy is None:
        return refuse_all(world, answers)
    now_ms = decision_ms(world, answers)
    if now_ms < _due_ms(world) or world.policy_name != FIRST.name:
        return None
    changed = PolicyChanged(name="late", author="test", policy=Policy())
    return Decision(kind="late", at_ms=now_ms, events=(changed,), answers=answers)


_BEGAN_MS = time.time_ns() // 1_000_000


def _due_ms(world: World) -> int:
    return _BEGAN_MS + 300 if world.policy_name == FIRST.name else 2 * _BEGAN_MS


async def test_a_due_is_met_by_a_timer_and_the_record_names_it(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    async with serving(settings, toy(decide=_tick, due_ms=_due_ms)) as process:
        await eventually(lambda: process.world.policy_name == "late")
        assert len(process._pending) == 0
    late = (await read_log(client, subjects))[-1]
    (answer,) = late.answers
    assert isinstance(answer.said, TimerFired)
    assert (answer.stream, answer.said.due_ms, answer.who) == (
        subjects.timers_stream("admission"),
        _BEGAN_MS + 300,
        "admission",
    )
    assert answer.time_ms == late.at_ms
    assert late.at_ms >= _BEGAN_MS + 300


async def test_timers_without_effect_are_dropped(client: Connection, subjects: Subjects, settings: Settings) -> None:
    async with serving(settings, toy(decide=_tick, due_ms=lambda _world: 2 * _BEGAN_MS)) as process:
        await eventually(lambda: process.world.policy is not None)
        for due_ms in range(20):
            await store(client, subjects.timer("admission", due_ms), b"")
        await store(client, subjects.timer("admission", 0).rpartition(".")[0] + ".nonsense", b"\xff")
        await command(client, subjects, "job-1")
        await eventually(lambda: process.world.policy_name == "late" or len(process._pending) == 0)


async def test_a_service_may_read_its_timers_itself_and_again_while_the_bus_is_away(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    read: list[int] = []

    async def read_timer(message: Message) -> Answer:
        read.append(message.seq)
        if len(read) == 1:
            raise BusAway("this time not")
        said = LeasesRead(due_ms=7, renewed={"host-1": 5})
        return Answer(stream=message.stream, seq=message.seq, time_ms=message.time_ms, who="admission", said=said)

    def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
        if world.policy is None or not answers:
            return refuse_all(world, ())
        return Decision(kind="timers", at_ms=decision_ms(world, answers), answers=answers)

    async with serving(settings, toy(decide=decide, read_timer=read_timer)) as process:
        await store(client, subjects.timer("admission", 0).rpartition(".")[0] + ".nonsense", b"")
        await store(client, subjects.timer("admission", 7), b"")
        await eventually(lambda: process.world.cursor("admission", subjects.timers_stream("admission")) == 2)
    assert read == [2, 2]
    assert (await read_log(client, subjects))[-1].answers[0].said == LeasesRead(due_ms=7, renewed={"host-1": 5})


async def test_no_record_of_a_service_that_needs_it_is_older_than_a_second(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    def rank(world: World, answers: tuple[Answer, ...]) -> Decision | None:
        if world.policy_name == "ranked":
            return None
        changed = PolicyChanged(name="ranked", author="test", policy=Policy())
        return Decision(kind="ranked", at_ms=decision_ms(world, answers), events=(changed,), answers=answers)

    await store(client, subjects.log("ledger", "policy"), record(events=(FIRST,), at_ms=1_000))
    ranker = msgspec.structs.replace(settings, service="ranker")
    async with serving(ranker, toy(decide=rank, read=None, verbs=(), needs_fresh_time=True)) as process:
        await eventually(lambda: process.world.policy_name == "ranked")
    ranked = (await read_log(client, subjects))[-1]
    assert abs(ranked.at_ms - time.time() * 1_000) < 5_000
    assert isinstance(ranked.answers[0].said, TimerFired)


async def test_a_process_with_a_wrong_clock_writes_nothing_until_it_is_right(
    client: Connection, subjects: Subjects, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlease.runtime.serve.UPKEEP_S", 0.05)
    ahead_ms = 3_600_000
    clock = BusClock(wall_ms=lambda: time.time_ns() // 1_000_000 + ahead_ms)
    monkeypatch.setattr("fairlease.runtime.serve.BusClock", lambda: clock)
    async with serving(settings, toy()) as process:
        await command(client, subjects, "job-1")
        await eventually(lambda: len(process._pending) == 1)
        assert await LogClient(client, subjects).tail() == 0
        ahead_ms = 0
        await _until_answered(process, subjects, 1)


# damage and drift --------------------------------------------------------------------------------


async def _run_to_its_end(settings: Settings) -> ShellError:
    with pytest.raises(ShellError) as caught:
        await asyncio.wait_for(Process(settings, toy()).run(), 10)
    return caught.value


@pytest.mark.parametrize(
    ("service", "data"),
    [
        ("ledger", b"\xff"),
        ("ledger", b"{}"),
        ("ledger", record().replace(b'"v":1', b'"v":2')),
        ("ledger", record("admission")),
        ("ledger", record(basis=99)),
        ("ledger", record("nobody")),
    ],
    ids=["no text", "no record", "another version", "another author", "decided later", "an unknown author"],
)
async def test_a_poison_record_stops_the_writer_for_good(
    client: Connection, subjects: Subjects, settings: Settings, service: str, data: bytes
) -> None:
    await command(client, subjects, "job-1")
    await store(client, subjects.log(service, "x"), record(events=(FIRST,)))
    await store(client, subjects.log(service, "x"), data)
    error = await _run_to_its_end(settings)
    assert isinstance(error, LogDamaged)
    assert "record 2" in str(error)
    assert await LogClient(client, subjects).tail() == 2


async def test_a_poison_record_that_comes_later_stops_it_too(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    process = Process(settings, toy())
    task = asyncio.create_task(process.run())
    await process.ready.wait()
    await eventually(lambda: process.world.position == 1)
    await store(client, subjects.log("ledger", "x"), b"poison")
    with pytest.raises(LogDamaged, match="record 2"):
        await asyncio.wait_for(task, 10)
    await command(client, subjects, "job-1")
    assert await LogClient(client, subjects).tail() == 2


async def test_a_stream_that_was_changed_is_refused_at_the_start(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    config = (await api.request(client, f"STREAM.INFO.{subjects.log_stream}"))["config"]
    await api.request(client, f"STREAM.UPDATE.{subjects.log_stream}", {**config, "max_age": 3_600_000_000_000})
    error = await _run_to_its_end(settings)
    assert isinstance(error, ConfigWrong)
    assert "max_age" in str(error)


async def test_an_inbox_that_lost_answered_messages_is_refused(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    async with serving(settings, toy()) as process:
        await command(client, subjects, "job-1")
        await _until_answered(process, subjects, 1)
    await client.jsm().delete_stream(subjects.inbox_stream("local"))
    await streams.declare(client, subjects, ("local",))
    error = await _run_to_its_end(settings)
    assert isinstance(error, LogDamaged)
    assert subjects.inbox_stream("local") in str(error)


# snapshots, health, the process ------------------------------------------------------------------


async def test_a_start_from_a_snapshot_and_the_tail_is_a_start_from_zero(
    client: Connection, subjects: Subjects, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlease.runtime.folding.SNAPSHOT_EVERY", 10)
    async with serving(settings, toy()) as process:
        for number in range(1, 26):
            await command(client, subjects, f"job-{number}")
            await _until_answered(process, subjects, number)
        await eventually(lambda: len(list(settings.own_dir.glob("*.fold"))) == 2)
    seen: list[int] = []

    async def hook(_world: World, records: list[tuple[int, Record]]) -> None:
        seen.extend(position for position, _ in records)

    async with serving(settings, toy(after_fold=hook)) as again:
        assert seen == []
        await command(client, subjects, "job-26")
        await _until_answered(again, subjects, 26)
        with_snapshot = again.world.digest()
    fresh = msgspec.structs.replace(settings, replica="fresh")
    async with serving(fresh, toy(after_fold=hook)) as from_zero:
        assert from_zero.world.digest() == with_snapshot
    assert seen == [27, *range(1, 28)]


async def test_a_snapshot_of_another_log_is_damage_not_a_start(
    client: Connection, subjects: Subjects, settings: Settings
) -> None:
    async with serving(settings, toy()) as process:
        await eventually(lambda: process.world.position == 1)
    await client.jsm().delete_stream(subjects.log_stream)
    await streams.declare(client, subjects, ("local",))
    await store(client, subjects.log("ledger", "x"), record(events=(FIRST,), at_ms=2))
    error = await _run_to_its_end(settings)
    assert isinstance(error, LogDamaged)
    assert "another record stands at 1" in str(error)


async def _health(client: Connection, subjects: Subjects, service: str = "admission") -> Health:
    return msgspec.json.decode(
        (await client.request(subjects.ask(service, "health"), b"", timeout=10)).data, type=Health
    )


async def test_a_service_tells_about_itself(client: Connection, subjects: Subjects, settings: Settings) -> None:
    async with serving(settings, toy()) as process:
        await eventually(lambda: process.world.position == 1)
        await eventually(lambda: process._deciding is not None and process._deciding.written == 1)
        health = await _health(client, subjects)
    assert (health.service, health.replica, health.pid) == ("admission", "a", os.getpid())
    assert (health.is_ready, health.position, health.records_written, health.moved) == (True, 1, 1, 0)
    assert len(health.fold_version) == 64


_MAIN = (
    "import asyncio, sys; from fairlease.runtime.serve import serve\n"
    "from fairlease.runtime.settings import read_settings; from tests.services.bench import toy\n"
    "sys.exit(asyncio.run(serve(read_settings('admission'), toy())))"
)


def _start(settings: Settings, told: Path) -> "subprocess.Popen[bytes]":
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "FAIRLEASE_HOME": str(settings.state_dir),
        "FAIRLEASE_URL": settings.url,
        "FAIRLEASE_CELL": settings.cell,
    }
    with told.open("wb") as stderr:
        return subprocess.Popen([sys.executable, "-c", _MAIN], env=env, stderr=stderr)


async def test_a_signal_ends_the_process_in_order_within_a_second(
    client: Connection, subjects: Subjects, settings: Settings, tmp_path: Path
) -> None:
    with _start(settings, tmp_path / "told") as process:
        await command(client, subjects, "job-1")
        log = LogClient(client, subjects)
        async with asyncio.timeout(20):
            while await log.tail() < 2:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        began_s = time.monotonic()
        assert await asyncio.to_thread(process.wait, 10) == 0
        assert time.monotonic() - began_s < 1
    assert len(list(settings.own_dir.glob("*.fold"))) == 1


async def test_a_signal_ends_a_process_that_still_waits_for_its_bus(settings: Settings, tmp_path: Path) -> None:
    with _start(msgspec.structs.replace(settings, url="nats://127.0.0.1:1"), tmp_path / "told") as process:
        await eventually(lambda: b"ConnectionRefused" in (tmp_path / "told").read_bytes())
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 10) == 0


@pytest.mark.parametrize("is_poisoned", [True, False], ids=["poison", "drift"])
async def test_what_a_restart_cannot_mend_has_an_exit_code_of_its_own(
    client: Connection, subjects: Subjects, settings: Settings, tmp_path: Path, is_poisoned: bool
) -> None:
    if is_poisoned:
        await store(client, subjects.log("ledger", "x"), b"poison")
    else:
        config = (await api.request(client, f"STREAM.INFO.{subjects.log_stream}"))["config"]
        await api.request(client, f"STREAM.UPDATE.{subjects.log_stream}", {**config, "max_age": 3_600_000_000_000})
    with _start(settings, tmp_path / "told") as process:
        code = await asyncio.to_thread(process.wait, 20)
    told = Counter(line.count('"level": "error"') for line in (tmp_path / "told").read_text("utf-8").splitlines())
    assert code == (EXIT_LOG_DAMAGED if is_poisoned else EXIT_CONFIG)
    assert told[1] == 1
