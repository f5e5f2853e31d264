"""A bus as `fairlease up` starts it, with every stream and every key, and none of our programs on it.

Whoever holds a key here is not our code: it does what the bus lets it do. What came of that is read by a
witness, stream by stream, byte by byte.
"""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from nats.aio.client import Client

from fairlease.runtime import bus_server, keys, streams
from fairlease.runtime.access import access
from fairlease.runtime.connection import settle
from fairlease.runtime.permissions import Identity, Plan, identities
from fairlease_schemas.subjects import SCOPES, VERBS, Subjects
from tests.live.journal import Stored, read_stream
from tests.live.witness import WITNESS, witness

CELL: Final = "lab"
ACCOUNTS: Final = ("local", "ci", "fixer", "warden")
BOTS: Final = ("fixer", "warden")
POSTS: Final = {"warden": ("host-001",)}
"""The hosts of the bots that may not look after any."""
AGENTS: Final = (("one", ("host-001", "host-002")), ("two", ("host-003",)))
AUDITORS: Final = ("ours",)
PLAN: Final = Plan(
    cell=CELL, accounts=ACCOUNTS, agents=AGENTS, bots=BOTS, posts=tuple(POSTS.items()), auditors=AUDITORS
)
PEOPLE: Final = {one.name: one for one in identities(PLAN)}
SUBJECTS: Final = Subjects(CELL)
STREAMS: Final = tuple(streams.wanted(SUBJECTS, ACCOUNTS))
_PATIENCE_S: Final = 10.0
_SENTINEL: Final = "sentinel"


class Party:
    """A connection with somebody's key, and what the bus refused to it so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.client = Client()
        self._refused: list[str] = []

    async def open(self, url: str, home: Path) -> None:
        async def on_error(error: Exception) -> None:
            self._refused.append(str(error))

        key = keys.read(keys.key_path(home, self.name))
        await self.client.connect(servers=url, error_cb=on_error, **key.options())

    async def refusals(self) -> list[str]:
        """What was refused since the last call, in order: the bus says so before it answers a ping."""
        await settle(self.client, int(_PATIENCE_S))
        said, self._refused = self._refused, []
        assert all("permissions violation" in text.lower() for text in said), said
        return said

    async def ask(
        self, subject: str, body: object = b"", headers: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        """The JSON that came back; None when the bus refused the question, or nobody is there to answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        inbox = self.client.new_inbox()
        heard = await self.client.subscribe(inbox)
        await self.client.publish(subject, data, reply=inbox, headers=headers)
        try:
            if await self.refusals():
                return None
            message = await heard.next_msg(timeout=_PATIENCE_S)
        finally:
            await heard.unsubscribe()
        if (message.headers or {}).get("Status") == "503":
            return None
        return dict(json.loads(message.data)) if message.data else {"headers": dict(message.headers or {})}

    async def say(
        self, subject: str, data: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        await self.client.publish(subject, data, reply=reply, headers=headers)


class Bus:
    """The server, its parties by name, and the witness."""

    def __init__(self, url: str, home: Path, stack: AsyncExitStack) -> None:
        self.url = url
        self.home = home
        self._stack = stack
        self._parties: dict[str, Party] = {}
        self._sentinels = 0

    async def as_(self, name: str) -> Party:
        """The party of that name, connected once."""
        if name not in self._parties:
            party = self._parties[name] = Party(name)
            await party.open(self.url, self.home)
            self._stack.push_async_callback(party.client.close)
        return self._parties[name]

    async def seen(self, *but: str) -> dict[str, list[Stored]]:
        """Every message of every stream once the bus is at rest, but for these subjects; and how each is made."""
        await self._settle()
        client = (await self.as_(WITNESS)).client
        found = {}
        for name in STREAMS:
            messages = await read_stream(client, name)
            found[name] = [m for m in messages if m.subject not in but and _SENTINEL not in m.subject]
            info = json.loads((await client.request(f"{VERBS}.STREAM.INFO.{name}", b"", timeout=5)).data)
            found[name].append(Stored(0, name, json.dumps(info["config"], sort_keys=True).encode(), {}))
        return found

    async def _settle(self) -> None:
        """Returns once the streams have done what they were asked before.

        A stream answers in the order in which it was asked. So a first sentinel on each of them is acknowledged
        when all earlier acknowledgements were sent, wherever they went, and a second when what these made is stored.
        """
        client = (await self.as_(WITNESS)).client
        for _ in range(2):
            self._sentinels += 1
            mark = f"{_SENTINEL}{self._sentinels}"
            for row in streams.wanted(SUBJECTS, ACCOUNTS).values():
                subject = row["subjects"][0].replace("*", mark).replace(">", mark)
                assert b'"seq"' in (await client.request(subject, b"", timeout=_PATIENCE_S)).data

    async def fill(self) -> None:
        """One message on every stream, by those whose it is."""
        for name, scope in SCOPES.items():
            body = {"by": name, "scope": scope}
            await self._stored(f"service-{name}", SUBJECTS.log(name, "made-up"), body)
        for account in ACCOUNTS:
            mine = SUBJECTS.command(account, "cordon-host", POSTS.get(account, ("",))[0])
            await self._stored(f"client-{account}", mine, {"secret": account})
            await self._stored("service-explainer", SUBJECTS.answer(account, 1), {"secret": account})
        await self._stored("service-explainer", SUBJECTS.feed("team-a", "job-x", "job-admitted"), {})
        await self._stored("service-admission", SUBJECTS.contract("c0ffee"), {"secret": "contract"})
        for agent, hosts in AGENTS:
            for host in hosts:
                await self._stored(f"agent-{agent}", SUBJECTS.report(host, "host-up"), {"host": host})
                await self._stored(f"agent-{agent}", SUBJECTS.lease(host), {"counter": 1})
                await self._stored(f"agent-{agent}", SUBJECTS.telemetry(host, "gpus"), {})
                await self._stored("service-preemption", SUBJECTS.order(host), {"host": host})
        for name in ("admission", "ranker", "health"):
            await self._stored(f"service-{name}", SUBJECTS.timer(name, 1), {})

    async def _stored(self, who: str, subject: str, body: object) -> None:
        answer = await (await self.as_(who)).ask(subject, body)
        assert answer is not None, (who, subject)
        assert "seq" in answer, (who, subject, answer)


@asynccontextmanager
async def bus_at(home: Path) -> AsyncIterator[Bus]:
    """The bus of this directory, its streams declared and filled."""
    people: Iterable[Identity] = (*identities(PLAN), witness(PLAN))
    server = bus_server.start(home, access=access(home, SUBJECTS, people), dies_with_parent=True)
    try:
        async with AsyncExitStack() as stack:
            bus = Bus(server.url, home, stack)
            await streams.declare((await bus.as_(keys.DEPLOYER)).client, SUBJECTS, ACCOUNTS)
            await bus.fill()
            yield bus
    finally:
        server.stop()
