"""Who may say and hear what on the bus: one table of positive rows, from which all else is made (docs/security.md).

Whoever may publish could also choose the subject to which the bus sends its own answer, and so let the bus
write where the sender may not: a publish permission does not look at it [measured]. So every identity lives
alone in an account of its own, nobody lives where the streams are, and the only ways between them are the
rows here: an answer ends in the sender's account. The log has an account to itself, because a consumer
may have its messages delivered anywhere in the account of its stream, but never into that stream.

A row that is not here is refused. Nothing grants a verb that changes or empties a stream.
"""

from typing import Final, NamedTuple

import msgspec

from fairlease.runtime.bus_server import MAX_PAYLOAD
from fairlease.runtime.keys import AUDIT, DEPLOYER, agent_name, auditor_name, client_name, service_name
from fairlease.runtime.streams import KIB, any_last, wanted
from fairlease_schemas import commands, reports
from fairlease_schemas.bundle import MANIFEST_PIECE, PIECE_BYTES
from fairlease_schemas.subjects import SCOPES, SERVICES, TIMED, VERBS, Subjects

LOG: Final = "LOG"
"""The account of the log alone."""
CORE: Final = "CORE"
"""The account of all other streams."""
HOLDERS: Final = (LOG, CORE)

CLIENT_CONNECTIONS: Final = 1_024
"""Of one account: pipelines come in hundreds, and one that leaks its connections leaves those of the others."""
SUBSCRIPTIONS: Final = 512
"""Of one connection: a pipeline that waits for the largest array has one for each of its jobs."""
_OF_EACH: Final = 64
"""More for each host or account that a connection looks after."""
_HEADERS: Final = 4 * KIB
SMALL: Final = 64 * KIB + _HEADERS
"""What a message holds that is no code: a command or a question, with its headers."""
_API: Final = "$JS.API"
_READ_BACK: Final = {"preemption": "orders", "health": "leases", "explainer": "feed"}
"""The one stream of which a service reads single messages, to know what stands there."""


class Way(NamedTuple):
    """A subject of another account that may be reached, and by what name; both names are mostly the same."""

    account: str
    subject: str
    name: str


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One who has a key, and all that it grants. The account has the same name."""

    name: str
    sends: tuple[Way, ...]
    """Where it may publish: streams that store, questions that others answer, verbs of JetStream."""
    says: tuple[str, ...] = ()
    """What it publishes where it is, to those who hear it and for no stream."""
    hears: tuple[Way, ...] = ()
    """What others publish and it may subscribe to."""
    ears: tuple[str, ...] = ()
    """How it subscribes to what it hears, where that is wider than row by row; it hears the rows all the same."""
    answers: tuple[str, ...] = ()
    """Questions it may subscribe to and answer."""
    connections: int = 64
    """How many it may have at a time: replicas, hosts of one agent, a person's terminals."""
    subscriptions: int = SUBSCRIPTIONS
    """How many each of its connections may have."""
    payload: int = SMALL
    """How many bytes a message that it sends may have, headers and all."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A cell's people and machines: client accounts, and agents with the hosts they serve.

    `bots` are those of the accounts that look after hosts, and send no other commands; `posts` are the hosts of those
    that may not look after any. `auditors` read the log.
    """

    cell: str
    accounts: tuple[str, ...] = ()
    agents: tuple[tuple[str, tuple[str, ...]], ...] = ()
    bots: tuple[str, ...] = ()
    posts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    auditors: tuple[str, ...] = ()


def identities(plan: Plan) -> tuple[Identity, ...]:
    """The table: everyone of this cell, services first."""
    table = _Table(plan)
    return (
        *(table.service(name) for name in SERVICES),
        *(table.agent(name, hosts) for name, hosts in plan.agents),
        *(table.client(account) for account in plan.accounts),
        *(table.auditor(name) for name in plan.auditors),
        table.deployer(),
        table.audit(),
    )


