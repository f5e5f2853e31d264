"""Whoever has a key of this cell, and no good will, cannot make the bus write for others.

A publish permission does not look at the reply subject, and the bus answers there: by that an account
could store what it likes under another's name, were it not alone (docs/security.md). The first test shows
that the attacks of this file work where nobody lives apart.
"""

import json
from collections.abc import AsyncIterator

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client

from fairlease.runtime import bus_server, streams
from fairlease.runtime.permissions import HOLDERS
from fairlease_schemas.subjects import SCOPES, VERBS
from tests.attacks.bench import ACCOUNTS, PEOPLE, SUBJECTS, Bus, Party
from tests.attacks.test_matrix import may_store
from tests.live.court import eventually
from tests.live.journal import Stored, read_stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

TARGETS = [
    *(SUBJECTS.log(name, "forged") for name in SCOPES),
    *(SUBJECTS.command(account, "change-policy") for account in ACCOUNTS),
    *(SUBJECTS.answer(account, 99) for account in ACCOUNTS),
    *(SUBJECTS.report("host-001", "run-gone"), SUBJECTS.lease("host-003"), SUBJECTS.order("host-001")),
    *(SUBJECTS.order("host-003"), SUBJECTS.timer("health", 1), SUBJECTS.contract("forged")),
    *(SUBJECTS.feed("team-a", "job-x", "forged"), SUBJECTS.telemetry("host-001", "gpus")),
    *(SUBJECTS.host_feed("host-001", "forged"), SUBJECTS.evidence("host-001", "forged")),
    *(SUBJECTS.bundle(account, "forged", 0) for account in ACCOUNTS),
]
BODY = b'{"forged":true}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stranger(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A connection to a bus without accounts, with the same streams."""
    server = bus_server.start(tmp_path_factory.mktemp("open") / "home", dies_with_parent=True)
    client = await nats.connect(server.url)
    await streams.declare(client, SUBJECTS, ACCOUNTS)
    yield client
    await client.close()
    server.stop()


def _foreign(name: str) -> list[str]:
    """Those subjects where this one may not write: what it makes the bus write where it may itself is its own word."""
    return [target for target in TARGETS if not may_store(name, target)]


def _own(name: str) -> list[str]:
    """Subjects of streams where this one may write: one of each kind of row."""
    ways = [way.name for way in PEOPLE[name].sends if way.account in HOLDERS]
    return [way.replace("*", "own") for way in ways if not way.startswith(VERBS)]


def _verbs(name: str, *starts: str) -> list[str]:
    """The verbs granted to this one that begin so."""
    ways = (way.name for way in PEOPLE[name].sends)
    return [way.replace("*", "own") for way in ways if way.removeprefix(VERBS + ".").startswith(starts)]


async def test_on_a_bus_without_accounts_each_of_these_forges_a_record(stranger: Client) -> None:
    log, mine = SUBJECTS.log_stream, SUBJECTS.command("ci", "submit-job")
    target = SUBJECTS.log("placement", "forged")
    await stranger.request(SUBJECTS.log("ranker", "x"), BODY)

    async def grows(subject: str, body: bytes = b"") -> list[Stored]:
        before = len(await read_stream(stranger, log))
        await stranger.publish(subject, body, reply=target)
        await stranger.request(subject, body)
        await stranger.request(SUBJECTS.log("ranker", "x"), b"behind")
        found = await read_stream(stranger, log)
        return [message for message in found[before:] if message.subject == target]

    assert [json.loads(m.data)["stream"] for m in await grows(mine, BODY)] == [SUBJECTS.inbox_stream("ci")]
    # Where somebody listens, a consumer delivers; and what it delivers there is stored there too.
    await stranger.subscribe(target)
    config = {"name": "push", "ack_policy": "none", "deliver_subject": target}
    create = f"{VERBS}.CONSUMER.CREATE.{SUBJECTS.inbox_stream('ci')}.push"
    body = {"stream_name": SUBJECTS.inbox_stream("ci"), "config": config}
    before = len(await read_stream(stranger, log))
    assert b"error" not in (await stranger.request(create, json.dumps(body).encode())).data

    async def pushed() -> set[str]:
        return {m.subject for m in (await read_stream(stranger, log))[before:] if m.data == BODY}

    assert await eventually(pushed, "what was delivered is stored") == {mine}
    assert [m.data for m in await grows(f"{VERBS}.DIRECT.GET.{log}.{SUBJECTS.log('ranker', 'x')}")] == [b"behind"]


@pytest.mark.parametrize("name", [name for name in PEOPLE if _own(name)])
async def test_an_acknowledgement_sent_elsewhere_stores_nothing(bus: Bus, name: str) -> None:
    party, own = await bus.as_(name), _own(name)
    before = await bus.seen(*own)
    for subject in own:
        for target in _foreign(name):
            await party.say(subject, BODY, reply=target)
        await party.ask(subject, BODY)
    assert await party.refusals() == []
    assert await bus.seen(*own) == before


@pytest.mark.parametrize(
    "name", [name for name in PEOPLE if _verbs(name, "DIRECT.GET", "STREAM.MSG.GET", "STREAM.INFO")]
)
async def test_what_was_read_and_sent_elsewhere_stores_nothing(bus: Bus, name: str) -> None:
    party = await bus.as_(name)
    before = await bus.seen()
    for subject in _verbs(name, "DIRECT.GET", "STREAM.MSG.GET", "STREAM.INFO", "STREAM.NAMES"):
        for body in (b"", b'{"seq":1}'):
            for target in _foreign(name):
                await party.say(subject, body, reply=target)
            await party.ask(subject, body)
    assert await party.refusals() == []
    assert await bus.seen() == before


