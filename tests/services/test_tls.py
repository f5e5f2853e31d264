"""Connections that are sealed, or are none: what a client says to whom, and what it is told when it says nothing."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from nats.aio.transport import TcpTransport

from fairlease.runtime import bus_server, certificates, keys, tls
from fairlease.runtime.bus import Bus
from fairlease.runtime.bus_server import BusServer
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.errors import BusAway, ConfigWrong
from fairlease.runtime.settings import Settings
from tests.services.bench import eventually

CLIENT_HELLO = b"\x16\x03"
PLAIN = b'INFO {"server_id":"N","version":"2.15.1","proto":1,"max_payload":9,"auth_required":true,"nonce":"abc"%s}\r\n'
GREETINGS = {
    "says nothing of TLS": PLAIN % b"",
    "offers TLS": PLAIN % b',"tls_available":true',
    "asks for TLS": PLAIN % b',"tls_required":true',
    "is silent": b"",
    "is no bus": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BusServer]:
    """A sealed bus whose state directory also has the key of a client and a service."""
    home = tmp_path / "cell"
    certificates.make(home)
    for identity in ("client-local", "service-ranker"):
        keys.make(home, identity)
    found = bus_server.start(home, dies_with_parent=True, is_sealed=True)
    yield found
    found.stop()


class Fake:
    """Somebody in the place of the bus: greets as it likes, and keeps all that it is told."""

    def __init__(self, greeting: bytes, context: ssl.SSLContext | None = None) -> None:
        self.heard = b""
        self.links = 0
        self._greeting = greeting
        self._context = context
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> str:
        self._server = await asyncio.start_server(self._link, "127.0.0.1", port, ssl=self._context)
        return f"tls://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.links += 1
        writer.write(self._greeting)
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.heard += data
        writer.close()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def check_told_nothing(self) -> None:
        """What came begins a handshake, and holds no word of the bus's protocol."""
        assert self.heard.startswith(CLIENT_HELLO) or not self.heard, self.heard[:80]
        assert not any(word in self.heard for word in (b"CONNECT", b"PING", b"nkey", b"sig")), self.heard[:200]


