"""The agent as a process: hosts on one side, the bus on the other.

Orders are read two ways that check each other: the host's subject is subscribed to, which is quick,
and the last order kept is asked for at the start, after every reconnection and now and then, which
loses nothing. So there is no consumer on the bus that could vanish, and the host takes each order
any number of times. The agent works without the bus: it adopts and watches runs before it connects, and
what runs ends with the host's lease (lease.py) if the bus stays away.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from fairlease.agent import contracts, failure, lease, telemetry
from fairlease.agent.attach import Sessions
from fairlease.agent.bundles import Bundles
from fairlease.agent.devices import Devices
from fairlease.agent.git import Git
from fairlease.agent.host import Host
from fairlease.agent.identity import Users
from fairlease.agent.outbox import Disconnected, Outbox
from fairlease.agent.questions import LogAnswer, Progress, answer, progress
from fairlease.agent.rendezvous import LOOPBACK
from fairlease.agent.runs import LOG_BYTES
from fairlease.agent.source import BUNDLES, Sources
from fairlease.runtime import keys
from fairlease.runtime.connection import Connection, connect, end_reconnecting, is_inbox
from fairlease.runtime.errors import BusAway
from fairlease.runtime.settings import Settings
from fairlease.runtime.spans import Spans
from fairlease.runtime.tasks import end, heed_cancellation
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.orders import HostOrder
from fairlease_schemas.subjects import BEGIN, VERBS, Subjects

log = logging.getLogger("fairlease.agent")

_ANSWER_S: Final = 1.0
_REFRESH_S: Final = 10.0
_AGAIN_S: Final = 0.1
_GOODBYE_S: Final = 0.3


class Link:
    """The bus as the agent needs it: a report stored, the last message of a subject."""

    def __init__(self, subjects: Subjects) -> None:
        self.subjects = subjects
        self.connection: Connection | None = None
        self.is_up = asyncio.Event()
        """Set once the first connection stands."""
        self.news = asyncio.Event()
        """Set whenever an order may have been missed."""

    async def report(self, host: str, kind: str, body: bytes) -> None:
        """Returns when the report, or the evidence behind one, is on its stream; BusAway when that is not known."""
        is_evidence = kind == failure.KIND
        digest = hashlib.sha256(body).hexdigest()
        subject = self.subjects.evidence(host, digest) if is_evidence else self.subjects.report(host, kind)
        await self._store(subject, body)

    async def renew(self, host: str, body: bytes, patience_s: float) -> None:
        """Returns when the renewal is on the stream; BusAway when that is not known so many seconds later."""
        await self._store(self.subjects.lease(host), body, patience_s)

    async def sample(self, host: str, kind: str, body: bytes) -> None:
        """Sends what devices do, if the bus is there to hear it."""
        if self.connection is not None and self.connection.is_connected:
            await self.connection.publish(self.subjects.telemetry(host, kind), body)

    async def contract(self, digest: str) -> bytes | None:
        return await self._last(self.subjects.contracts_stream, self.subjects.contract(digest))

    async def piece(self, account: str, digest: str, number: int) -> bytes | None:
        """A piece of an account's code bundle."""
        return await self._last(self.subjects.bundles_stream, self.subjects.bundle(account, digest, number))

    async def order(self, host: str) -> bytes | None:
        return await self._last(self.subjects.orders_stream, self.subjects.order(host))

    async def _last(self, stream: str, subject: str) -> bytes | None:
        """The last message kept of a subject, None when there is none; BusAway when nobody can say."""
        reply = await self._request(f"{VERBS}.DIRECT.GET.{stream}.{subject}", b"")
        status = (reply.headers or {}).get("Status")
        if status is None:
            return reply.data
        if status == "404":
            return None
        raise BusAway(f"{subject}: the bus answers {status}")

    async def _store(self, subject: str, body: bytes, patience_s: float = _ANSWER_S) -> None:
        reply = await self._request(subject, body, patience_s)
        answer: dict[str, Any] = json.loads(reply.data)
        if "error" in answer:
            raise BusAway(f"{subject}: {answer['error']}")

    async def _request(self, subject: str, body: bytes, patience_s: float = _ANSWER_S) -> Msg:
        if self.connection is None or not self.connection.is_connected:
            raise Disconnected(f"{subject}: not connected")
        try:
            reply = await self.connection.request(subject, body, timeout=patience_s)
        except (nats.errors.Error, OSError) as error:
            heed_cancellation()
            raise BusAway(f"{subject}: {type(error).__name__}: {error}") from error
        heed_cancellation()
        return reply


