"""What belongs to others stays theirs: their commands and answers, their hosts, their inboxes, their streams."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlease.runtime import keys
from fairlease.runtime.connection import connect, settle
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


async def test_a_bot_that_has_hosts_of_its_own_drains_no_other(bus: Bus) -> None:
    """Given a bot of one host, when it asks for others, for all or for one by a body alone, then the bus refuses it."""
    warden = await bus.as_("client-warden")
    own = [SUBJECTS.command("warden", verb, "host-001") for verb in ("request-drain", "undrain-host")]
    before = await bus.seen(*own)
    for subject in own:
        assert "seq" in (await warden.ask(subject, BODY) or {})
    others = [SUBJECTS.command("warden", "request-drain", host) for host in ("host-002", "host-003", "*", ">")]
    await _refused(warden, SUBJECTS.command("warden", "request-drain"), *others)
    await _refused(warden, SUBJECTS.command("fixer", "request-drain", "host-001"))
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


WILD = ("*", ">", "**", "*>", ">*", "*>*", "c0ff*", "c0ffee>", "c*e", "d>", "")
ENDS = ("*", ">", "*>", "**", "bod*", "body.>", "piece.>", "piece.*")


def _untold() -> list[str]:
    """What an agent may ask to come by a contract or a piece of code without its digest."""
    contract, code = SUBJECTS.contract("DIGEST"), SUBJECTS.bundle("ACCOUNT", "DIGEST", "PIECE")
    ends = [contract.replace("body", end) for end in ENDS] + [code.replace(".piece", f".{end}") for end in ENDS]
    asked = [name.replace("DIGEST", wild) for name in (contract, code, *ends) for wild in WILD]
    pairs = [(account, piece) for account in ("ci", "*", ">") for piece in ("1", "*", ">")]
    named = [name.replace("ACCOUNT", account).replace("PIECE", piece) for name in asked for account, piece in pairs]
    short = [
        "fl.lab.contract.>",
        "fl.lab.contract.*",
        "fl.lab.bundle.ci.>",
        "fl.lab.bundle.ci.*.1",
        "fl.lab.>",
        ">",
        "*",
    ]
    return [*dict.fromkeys(named), *short]


async def test_an_agent_reads_a_contract_and_code_whose_digest_it_was_told_and_no_other(bus: Bus) -> None:
    """Given what accounts sent, when an agent asks for it by anything but its whole name, then it gets none of it."""
    for account, digest in (("local", "d1"), ("ci", "d2")):
        for piece in (0, 1):
            kept = SUBJECTS.bundle(account, digest, piece)
            assert "seq" in (await (await bus.as_(f"client-{account}")).ask(kept, b'{"secret":"code"}') or {})
    one, asked = await bus.as_("agent-one"), _untold()
    inbox = one.client.new_inbox()
    heard = await one.client.subscribe(inbox)
    for stream in (CONTRACTS, SUBJECTS.bundles_stream):
        for subject in asked:
            await one.say(f"{VERBS}.DIRECT.GET.{stream}.{subject}", reply=inbox)
    await one.refusals()
    told = [SUBJECTS.contract("c0ffee"), SUBJECTS.bundle("ci", "d2", 1)] * 2  # the bus answers two by two
    for stream, subject in zip((CONTRACTS, SUBJECTS.bundles_stream) * 2, told, strict=True):
        await one.say(f"{VERBS}.DIRECT.GET.{stream}.{subject}", reply=inbox)
    found: list[tuple[str, bytes]] = []
    while len([subject for subject, _ in found if subject in told]) < len(told):
        message = await heard.next_msg(timeout=10)
        if (message.headers or {}).get("Status") not in ("404", "503"):
            found.append(((message.headers or {}).get("Nats-Subject", ""), message.data))
    await heard.unsubscribe()
    assert sorted(found) == sorted(zip(told, (b'{"secret": "contract"}', b'{"secret":"code"}') * 2, strict=True))
    assert len(asked) > 300


async def _follows(party: Party, name: str, deliver_policy: str = "all") -> dict[str, Any]:
    """What the bus answers to who makes a consumer of the log, or changes one."""
    config = {"name": name, "ack_policy": "none", "deliver_policy": deliver_policy, "inactive_threshold": 60 * 10**9}
    stream = SUBJECTS.log_stream
    made = await party.ask(f"{VERBS}.CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
    assert made is not None
    return made


async def _followed(party: Party, name: str, count: int) -> list[str]:
    """The subjects of so many messages that this consumer hands out next."""
    inbox = party.client.new_inbox()
    heard = await party.client.subscribe(inbox)
    body = json.dumps({"batch": count, "no_wait": True}).encode()
    await party.say(f"{VERBS}.CONSUMER.MSG.NEXT.{SUBJECTS.log_stream}.{name}", body, reply=inbox)
    found = [(await heard.next_msg(timeout=10)).subject for _ in range(count)]
    await heard.unsubscribe()
    return found


async def test_an_auditor_reads_the_log_hears_the_feed_and_says_nothing(bus: Bus) -> None:
    """Given an auditor's key, when it tries what others do to others, then it has read the log and changed nothing."""
    before, ours = await bus.seen(), await bus.as_("auditor-ours")
    heard = await ours.client.subscribe(SUBJECTS.feed("*", "*", ">"))
    assert (await _follows(ours, "follow-0a"))["name"] == "follow-0a"
    assert await _followed(ours, "follow-0a", len(SCOPES)) == [SUBJECTS.log(name, "made-up") for name in SCOPES]
    explainer = await bus.as_("service-explainer")
    asked = await explainer.client.subscribe(SUBJECTS.ask("explainer", "*"))
    await settle(explainer.client, 10)
    await ours.say(SUBJECTS.ask("explainer", "why"), reply=ours.client.new_inbox())
    question = await asked.next_msg(timeout=10)
    await question.respond(b"{}")
    await explainer.say(SUBJECTS.feed("team-a", "job-x", "job-admitted"), b"{}")
    assert (await heard.next_msg(timeout=10)).subject.endswith("job-admitted")
    for account in ("ours", "ci", "local"):
        await _refused(ours, *(SUBJECTS.command(account, verb) for verb in ("submit-job", "hold-job", "request-drain")))
        await _refused(ours, SUBJECTS.bundle(account, "d", 0), SUBJECTS.attach("host-001", account, BEGIN))
        await _refused(ours, f"{VERBS}.STREAM.INFO.{SUBJECTS.inbox_stream(account)}.x")
        await _deaf(ours, SUBJECTS.answer(account, 1), SUBJECTS.shown("host-001", account, "0a"))
    await _refused(ours, *(SUBJECTS.log(name, "forged") for name in SCOPES))
    await _refused(ours, SUBJECTS.ask("agent-host-001", "logs"), SUBJECTS.ask("admission", "why"))
    await _refused(ours, f"{VERBS}.DIRECT.GET.{CONTRACTS}.{SUBJECTS.contract('c0ffee')}")
    await _refused(ours, f"{VERBS}.DIRECT.GET.{SUBJECTS.evidence_stream}.{SUBJECTS.evidence('host-001', 'd')}")
    others = [stream for stream in STREAMS if stream != SUBJECTS.log_stream]
    await _refused(ours, *(f"{VERBS}.CONSUMER.{verb}.{s}.mine" for verb in ("CREATE", "MSG.NEXT") for s in others))
    assert await bus.seen(SUBJECTS.feed("team-a", "job-x", "job-admitted")) == {
        name: [m for m in kept if "job-x" not in m.subject] for name, kept in before.items()
    }


