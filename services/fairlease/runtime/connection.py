"""One connection to the bus, with the traps of the client closed (bus.md 0.5 and 4).

A daemon never gives up on a bus that is away, and never lives on with a connection that is closed for
good: the process leaves, and its supervisor starts it again. The command line fails fast instead. Only
nats-py is used here, so that the agent stays light.
"""

import asyncio
import logging
import os
import re
import ssl
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import ParseResult

import nats.errors
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from fairlease.runtime import tls
from fairlease.runtime.errors import EXIT_BUS_CLOSED, BusAway
from fairlease.runtime.keys import Key, NoKey
from fairlease.runtime.redaction import redacted
from fairlease.runtime.settings import Settings, servers_in
from fairlease.runtime.tasks import cancellations, end, heed_cancellation

log = logging.getLogger("fairlease.connection")

RECONNECT_WAIT_S: Final = 0.1
PING_INTERVAL_S: Final = 5
"""A bus that stopped without closing its socket is noticed after three of these."""
FIRST_CONNECT_S: Final = 2.0
_REPEAT_S: Final = 10.0
_INBOX: Final = re.compile(r"(?:_INBOX|_R_)\.[A-Za-z0-9_.-]{1,128}")
_REFUSAL: Final = "authorization violation"
"""The bus's own words, at the start and later."""


