"""Traces: what became of one job, step by step, for whoever collects spans (FAIRLEASE_TRACES; off without it).

Every job is one trace. Its id is computed from the job's, and a span's from what it tells of, so no process hands
anything on to another, and what is told twice is told under the same id. A job waits for minutes or days between
two steps, so a step links to the one before it and is not its child. Spans hold ids, positions and kinds: nothing
that a person wrote. Nothing waits for them: a collector that is away costs spans and never a decision. The library
that carries them (`traces`) is loaded by a process that is told to tell, and by no other.
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import Settings
from fairlease_schemas.ids import AttemptId, HostId, JobId

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

SUBMITTED: Final = "submitted"
"""What the first span of a job tells of; all others tell of a position in the log or of an attempt."""
FILE: Final = "file:"
WAY_OUT: Final = "write file:/PATH or http://HOST:PORT"

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


def check_sink(where: str) -> None:
    """Raises ConfigWrong for what FAIRLEASE_TRACES cannot name."""
    if where.startswith(FILE + "/"):
        return
    try:
        parts = urlsplit(where)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.username
    except ValueError:
        is_http = False
    if not is_http:
        raise ConfigWrong(f"FAIRLEASE_TRACES is neither a file nor an address without a user; {WAY_OUT}")


def spans_of(settings: Settings, service: str, *, is_light: bool = False) -> "Spans":
    """The spans of this process, on when FAIRLEASE_TRACES says where they go; for both, see `exporter_of`."""
    if not settings.traces:
        return Spans()
    check_sink(settings.traces)
    from fairlease.runtime.traces import exporter_of  # noqa: PLC0415 - loaded where spans are told, nowhere else

    return Spans(service, settings.replica, exporter_of(settings.traces, is_light=is_light))


class Spans:
    """The spans of one process. Without an exporter it is off: everything added is forgotten at once."""

    def __init__(self, service: str = "", replica: str = "", exporter: "SpanExporter | None" = None) -> None:
        self._traces = None
        if exporter is not None:
            from fairlease.runtime.traces import Traces  # noqa: PLC0415 - as above

            self._traces = Traces(service, replica, exporter)

    @property
    def is_on(self) -> bool:
        return self._traces is not None

    @property
    def lost(self) -> int:
        """Spans that reached no collector since the start."""
        return self._traces.lost if self._traces is not None else 0

    def add(
        self,
        job: JobId,
        name: str,
        what: str,
        times_ns: tuple[int, int],
        links: Sequence[str] = (),
        attributes: Attributes | None = None,
    ) -> None:
        """One step of a job, from and until; `links` are what the spans tell of that led here.

        Never waits, and is called in one thread alone.
        """
        if self._traces is not None:
            trace = int(trace_id(job), 16)
            self._traces.tell(
                name,
                (trace, int(span_id(job, what), 16)),
                [(trace, int(span_id(job, link), 16)) for link in links],
                times_ns,
                {"fairlease.job": job, **(attributes or {})},
            )

    def close(self) -> None:
        """Sends what waits, in bounded time, and ends."""
        if self._traces is not None:
            self._traces.close()