@pytest.mark.parametrize("name", [name for name in PEOPLE if _verbs(name, "CONSUMER.MSG.NEXT")])
async def test_messages_asked_for_and_sent_elsewhere_store_nothing(bus: Bus, name: str) -> None:
    party = await bus.as_(name)
    before = await bus.seen()
    for ask in _verbs(name, "CONSUMER.MSG.NEXT"):
        stream = ask.split(".")[-2]
        assert await _consumer(party, stream, {}) is not None
        for target in _foreign(name):
            await party.say(ask, b"1", reply=target)
        await party.ask(ask, json.dumps({"batch": 1, "no_wait": True}).encode())
    assert await party.refusals() == []
    assert await bus.seen() == before


@pytest.mark.parametrize("name", [name for name in PEOPLE if _verbs(name, "CONSUMER.CREATE")])
async def test_a_consumer_that_delivers_elsewhere_stores_and_changes_nothing(bus: Bus, name: str) -> None:
    """The bus refuses to deliver a stream to itself; and nobody listens where the streams are."""
    party = await bus.as_(name)
    before = await bus.seen()
    elsewhere = [
        *TARGETS[:7],
        *TARGETS[-7:],
        *(f"$JS.API.STREAM.{verb}.{SUBJECTS.feed_stream}" for verb in ("DELETE", "PURGE")),
    ]
    elsewhere += [f"$JS.API.STREAM.{verb}.{SUBJECTS.log_stream}" for verb in ("DELETE", "PURGE", "UPDATE")]
    for create in _verbs(name, "CONSUMER.CREATE"):
        stream = create.split(".")[-2]
        for target in elsewhere:
            made = await _consumer(party, stream, {"deliver_subject": target})
            assert made is not None
            if stream == SUBJECTS.log_stream and ".log." in target:
                assert "forms a cycle" in str(made["error"]), made
    assert await bus.seen() == before


async def _consumer(party: Party, stream: str, more: dict[str, str]) -> dict[str, object] | None:
    """Makes the consumer `own`, or another when that one cannot become this."""
    name = f"own-{abs(hash(more.get('deliver_subject', '')))}" if more else "own"
    config = {"name": name, "ack_policy": "none", "deliver_policy": "all", "inactive_threshold": 10**9, **more}
    return await party.ask(f"{VERBS}.CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})


async def test_a_message_id_used_first_by_another_account_loses_no_command(bus: Bus) -> None:
    for name in ("client-ci", "client-local"):
        account = name.removeprefix("client-")
        party = await bus.as_(name)
        stored = await party.ask(SUBJECTS.command(account, "submit-job"), BODY, {"Nats-Msg-Id": "the-same"})
        assert stored is not None
        assert (stored["stream"], "duplicate" in stored) == (SUBJECTS.inbox_stream(account), False)


@pytest.mark.parametrize("name", ["ranker", "admission", "health"])
async def test_a_timer_cannot_be_armed_for_a_record(bus: Bus, name: str) -> None:
    party, mine = await bus.as_(f"service-{name}"), SUBJECTS.schedule(name, 77)
    before = await bus.seen(mine)
    for target in TARGETS:
        headers = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": target}
        answer = await party.ask(mine, BODY, headers)
        assert answer is not None
        assert ("error" in answer) or ".timer." in target, (target, answer)
    after = await bus.seen(mine, SUBJECTS.timer("health", 1))
    assert {k: v for k, v in after.items() if "TIMERS" not in k} == {
        k: v for k, v in before.items() if "TIMERS" not in k
    }


async def test_nobody_may_change_empty_or_restore_a_stream() -> None:
    forbidden = ("UPDATE", "DELETE", "PURGE", "RESTORE", "SNAPSHOT", "MSG.DELETE", "STEPDOWN", "PEER")
    rows = [way.subject for one in PEOPLE.values() for way in one.sends if way.subject.startswith("$JS.API.STREAM.")]
    assert [row for row in rows if row.split("$JS.API.STREAM.")[1].startswith(forbidden)] == []
    assert [row for one in PEOPLE.values() for way in one.sends for row in [way.subject] if ">" in row] == []


@pytest.mark.parametrize("name", [name for name in PEOPLE if _own(name)])
@pytest.mark.parametrize("rollup", ["all", "sub"])
async def test_a_rollup_header_takes_nothing_away_from_anybody_else(bus: Bus, name: str, rollup: str) -> None:
    """Given streams with messages of many, when one who may write there asks the bus to sweep, then they all stay.

    Schedules need a stream that takes the header [measured], so each service with timers can sweep its own, which no
    one else reads.
    """
    party, own = await bus.as_(name), _own(name)
    before = await bus.seen(*own)
    for subject in own:
        answer = await party.ask(subject, BODY, {"Nats-Rollup": rollup})
        assert answer is not None
        assert ("error" in answer) == (".timer." not in subject and ".schedule." not in subject), (subject, answer)
    after = await bus.seen(*own)
    mine = SUBJECTS.timers_stream(name.removeprefix("service-"))
    assert {k: v for k, v in after.items() if k != mine} == {k: v for k, v in before.items() if k != mine}


@pytest.mark.parametrize("name", ["ranker", "admission", "health"])
async def test_a_timer_of_another_service_cannot_be_armed(bus: Bus, name: str) -> None:
    party = await bus.as_(f"service-{name}")
    before = await bus.seen()
    for other in {"ranker", "admission", "health"} - {name}:
        headers = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": SUBJECTS.timer(other, 1)}
        answer = await party.ask(SUBJECTS.schedule(name, 77), BODY, headers)
        assert "error" in (answer or {}), answer
    assert await bus.seen() == before