async def serve(
    settings: Settings,
    hosts: Sequence[Devices],
    *,
    log_bytes: int = LOG_BYTES,
    stop: asyncio.Event | None = None,
    address: Callable[[], str] = lambda: LOOPBACK,
    users: Users | None = None,
    spans: Spans | None = None,
) -> None:
    """Serves these hosts until SIGTERM or SIGINT, or until `stop` is set; jobs run on.

    `address` says where other hosts reach these, `users` whose their runs are. Raises BusAway when no address of a bus
    is known, ConfigWrong when its key is not there. A bus that is away is waited for.
    """
    settings.bus_url()
    key = keys.find(settings, keys.agent_name(keys.AGENT))
    stop = stop or _stopped_by_signal()
    link = Link(settings.subjects)
    git = Git(settings.git_schemes)
    served: list[Host] = []
    spans = spans or Spans()
    locks: list[int] = []
    closing = contextlib.ExitStack()
    async with _watched(settings, served, spans, link), asyncio.TaskGroup() as group:
        work: list[asyncio.Task[None]] = []
        try:
            for devices in hosts:
                home = settings.state_dir / "agent" / devices.host
                lock = await _alone(home, stop)
                if lock is None:
                    break
                locks.append(lock)
                host = Host(
                    devices,
                    home,
                    partial(contracts.fetch, link.contract),
                    Outbox(partial(link.report, devices.host)),
                    Sources(home, Bundles(home / BUNDLES, link.piece), git),
                    log_bytes=log_bytes,
                    address=address,
                    users=users,
                    spans=spans,
                )
                host.open()
                served.append(host)
                work.append(group.create_task(host.outbox.run()))
                work.append(group.create_task(_keep_lease(link, host)))
            work.append(group.create_task(_follow(settings, key, link, served, closing)))
            work.append(group.create_task(telemetry.tell(link.sample, hosts, link.is_up)))
            await stop.wait()
        finally:
            await end(work)
            closing.close()
            for host in served:
                host.close()
            if link.connection is not None:
                await _close(link.connection)
            for lock in locks:
                os.close(lock)


@contextlib.asynccontextmanager
async def _watched(settings: Settings, hosts: Sequence[Host], spans: Spans, link: Link) -> AsyncIterator[None]:
    """Answers for the figures and the health of these hosts meanwhile, where somebody wants them."""
    if settings.metrics_port is None:
        yield
        return
    from fairlease.agent import figures  # noqa: PLC0415 - who is not asked does without Prometheus's client

    probe = figures.probe(hosts, spans, lambda: link.connection is not None and link.connection.is_connected)
    await probe.start(settings.metrics_port)
    try:
        yield
    finally:
        await probe.stop()


async def _keep_lease(link: Link, host: Host) -> None:
    """Renews the host's lease for ever. When it had run out, the order is read again: the one it had may be old.

    A host without a lease has nothing to lose: first the bus is told which boot this is, so that nothing is granted
    to the one before.
    """
    await link.is_up.wait()
    if not host.lease.is_valid:
        await host.announced.wait()
    await lease.keep(host.lease, partial(link.renew, host.id), host.incarnation, link.news.set)


async def _close(connection: Connection) -> None:
    """Closes the connection, in bounded time also while the client tries to reach a bus that is away."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GOODBYE_S):
            await connection.close()
    await end_reconnecting(connection)


def _stopped_by_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _alone(home: Path, stop: asyncio.Event) -> int | None:
    """A descriptor that keeps other agents from this host's state; waits for one that is leaving. None when stopped."""
    lock = _opened(home)
    is_said = False
    while not stop.is_set():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not is_said:
                log.warning("another agent serves %s; waiting until it leaves", home.name)
            is_said = True
            await asyncio.sleep(_AGAIN_S)
        else:
            return lock
    os.close(lock)
    return None


def _opened(home: Path) -> int:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


async def _follow(
    settings: Settings, key: keys.Key | None, link: Link, hosts: list[Host], closing: contextlib.ExitStack
) -> None:
    """Connects, subscribes, and asks for the orders kept whenever one may have been missed. Never returns."""
    connection = await connect(settings, "agent", key=key)
    connection.guard.on_reconnect(link.news.set)
    for host in hosts:
        sessions = Sessions(host, connection, link.subjects)
        closing.callback(sessions.close)
        await connection.subscribe(link.subjects.attach(host.id, "*", BEGIN), cb=sessions.on_question)
        await connection.subscribe(link.subjects.order(host.id), cb=partial(_on_order, host))
        for name, reply in (("logs", answer), ("progress", progress)):
            await connection.subscribe(
                link.subjects.ask(f"agent-{host.id}", name), cb=partial(_on_question, host, reply)
            )
    link.connection = connection
    link.is_up.set()
    while True:
        link.news.clear()
        is_complete = True
        for host in hosts:
            try:
                data = await link.order(host.id)
            except BusAway as error:
                log.debug("orders of %s: %s", host.id, error)
                is_complete = False
            else:
                if data is not None:
                    _obey(host, data)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REFRESH_S if is_complete else _AGAIN_S):
                await link.news.wait()


async def _on_order(host: Host, message: Msg) -> None:
    _obey(host, message.data)


def _obey(host: Host, data: bytes) -> None:
    try:
        order = understood(data, HostOrder)
    except Unreadable as error:
        log.warning("%s: an order cannot be read and is not obeyed: %s", host.id, error)
        return
    host.obey(order)


async def _on_question(host: Host, reply: Callable[[Host, bytes], LogAnswer | Progress], message: Msg) -> None:
    """Answers, but only to an inbox: a reply goes where the sender says, and must not become a record."""
    if is_inbox(message.reply):
        await message.respond(msgspec.json.encode(reply(host, message.data)))
