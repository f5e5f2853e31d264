"""What a process says about itself: one JSON object per line on stderr, made by structlog.

This is the one sink of everything logged, ours and the libraries': records of `logging` are structlog's here. A line is
never broken by what it quotes, and no text in it has a control character, also not for who decodes it; so a name with a
newline in it forges no line, neither here nor where lines are shown. And it holds no secret: every text goes through
`redaction`, with what this process's environment holds of them. A line that is said while a service decides has the
position of its fold, and a line about a job or an attempt has the job's trace.
"""

import contextlib
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, TextIO

import structlog
from structlog.contextvars import merge_contextvars
from structlog.processors import EventRenamer, ExceptionRenderer, JSONRenderer, TimeStamper
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level
from structlog.typing import EventDict, WrappedLogger

from fairlease.runtime.redaction import secrets_in, without
from fairlease.runtime.secret import Secret
from fairlease.runtime.spans import trace_id

_MAX_TEXT: Final = 2_000
_MAX_READ: Final = 16_000
_JOB: Final = re.compile(r"\bjob-[a-z2-7]{20}(?![a-z2-7])")
_ALWAYS: Final = ("at", "level", "service", "replica", "text")
_TRACEBACK: Final = "exception"


def line_formatter(service: str, replica: str, env: Mapping[str, str] | None = None) -> logging.Formatter:
    """`{"at": …, "level": …, "service": …, "replica": …, "text": …}` and the extra fields given.

    Secrets of `env` are known by their values, all others by their form.
    """

    def ordered(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
        """What every line has, in that order, whatever a field of the same name says; then the rest."""
        line.update(service=service, replica=replica)
        return {key: line[key] for key in _ALWAYS} | dict(line)

    return ProcessorFormatter(
        foreign_pre_chain=[merge_contextvars, ExtraAdder(), _said, add_log_level],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            TimeStamper(fmt="iso", utc=True, key="at"),
            ExceptionRenderer(),
            EventRenamer("text"),
            _Clean(secrets_in(os.environ if env is None else env)),
            _of_job,
            ordered,
            JSONRenderer(serializer=json.dumps),
        ],
        use_get_message=False,  # a wrong format would end in `logging`'s own words on stderr; see `_said`
        pass_foreign_args=True,
    )


def configure(service: str, replica: str = "", *, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends everything logged in this process to stderr in that form; called once, at the start."""
    handler = _Sink(stream or sys.stderr)
    handler.setFormatter(line_formatter(service, replica))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Who logs by structlog itself comes the same way: as it is made, it would print to stdout.
    structlog.configure(
        processors=[merge_contextvars, add_log_level, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    root.setLevel(level)
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # it logs what its callbacks are told too
    logging.getLogger("asyncio").setLevel(logging.WARNING)


class _Sink(logging.StreamHandler[TextIO]):
    """Where lines go. `logging` would print what it could not write, message and all, past the redaction."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Says that a line is lost, of which level and why; nothing where that cannot be written either."""
        told = {"levelno": record.levelno, "levelname": record.levelname, "name": record.name}
        why = type(sys.exc_info()[1]).__name__
        with contextlib.suppress(Exception):
            line = logging.makeLogRecord({**told, "msg": f"a line of the log is lost ({why})", "args": ()})
            self.stream.write(self.format(line) + self.terminator)
            self.flush()


def _said(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """The text of the line. A wrong format is told as it is: what cannot be logged must not end a service."""
    said, args = str(line["_record"].msg), line.pop("positional_args")
    try:
        line["event"] = said % args if args else said
    except Exception as error:  # noqa: BLE001 - also what the code of an argument raises; `logging` would print it all
        line["event"] = f"{said} ({type(error).__name__} in its format)"
    return line


class _Clean:
    """Takes out of every text of a line what nobody may read, and what a terminal would obey."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._secrets = tuple(secrets)

    def __call__(self, _logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
        return {key: self._field(key, value) for key, value in line.items()}

    def _field(self, key: str, value: object) -> object:
        """Numbers as they are, a traceback as its lines, anything else as one clean text, judged with its name."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if key == _TRACEBACK:
            return [_plain(said) for said in self._clean(str(value)[-_MAX_READ:])[-_MAX_TEXT:].splitlines()]
        named = "" if key == "text" else f"{key}="
        try:
            text = str(value)
        except Exception as error:  # noqa: BLE001 - as in `_said`
            text = f"{type(value).__name__} that cannot be told ({type(error).__name__})"
        return _plain(self._clean(named + text).removeprefix(named)[:_MAX_TEXT])

    def _clean(self, text: str) -> str:
        # Cut first: what is logged may be as long as a message, and every pattern reads all of it.
        return without(text[:_MAX_READ], self._secrets)


def _plain(text: str) -> str:
    """The text with what is not printable written out, as Python would: a newline is a backslash and an n."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _of_job(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """The job that the line is about, and its trace."""
    told: Any = line.get("job") or line.get("attempt") or line["text"]
    if job := _JOB.search(str(told)):
        line.update(job=job[0], trace_id=trace_id(job[0]))
    return line


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """In place of Python's own words on stderr, which would quote whatever the error does."""
    if not issubclass(kind, KeyboardInterrupt):
        logging.getLogger("fairlease").error("nobody caught this", exc_info=(kind, error, trace))


def _uncaught_in_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None:
        _uncaught(told.exc_type, told.exc_value, told.exc_traceback)
