"""What a process answers to whoever watches it, read by Prometheus's own parser and by plain sockets."""

import asyncio
import contextlib
import math
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.metrics import Sample, counter, gauge, histogram, process_figures, text_of
from fairlease.runtime.probe import MOST_AT_ONCE, Probe
from fairlease.runtime.settings import Settings, read_settings
from fairlease.runtime.supervisor import Supervisor, service_parts

ODD = 'a "pool"\\ of\nmine'


def parsed(text: bytes) -> dict[str, tuple[str, list[tuple[str, dict[str, str], float]]]]:
    """Kind and samples of each family, by Prometheus's own reading."""
    families = text_string_to_metric_families(text.decode())
    return {one.name: (one.type, [(s.name, s.labels, s.value) for s in one.samples]) for one in families}


def some_figures() -> Iterator[Metric]:
    yield gauge("gpus", "GPUs, by\nstate \\ pool.", Sample(3, {"pool": ODD}), Sample(0.5))
    yield counter("records_written_total", "Records.", Sample(7))


def test_what_is_written_is_what_prometheus_reads_whatever_a_label_holds() -> None:
    assert parsed(text_of(some_figures())) == {
        "fairlease_gpus": ("gauge", [("fairlease_gpus", {"pool": ODD}, 3.0), ("fairlease_gpus", {}, 0.5)]),
        "fairlease_records_written": ("counter", [("fairlease_records_written_total", {}, 7.0)]),
    }


def test_a_bucket_holds_what_is_at_most_its_bound_and_all_that_is_below() -> None:
    told = histogram("wait_seconds", "Waits.", (1, 5), "class")
    for value in (0, 1, 1.5, 5, 6):
        told.labels("idle").observe(value)
    name = "fairlease_wait_seconds"
    buckets = [
        (f"{name}_bucket", {"class": "idle", "le": le}, n) for le, n in (("1.0", 2.0), ("5.0", 4.0), ("+Inf", 5.0))
    ]
    rest = [(f"{name}_count", {"class": "idle"}, 5.0), (f"{name}_sum", {"class": "idle"}, 13.5)]
    assert parsed(text_of(told.collect())) == {name: ("histogram", [*buckets, *rest])}


def test_a_process_says_what_it_used() -> None:
    found = parsed(text_of(process_figures()))
    ((_, _, resident),) = found["process_resident_memory_bytes"][1]
    assert 10 * 2**20 < resident < 2**36
    assert math.isfinite(found["process_cpu_seconds"][1][0][2])


class Watched:
    """A probe, and the trouble that its process is in."""

    def __init__(self) -> None:
        self.trouble = ""
        self.probe = Probe(some_figures, lambda: self.trouble)

    async def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """The answer's head and body; empty when it hangs up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.probe.port)
        try:
            writer.write(request)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        except ConnectionError:
            return b"", b""
        finally:
            writer.close()
        return head, body

    async def get(self, path: str) -> tuple[int, bytes]:
        head, body = await self.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert f"Content-Length: {len(body)}".encode() in head
        return int(head.split(b" ")[1]), body


@asynccontextmanager
async def watching() -> AsyncIterator[Watched]:
    watched = Watched()
    await watched.probe.start(0)
    yield watched
    await watched.probe.stop()


@pytest.mark.asyncio
async def test_who_answers_is_healthy_and_who_is_in_trouble_is_not_ready_and_says_why() -> None:
    async with watching() as watched:
        assert await watched.get("/healthz") == (200, b"ok\n")
        assert await watched.get("/readyz?verbose") == (200, b"ok\n")
        watched.trouble = "the bus is away"
        assert await watched.get("/readyz") == (503, b"the bus is away\n")
        assert await watched.get("/healthz") == (200, b"ok\n")
        assert await watched.get("/metrics") == (200, text_of(some_figures()))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        pytest.param(b"POST /metrics HTTP/1.1", 405, id="another method"),
        pytest.param(b"GET /etc/passwd HTTP/1.1", 404, id="another path"),
        pytest.param(b"GET /metrics", 400, id="no version"),
        pytest.param(b"\xff\xfe\x00 \x80 HTTP/1.1", 405, id="bytes"),
        pytest.param(b"", 400, id="nothing"),
    ],
)
async def test_what_is_no_question_is_told_so(request_line: bytes, status: int) -> None:
    async with watching() as watched:
        head, body = await watched.ask(request_line + b"\r\n\r\n")
        assert (int(head.split(b" ")[1]), body.count(b"\n")) == (status, 1)


@pytest.mark.asyncio
async def test_a_head_request_has_no_body() -> None:
    async with watching() as watched:
        head, body = await watched.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert (head.split(b" ")[1], body) == (b"200", b"")


@pytest.mark.asyncio
async def test_who_sends_too_much_or_too_often_is_hung_up_on_and_others_are_served() -> None:
    async with watching() as watched:
        assert await watched.ask(b"GET /" + b"x" * 100_000) == (b"", b"")
        held = [await asyncio.open_connection("127.0.0.1", watched.probe.port) for _ in range(MOST_AT_ONCE)]
        assert await watched.ask(b"GET /healthz HTTP/1.1\r\n\r\n") == (b"", b"")
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(10):
            while (await watched.ask(b"GET /healthz HTTP/1.1\r\n\r\n"))[1] != b"ok\n":  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_who_asks_and_does_not_read_is_hung_up_on_with_what_he_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlease.runtime.probe._PATIENCE_S", 0.2)
    much = gauge("much", "x" * 2**25, Sample(1))
    probe = Probe(lambda: [much], str)
    await probe.start(0)
    reader, writer = await asyncio.open_connection("127.0.0.1", probe.port, limit=1)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    await asyncio.sleep(0.1)
    async with asyncio.timeout(10):
        while probe._open:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
    got = 0
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(2**20):
            got += len(data)
    assert got < 2**25
    writer.close()
    await probe.stop()


@pytest.mark.asyncio
async def test_a_port_that_is_taken_is_named_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigWrong, match=f"FAIRLEASE_METRICS_PORT={port} .*name a free one, or 0"):
            await Probe(some_figures, str).start(port)


@pytest.mark.parametrize(("text", "port"), [("", None), ("0", 0), (" 9400 ", 9_400), ("65535", 65_535)])
def test_a_port_is_read(text: str, port: int | None) -> None:
    assert read_settings(env={"FAIRLEASE_METRICS_PORT": text}).metrics_port == port


@pytest.mark.parametrize("text", ["x", "-1", "65536", "٣", "99999999999"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ConfigWrong, match="from 0 to 65535"):
        read_settings(env={"FAIRLEASE_METRICS_PORT": text})


def test_under_one_roof_the_parts_count_on_from_the_port_that_was_named(tmp_path: Path) -> None:
    parts = service_parts()
    for named, ports in (
        (9_400, [str(9_400 + number) for number in range(len(parts))]),
        (0, ["0"] * len(parts)),
        (None, []),
    ):
        supervisor = Supervisor(Settings(state_dir=tmp_path, metrics_port=named), parts)
        told = [port for part in parts for port in supervisor._metrics(part).values()]
        assert told == ports
