"""Spans: one trace a job, a span for each record that names it, and a collector that may be away."""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from fairlease.runtime.deciding_spans import DecidingSpans, Told, steps_in
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.otlp import FileExporter, export_of
from fairlease.runtime.settings import Settings
from fairlease.runtime.spans import SUBMITTED, Spans, order_span, span_id, spans_of, trace_id
from fairlease.runtime.traces import exporter_of
from fairlease_schemas.cycle import Claim, CyclePlaced, CycleRanked, EvictionOrdered, GangGranted, Licence
from fairlease_schemas.envelope import RECORD_VERSION, Event, Record
from fairlease_schemas.job import JobSucceeded
from tests.dsl.cell import charged

A, B, C = ("job-" + letter * 20 for letter in "abc")


def record(by: str, *events: Event, basis: int = 0) -> Record:
    return Record(
        v=RECORD_VERSION, at_ms=1, by=by, epoch=1, basis=basis, policy="", causes=(), answers=(), events=events
    )


def granted(job: str) -> GangGranted:
    return GangGranted(
        job=job, attempt=f"{job}-a1", number=1, pool="p", parts=(), window_ms=1, licence=Licence.UNDER_SHARE
    )


def claim(job: str) -> Claim:
    return Claim(job=job, pool="p", key="k", licence=Licence.UNDER_SHARE)


class Kept(SpanExporter):
    """An exporter that keeps what it is handed, in the form of a file, or fails."""

    def __init__(self, *, fails: int = 0) -> None:
        self.exports: list[dict[str, Any]] = []
        self.fails = fails

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.fails:
            self.fails -= 1
            raise OSError("away")
        self.exports.append(export_of(spans))
        return SpanExportResult.SUCCESS

    @property
    def spans(self) -> list[dict[str, Any]]:
        return [span for export in self.exports for span in spans_in(export)]


class _Keeping(Kept):
    """One that keeps the spans themselves too, in the list given."""

    def __init__(self, kept: list[ReadableSpan]) -> None:
        super().__init__()
        self._kept = kept

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._kept.extend(spans)
        return super().export(spans)


def spans_in(export: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for of in export["resourceSpans"] for scope in of["scopeSpans"] for span in scope["spans"]]


def links(span: dict[str, Any]) -> list[str]:
    return [link["spanId"] for link in span["links"]]


def test_the_ids_are_those_of_the_job_and_of_what_is_told() -> None:
    assert trace_id(A) == hashlib.sha256(A.encode()).digest()[:16].hex()
    assert (len(trace_id(A)), len(span_id(A, "7"))) == (32, 16)
    assert len({trace_id(A), trace_id(B)}) == 2
    assert len({span_id(A, "7"), span_id(A, "8"), span_id(B, "7")}) == 3


def test_a_record_names_jobs_by_themselves_by_attempts_and_by_claims() -> None:
    evicted = EvictionOrdered(attempt=f"{A}-a2", claim=B, licence=Licence.UNDER_SHARE, grace_ms=1, lost_gpu_ms=1)
    placed = CyclePlaced(cycle=1, claims=(claim(B),), blocked=(claim(C),))
    assert steps_in(record("placement", evicted, placed)) == {
        A: ["eviction-ordered"],
        B: ["eviction-ordered", "cycle-placed"],
        C: ["cycle-placed"],
    }


@pytest.mark.parametrize("is_late", [False, True], ids=["in turn", "its acknowledgement after placement's record"])
def test_a_job_is_followed_from_rank_to_grant_by_links(is_late: bool) -> None:
    kept = Kept()
    spans = Spans("ranker", "a", kept)
    ranker, placement = DecidingSpans(spans, "ranker"), DecidingSpans(spans, "placement")
    for replica in (ranker, placement):
        replica.folded(5, record("ranker", CycleRanked(cycle=1)))
    if not is_late:
        ranker.stored(Told(5, "k", (5, 6)))
    for replica in (ranker, placement):
        replica.folded(6, record("placement", granted(A), CyclePlaced(cycle=1)))
    if is_late:
        ranker.stored(Told(5, "k", (5, 6)))
    placement.stored(Told(6, "k", (6, 7)))
    spans.close()
    told = {span["name"]: span for span in kept.spans}
    assert set(told) == {"ranker k", "placement k"}
    assert links(told["ranker k"]) == [span_id(A, SUBMITTED)]
    assert links(told["placement k"]) == [told["ranker k"]["spanId"]] == [span_id(A, "5")]
    assert {span["traceId"] for span in kept.spans} == {trace_id(A)}


def test_only_the_replica_whose_append_was_stored_tells_of_a_record() -> None:
    kept = Kept()
    spans = Spans("placement", "a", kept)
    one, other = DecidingSpans(spans, "placement"), DecidingSpans(spans, "placement")
    for replica in (one, other):
        replica.folded(6, record("placement", granted(A)))
        replica.folded(7, record("placement", granted(B)))
    one.stored(Told(6, "k", (1, 2)))
    other.stored(Told(7, "k", (1, 2)))
    spans.close()
    assert [span["traceId"] for span in kept.spans] == [trace_id(A), trace_id(B)]