class _Table:
    """The rows of one plan, one method for each kind of identity."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._s = Subjects(plan.cell)
        self._streams = tuple(wanted(self._s, plan.accounts))
        self._inboxes = tuple(self._s.inbox_stream(account) for account in plan.accounts)
        self._hosts = tuple(host for _, hosts in plan.agents for host in hosts)

    def service(self, name: str) -> Identity:
        """The log and what its rule reads, its own records and what it publishes of them, its questions."""
        s = self._s
        verbs = [*self._looks(), *_reads(s.log_stream), f"CONSUMER.DELETE.{s.log_stream}.*"]
        verbs += [verb for stream in self._read_by(name) for verb in _reads(stream)]
        if name in _READ_BACK:
            verbs.append(f"STREAM.MSG.GET.{getattr(s, _READ_BACK[name] + '_stream')}")
        stores = [s.log(name, "*")] if name in SCOPES else []
        if name in TIMED:
            stores += [any_last(s.timer(name, 0)), any_last(s.schedule(name, 0))]
        stores += {
            "admission": [s.contract("*")],
            "preemption": [s.order(host) for host in self._hosts],
            "explainer": [any_last(s.answer("*", 0)), s.feed("*", "*", "*")],
        }.get(name, [])
        renewals = [Way(agent_name(a), s.lease(h), s.lease(h)) for a, hosts in self._plan.agents for h in hosts]
        return Identity(
            name=service_name(name),
            sends=(*map(self._stored, stores), *map(self._verb, verbs)),
            hears=tuple(renewals) if name == "health" else (),
            ears=(s.lease("*"),) if name == "health" else (),
            answers=(s.ask(name, "*"),),
            subscriptions=SUBSCRIPTIONS + _OF_EACH * len(self._inboxes),
            payload=MAX_PAYLOAD,
        )

    def agent(self, name: str, hosts: tuple[str, ...]) -> Identity:
        """Of its hosts alone: reports, renewals, samples, evidence, orders, terminals; contracts and code by digest."""
        s = self._s
        verbs = [f"DIRECT.GET.{s.contracts_stream}.{s.contract('*')}"]
        verbs.append(f"DIRECT.GET.{s.bundles_stream}.{s.bundle('*', '*', '*')}")
        stores, hears, answers = [], [], []
        for host in hosts:
            stores += [s.report(host, "*"), s.lease(host), s.telemetry(host, "*"), s.evidence(host, "*")]
            verbs.append(f"DIRECT.GET.{s.orders_stream}.{s.order(host)}")
            hears.append(Way(service_name("preemption"), s.order(host), s.order(host)))
            answers += [s.ask(f"agent-{host}", "*"), s.attach(host, "*", "*")]
        return Identity(
            name=agent_name(name),
            sends=(*map(self._stored, stores), *map(self._verb, verbs)),
            says=tuple(s.shown(host, "*", "*") for host in hosts),
            hears=tuple(hears),
            answers=tuple(answers),
            subscriptions=SUBSCRIPTIONS + _OF_EACH * len(hosts),
            payload=MAX_PAYLOAD,
        )

    def client(self, account: str) -> Identity:
        """Its own commands, their answers, code and terminals; questions, evidence and the feed are open to members.

        A bot sends commands about hosts alone, about its own where it has some, and has neither code nor terminals.
        """
        s, explainer = self._s, service_name("explainer")
        answers = any_last(s.answer(account, 0))
        is_bot = account in self._plan.bots
        questions = self._questions()
        questions += [
            _same(agent_name(agent), s.ask(f"agent-{host}", "*"))
            for agent, hosts in self._plan.agents
            for host in hosts
        ]
        verbs = [f"STREAM.INFO.{s.inbox_stream(account)}", f"DIRECT.GET.{s.feed_stream}.{answers}"]
        verbs.append(f"DIRECT.GET.{s.evidence_stream}.{s.evidence('*', '*')}")
        hears = [_same(explainer, answers), _same(explainer, s.feed("*", "*", ">"))]
        if is_bot:
            verbs_of_hosts = commands.OWNERS["health"]
            hosts = dict(self._plan.posts).get(account)
            stores = [s.command(account, verb, host) for verb in verbs_of_hosts for host in hosts or ("", "*")]
        else:
            stores = [s.command(account, "*"), s.command(account, "*", "*"), s.bundle(account, "*", "*")]
            verbs.append(f"DIRECT.GET.{s.bundles_stream}.{s.bundle(account, '*', MANIFEST_PIECE)}")
            for agent, hosts in self._plan.agents:
                # The server compares imports of one account pair by pair: where one agent serves all, one row does.
                served = hosts if len(self._plan.agents) > 1 else ("*",)
                questions += [_same(agent_name(agent), s.attach(host, account, "*")) for host in served]
                hears.append(_same(agent_name(agent), s.shown("*", account, "*")))
        return Identity(
            name=client_name(account),
            sends=(*map(self._stored, stores), *questions, *map(self._verb, verbs)),
            hears=tuple(hears),
            ears=tuple(dict.fromkeys(way.name for way in hears)),
            connections=CLIENT_CONNECTIONS,
            payload=SMALL if is_bot else PIECE_BYTES + _HEADERS,
        )

    def auditor(self, name: str) -> Identity:
        """Follows the log as the cell's own audit does, hears the feed and asks the explainer; it says nothing."""
        feed = _same(service_name("explainer"), self._s.feed("*", "*", ">"))
        return Identity(
            name=auditor_name(name),
            sends=(*self._questions(), *map(self._verb, self._audited())),
            hears=(feed,),
        )

    def deployer(self) -> Identity:
        """Makes what is missing at a start, and looks at what is there; it runs at no other time."""
        verbs = [*self._looks(), *(f"STREAM.CREATE.{stream}" for stream in self._streams)]
        return Identity(name=DEPLOYER, sends=tuple(map(self._verb, verbs)))

    def audit(self) -> Identity:
        """Follows the log, and looks at the streams and at when hosts were heard; it says nothing."""
        return Identity(name=AUDIT, sends=tuple(map(self._verb, self._audited())))

    def _audited(self) -> list[str]:
        """The verbs by which the log is read, and the streams are looked at."""
        s = self._s
        reads = [*_reads(s.log_stream), f"CONSUMER.DELETE.{s.log_stream}.*"]
        return [*self._looks(), *reads, f"DIRECT.GET.{s.leases_stream}.{s.lease('*')}"]

    def _questions(self) -> list[Way]:
        """What everybody may ask who is none of the cell's own: the explainer anything, the others how they are."""
        s = self._s
        explainer = _same(service_name("explainer"), s.ask("explainer", "*"))
        return [explainer, *(_same(service_name(name), s.ask(name, "health")) for name in SCOPES)]

    def _looks(self) -> list[str]:
        """The verbs that tell how a stream is made and how long it is, and no message of it."""
        return ["STREAM.NAMES", *(f"STREAM.INFO.{stream}" for stream in self._streams)]

    def _read_by(self, name: str) -> list[str]:
        """The streams with messages for this service, as runtime/serve.py opens them."""
        streams = list(self._inboxes) if commands.OWNERS.get(name) else []
        if reports.OWNERS.get(name):
            streams.append(self._s.reports_stream)
        return [*streams, self._s.timers_stream(name)] if name in TIMED else streams

    def _stored(self, subject: str) -> Way:
        is_log = subject.startswith(self._s.log_all().removesuffix(">"))
        return _same(LOG if is_log else CORE, subject)

    def _verb(self, verb: str) -> Way:
        holder = LOG if self._s.log_stream in verb.split(".") else CORE
        return Way(holder, f"{_API}.{verb}", f"{VERBS}.{verb}")


def _reads(stream: str) -> list[str]:
    """The verbs of reading a stream in order, from a place of one's choice."""
    return [f"CONSUMER.{verb}.{stream}.*" for verb in ("CREATE", "MSG.NEXT")]


def _same(account: str, subject: str) -> Way:
    return Way(account, subject, subject)
