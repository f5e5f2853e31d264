"""Questions about a host's runs: `ask.agent-<host>.logs` and `ask.agent-<host>.progress`.

Of a log one piece per answer, not a stream: whoever follows it asks again from `next`, and nothing is
kept for him here. Progress is what the job itself said last (fairlease_sdk): a claim, for people.
"""

from typing import Final

import msgspec

from fairlease.agent import layout
from fairlease.agent.host import Host
from fairlease.agent.output import read_log, whole_text
from fairlease_schemas.codec import Unreadable, understood

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
        asked = understood(data, LogQuestion)
    except Unreadable as error:
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


class ProgressQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What `ask.agent-<host>.progress` is asked."""

    attempt: str


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run says it is; `total` where it knows, `figures` such as a loss. Empty when it said nothing."""

    step: int | None = None
    total: int | None = None
    figures: dict[str, float] = {}
    problem: str = ""


def progress(host: Host, data: bytes) -> Progress:
    """What a run said last; `problem` says in words why there is nothing to say."""
    try:
        asked = understood(data, ProgressQuestion)
    except Unreadable as error:
        return Progress(problem=f'{error}: ask {{"attempt": …}}')
    run = host.run(asked.attempt)
    if run is None:
        return Progress(problem=f"no run {asked.attempt[:80]} on {host.id}")
    try:
        return understood(layout.content(str(run.directory.path / layout.SAID / layout.PROGRESS)), Progress)
    except FileNotFoundError:
        return Progress()
    except (layout.Spoiled, Unreadable) as error:
        return Progress(problem=f"what it said cannot be read: {error}")
