"""The spans of one process in the hands of OpenTelemetry: its tracer, its queue and thread, an exporter.

Three things are ours. The ids are computed (`spans`), so the generator of ids hands out those of the span about to
begin. What waits is counted here, because the library's queue drops the oldest and says so with a line for each. And
a failing exporter is told of once, until one export gets through: a collector may be away for days.
"""

import logging
import os
import threading
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanContext, TraceFlags

from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.otlp import FileExporter
from fairlease.runtime.spans import FILE, WAY_OUT, Attributes

log = logging.getLogger("fairlease.traces")

MOST_WAITING: Final = 8_192
MOST_AT_ONCE: Final = 512
_GATHER_MS: Final = 300
_END_S: Final = 0.7
_HTTP_TIMEOUT_S: Final = 5.0
_HTTP_PATH: Final = "/v1/traces"
_HTTP_LOG: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_NO_PARENT: Final = Context()
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)

Ids = tuple[int, int]
"""Of a trace and of a span in it."""


def exporter_of(where: str, *, is_light: bool = False) -> SpanExporter:
    """The exporter to what FAIRLEASE_TRACES names; ConfigWrong when it cannot be written or reached from here.

    A light one to a collector needs no extra, tries nothing again and reads none of OpenTelemetry's own variables.
    """
    if where.startswith(FILE):
        try:
            return FileExporter(where.removeprefix(FILE))
        except OSError as error:
            raise ConfigWrong(f"FAIRLEASE_TRACES: the file cannot be written ({error.strerror}); {WAY_OUT}") from error
    parts = urlsplit(where)
    url = where if parts.path.rstrip("/") else parts._replace(path=_HTTP_PATH).geturl()
    if is_light:
        from fairlease.runtime.collector import LightExporter  # noqa: PLC0415 - who tells to a file does without

        return LightExporter(url)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - an extra, and heavy
            OTLPSpanExporter,
        )
    except ImportError as error:
        raise ConfigWrong(
            "FAIRLEASE_TRACES names a collector, and the exporter to one is not installed; "
            "`pip install fairlease[otlp]`, or write file:/PATH"
        ) from error
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    return OTLPSpanExporter(url, timeout=_HTTP_TIMEOUT_S)


class Traces:
    """What tells the spans of one process. `tell` never waits, and is called in one thread alone."""

    def __init__(self, service: str, replica: str, exporter: SpanExporter) -> None:
        self._ids = _Computed()
        self._exporter = _Counted(exporter)
        self._added = 0
        self._dropped = 0
        who: Attributes = {
            "service.name": f"fairlease-{service}",
            "service.instance.id": replica,
            "process.pid": os.getpid(),
        }
        self._provider = TracerProvider(ALWAYS_ON, Resource.create(who), shutdown_on_exit=False, id_generator=self._ids)
        self._provider.add_span_processor(
            BatchSpanProcessor(self._exporter, MOST_WAITING + 1, _GATHER_MS, MOST_AT_ONCE)
        )
        self._tracer = self._provider.get_tracer("fairlease")

    @property
    def lost(self) -> int:
        """Spans that found no room, or that the exporter did not get rid of."""
        return self._dropped + self._exporter.lost

    def tell(
        self, name: str, ids: Ids, links: Sequence[Ids], times_ns: tuple[int, int], attributes: Attributes
    ) -> None:
        """A span with these ids, without a parent; one that would end before it began ends as it begins."""
        if self._added - self._exporter.handed >= MOST_WAITING:
            self._dropped += 1
            return
        self._added += 1
        self._ids.trace, self._ids.span = ids
        begun_ns, ended_ns = times_ns
        span = self._tracer.start_span(
            name,
            _NO_PARENT,
            attributes=attributes,
            links=[Link(SpanContext(*link, is_remote=True, trace_flags=_SAMPLED)) for link in links],
            start_time=begun_ns,
        )
        span.end(max(begun_ns, ended_ns))

    def close(self) -> None:
        """Sends what waits; a collector that does not answer is waited for no longer than a stop may take."""
        ending = threading.Thread(target=self._provider.shutdown, name="spans-end", daemon=True)
        ending.start()
        ending.join(_END_S)


class _Computed(IdGenerator):
    """The ids of the span about to begin."""

    def __init__(self) -> None:
        self.trace, self.span = 0, 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class _Counted(SpanExporter):
    """An exporter, what it was handed and what it lost."""

    def __init__(self, exporter: SpanExporter) -> None:
        self.handed = 0
        self.lost = 0
        self._exporter = exporter
        self._is_away = False
        logging.getLogger(_HTTP_LOG).addFilter(lambda _: not self._is_away)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.handed += len(spans)
        why = "the collector did not take them"
        try:
            result = self._exporter.export(spans)
        except OSError as error:
            result, why = SpanExportResult.FAILURE, str(error)
        if result is not SpanExportResult.SUCCESS:
            self.lost += len(spans)
            if not self._is_away:
                log.warning("traces: %d spans are lost: %s", len(spans), why)
        self._is_away = result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
