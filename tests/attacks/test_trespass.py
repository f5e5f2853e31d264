"""What belongs to others stays theirs: their commands and answers, their hosts, their inboxes, their streams."""

import json
from pathlib import Path

import pytest

from fairlease.runtime import keys
from fairlease.runtime.connection import connect
from fairlease_schemas.subjects import BEGIN, SCOPES, SERVICES, VERBS
from tests.attacks.bench import PEOPLE, STREAMS, SUBJECTS, Bus, Party

pytestmark = pytest.mark.asyncio(loop_scope="module")

BODY = b'{"forged":true}'
FEED, CONTRACTS, LEASES = SUBJECTS.feed_stream, SUBJECTS.contracts_stream, SUBJECTS.leases_stream


async def _refused(party: Party, *subjects: str) -> None:
    """The bus refuses a message on each of these, one by one."""
    for subject in subjects:
        await party.say(subject, BODY)
        assert len(await party.refusals()) == 1, (party.name, subject)


async def _deaf(party: Party, *subjects: str) -> None:
    """The bus refuses to let it listen on any of these."""
    for subject in subjects:
        await party.client.subscribe(subject)
        assert len(await party.refusals()) == 1, (party.name, subject)


async def test_a_project_can_neither_send_nor_hear_for_another(bus: Bus) -> None:
    before, ci = await bus.seen(), await bus.as_("client-ci")
    await _refused(ci, *(SUBJECTS.command("local", verb) for verb in ("submit-job", "cancel-job", "change-policy")))
    await _refused(ci, SUBJECTS.answer("ci", 5), SUBJECTS.feed("team-a", "job-x", "job-admitted"))
    await _deaf(ci, SUBJECTS.answer("local", 1), "fl.lab.answer.*.*", "fl.lab.cmd.local.*", "fl.lab.cmd.>", ">")
    await _refused(ci, f"{VERBS}.DIRECT.GET.{FEED}.{SUBJECTS.answer('local', 1)}", f"{VERBS}.DIRECT.GET.{FEED}")
    await _refused(ci, *(f"{VERBS}.STREAM.MSG.GET.{stream}" for stream in STREAMS))
    await _refused(ci, f"{VERBS}.STREAM.INFO.{SUBJECTS.inbox_stream('local')}")
    assert await bus.seen() == before


async def test_a_bot_looks_after_hosts_and_sends_nothing_else(bus: Bus) -> None:
    fixer = await bus.as_("client-fixer")
    own = [SUBJECTS.command("fixer", verb) for verb in ("request-drain", "return-host")]
    before = await bus.seen(*own)
    for subject in own:
        assert "seq" in (await fixer.ask(subject, BODY) or {})
    verbs = (
        "submit-job",
        "cancel-job",
        "hold-job",
        "change-budget",
        "change-member",
        "change-policy",
        "propose-change",
    )
    verbs += ("report-change", "accept-change")
    await _refused(fixer, *(SUBJECTS.command("fixer", verb) for verb in verbs), SUBJECTS.bundle("fixer", "d", 0))
    await _refused(fixer, *(SUBJECTS.command("ci", verb) for verb in ("request-drain", "return-host")))
    assert await bus.seen(*own) == before


@pytest.mark.parametrize(
    "body",
    [
        {"seq": 1},
        {"last_by_subj": SUBJECTS.answer("local", 1)},
        {"multi_last": ["fl.lab.answer.local.>"]},
        {"next_by_subj": "fl.lab.answer.local.>", "seq": 1, "batch": 10},
        {"seq": 1, "batch": 100},
    ],
    ids="-".join,
)
async def test_an_answer_asked_for_by_its_subject_is_that_one_whatever_the_body_asks(
    bus: Bus, body: dict[str, object]
) -> None:
    ci = await bus.as_("client-ci")
    inbox = ci.client.new_inbox()
    heard = await ci.client.subscribe(inbox)
    asked = f"{VERBS}.DIRECT.GET.{FEED}.{SUBJECTS.answer('ci', 1)}"
    await ci.say(asked, json.dumps(body).encode(), reply=inbox)
    await ci.say(asked, b"", reply=inbox)
    found: list[bytes] = []
    while b'{"secret": "ci"}' not in found:
        found.append((await heard.next_msg(timeout=10)).data)
    await heard.unsubscribe()
    assert found == [b"", b'{"secret": "ci"}']


