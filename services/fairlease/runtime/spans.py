"""Traces: what became of one job, step by step, for whoever collects spans (FAIRLEASE_TRACES; off without it).

Every job is one trace. Its id is computed from the job's, and a span's from what it tells of, so no process hands
anything on to another, and what is told twice is told under the same id. A job waits for minutes or days between
two steps, so a step links to the one before it and is not its child. The form is OTLP's in JSON, one export to a
line or to a request, written here by hand because the agent has to stay light. Spans hold ids, positions and kinds:
nothing that a person wrote. Nothing waits for them: a collector that is away costs spans and never a decision.
"""

import hashlib
import logging
import os
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import Settings
from fairlease_schemas.ids import AttemptId, HostId, JobId

log = logging.getLogger("fairlease.spans")

SUBMITTED: Final = "submitted"
"""What the first span of a job tells of; all others tell of a position in the log or of an attempt."""
MOST_WAITING: Final = 8_192
MOST_AT_ONCE: Final = 512
_GATHER_S: Final = 0.2
_END_S: Final = 0.7
_FILE: Final = "file:"
_KIND_INTERNAL: Final = 1
_WAY_OUT: Final = "write file:/PATH or http://HOST:PORT"

Attributes = dict[str, str | int]


def trace_id(job: JobId) -> str:
    """The trace of a job: the first 16 bytes of the SHA-256 of its id, in hex."""
    return hashlib.sha256(job.encode()).hexdigest()[:32]


def span_id(job: JobId, what: str) -> str:
    """The span of a job that tells of this: 8 bytes in hex."""
    return hashlib.sha256(f"{job} {what}".encode()).hexdigest()[:16]


def order_span(attempt: AttemptId, host: HostId) -> str:
    """What the span tells of by which a host was first ordered to run its part of an attempt."""
    return f"order {attempt} {host}"


class Sink(Protocol):
    """Where exports go. OSError when one did not get there."""

    def send(self, export: bytes) -> None: ...


class FileSink:
    """Appends each export as one line, in one write, so that several processes may share the file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def send(self, export: bytes) -> None:
        os.write(self._file, export + b"\n")


def check_sink(where: str) -> None:
    """Raises ConfigWrong for what FAIRLEASE_TRACES cannot name."""
    if where.startswith(_FILE + "/"):
        return
    try:
        parts = urlsplit(where)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.username
    except ValueError:
        is_http = False
    if not is_http:
        raise ConfigWrong(f"FAIRLEASE_TRACES is neither a file nor an address without a user; {_WAY_OUT}")


def sink_of(where: str) -> Sink:
    """The sink that FAIRLEASE_TRACES names. ConfigWrong for what names none, or a file that cannot be written."""
    check_sink(where)
    if where.startswith(_FILE):
        try:
            return FileSink(where.removeprefix(_FILE))
        except OSError as error:
            raise ConfigWrong(f"FAIRLEASE_TRACES: the file cannot be written ({error.strerror}); {_WAY_OUT}") from error
    from fairlease.runtime.collector import HttpSink  # noqa: PLC0415 - the agent does without an HTTP client

    return HttpSink(where)


def spans_of(settings: Settings, service: str) -> "Spans":
    """The spans of this process, on when FAIRLEASE_TRACES says where they go. ConfigWrong as for `sink_of`."""
    return Spans(service, settings.replica, sink_of(settings.traces) if settings.traces else None)


class Spans:
    """The spans of one process. Without a sink it is off: everything added is forgotten at once."""

    def __init__(self, service: str = "", replica: str = "", sink: Sink | None = None) -> None:
        self.is_on = sink is not None
        self.lost = 0
        """Spans that reached no collector since the start."""
        self._sink = sink
        self._who: Attributes = {
            "service.name": f"fairlease-{service}",
            "service.instance.id": replica,
            "process.pid": os.getpid(),
        }
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._is_told = False
        if sink is not None:
            self._thread = threading.Thread(target=self._export, name="spans", daemon=True)
            self._thread.start()

    def add(
        self,
        job: JobId,
        name: str,
        what: str,
        times_ns: tuple[int, int],
        links: Sequence[str] = (),
        attributes: Attributes | None = None,
    ) -> None:
        """One step of a job, from and until; `links` are what the spans tell of that led here. Never waits."""
        if not self.is_on:
            return
        begun_ns, ended_ns = times_ns
        trace = trace_id(job)
        span = {
            "traceId": trace,
            "spanId": span_id(job, what),
            "name": name,
            "kind": _KIND_INTERNAL,
            "startTimeUnixNano": str(begun_ns),
            "endTimeUnixNano": str(max(begun_ns, ended_ns)),
            "attributes": _attributes({"fairlease.job": job, **(attributes or {})}),
            "links": [{"traceId": trace, "spanId": span_id(job, link)} for link in links],
        }
        try:
            self._waiting.put_nowait(span)
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """Sends what waits, in bounded time, and ends."""
        thread, self._thread, self.is_on = self._thread, None, False
        if thread is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return
            thread.join(_END_S)

    def _export(self) -> None:
        """The thread: gathers for a moment, sends, and counts what did not get there."""
        is_over = False
        while not is_over:
            spans = [self._waiting.get()]
            until_s = time.monotonic() + _GATHER_S
            while spans[-1] is not None and len(spans) < MOST_AT_ONCE:
                try:
                    spans.append(self._waiting.get(timeout=max(0.0, until_s - time.monotonic())))
                except queue.Empty:
                    break
            is_over = spans[-1] is None
            told = [span for span in spans if span is not None]
            if told:
                self._send(told)

    def _send(self, spans: list[dict[str, Any]]) -> None:
        assert self._sink is not None
        scope = {"scope": {"name": "fairlease"}, "spans": spans}
        export = {"resourceSpans": [{"resource": {"attributes": _attributes(self._who)}, "scopeSpans": [scope]}]}
        try:
            self._sink.send(msgspec.json.encode(export))
        except OSError as error:
            self.lost += len(spans)
            if not self._is_told:  # once, and again only after one got through: a collector may be away for days
                log.warning("traces: %d spans are lost: %s", len(spans), error)
            self._is_told = True
        else:
            self._is_told = False


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    """Keys and values as OTLP has them; numbers of 64 bits are text in its JSON."""
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
    ]
