"""What a process answers to whoever watches it: `/metrics`, `/healthz`, `/readyz`, on loopback and nowhere else.

Healthy is who answers, because the answer is made in the loop that does the work. Ready is another matter: the log
folded, the bus there, the clock believed. A proxy may carry it further; nobody is asked who they are here, so it tells
nothing that is a secret. The few lines of HTTP are our own, because the agent stays light and the services' web
frameworks would be larger than they are.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import Metric

from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.metrics import CONTENT_TYPE, text_of
from fairlease.runtime.tasks import end

log = logging.getLogger("fairlease.probe")

LOOPBACK: Final = "127.0.0.1"
MOST_AT_ONCE: Final = 16
_MOST_BYTES: Final = 8 * 1024
_PATIENCE_S: Final = 5.0
_PLAIN: Final = "text/plain; charset=utf-8"
_REASONS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Unavailable"}

Answer = tuple[int, str, bytes]


class Probe:
    """The listener of one process. `port` is where it listens once `start` returned.

    `figures` makes them, `trouble` says why the process is not ready, empty when it is; both are called in the
    loop and may not wait.
    """

    def __init__(self, figures: Callable[[], Iterable[Metric]], trouble: Callable[[], str]) -> None:
        self.port = 0
        self._figures = figures
        self._trouble = trouble
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self, port: int) -> None:
        """Listens at this port, or at a free one for 0, and says where. ConfigWrong when it is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, LOOPBACK, port, limit=_MOST_BYTES)
        except OSError as error:
            raise ConfigWrong(
                f"FAIRLEASE_METRICS_PORT={port} cannot be listened on ({error.strerror}); name a free one, or 0"
            ) from error
        self.port = int(self._server.sockets[0].getsockname()[1])
        log.info("metrics: http://%s:%d/metrics", LOOPBACK, self.port, extra={"port": self.port})

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await end(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request and its answer; who is too slow, too long or too many is hung up on."""
        task = asyncio.current_task()
        if task is None or len(self._open) >= MOST_AT_ONCE:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                method, answer = self._answer(head)
                writer.write(_bytes_of(answer, has_body=method != "HEAD"))
                await writer.drain()
                writer.close()
                await writer.wait_closed()  # within the patience: who reads nothing keeps his answer in our memory
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open.discard(task)
            writer.transport.abort()

    def _answer(self, head: bytes) -> tuple[str, Answer]:
        line = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(line) != 3 or not line[2].startswith("HTTP/1."):
            return "", (400, _PLAIN, b"this is not HTTP/1\n")
        method, path = line[0], line[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return method, (405, _PLAIN, b"GET or HEAD\n")
        match path:
            case "/metrics":
                return method, (200, CONTENT_TYPE, text_of(self._figures()))
            case "/healthz":
                return method, (200, _PLAIN, b"ok\n")
            case "/readyz":
                trouble = self._trouble()
                return method, (503, _PLAIN, f"{trouble}\n".encode()) if trouble else (200, _PLAIN, b"ok\n")
            case _:
                return method, (404, _PLAIN, b"/metrics, /healthz or /readyz\n")


def _bytes_of(answer: Answer, *, has_body: bool) -> bytes:
    status, kind, body = answer
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if has_body else b"")
