"""What the tests of the shell share: conditions to wait for, records to write, a proxy that loses answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

from nats.aio.client import Client

from fairlease.core.decision import Decision, decision_ms
from fairlease.core.world import World
from fairlease.runtime import bus_server, streams
from fairlease.runtime.connection import connect
from fairlease.runtime.serve import Process
from fairlease.runtime.service import Define, Service, Shell, plain_read
from fairlease.runtime.settings import Settings
from fairlease_schemas.codec import canonical, read_record, sealed
from fairlease_schemas.commands import CancelJob
from fairlease_schemas.envelope import RECORD_VERSION, Answer, Event, Record
from fairlease_schemas.job import CommandRefused, Problem
from fairlease_schemas.policy import Policy, PolicyChanged
from fairlease_schemas.subjects import Subjects

FIRST = PolicyChanged(name="test-1", author="test", policy=Policy())


async def eventually(holds: Callable[[], object], limit_s: float = 30.0) -> None:
    """Returns when the condition holds; fails when it does not in time."""
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110 - any condition, also one that sets no event
            await asyncio.sleep(0.002)


def record(by: str = "ledger", *, basis: int = 0, at_ms: int = 1, events: tuple[Event, ...] = ()) -> bytes:
    """The bytes of a record."""
    plain = Record(
        v=RECORD_VERSION, at_ms=at_ms, by=by, epoch=1, basis=basis, policy="", causes=(), answers=(), events=events
    )
    return sealed(plain)[1]


async def store(client: Client, subject: str, data: bytes) -> None:
    """Puts a message on a stream as nobody should: without a fence."""
    reply = await client.request(subject, data, timeout=3)
    assert b'"error"' not in reply.data, reply.data


async def read_log(client: Client, subjects: Subjects) -> list[Record]:
    """Every record of the log, one by one, with no help of ours."""
    manager = client.jsm()
    last = (await manager.stream_info(subjects.log_stream)).state.last_seq
    messages = [await manager.get_msg(subjects.log_stream, seq) for seq in range(1, last + 1)]
    return [read_record(message.data or b"") for message in messages]


async def command(client: Client, subjects: Subjects, job: str, account: str = "local") -> None:
    await store(client, subjects.command(account, "cancel-job"), canonical(CancelJob(job=job)))


def refuse_all(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """A toy of a rule: the first record names a policy, then every command is refused once."""
    if world.policy is None:
        return Decision(kind="policy", at_ms=decision_ms(world, ()), events=(FIRST,))
    if not answers:
        return None
    problem = Problem(field="job", rule="0", way_out="none")
    events = tuple(
        CommandRefused(account=answer.who, seq=answer.seq, verb="cancel-job", problems=(problem,)) for answer in answers
    )
    return Decision(kind="refused", at_ms=decision_ms(world, answers), events=events, answers=answers)


def toy(**changes: object) -> Define:
    """Admission with that rule instead of its own."""

    def define(shell: Shell) -> Service:
        plain = {"decide": refuse_all, "read": plain_read(shell.subjects), "verbs": ("cancel-job",)}
        return Service(name=shell.settings.service, **{**plain, **changes})  # type: ignore[arg-type]  # any field

    return define


@asynccontextmanager
async def serving(settings: Settings, define: Define) -> AsyncIterator[Process]:
    """The service in this process, ready; stopped at the end."""
    process = Process(settings, define)
    task = asyncio.create_task(process.run())
    ready = asyncio.create_task(process.ready.wait())
    done, _ = await asyncio.wait({task, ready}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert ready in done, task
    try:
        yield process
    finally:
        process.stop()
        await task


async def restarted(server: bus_server.BusServer) -> bus_server.BusServer:
    """The killed server's successor on the same port and store."""
    return await asyncio.to_thread(bus_server.start, server.home)


async def declared(server: bus_server.BusServer, subjects: Subjects) -> None:
    client = await connect(server.url, "deploy", exit_on_close=False)
    await streams.declare(client, subjects, ("local",))
    await client.close()


class Proxy:
    """Stands between one client and the bus. While `is_deaf`, what the bus says is swallowed."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("nats://").partition(":")
        self._target = (host, int(port))
        self.is_deaf = False
        self.swallowed = 0
        self.url = ""
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self.cut()
        self._server.close()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Ends every connection through here."""
        for writer in self._links:
            writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_bus, from_bus = None, None
        try:
            from_bus, to_bus = await asyncio.open_connection(*self._target)
            self._links |= {writer, to_bus}
            await asyncio.gather(self._pass(reader, to_bus), self._pass(from_bus, writer, is_answer=True))
        except OSError:
            return
        finally:
            for end in (writer, to_bus):
                if end is not None:
                    end.close()
                    self._links.discard(end)

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        while data := await source.read(65536):
            if is_answer and self.is_deaf:
                self.swallowed += len(data)
                continue
            target.write(data)
            await target.drain()
        target.close()
