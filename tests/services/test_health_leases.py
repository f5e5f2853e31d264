"""What health says of hosts that fell silent (7.6), on a real bus: nothing that the bus itself did not say."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from fairlease.health import leases
from fairlease.health.app import define
from fairlease.health.leases import MOST_READ, Leases
from fairlease.runtime.bus_server import BusServer
from fairlease.runtime.clock import parse_bus_time_ms
from fairlease.runtime.connection import Connection
from fairlease.runtime.serve import Process
from fairlease.runtime.settings import Settings
from fairlease_schemas.envelope import LeasesRead, Record
from fairlease_schemas.host import HostHeld, HostHoldCleared, HostRegistered, LeaseLost
from fairlease_schemas.subjects import Subjects
from tests.dsl.cell import Cell, inventory
from tests.services.bench import Proxy, eventually, read_log, record, serving, store

LEASE_MS, MARGIN_MS, STOP_MS, GRACE_MS = 400, 300, 200, 500
SILENCE_MS = LEASE_MS + MARGIN_MS
LOSS_MS = SILENCE_MS + STOP_MS + GRACE_MS
BUSY_S = 1.5
"""What a busy machine may add; what is never too early is exact."""
HOST, OTHER = "host-001", "host-002"
HELD = HostHeld(host=HOST, owner="health", kind="lease", reason="its agent has gone silent")
CLEARED = HostHoldCleared(host=HOST, owner="health", kind="lease")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, service="health")


class Bus:
    """The bus as agents see it, and the log as it grew behind what the test put there."""

    def __init__(self, client: Connection, subjects: Subjects) -> None:
        self.client = client
        self.subjects = subjects
        self.made = 0

    async def renew(self, *hosts: str) -> int:
        """Renewals as their agents send them; when the bus stored the last of them, in ms."""
        for host in hosts:
            await store(self.client, self.subjects.lease(host), b"{}")
        stream = self.subjects.leases_stream
        reply = await self.client.request(
            f"$JS.API.STREAM.MSG.GET.{stream}", json.dumps({"last_by_subj": self.subjects.lease(hosts[-1])}).encode()
        )
        return parse_bus_time_ms(json.loads(reply.data)["message"]["time"])

    @asynccontextmanager
    async def renewing(self, *hosts: str) -> AsyncIterator[None]:
        """As `renew`, four times in a lease."""

        async def again() -> None:
            while True:
                await self.renew(*hosts)
                await asyncio.sleep(LEASE_MS / 4_000)

        task = asyncio.create_task(again())
        yield
        task.cancel()

    async def put(self, cell: Cell) -> None:
        """The cell's records, as the log begins."""
        for data in cell.records:
            await store(self.client, self.subjects.log(msgspec.json.decode(data)["by"], "x"), data)
        self.made = len(cell.records)

    async def written(self) -> list[Record]:
        return (await read_log(self.client, self.subjects))[self.made :]

    async def events(self) -> list[object]:
        return [event for entry in await self.written() for event in entry.events]

    async def timers(self) -> int:
        """How many timers were ever armed."""
        return (await self.client.jsm().stream_info(self.subjects.timers_stream("health"))).state.last_seq


@pytest.fixture
async def bus_of(client: Connection, subjects: Subjects) -> Bus:
    return Bus(client, subjects)


def registered(hosts: int = 2) -> Cell:
    numbers = {"lease_ms": LEASE_MS, "lease_margin_ms": MARGIN_MS, "stop_margin_ms": STOP_MS}
    return Cell().policy(**numbers, breaker_permille=1_000).hosts(hosts)


async def test_a_host_is_held_once_it_is_silent_and_let_go_when_it_renews(bus_of: Bus, settings: Settings) -> None:
    # rule: 7.6
    await bus_of.put(registered())
    async with bus_of.renewing(OTHER), serving(settings, define) as process:
        last_ms = await bus_of.renew(HOST)
        await eventually(lambda: process.world.fleet.hosts[HOST].holds)
        (held,) = await bus_of.written()
        assert held.events == (HELD,)
        (answer,) = held.answers
        assert isinstance(answer.said, LeasesRead)
        assert (answer.said.renewed[HOST], answer.time_ms, answer.who) == (last_ms, held.at_ms, "health")
        assert SILENCE_MS <= held.at_ms - last_ms <= SILENCE_MS + BUSY_S * 1_000
        await bus_of.renew(HOST)
        await eventually(lambda: not process.world.fleet.hosts[HOST].holds)
    assert (await bus_of.events())[:2] == [HELD, CLEARED]


async def test_hosts_that_renew_are_left_alone_and_asked_about_once(bus_of: Bus, settings: Settings) -> None:
    await bus_of.put(registered())
    async with bus_of.renewing(HOST, OTHER), serving(settings, define):
        await asyncio.sleep(3 * SILENCE_MS / 1_000)
        assert await bus_of.timers() <= 1
    assert await bus_of.written() == []