@contextlib.asynccontextmanager
async def fake(
    greeting: bytes, context: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[tuple[Fake, str]]:
    made = Fake(greeting, context)
    url = await made.start(port)
    try:
        yield made, url
    finally:
        await made.stop()


def _port(server: BusServer) -> int:
    return int(server.url.rpartition(":")[2])


def _settings(server: BusServer, url: str = "", ca: str = "") -> Settings:
    return Settings(state_dir=server.home, url=url or server.url, service="ranker", ca=ca)


async def _connected(server: BusServer, url: str = "") -> Connection:
    key = keys.make(server.home, "client-local")
    return await connect(_settings(server, url), "test", key=key, exit_on_close=False)


async def _reloaded(server: BusServer) -> None:
    """Returns once the server has read its certificates again."""
    log = server.home / "bus.log"
    before = log.read_text().count("Reloaded server configuration")
    server.reload()
    await eventually(lambda: log.read_text().count("Reloaded server configuration") > before)


async def _round_trip(client: Connection) -> None:
    heard = await client.subscribe("there.and.back")
    await client.publish("there.and.back", b"again")
    assert (await heard.next_msg(timeout=5)).data == b"again"
    await heard.unsubscribe()


# who is believed --------------------------------------------------------------------------------------
async def test_a_client_by_the_authority_of_the_state_directory_is_sealed_by_the_newest_protocol(
    server: BusServer,
) -> None:
    client = await _connected(server)
    stream = cast("TcpTransport", client._transport)._io_writer
    assert stream is not None
    assert stream.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert client.certificate_ends_s is not None
    await _round_trip(client)
    await client.close()


async def test_a_named_authority_goes_first_and_the_systems_is_last(
    server: BusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = certificates.make(tmp_path / "strange").directory / "ca.crt"
    own = server.home / "tls/ca.crt"
    elsewhere = Settings(state_dir=tmp_path / "elsewhere", url=server.url)
    await (await connect(Settings(state_dir=tmp_path, url=server.url, ca=str(own)), "a", exit_on_close=False)).close()
    for settings in (elsewhere, _settings(server, ca=str(strange))):
        with pytest.raises(BusAway, match=r"authority that is not known here; name the cell's ca\.crt in FAIRLEASE_CA"):
            await connect(settings, "test", exit_on_close=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    await (await connect(elsewhere, "b", exit_on_close=False)).close()


async def test_a_plain_client_hears_nothing_and_is_told_that_the_bus_may_want_tls(server: BusServer) -> None:
    with pytest.raises(BusAway, match=r"does not answer .*; it may want TLS: write tls://"):
        await _connected(server, server.url.replace("tls://", "nats://"))


async def test_a_service_speaks_to_a_sealed_bus_and_finds_it_again(server: BusServer) -> None:
    bus = Bus(_settings(server), exit_on_close=False)
    await bus.start()
    server.kill()
    again = await asyncio.to_thread(bus_server.start, server.home, dies_with_parent=False, is_sealed=True)
    try:
        async with asyncio.timeout(20):
            while not bus.client.is_connected:  # noqa: ASYNC110 - the client tells nobody
                await asyncio.sleep(0.01)
            await bus.client.flush()
    finally:
        await bus.stop()
        again.stop()


# who is not -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS)
async def test_whoever_takes_the_place_of_the_bus_is_told_nothing(server: BusServer, greeting: bytes) -> None:
    async with fake(greeting) as (made, url):
        with pytest.raises(BusAway, match="TLS"):
            await _connected(server, url)
        assert made.links
        made.check_told_nothing()


@pytest.mark.parametrize("greeting", [GREETINGS["says nothing of TLS"], GREETINGS["asks for TLS"]])
async def test_nor_does_a_service_tell_it_anything(server: BusServer, greeting: bytes) -> None:
    async with fake(greeting) as (made, url):
        bus = Bus(_settings(server, url), exit_on_close=False)
        starting = asyncio.create_task(bus.start())
        try:
            await eventually(lambda: made.links > 1, 30)  # each handshake is given two seconds
            made.check_told_nothing()
        finally:
            starting.cancel()
            await asyncio.wait([starting], timeout=10)
            await bus.stop()


async def test_whoever_takes_its_place_later_is_told_nothing_and_the_bus_is_found_again(server: BusServer) -> None:
    client = await _connected(server)
    server.stop()
    async with fake(GREETINGS["says nothing of TLS"], port=_port(server)) as (made, _):
        await eventually(lambda: made.links, 20)
        made.check_told_nothing()
    again = await asyncio.to_thread(bus_server.start, server.home, is_sealed=True)
    try:
        async with asyncio.timeout(20):
            while not client.is_connected:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        await _round_trip(client)
    finally:
        await client.close()
        again.stop()


async def test_a_bus_by_another_authority_is_told_nothing(server: BusServer, tmp_path: Path) -> None:
    other = certificates.make(tmp_path / "other").directory
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(other / "server.crt", other / "server.key")
    async with fake(GREETINGS["asks for TLS"], serving) as (made, url):
        with pytest.raises(BusAway, match="by an authority that is not known here"):
            await _connected(server, url)
        assert made.heard == b""


async def test_an_older_protocol_is_refused(server: BusServer) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server.home / "tls/server.crt", server.home / "tls/server.key")
    serving.maximum_version = ssl.TLSVersion.TLSv1_2
    async with fake(GREETINGS["asks for TLS"], serving) as (made, url):
        with pytest.raises(BusAway, match="TLS"):
            await _connected(server, url)
        assert made.heard == b""


def _for_another_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(certificates, "_OWN_NAMES", ("other.example",))
    patch.setattr(certificates, "_names_of", lambda _: ())


def _expired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(certificates, "_EARLIER", timedelta(days=2))
    patch.setattr(certificates, "SERVER_DAYS", -1)


def _from_tomorrow_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(certificates, "_EARLIER", timedelta(days=-1))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            _for_another_name,
            r"not for '127\.0\.0\.1'; write an address that it names in FAIRLEASE_URL, or .*--name NAME",
        ),
        (_expired, "has expired; renew it where the bus runs: `fairlease certs --renew`"),
        (_from_tomorrow_on, "is not valid yet; set the clocks"),
    ],
)
async def test_a_certificate_that_does_not_hold_is_refused_by_its_reason_until_it_is_renewed(
    server: BusServer, make: Callable[[pytest.MonkeyPatch], None], problem: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        make(patch)
        certificates.renew(server.home)
    await _reloaded(server)
    with pytest.raises(BusAway, match=problem) as refused:
        await _connected(server)
    assert str(refused.value).startswith(f"the bus at {server.url}: the certificate")
    certificates.renew(server.home)
    await _reloaded(server)
    if make is not _for_another_name:  # that renewal forgot the names that there were
        await (await _connected(server)).close()


async def test_a_daemon_that_was_refused_comes_by_itself_once_the_certificate_holds(
    server: BusServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits for a bus tries again after a handshake that failed, and says once in a while why."""
    with pytest.MonkeyPatch.context() as patch:
        _expired(patch)
        certificates.renew(server.home)
    await _reloaded(server)
    caplog.set_level(logging.WARNING, "fairlease")
    waiting = asyncio.create_task(connect(_settings(server), "daemon"))
    await eventually(lambda: any("the certificate has expired; renew it" in line for line in caplog.messages), 20)
    assert not waiting.done()
    certificates.renew(server.home)
    server.reload()
    client = await asyncio.wait_for(waiting, 20)
    await _round_trip(client)
    assert len(caplog.messages) == 1, caplog.messages
    await client.close()


async def test_a_renewed_certificate_is_shown_to_the_next_and_the_last_stay_connected(server: BusServer) -> None:
    client = await _connected(server)
    before = client.certificate_ends_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "SERVER_DAYS", 100)
        certificates.renew(server.home)
    await _reloaded(server)
    following = await _connected(server)
    shown = following.certificate_ends_s
    await following.close()
    assert shown is not None
    assert before is not None
    assert before - shown == pytest.approx(296 * 86_400, abs=60)
    await _round_trip(client)
    assert client.stats["reconnects"] == 0
    await client.close()


async def test_a_sealed_bus_that_leaves_is_told_of_in_our_words_alone(
    server: BusServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = await _connected(server)
    caplog.set_level(logging.DEBUG)
    server.kill()
    await eventually(lambda: any("connection lost" in line for line in caplog.messages))
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
    await client.close()


# what no address is -------------------------------------------------------------------------------------
@pytest.mark.parametrize("urls", ["tls://a:1,nats://b:1", "nats://b:1,tls://a:1", "tls://a:1,b:1", "a:1, tls://a:1"])
async def test_what_is_sealed_at_one_server_is_not_open_at_the_next(tmp_path: Path, urls: str) -> None:
    for connecting in (connect(urls, "test"), connect(Settings(state_dir=tmp_path, url=urls), "test")):
        with pytest.raises(ConfigWrong, match=r"some servers are tls:// and others nats://.*write tls:// for all"):
            await connecting
    with pytest.raises(ConfigWrong, match="some servers are tls://"):
        Bus(Settings(state_dir=tmp_path, url=urls, service="ranker"))


@pytest.mark.parametrize("url", ["TLS://a:1", "tsl://a:1", "wss://a:1", "ws://a:1", "https://a:1", " tls ://a:1"])
async def test_an_address_of_another_kind_is_never_taken_for_a_plain_one(url: str) -> None:
    with pytest.raises(ConfigWrong, match="is no bus; write nats://HOST:PORT, or tls://HOST:PORT"):
        await connect(url, "test")


@pytest.mark.parametrize("data", [None, b"", b"not a certificate"])
async def test_an_authority_that_is_none_is_told_before_anything_is_connected(
    tmp_path: Path, data: bytes | None
) -> None:
    path = tmp_path / "ca.crt"
    if data is not None:
        path.write_bytes(data)
    settings = Settings(state_dir=tmp_path, url="tls://127.0.0.1:1", ca=str(path))
    with pytest.raises(ConfigWrong, match=r"authority .*ca\.crt: cannot be read .*FAIRLEASE_CA"):
        await connect(settings, "test")
    assert tls.options("nats://127.0.0.1:1", path) == {}, "a plain bus needs none"