class Guard:
    """The callbacks of one client: one line of log each, and the end of the process when it is closed.

    `is_closing` is set before a wanted close, which then ends nothing. `is_refused`: the bus is there and knows
    no such key. `last_error` is what went wrong last. Listeners of `on_reconnect` are called without waiting after each
    reconnection; they must not raise.
    """

    def __init__(self, name: str, *, exit_on_close: bool) -> None:
        self.name = name
        self.is_closing = False
        self.is_refused = False
        self.last_error: Exception | None = None
        self._exits = exit_on_close
        self._listeners: list[Callable[[], None]] = []
        self._last_line = ("", 0.0)

    def on_reconnect(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.connect` (and of a faststream broker) that make the guard work."""
        return {
            "name": self.name,
            "error_cb": self._on_error,
            "disconnected_cb": self._on_disconnect,
            "reconnected_cb": self._on_reconnected,
            "closed_cb": self._on_closed,
            "reconnect_time_wait": RECONNECT_WAIT_S,
            "max_reconnect_attempts": -1,
            "ping_interval": PING_INTERVAL_S,
            "max_outstanding_pings": 2,
            "connect_timeout": 2,
        }

    async def _on_error(self, error: Exception) -> None:
        self.is_refused = self.is_refused or _REFUSAL in str(error).lower()
        self.last_error = error
        line = tls.trouble(error) if isinstance(error, ssl.SSLError) else f"{type(error).__name__}: {error}"
        now_s = time.monotonic()
        if self.is_closing or (line == self._last_line[0] and now_s < self._last_line[1] + _REPEAT_S):
            return
        self._last_line = (line, now_s)
        log.warning("bus: %s", line, extra={"client": self.name})

    async def _on_disconnect(self) -> None:
        if not self.is_closing:
            log.warning("bus: connection lost, trying again", extra={"client": self.name})

    async def _on_reconnected(self) -> None:
        log.info("bus: connected again", extra={"client": self.name})
        self._last_line = ("", 0.0)
        for listener in self._listeners:
            listener()

    async def _on_closed(self) -> None:
        if self.is_closing or not self._exits:
            return
        # Whatever is left would spin on a dead connection and answer nothing, not even a signal.
        log.error("bus: connection closed for good, leaving with code %d", EXIT_BUS_CLOSED)
        os._exit(EXIT_BUS_CLOSED)


class Connection(Client):
    """A nats client that knows its guard; `await connection.close()` is a wanted close."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.guard = guard

    @property
    def certificate_ends_s(self) -> int | None:
        """When the certificate that the bus showed ends, in seconds since 1970; None on a connection without TLS."""
        assert isinstance(self._transport, TcpTransport), "connect comes first"
        stream = self._transport._io_writer  # noqa: SLF001 - the client tells nobody what was shown to it
        shown = stream.get_extra_info("peercert") if stream is not None else None
        return int(ssl.cert_time_to_seconds(shown["notAfter"])) if shown else None

    async def close(self) -> None:
        self.guard.is_closing = True
        try:
            await super().close()
        except (OSError, asyncio.CancelledError, nats.errors.Error, AttributeError, AssertionError):
            # The last two are what the client, and Python's TLS, say of a connection that was lost, or never made.
            log.debug("bus: the socket was gone before the close", exc_info=True)
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
        finally:
            await end_reconnecting(self)


async def settle(client: Client, timeout_s: int) -> None:
    """Returns when the bus has all that this connection said before: subscriptions, and messages nobody confirms.

    Two pings, because the client sends one ahead of what it has not written yet, and only the second comes behind it.
    Raises what `Client.flush` raises.
    """
    for _ in range(2):
        await client.flush(timeout_s)


async def end_reconnecting(client: Client) -> None:
    """Ends the loop in which a closed client may still look for a bus that is away.

    The close cancels it once, and on Python 3.11 the loop forgets a cancellation that comes while a
    connection is refused; the process would then not end before the bus is back.
    """
    loop = client._reconnection_task  # noqa: SLF001 - the client has no other way to it
    if loop is not None:
        await end([loop])


async def _connect_tls(
    transport: TcpTransport,
    uri: str | ParseResult,
    ssl_context: ssl.SSLContext,
    buffer_size: int,
    connect_timeout: int,
) -> None:
    """As the client's own, but for what it leaves behind.

    After a handshake that failed it would wait for the end of a socket that nobody closes for it any more, and so never
    try again. After one that did not, the stream must know that it is sealed, or it complains when the bus leaves.
    """
    try:
        await _CLIENTS_CONNECT_TLS(transport, uri, ssl_context, buffer_size, connect_timeout)
    except BaseException:
        transport._io_reader = transport._io_writer = None  # noqa: SLF001 - then it makes a new one
        raise
    assert transport._io_writer is not None  # noqa: SLF001 - as above
    setattr(transport._io_writer.transport.get_protocol(), "_over_ssl", True)  # noqa: B010, SLF001 - asyncio has no other way


_CLIENTS_CONNECT_TLS: Final = TcpTransport.connect_tls
setattr(TcpTransport, "connect_tls", _connect_tls)  # noqa: B010 - the client's own is wrong


def is_inbox(subject: str) -> bool:
    """Whether an answer may be sent there: an inbox, or what the bus made of one in another account.

    The asker chooses it, and whoever answers may publish where the asker may not.
    """
    return _INBOX.fullmatch(subject) is not None


async def connect(
    where: Settings | str,
    name: str,
    *,
    key: Key | None = None,
    exit_on_close: bool = True,
    first_connect_s: float = FIRST_CONNECT_S,
) -> Connection:
    """A connection to the bus at a URL, or at the one the settings name, by the key's identity.

    Where the URL names several servers, to one of them, and to another when that one is gone. Where it says `tls://`,
    sealed or not at all (tls.py), by the authority that the settings name; a bare URL has the system's. ConfigWrong for
    addresses of which some are sealed and others are not.

    A daemon (`exit_on_close`) waits for the bus as long as it takes and ends its process when the
    connection is closed for good. Otherwise BusAway is raised when the bus does not answer within
    `first_connect_s` for each of its servers, and NoKey when it refuses us; once connected, the client
    survives restarts of the bus all the same.
    """
    url = where if isinstance(where, str) else where.bus_url()
    guard = Guard(name, exit_on_close=exit_on_close)
    client = Connection(guard)
    sealing = tls.options(url, None if isinstance(where, str) else tls.authority_of(where))
    options = guard.options() | sealing | (key.options() if key is not None else {})
    servers = servers_in(url)
    if exit_on_close:
        await client.connect(servers=servers, **options)
        return client
    guard.is_closing = True
    options["max_reconnect_attempts"] = 1
    limit_s = first_connect_s * len(servers)  # one may be silent rather than gone: each gets its time
    before = cancellations()
    try:
        await asyncio.wait_for(client.connect(servers=servers, **options), limit_s)
        heed_cancellation(before)
    except asyncio.CancelledError:
        await client.close()  # what it has opened by then would stay open
        raise
    except (OSError, TimeoutError, nats.errors.Error, nats.errors.NoServersError) as error:
        await client.close()
        if guard.is_refused:
            who = f"the key of {key.identity}" if key is not None else "a connection without a key"
            raise NoKey(
                f"the bus at {redacted(url)} refuses {who}: it was started without it, or with another"
            ) from None
        # That no server is left says nothing of why.
        why = guard.last_error if isinstance(error, nats.errors.NoServersError) and guard.last_error else error
        if isinstance(why, ssl.SSLError):
            raise BusAway(f"the bus at {redacted(url)}: {tls.trouble(why)}") from None
        raise BusAway(
            f"the bus at {redacted(url)} does not answer within {limit_s:g} s ({_reason(why)}); "
            f"{_way_out(why, is_sealed=bool(sealing))}"
        ) from None
    guard.is_closing = False
    client.options["max_reconnect_attempts"] = -1
    return client


def _way_out(error: BaseException, *, is_sealed: bool) -> str:
    """A server that says nothing may wait for what the other kind of client says first."""
    if not isinstance(error, TimeoutError | ConnectionResetError) and "empty response" not in str(error):
        return "start it with 'fairlease up', or set FAIRLEASE_URL to the right address"
    other = "it may speak no TLS: start it with 'fairlease up --tls'" if is_sealed else "it may want TLS: write tls://"
    return f"{other}, or set FAIRLEASE_URL to the right address"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return str(error) or type(error).__name__
