"""Spans in a file, in the JSON form of OTLP, one export to a line, as the collector's own file exporter has it.

The SDK has no exporter to a file in that form; a test holds the form against the library's own encoder.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext

_HAS_IS_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200
"""Flags of the form: that it is known whether the place before this one was another process's, and that it was."""


class FileExporter(SpanExporter):
    """Appends each export in one write, so that several processes may share the file. Raises OSError.

    Nothing waits for it: a pipe that nobody reads is refused, and one that is full takes nothing.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        self._begin = b""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        line = self._begin + msgspec.json.encode(export_of(spans)) + b"\n"
        if os.write(self._file, line) < len(line):
            self._begin = b"\n"  # what stands there of it is a broken line, and shall break no other
            raise OSError("the file took a part of them: is its disk full?")
        self._begin = b""
        return SpanExportResult.SUCCESS


def export_of(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """An ExportTraceServiceRequest of spans of one process; of none an empty one."""
    if not spans:
        return {"resourceSpans": []}
    scope = spans[0].instrumentation_scope
    told = {"scope": {"name": scope.name if scope is not None else ""}, "spans": [_span(span) for span in spans]}
    return {"resourceSpans": [{"resource": {"attributes": _pairs(spans[0].resource.attributes)}, "scopeSpans": [told]}]}


def _span(span: ReadableSpan) -> dict[str, Any]:
    assert span.context is not None
    return {
        **_place(span.context),
        "flags": _HAS_IS_REMOTE,
        "name": span.name,
        "kind": span.kind.value + 1,  # the form counts from "unspecified"
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _pairs(span.attributes or {}),
        "links": [{**_place(link.context), "flags": _HAS_IS_REMOTE | _IS_REMOTE} for link in span.links],
        "status": {},
    }


def _place(context: SpanContext) -> dict[str, Any]:
    return {"traceId": f"{context.trace_id:032x}", "spanId": f"{context.span_id:016x}"}


def _pairs(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Keys and values; numbers of 64 bits are text in that form."""
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}}
        for key, value in values.items()
    ]