def test_a_replica_that_never_writes_keeps_little() -> None:
    spans = Spans("placement", "a", Kept())
    one = DecidingSpans(spans, "placement")
    for position in range(1, 500):
        one.folded(position, record("placement", granted(A)))
    spans.close()
    assert len(one._own) == 32


def test_what_comes_after_a_jobs_end_is_led_to_by_it_and_jobs_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlease.runtime.deciding_spans.MOST_JOBS", 2)
    kept = Kept()
    spans = Spans("ledger", "a", kept)
    one = DecidingSpans(spans, "ledger")
    one.folded(6, record("admission", JobSucceeded(job=A)))
    for position, job in ((7, A), (8, B), (9, C), (10, A)):
        one.folded(position, record("ledger", charged(job, 1)))
        one.stored(Told(position, "k", (position, position)))
    spans.close()
    assert [links(span) for span in kept.spans] == [
        [span_id(job, led)] for job, led in ((A, "6"), (B, SUBMITTED), (C, SUBMITTED), (A, SUBMITTED))
    ]
    assert list(one._last) == [C, A]


def test_spans_that_are_off_cost_nothing_and_tell_nothing() -> None:
    off = Spans("ranker")
    one = DecidingSpans(off, "ranker")
    one.folded(1, record("ranker", granted(A)))
    one.stored(Told(1, "k", (1, 2)))
    off.add(A, "n", "w", (1, 2))
    off.close()
    assert (one._last, off.lost) == ({}, 0)


def test_a_collector_that_is_away_costs_spans_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    sink = Kept(fails=10**9)
    spans = Spans("ranker", "a", sink)
    for number in range(2_000):
        spans.add(A, "n", str(number), (1, 2))
    spans.close()
    assert spans.lost == 2_000
    assert caplog.text.count("spans are lost") == 1


def test_a_full_queue_loses_spans_and_never_waits() -> None:
    gate = threading.Event()

    class Slow(Kept):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            gate.wait()
            return super().export(spans)

    spans = Spans("ranker", "a", Slow())
    for number in range(20_000):
        spans.add(A, "n", str(number), (1, 2))
    assert 20_000 - 8_192 - 512 <= spans.lost < 20_000
    gate.set()
    spans.close()