async def test_a_terminal_is_typed_in_and_seen_by_its_own_account_alone(bus: Bus) -> None:
    """The agent believes the subject, and so nobody else may write it, nor show what the agent did not."""
    ci, local, one, two = [await bus.as_(name) for name in ("client-ci", "client-local", "agent-one", "agent-two")]
    said, shown = SUBJECTS.attach("host-001", "local", "5e55"), SUBJECTS.shown("host-001", "local", "0a")
    typed = await one.client.subscribe(SUBJECTS.attach("host-001", "*", "*"))
    seen = await local.client.subscribe(shown)
    await _refused(ci, said, SUBJECTS.attach("host-001", "local", BEGIN), shown)
    await _deaf(ci, said, shown, "fl.lab.shown.*.*.*", "fl.lab.attach.*.*.*")
    await _refused(two, shown, said)
    await _deaf(two, said, "fl.lab.attach.>")
    await _refused(await bus.as_("client-fixer"), SUBJECTS.attach("host-001", "fixer", BEGIN))
    assert [await party.refusals() for party in (local, one)] == [[], []]
    await local.say(said, b"keys")
    assert (await typed.next_msg(timeout=10)).data == b"keys"
    await one.say(shown, b"screen")
    assert (await seen.next_msg(timeout=10)).data == b"screen"
    assert (typed.pending_msgs, seen.pending_msgs) == (0, 0)


async def test_code_is_one_accounts_and_its_agents(bus: Bus) -> None:
    ci, bundles = await bus.as_("client-ci"), SUBJECTS.bundles_stream
    before = await bus.seen()
    await _refused(ci, SUBJECTS.bundle("local", "d", 0), SUBJECTS.bundle("local", "d", 1))
    asked = [f"{VERBS}.DIRECT.GET.{bundles}.{SUBJECTS.bundle('local', 'd', piece)}" for piece in (0, 1)]
    await _refused(ci, *asked, f"{VERBS}.DIRECT.GET.{bundles}", f"{VERBS}.DIRECT.GET.{bundles}.fl.lab.bundle.>")
    await _refused(await bus.as_("agent-one"), SUBJECTS.bundle("local", "d", 0), f"{VERBS}.DIRECT.GET.{bundles}")
    assert await bus.seen() == before


async def test_an_account_reads_nothing_of_hosts_and_contracts(bus: Bus) -> None:
    for name in ("client-ci", "client-local"):
        party = await bus.as_(name)
        kinds = (SUBJECTS.report("host-001", "*"), SUBJECTS.lease("*"), SUBJECTS.telemetry("*", "*"))
        await _deaf(party, *kinds, SUBJECTS.order("*"), SUBJECTS.contract("*"), SUBJECTS.ask("agent-host-001", "*"))
        await _refused(party, f"{VERBS}.DIRECT.GET.{CONTRACTS}.{SUBJECTS.contract('c0ffee')}")
        await _refused(party, f"{VERBS}.DIRECT.GET.{LEASES}.{SUBJECTS.lease('host-001')}")
        await _refused(party, *(f"{VERBS}.CONSUMER.CREATE.{stream}.mine" for stream in STREAMS))


async def test_an_agent_speaks_and_hears_for_its_own_hosts_alone(bus: Bus) -> None:
    before, two = await bus.seen(), await bus.as_("agent-two")
    others = ("host-001", "host-002", "host-9")
    for host in others:
        said = (SUBJECTS.report(host, "run-gone"), SUBJECTS.lease(host), SUBJECTS.telemetry(host, "gpus"))
        await _refused(two, *said, SUBJECTS.evidence(host, "d"), SUBJECTS.order(host))
        await _deaf(two, SUBJECTS.order(host), SUBJECTS.ask(f"agent-{host}", "logs"))
        await _refused(two, f"{VERBS}.DIRECT.GET.{SUBJECTS.orders_stream}.{SUBJECTS.order(host)}")
    await _refused(two, SUBJECTS.command("local", "submit-job"), SUBJECTS.ask("explainer", "jobs"))
    await _deaf(two, SUBJECTS.contract("*"), "fl.lab.ask.*.logs", "fl.lab.>")
    assert await bus.seen() == before


