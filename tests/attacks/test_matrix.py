"""Every identity tries every subject and every verb: what the bus allows is what the words below say, cell by cell.

The words are a second, independent telling of docs/security.md; the table itself is not asked.
"""

import pytest

from fairlease.runtime.connection import settle
from fairlease_schemas.subjects import BEGIN, SCOPES, SERVICES, VERBS
from tests.attacks.bench import ACCOUNTS, AGENTS, BOTS, PEOPLE, POSTS, STREAMS, SUBJECTS, Bus

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTS = [host for _, hosts in AGENTS for host in hosts]
SERVES = {f"agent-{name}": hosts for name, hosts in AGENTS}
ABOUT_HOSTS = ("cordon-host", "return-host", "request-drain", "undrain-host")
INBOXES = [SUBJECTS.inbox_stream(account) for account in ACCOUNTS]
STREAM_VERBS = (
    *("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.INFO", "STREAM.MSG.GET"),
    *("STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "STREAM.RESTORE", "STREAM.PEER.REMOVE", "STREAM.LEADER.STEPDOWN"),
    *("CONSUMER.NAMES", "CONSUMER.LIST", "CONSUMER.CREATE", "DIRECT.GET"),
)
CONSUMER_VERBS = (
    *("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.DELETE", "CONSUMER.INFO", "CONSUMER.MSG.NEXT"),
    *("CONSUMER.PAUSE", "CONSUMER.RESET", "CONSUMER.UNPIN"),
)


def _stored_subjects() -> list[str]:
    """A subject of every kind that a stream keeps, for every one whose it could be."""
    found = [SUBJECTS.log(service, "made-up") for service in SCOPES]
    found += ["fl.lab.log.intake.explainer.x", "fl.lab.log.alloc.admission.x", "fl.lab.log.x"]
    for account in ACCOUNTS:
        found += [SUBJECTS.command(account, verb) for verb in ("submit-job", "change-policy", *ABOUT_HOSTS)]
        found += [SUBJECTS.command(account, verb, host) for verb in ("submit-job", *ABOUT_HOSTS) for host in HOSTS]
        found += [SUBJECTS.answer(account, 7), SUBJECTS.bundle(account, "d1", 0)]
    for host in HOSTS:
        found += [SUBJECTS.report(host, "run-gone"), SUBJECTS.lease(host), SUBJECTS.telemetry(host, "gpus")]
        found += [SUBJECTS.order(host), SUBJECTS.evidence(host, "d1"), SUBJECTS.host_feed(host, "host-held")]
    for service in SERVICES:
        found += [SUBJECTS.timer(service, 5), SUBJECTS.schedule(service, 5)]
    return [*found, SUBJECTS.contract("d1"), SUBJECTS.feed("team-a", "job-x", "job-admitted")]


def _terminals() -> list[str]:
    """What accounts say to the terminals of hosts, and what these show."""
    pairs = [(host, account) for host in HOSTS for account in ACCOUNTS]
    begun = [SUBJECTS.attach(host, account, BEGIN) for host, account in pairs]
    typed = [SUBJECTS.attach(host, account, "5e55") for host, account in pairs]
    return [*begun, *typed, *(SUBJECTS.shown(host, account, "0a") for host, account in pairs)]


def _questions() -> list[str]:
    names = [*SERVICES, *(f"agent-{host}" for host in HOSTS)]
    return [SUBJECTS.ask(name, question) for name in names for question in ("health", "why", "logs")]


def _verbs() -> list[str]:
    found = ["STREAM.NAMES", "STREAM.LIST", "INFO", "ACCOUNT.PURGE.CORE", "META.LEADER.STEPDOWN", "SERVER.REMOVE"]
    found += [f"{verb}.{stream}" for verb in STREAM_VERBS for stream in STREAMS]
    found += [f"{verb}.{stream}.some" for verb in CONSUMER_VERBS for stream in STREAMS]
    kept = {SUBJECTS.orders_stream: [SUBJECTS.order(h) for h in HOSTS]}
    kept |= {SUBJECTS.leases_stream: [SUBJECTS.lease(h) for h in HOSTS]}
    kept |= {SUBJECTS.feed_stream: [SUBJECTS.answer(a, 1) for a in ACCOUNTS]}
    kept |= {SUBJECTS.evidence_stream: [SUBJECTS.evidence(h, "d1") for h in HOSTS]}
    kept |= {SUBJECTS.bundles_stream: [SUBJECTS.bundle(a, "d1", piece) for a in ACCOUNTS for piece in (0, 1)]}
    kept |= {
        SUBJECTS.contracts_stream: [SUBJECTS.contract("c0ffee")],
        SUBJECTS.log_stream: [SUBJECTS.log("ledger", "x")],
    }
    return found + [f"DIRECT.GET.{stream}.{subject}" for stream, subjects in kept.items() for subject in subjects]


def may_store(who: str, subject: str) -> bool:
    """Whether this one may write there: a service its own, an agent of its hosts, an account for itself.

    A bot's commands are about hosts, and where it has hosts of its own about those, by name.
    """
    kind, _, name = who.partition("-")
    _, _, area, owner, *rest = [*subject.split("."), "", ""]
    if kind == "client":
        if name not in BOTS:
            return area in ("cmd", "bundle") and owner == name
        is_its = rest[1] in POSTS.get(name, (rest[1],))
        return area == "cmd" and owner == name and rest[0] in ABOUT_HOSTS and is_its
    if kind == "agent":
        return area in ("report", "lease", "telemetry", "evidence") and owner in SERVES[who]
    if kind != "service":
        return False
    if area == "log":
        return name in SCOPES and owner == SCOPES[name] and rest[0] == name
    if area in ("timer", "schedule"):
        return owner == name and name in ("admission", "ranker", "health")
    writer = {"contract": "admission", "order": "preemption", "answer": "explainer", "feed": "explainer"}
    return writer.get(area) == name


def may_ask(who: str, subject: str) -> bool:
    """Accounts ask the explainer and the agents anything, and the other services how they are; auditors no agent."""
    *_, asked, question = subject.split(".")
    if asked.startswith("agent-"):
        return who.startswith("client-")
    return who.startswith(("client-", "auditor-")) and (asked == "explainer" or question == "health")


def may_talk(who: str, subject: str) -> bool:
    """An account types in its own sessions, and the agent of the host shows; a bot has no terminals."""
    kind, _, name = who.partition("-")
    _, _, area, host, account, _ = subject.split(".")
    if kind == "client":
        return area == "attach" and account == name and name not in BOTS
    return kind == "agent" and area == "shown" and host in SERVES[who]


def may_use(who: str, verb: str) -> bool:
    """Everyone but agents and accounts may look at how streams are; each reads what its work needs, nobody more.

    Of what is read, an auditor of somebody's own has what the cell's has.
    """
    kind, _, name = who.partition("-")
    kind = "audit" if kind == "auditor" else kind
    *words, last = verb.split(".")
    log, is_inner = SUBJECTS.log_stream, kind in ("service", "audit", "deployer")
    if verb == "STREAM.NAMES" or (words == ["STREAM", "INFO"] and is_inner):
        return is_inner
    if kind == "client":
        own = SUBJECTS.inbox_stream(name), f"DIRECT.GET.{SUBJECTS.feed_stream}.{SUBJECTS.answer(name, 1)}"
        whole = [f"DIRECT.GET.{SUBJECTS.bundles_stream}.{SUBJECTS.bundle(name, 'd1', 0)}"] * (name not in BOTS)
        is_evidence = words[:3] == ["DIRECT", "GET", SUBJECTS.evidence_stream]
        return is_evidence or verb in (f"STREAM.INFO.{own[0]}", own[1], *whole)
    if kind == "agent":
        orders = [f"DIRECT.GET.{SUBJECTS.orders_stream}.{SUBJECTS.order(host)}" for host in SERVES[who]]
        is_code = words[:3] == ["DIRECT", "GET", SUBJECTS.bundles_stream]
        return is_code or verb in (*orders, f"DIRECT.GET.{SUBJECTS.contracts_stream}.{SUBJECTS.contract('c0ffee')}")
    if kind == "deployer":
        return words == ["STREAM", "CREATE"]
    if kind == "audit" and words[:3] == ["DIRECT", "GET", SUBJECTS.leases_stream]:
        return True
    if last != "some":
        back = {"preemption": SUBJECTS.orders_stream, "health": SUBJECTS.leases_stream}
        back |= {"explainer": SUBJECTS.feed_stream}
        return words == ["STREAM", "MSG", "GET"] and back.get(name) == last
    action, stream = ".".join(words[:-1]), words[-1]
    if stream == log:
        return action in ("CONSUMER.CREATE", "CONSUMER.MSG.NEXT", "CONSUMER.DELETE")
    readers = {"admission": [*INBOXES, SUBJECTS.reports_stream], "ledger": INBOXES}
    readers |= {"health": readers["admission"]}
    is_own_timers = stream == f"FL_LAB_TIMERS_{name.upper()}"
    return action in ("CONSUMER.CREATE", "CONSUMER.MSG.NEXT") and (is_own_timers or stream in readers.get(name, []))


def may_hear(who: str, subject: str) -> bool:
    """Accounts and auditors hear the feed, accounts their answers and terminals; agents what is for their hosts."""
    kind, _, name = who.partition("-")
    _, _, area, owner, *more = [*subject.split("."), ""]
    if area == "ask":
        is_own_host = kind == "agent" and owner.removeprefix("agent-") in SERVES[who]
        return (kind == "service" and owner == name) or is_own_host
    if kind == "client":
        has_terminal = area == "shown" and more[0] == name and name not in BOTS
        return area == "feed" or (area == "answer" and owner == name) or has_terminal
    if kind == "agent":
        return area in ("order", "attach") and owner in SERVES[who]
    if kind == "auditor":
        return area == "feed"
    return who == "service-health" and area == "lease"


def _published() -> dict[str, list[tuple[str, bool]]]:
    """Per identity every subject to publish on, and whether it may."""
    raw = [f"$JS.API.{verb}" for verb in _verbs()]
    strange = ["$SYS.REQ.SERVER.PING", "$JS.ACK.FL_LAB_LOG.x.1.1.1.1.0", "_INBOX.client-ci.x", "_R_.x.y", "fl.lab", "x"]
    found = {}
    for who in PEOPLE:
        cells = [(subject, may_store(who, subject)) for subject in _stored_subjects()]
        cells += [(subject, may_ask(who, subject)) for subject in _questions()]
        cells += [(subject, may_talk(who, subject)) for subject in _terminals()]
        cells += [(f"{VERBS}.{verb}", may_use(who, verb)) for verb in _verbs()]
        cells += [(subject, False) for subject in (*raw, *strange)]
        found[who] = cells
    return found


def _subscribed() -> dict[str, list[tuple[str, bool]]]:
    """Per identity every subject to listen on, and whether it may."""
    wide = [
        ">",
        "fl.>",
        "fl.lab.>",
        "fl.lab.log.>",
        "$JS.>",
        "$SYS.>",
        "_INBOX.>",
        "_R_.>",
        "fl.lab.cmd.*.*",
        VERBS + ".>",
    ]
    wide += [f"_INBOX.{other}.>" for other in PEOPLE]
    found = {}
    for who in PEOPLE:
        cells = [(subject, may_hear(who, subject)) for subject in (*_stored_subjects(), *_questions(), *_terminals())]
        cells += [(subject, subject == f"_INBOX.{who}.>") for subject in wide]
        found[who] = cells
    return found


def _named(refusals: list[str]) -> set[str]:
    """The subjects that refusals name, as the client writes them: in lower case."""
    return {text.split('"')[1].lower() for text in refusals}


async def test_everyone_may_publish_where_the_rules_say_and_nowhere_else(bus: Bus) -> None:
    table, wrong = _published(), []
    for who, cells in table.items():
        party = await bus.as_(who)
        assert await party.refusals() == []
        for subject, _ in cells:
            await party.say(subject)
        refused = _named(await party.refusals())
        wrong += [(who, subject, may) for subject, may in cells if (subject.lower() not in refused) != may]
    assert wrong == []
    assert sum(map(len, table.values())) >= 5_000
    assert sum(may for cells in table.values() for _, may in cells) >= 240


async def test_everyone_may_listen_where_the_rules_say_and_nowhere_else(bus: Bus) -> None:
    table, wrong = _subscribed(), []
    for who, cells in table.items():
        party = await bus.as_(who)
        subscriptions = [await party.client.subscribe(subject) for subject, _ in cells]
        refused = _named(await party.refusals())
        wrong += [(who, subject, may) for subject, may in cells if (subject.lower() not in refused) != may]
        for subscription in subscriptions:
            await subscription.unsubscribe()
        await settle(party.client, 10)
    assert wrong == []
    assert sum(map(len, table.values())) >= 1_000


async def test_what_is_allowed_leads_somewhere(bus: Bus) -> None:
    """A permission without a way to the stream would be a promise that is not kept."""
    lost = []
    for who, cells in _published().items():
        party = await bus.as_(who)
        for subject, may in cells:
            is_kept = may and not any(area in subject for area in (".ask.", ".attach.", ".shown."))
            if is_kept and ".MSG.NEXT." not in subject and await party.ask(subject) is None:
                lost.append((who, subject))
    assert lost == []
