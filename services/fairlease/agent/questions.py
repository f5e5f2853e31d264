"""Questions about a host's logs: `ask.agent-<host>.logs`, one piece of one run's log per answer.

Pieces, not streams: whoever follows a log asks again from `next`, and nothing is kept for him here.
"""

from typing import Final

import msgspec

from fairlease.agent.host import Host
from fairlease.agent.output import read_log, whole_text

MOST_BYTES: Final = 64 * 1024
"""Control characters, the worst text, become six bytes each in JSON: 384 KiB, below the 512 of a message."""
LEAST_BYTES: Final = 16
"""Room for one character at least, so that asking again always leads on."""


class LogQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What `ask.agent-<host>.logs` is asked. `limit` is in bytes, between 16 and 65536."""

    attempt: str
    offset: int = 0
    limit: int = 64 * 1024


class LogAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a log. Ask for `next` after it; `is_end` when the run is gone and nothing follows."""

    data: str = ""
    next: int = 0
    is_end: bool = False
    problem: str = ""


def answer(host: Host, data: bytes) -> LogAnswer:
    """A piece of a run's log, cut between characters; `problem` says in words why there is none."""
    try:
        asked = msgspec.json.decode(data, type=LogQuestion)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return LogAnswer(problem=f'{error}: ask {{"attempt": …, "offset": 0, "limit": 65536}}')
    run = host.run(asked.attempt)
    if run is None:
        return LogAnswer(problem=f"no run {asked.attempt[:80]} on {host.id}; logs of the newest ended runs are kept")
    is_gone = run.gone is not None
    limit = min(max(asked.limit, LEAST_BYTES), MOST_BYTES)
    try:
        piece, after, total = read_log(str(run.directory.path), asked.offset, limit)
    except OSError as error:
        return LogAnswer(next=asked.offset, problem=f"the log cannot be read: {error.strerror}")
    is_end = is_gone and after >= total
    if not is_end:
        whole = whole_text(piece)
        after -= len(piece) - len(whole)
        piece = whole
    return LogAnswer(data=piece.decode(errors="replace"), next=after, is_end=is_end)
