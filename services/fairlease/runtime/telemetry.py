"""What a process says about itself: one JSON object per line on stderr, standard library only.

This is the one sink of everything logged, ours and the libraries'. A line is never broken by what it quotes,
because JSON escapes control characters; so a name with a newline in it cannot forge a line. And it holds no
secret: every text in it goes through `redaction`, with what this process's environment holds of them. The log
position is in every line that concerns the log, and a line about a job or an attempt has the job's trace.
"""

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, TextIO

from fairlease.runtime.redaction import secrets_in, without
from fairlease.runtime.spans import trace_id

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_TEXT: Final = 2_000
_MAX_READ: Final = 16_000
_JOB: Final = re.compile(r"\bjob-[a-z2-7]{20}(?![a-z2-7])")


class LineFormatter(logging.Formatter):
    """`{"at": …, "level": …, "service": …, "replica": …, "text": …}` and the extra fields given.

    Secrets of `env` are known by their values, all others by their form.
    """

    def __init__(self, service: str, replica: str, env: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._who = {"service": service, "replica": replica}
        self._secrets = secrets_in(os.environ if env is None else env)

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "at": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            **self._who,
            "text": self._clean(_said(record))[:_MAX_TEXT],
        }
        if job := _JOB.search(line["text"]):
            line |= {"job": job[0], "trace_id": trace_id(job[0])}
        line.update({key: self._field(key, value) for key, value in vars(record).items() if key not in _OWN})
        if record.exc_info:
            raised = self.formatException(record.exc_info)
            line["trace"] = self._clean(raised[-_MAX_READ:])[-_MAX_TEXT:]
        return json.dumps(line, ensure_ascii=True)

    def _clean(self, text: str) -> str:
        # Cut first: what is logged may be as long as a message, and every pattern reads all of it.
        return without(text[:_MAX_READ], self._secrets)

    def _field(self, key: str, value: object) -> object:
        """The value of an extra field: numbers as they are, anything else as clean text, judged with its name."""
        if value is None or isinstance(value, bool | int | float):
            return value
        named = f"{key}="
        return self._clean(named + str(value)).removeprefix(named)[:_MAX_TEXT]


def _said(record: logging.LogRecord) -> str:
    """The text of the line. A wrong format is told as it is: what cannot be logged must not end a service."""
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError) as error:
        return f"{record.msg} ({type(error).__name__} in its format)"


def configure(service: str, replica: str = "", *, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends everything logged in this process to stderr in that form; called once, at the start."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(service, replica))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    root.setLevel(level)
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # it logs what its callbacks are told too
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """In place of Python's own words on stderr, which would quote whatever the error does."""
    if not issubclass(kind, KeyboardInterrupt):
        logging.getLogger("fairlease").error("nobody caught this", exc_info=(kind, error, trace))


def _uncaught_in_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None:
        _uncaught(told.exc_type, told.exc_value, told.exc_traceback)