async def test_an_auditor_cannot_take_messages_from_who_else_follows_the_log(bus: Bus) -> None:
    """Given a service that follows, when an auditor plays with consumers and acks, then the service misses nothing."""
    ours, ranker, stream = await bus.as_("auditor-ours"), await bus.as_("service-ranker"), SUBJECTS.log_stream
    assert (await _follows(ranker, "follow-5e55"))["name"] == "follow-5e55"
    verbs = ("CONSUMER.NAMES", "CONSUMER.LIST")
    await _refused(ours, *(f"{VERBS}.{verb}.{stream}" for verb in verbs), f"{VERBS}.CONSUMER.INFO.{stream}.follow-5e55")
    await _refused(ours, f"{VERBS}.CONSUMER.PAUSE.{stream}.follow-5e55", f"{VERBS}.CONSUMER.RESET.{stream}.follow-5e55")
    await _refused(ours, *(f"$JS.ACK.{stream}.follow-5e55.1.{n}.{n}.0.0" for n in (1, 2)), f"$JS.FC.{stream}.x.y")
    assert "error" in await _follows(ours, "follow-5e55", deliver_policy="new")
    assert await _followed(ranker, "follow-5e55", len(SCOPES)) == [SUBJECTS.log(name, "made-up") for name in SCOPES]


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
            {"sources": [{"name": SUBJECTS.timers_stream("ranker")}]},
            {"mirror": {"name": SUBJECTS.timers_stream("ranker")}},
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
