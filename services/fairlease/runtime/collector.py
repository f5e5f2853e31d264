"""A collector of traces, reached by OTLP over HTTP in its JSON form: how the agent tells its spans.

The library's exporter brings an HTTP client and protobuf along, 7 MiB that an agent has not (DECISIONS.md 45).
"""

from collections.abc import Sequence
from http import client
from typing import Final
from urllib.parse import urlsplit

import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from fairlease.runtime.otlp import export_of

_TIMEOUT_S: Final = 5.0


class LightExporter(SpanExporter):
    """Posts each export on a connection of its own. Raises OSError, and tries nothing again."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connect = client.HTTPSConnection if parts.scheme == "https" else client.HTTPConnection
        self._where, self._path = parts.netloc, f"{parts.path}?{parts.query}".removesuffix("?")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        connection = self._connect(self._where, timeout=_TIMEOUT_S)
        try:
            told = msgspec.json.encode(export_of(spans))
            connection.request("POST", self._path, told, {"Content-Type": "application/json"})
            status = connection.getresponse().status
        except (client.HTTPException, UnicodeError) as error:  # the second of a name that no host can have
            raise OSError(
                f"the collector cannot be asked, or its answer is not HTTP ({type(error).__name__})"
            ) from error
        finally:
            connection.close()
        if status >= 300:
            raise OSError(f"the collector answers {status}")
        return SpanExportResult.SUCCESS
