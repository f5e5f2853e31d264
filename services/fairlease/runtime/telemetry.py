"""What a process says about itself: one JSON object per line on stderr, standard library only.

A line is never broken by what it quotes, because JSON escapes control characters; so a name with a
newline in it cannot forge a line. The log position is in every line that concerns the log.
"""

import json
import logging
import sys
import time
from typing import Any, Final, TextIO

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_TEXT: Final = 2_000


class LineFormatter(logging.Formatter):
    """`{"at": …, "level": …, "service": …, "replica": …, "text": …}` and the extra fields given."""

    def __init__(self, service: str, replica: str) -> None:
        super().__init__()
        self._who = {"service": service, "replica": replica}

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "at": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            **self._who,
            "text": record.getMessage()[:_MAX_TEXT],
        }
        line.update({key: value for key, value in vars(record).items() if key not in _OWN})
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)[-_MAX_TEXT:]
        return json.dumps(line, default=str, ensure_ascii=True)


def configure(service: str, replica: str = "", *, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends everything logged in this process to stderr in that form; called once, at the start."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(service, replica))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # it logs what its callbacks are told too
    logging.getLogger("asyncio").setLevel(logging.WARNING)
