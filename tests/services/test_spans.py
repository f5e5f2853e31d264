"""Spans: one trace a job, a span for each record that names it, and a collector that may be away."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from fairlease.runtime.deciding_spans import DecidingSpans, Told, steps_in
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.spans import SUBMITTED, FileSink, Spans, order_span, sink_of, span_id, trace_id
from fairlease_schemas.cycle import Claim, CyclePlaced, CycleRanked, EvictionOrdered, GangGranted, Licence
from fairlease_schemas.envelope import RECORD_VERSION, Event, Record
from fairlease_schemas.job import JobSucceeded

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


class Kept:
    """A sink that keeps what it is sent, or fails."""

    def __init__(self, *, fails: int = 0) -> None:
        self.exports: list[dict[str, Any]] = []
        self.fails = fails

    def send(self, export: bytes) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("away")
        self.exports.append(json.loads(export))

    @property
    def spans(self) -> list[dict[str, Any]]:
        return [span for export in self.exports for span in spans_in(export)]


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
        one.folded(position + 500, record("admission", JobSucceeded(job=A)))
    spans.close()
    assert len(one._own) == 32
    assert not one._last, "a job that is over is forgotten"


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
        def send(self, export: bytes) -> None:
            gate.wait()

    spans = Spans("ranker", "a", Slow())
    for number in range(20_000):
        spans.add(A, "n", str(number), (1, 2))
    assert spans.lost >= 20_000 - 8_192 - 512
    gate.set()
    spans.close()


def test_several_processes_share_a_file_of_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    every = [Spans(name, "a", FileSink(str(path))) for name in ("ranker", "placement")]
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


@pytest.mark.parametrize(("suffix", "path"), [("", "/v1/traces"), ("/", "/v1/traces"), ("/otlp/v1/t", "/otlp/v1/t")])
def test_a_collector_is_posted_json_where_it_listens(suffix: str, path: str) -> None:
    with collector() as (url, heard):
        spans = Spans("ranker", "a", sink_of(url + suffix))
        spans.add(A, "n", "w", (1, 2))
        spans.close()
    ((at, kind, body),) = heard
    assert (at, kind) == (path, "application/json")
    (of,) = json.loads(body)["resourceSpans"]
    assert {"key": "service.name", "value": {"stringValue": "fairlease-ranker"}} in of["resource"]["attributes"]


def test_what_a_collector_refuses_is_lost() -> None:
    with collector(503) as (url, _):
        spans = Spans("ranker", "a", sink_of(url))
        spans.add(A, "n", "w", (1, 2))
        spans.close()
    assert spans.lost == 1


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
def test_where_spans_go_is_a_file_or_an_address(where: str) -> None:
    with pytest.raises(ConfigWrong, match="FAIRLEASE_TRACES") as refused:
        sink_of(where)
    assert "canary" not in str(refused.value)