async def test_a_replica_that_hears_nobody_accuses_nobody(
    bus_of: Bus, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its suspicion arms timers; what counts is the leader's word."""
    # rule: 7.6

    async def deaf(_self: Leases) -> None:
        return

    monkeypatch.setattr(Leases, "listen", deaf)
    await bus_of.put(registered())
    async with bus_of.renewing(HOST, OTHER), serving(settings, define):
        await asyncio.sleep(3 * SILENCE_MS / 1_000)
        assert 2 <= await bus_of.timers() <= 8
    assert await bus_of.written() == []


async def test_a_replica_whose_bus_was_away_accuses_nobody(bus: BusServer, bus_of: Bus, settings: Settings) -> None:
    # rule: 7.6
    await bus_of.put(registered())
    async with (
        Proxy(bus.url) as proxy,
        bus_of.renewing(HOST, OTHER),
        serving(msgspec.structs.replace(settings, url=proxy.url), define),
    ):
        before = await bus_of.timers()
        proxy.is_deaf = True
        await asyncio.sleep(3 * SILENCE_MS / 1_000)
        proxy.is_deaf = False
        proxy.cut()
        await asyncio.sleep(2 * SILENCE_MS / 1_000)
        assert await bus_of.timers() > before, "it did become suspicious"
    assert await bus_of.written() == []


async def test_a_registered_host_that_never_renewed_counts_from_its_registration(
    bus_of: Bus, settings: Settings
) -> None:
    await bus_of.put(registered())
    async with bus_of.renewing(OTHER), serving(settings, define) as process:
        await eventually(lambda: process.world.fleet.hosts[HOST].holds)
    (held,) = await bus_of.written()
    (answer,) = held.answers
    assert isinstance(answer.said, LeasesRead)
    assert answer.said.renewed[HOST] == 0


@pytest.mark.parametrize(
    ("body", "length_ms"),
    [
        (b'{"lease_ms": 60000}', 60_000),
        (b"{}", 0),
        (b'{"lease_ms": 0}', 0),
        (b'{"lease_ms": 1e999}', 0),
        (b'{"lease_ms": ' + b"9" * 5_000 + b"}", 0),
        (b'{"lease_ms": true}', 0),
        (b"[" * 100_000, 0),
        (b'{"lease_ms": 60000, "x": ' + b"[" * 5_000, 0),
        (b"\xff", 0),
    ],
)
def test_a_renewal_that_names_no_lease_names_none(body: bytes, length_ms: int) -> None:
    assert leases._lease_of(base64.b64encode(body).decode()) == length_ms


async def test_a_host_known_to_be_silent_arms_no_timers(bus_of: Bus, settings: Settings) -> None:
    await bus_of.put(registered())
    async with serving(settings, define) as process:
        await eventually(lambda: all(host.holds for host in process.world.fleet.hosts.values()))
        await asyncio.sleep(0.3)
        timers = await bus_of.timers()
        await asyncio.sleep(2.5)
        assert await bus_of.timers() == timers
    assert len(await bus_of.events()) == 2


async def test_what_a_silent_host_ran_is_lost_when_nothing_of_it_can_be_left(bus_of: Bus, settings: Settings) -> None:
    # rule: 7.6
    cell = registered().budgets(a=1)
    job = cell.submit("r1", hosts=1, gpus_per_host=8, grace_ms=GRACE_MS)
    cell.start(job)
    await bus_of.put(cell)
    (host,) = {part.host for attempt in cell.world.jobs[job].attempts for part in attempt.parts}
    async with bus_of.renewing(*({HOST, OTHER} - {host})), serving(settings, define) as process:
        last_ms = await bus_of.renew(host)
        await eventually(lambda: process.world.lost)
        await asyncio.sleep(0.5)
    held, lost = await bus_of.written()
    assert [type(event) for event in (*held.events, *lost.events)] == [HostHeld, LeaseLost]
    (event,) = lost.events
    assert isinstance(event, LeaseLost)
    assert (event.host, event.attempts, event.silent_ms) == (host, (f"{job}-a1",), lost.at_ms - last_ms)
    assert LOSS_MS <= event.silent_ms <= LOSS_MS + BUSY_S * 1_000


async def test_two_replicas_say_each_thing_once(bus_of: Bus, settings: Settings) -> None:
    other = msgspec.structs.replace(settings, replica="b")
    await bus_of.put(registered())
    async with bus_of.renewing(OTHER), serving(settings, define) as one, serving(other, define) as two:
        await eventually(lambda: one.world.fleet.hosts[HOST].holds and two.world.fleet.hosts[HOST].holds)
        await bus_of.renew(HOST)
        await eventually(lambda: not (one.world.fleet.hosts[HOST].holds or two.world.fleet.hosts[HOST].holds))
    assert (await bus_of.events())[:2] == [HELD, CLEARED]


async def test_of_a_large_cluster_that_fell_silent_some_are_read_at_a_time_and_all_in_the_end(
    bus_of: Bus, settings: Settings
) -> None:
    cell, count = registered(0), 2 * MOST_READ + 7
    await bus_of.put(cell)
    hosts = [HostRegistered(host=f"host-{n:03d}", incarnation="b", inventory=inventory(n)) for n in range(1, count + 1)]
    for first in range(0, count, 100):
        data = record("health", basis=len(cell.records), at_ms=cell.now_ms, events=tuple(hosts[first : first + 100]))
        await store(bus_of.client, bus_of.subjects.log("health", "x"), data)
        bus_of.made += 1
    async with serving(settings, define) as process:
        await eventually(lambda: _held(process) == count, 20)
    read = [answer.said for entry in await bus_of.written() for answer in entry.answers]
    assert all(isinstance(said, LeasesRead) and 1 <= len(said.renewed) <= MOST_READ for said in read)
    assert sorted(event.host for event in await bus_of.events() if isinstance(event, HostHeld)) == [
        host.host for host in hosts
    ]


def _held(process: Process) -> int:
    return sum(bool(host.holds) for host in process.world.fleet.hosts.values())