@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_writes_no_record_of_another_and_none_outside_its_scope(bus: Bus, name: str) -> None:
    before, party = await bus.seen(), await bus.as_(f"service-{name}")
    await _refused(party, *(SUBJECTS.log(other, "forged") for other in SCOPES if other != name))
    await _refused(
        party, *(f"fl.lab.log.{scope}.{name}.x" for scope in ("intake", "alloc") if SCOPES.get(name) != scope)
    )
    await _refused(party, f"fl.lab.log.intake.{name}", f"fl.lab.log.alloc.{name}.x.y", "fl.lab.log.x.x.x")
    await _refused(party, *(SUBJECTS.command(account, "change-policy") for account in ("local", "ci")))
    await _refused(party, SUBJECTS.report("host-001", "run-gone"), SUBJECTS.lease("host-001"))
    assert await bus.seen() == before


@pytest.mark.parametrize("name", PEOPLE)
async def test_nobody_changes_empties_or_replaces_a_stream(bus: Bus, name: str) -> None:
    before, party = await bus.seen(), await bus.as_(name)
    for stream in STREAMS:
        verbs = ("UPDATE", "DELETE", "PURGE", "RESTORE", "SNAPSHOT", "MSG.DELETE", "LEADER.STEPDOWN")
        await _refused(party, *(f"{VERBS}.STREAM.{verb}.{stream}" for verb in verbs))
        await _refused(party, *(f"$JS.API.STREAM.{verb}.{stream}" for verb in (*verbs, "CREATE", "INFO")))
    assert await bus.seen() == before


async def test_the_deployer_makes_no_stream_that_is_there_anew(bus: Bus) -> None:
    """Nor does it have other streams republished, mirrored or gathered into one that is there."""
    before, party = await bus.seen(), await bus.as_(keys.DEPLOYER)
    for stream in STREAMS:
        tricks: list[dict[str, object]] = [
            {"subjects": ["fl.other.>"]},
            {"max_msgs": 1, "discard": "old"},
            {"republish": {"src": ">", "dest": SUBJECTS.log("ledger", "forged")}},
            {"sources": [{"name": SUBJECTS.timers_stream}]},
            {"mirror": {"name": SUBJECTS.timers_stream}},
        ]
        for trick in tricks:
            answer = await party.ask(f"{VERBS}.STREAM.CREATE.{stream}", {"name": stream, **trick})
            assert answer is not None
            assert "error" in answer, (stream, trick)
    await _refused(party, f"{VERBS}.STREAM.CREATE.OTHER", f"{VERBS}.STREAM.CREATE.*")
    assert await bus.seen() == before


async def test_nobody_hears_the_inbox_of_another(bus: Bus) -> None:
    for name in PEOPLE:
        party = await bus.as_(name)
        await _deaf(
            party, "_INBOX.>", "_INBOX.*", "_INBOX.*.>", "_R_.>", *(f"_INBOX.{o}.>" for o in PEOPLE if o != name)
        )
        await _refused(party, f"_INBOX.{name}.x", "_INBOX.x", "_R_.x.y")


async def test_two_with_the_same_words_hear_each_their_own_answer(bus: Bus) -> None:
    """Accounts whose inbox subjects are the same to the letter are still two."""
    parties = [await bus.as_(name) for name in ("client-ci", "client-local")]
    asked = [f"{VERBS}.DIRECT.GET.{FEED}.{SUBJECTS.answer(p.name.removeprefix('client-'), 1)}" for p in parties]
    heard = [await party.client.request(ask, b"") for party, ask in zip(parties, asked, strict=True)]
    assert [message.data for message in heard] == [b'{"secret": "ci"}', b'{"secret": "local"}']


@pytest.mark.parametrize("who", ["nobody", "a stranger with a key of its own", "a name and a password"])
async def test_who_has_no_key_of_this_cell_is_not_let_in(bus: Bus, tmp_path: Path, who: str) -> None:
    key = keys.make(tmp_path, keys.AUDIT) if "key" in who else None
    url = bus.url.replace("//", "//audit:audit@") if "password" in who else bus.url
    with pytest.raises(keys.NoKey, match="refuses"):
        await connect(url, "stranger", key=key, exit_on_close=False)