def test_several_processes_share_a_file_of_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    every = [Spans(name, "a", FileExporter(str(path))) for name in ("ranker", "placement")]
    for number in range(600):
        for spans in every:
            spans.add(A, "n", order_span(f"{A}-a{number}", "h"), (3, 2), [SUBMITTED], {"fairlease.position": number})
    for spans in every:
        spans.close()
    exports = [json.loads(line) for line in path.read_text().splitlines()]
    told = [span for export in exports for span in spans_in(export)]
    assert len(told) == 1_200
    assert told[0]["startTimeUnixNano"] == told[0]["endTimeUnixNano"] == "3", "no span ends before it began"
    assert path.stat().st_mode & 0o077 == 0


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[tuple[str, str | None, bytes]]]]:
    """An HTTP server of the standard library, and what it was posted."""
    heard: list[tuple[str, str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append((self.path, self.headers["Content-Type"], body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    thread.join()
    server.server_close()


SINKS = [
    ("", "/v1/traces"),
    ("/", "/v1/traces"),
    ("?key=1", "/v1/traces?key=1"),
    ("/otlp/v1/t", "/otlp/v1/t"),
    ("/otlp/v1/t?key=1", "/otlp/v1/t?key=1"),
]


@pytest.mark.parametrize(("suffix", "path"), SINKS)
def test_a_collector_is_posted_spans_where_it_listens(suffix: str, path: str) -> None:
    with collector() as (url, heard):
        spans = Spans("ranker", "a", exporter_of(url + suffix))
        spans.add(A, "n", "w", (1, 2))
        spans.close()
    ((at, kind, body),) = heard
    assert (at, kind) == (path, "application/x-protobuf")
    (of,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert {one.key: one.value.string_value for one in of.resource.attributes}["service.name"] == "fairlease-ranker"
    ((span,),) = (scope.spans for scope in of.scope_spans)
    assert (span.trace_id.hex(), span.span_id.hex()) == (trace_id(A), span_id(A, "w"))


@pytest.mark.parametrize(("suffix", "path"), SINKS)
def test_a_light_process_posts_the_form_of_the_file(suffix: str, path: str) -> None:
    with collector() as (url, heard):
        spans = Spans("agent", "a", exporter_of(url + suffix, is_light=True))
        spans.add(A, "n", "w", (1, 2))
        spans.close()
    ((at, kind, body),) = heard
    assert (at, kind) == (path, "application/json")
    assert [span["spanId"] for span in spans_in(json.loads(body))] == [span_id(A, "w")]


@pytest.mark.parametrize("status", [302, 400, 503])
def test_what_a_collector_refuses_of_a_light_process_is_lost_and_told(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with collector(status) as (url, _):
        spans = Spans("agent", "a", exporter_of(url, is_light=True))
        spans.add(A, "n", "w", (1, 2))
        spans.close()
    assert (spans.lost, f"1 spans are lost: the collector answers {status}" in caplog.text) == (1, True)


def test_a_collector_by_a_name_that_no_host_can_have_is_away(caplog: pytest.LogCaptureFixture) -> None:
    spans = Spans("agent", "a", exporter_of("http://a..b:4318", is_light=True))
    spans.add(A, "n", "w", (1, 2))
    spans.close()
    assert spans.lost == 1
    assert "1 spans are lost: the collector cannot be asked" in caplog.text


def test_what_a_collector_refuses_is_lost_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with collector(400) as (url, heard):
        spans = Spans("ranker", "a", exporter_of(url))
        for number in range(2_000):
            spans.add(A, "n", str(number), (1, 2))
        spans.close()
    assert len(heard) > 1
    assert spans.lost == 2_000
    assert [record.name for record in caplog.records].count("fairlease.traces") == 1
    assert len(caplog.records) <= 2, "the library's own reason, once too"


def test_without_the_exporter_installed_a_collector_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigWrong, match=r"pip install fairlease\[otlp\]"):
        spans_of(Settings(state_dir=tmp_path, traces="http://collector:4318"), "ranker")


def test_a_disk_that_is_full_costs_spans_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    spans = Spans("ranker", "a", FileExporter("/dev/full"))
    spans.add(A, "n", "w", (1, 2))
    spans.close()
    assert spans.lost == 1
    assert "No space left on device" in caplog.text


def test_a_line_that_broke_off_breaks_no_other(tmp_path: Path) -> None:
    """A pipe with little room takes a part of a line, as a disk does that fills up."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    exporter = FileExporter(str(tmp_path / "pipe"))
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    kept: list[ReadableSpan] = []
    spans = Spans("ranker", "a", _Keeping(kept))
    for number in range(100):
        spans.add(A, "n", str(number), (1, 2))
    spans.close()
    with pytest.raises(OSError, match="took a part"):
        exporter.export(kept)
    with pytest.raises(BlockingIOError):
        exporter.export(kept)
    broken = os.read(reader, 1 << 20)
    exporter.export(kept[:1])
    exporter.export(kept[1:3])
    first, *whole, rest = (broken + os.read(reader, 1 << 20)).split(b"\n")
    os.close(reader)
    assert (len(first) % 4096, rest) == (0, b"")
    assert [len(spans_in(json.loads(line))) for line in whole] == [1, 2]


def test_a_pipe_that_nobody_reads_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigWrong, match="the file cannot be written"):
        spans_of(Settings(state_dir=tmp_path, traces=f"file:{tmp_path}/pipe"), "ranker")


@pytest.mark.parametrize(
    ("traces", "loaded"),
    [("", []), ("file:/dev/null", ["opentelemetry"]), ("http://127.0.0.1:9", ["http.client", "opentelemetry"])],
    ids=["nothing", "to a file", "to a collector"],
)
def test_an_agent_loads_what_it_needs_to_tell_and_no_more(traces: str, loaded: list[str]) -> None:
    code = (
        "import sys; from pathlib import Path; from fairlease.runtime.settings import Settings; "
        "import fairlease.agent.main; from fairlease.runtime.spans import spans_of; "
        "spans_of(Settings(state_dir=Path('/x'), traces=sys.argv[1]), 'agent', is_light=True).close(); "
        "heavy = ('http.client', 'opentelemetry', 'prometheus_client', 'requests', 'google.protobuf'); "
        "print(*(name for name in heavy if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, traces], capture_output=True, text=True, check=True)
    assert done.stdout.split() == loaded


def test_the_form_in_a_file_is_the_librarys_own() -> None:
    kept: list[ReadableSpan] = []
    exporter = _Keeping(kept)
    spans = Spans("ranker", "a", exporter)
    spans.add(A, "submitted", SUBMITTED, (3, 4))
    spans.add(A, "ranker k", "5", (5, 2), [SUBMITTED, "4"], {"fairlease.position": 5, "fairlease.events": 'a "b"'})
    spans.close()
    (told,) = exporter.exports
    for span in spans_in(told):
        for place in (span, *span["links"]):  # bytes: in hex in the form of OTLP, in base 64 in that of protobuf
            place.update({key: b64encode(bytes.fromhex(place[key])).decode() for key in ("traceId", "spanId")})
    assert ParseDict(told, ExportTraceServiceRequest()) == encode_spans(kept)


@pytest.mark.parametrize(
    "where",
    [
        "yes",
        "file:traces.jsonl",
        "ftp://host",
        "http://",
        "http://ann:canary@host",
        "http://host:0",
        "http://[1",
        "file:/",
    ],
)
def test_where_spans_go_is_a_file_or_an_address(where: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigWrong, match="FAIRLEASE_TRACES") as refused:
        spans_of(Settings(state_dir=tmp_path, traces=where), "ranker")
    assert "canary" not in str(refused.value)
