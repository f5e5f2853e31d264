"""Decide a log again, record by record, and stop at the first different byte (log.md L6).

One fold per scope is enough: the fence makes every basis at least the position of the scope's
previous record, so each fold only ever moves forward. Inputs come from the record itself (`said`),
so nothing but the log is read.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from fairlease.core.deciders import RULES
from fairlease.core.decision import record_of
from fairlease.core.world import World
from fairlease_schemas import codec
from fairlease_schemas.envelope import Record
from fairlease_schemas.subjects import SCOPES

Entry = tuple[int, bytes]


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log and today's code part: `index` is the event's, or -1 when the whole record differs."""

    position: int
    index: int
    recorded: Any
    replayed: Any


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="ReplayReport"):
    """What a replay found. `digest` is the fold's at the last position."""

    positions: int
    decisions: int
    divergences: int
    first: Divergence | None
    events_per_s: float
    events: int
    digest: str


class Replay:
    """A replay in progress: feed it the records of positions 1, 2, 3 … in order."""

    def __init__(self) -> None:
        self.world = World()
        self._folds = {scope: World() for scope in dict.fromkeys(SCOPES.values())}
        self._tail: deque[tuple[int, Record]] = deque()
        self._last: dict[str, int] = {}
        self.events = 0

    def check(self, position: int, data: bytes) -> Divergence | None:
        """Decide this record again, fold it, and say where it differs. codec.Unreadable for what is no record."""
        record = codec.read_record(data)
        found = _shape(position, record, data) or self._decide(position, record, data)
        if found is not None:
            return found  # what diverges may also break the fold, and is not folded
        self.world.apply(record, position)
        self._tail.append((position, record))
        self._last[SCOPES[record.by]] = position
        self.events += len(record.events)
        return None

    def _decide(self, position: int, record: Record, data: bytes) -> Divergence | None:
        scope = SCOPES[record.by]
        fold = self._folds[scope]
        if not self._last.get(scope, 0) <= record.basis < position:
            limit = f"from {self._last.get(scope, 0)} to {position - 1}, by the fence of scope {scope}"
            return Divergence(position=position, index=-1, recorded={"basis": record.basis}, replayed=limit)
        for at, earlier in self._tail:
            if fold.position < at <= record.basis:
                fold.apply(earlier, at)
        floor = min(other.position for other in self._folds.values())
        while self._tail and self._tail[0][0] <= floor:
            self._tail.popleft()
        decision = RULES[record.by].decide(fold, record.answers)
        if decision is None:
            return Divergence(position=position, index=-1, recorded=plain(record), replayed=None)
        again, again_data = codec.sealed(record_of(fold, record.by, decision))
        return None if again_data == data else _first_difference(position, record, again)


def verify(entries: Iterable[Entry]) -> ReplayReport:
    """Replay a whole log; ends at the first divergence."""
    started_s = time.perf_counter()
    replay = Replay()
    first: Divergence | None = None
    position = 0
    for position, data in entries:
        first = replay.check(position, data)
        if first is not None:
            break
    wall_s = time.perf_counter() - started_s
    return ReplayReport(
        positions=position,
        decisions=position,
        divergences=0 if first is None else 1,
        first=first,
        events_per_s=round(replay.events / wall_s, 1) if wall_s else 0.0,
        events=replay.events,
        digest=replay.world.digest(),
    )


def plain(value: object) -> Any:  # noqa: ANN401 - JSON data of any record or event
    """A record or event as plain JSON data."""
    return msgspec.to_builtins(value)


def _shape(position: int, record: Record, data: bytes) -> Divergence | None:
    """Whether the bytes are canonical and the id is the hash of the rest."""
    resealed, canonical = codec.sealed(record)
    if canonical == data:
        return None
    return Divergence(position=position, index=-1, recorded={"id": record.id}, replayed={"id": resealed.id})


def _first_difference(position: int, recorded: Record, replayed: Record) -> Divergence:
    for index, (was, now) in enumerate(zip(recorded.events, replayed.events, strict=False)):
        if was != now:
            return Divergence(position=position, index=index, recorded=plain(was), replayed=plain(now))
    if len(recorded.events) != len(replayed.events):
        index = min(len(recorded.events), len(replayed.events))
        rest = (plain(list(recorded.events[index:])), plain(list(replayed.events[index:])))
        return Divergence(position=position, index=index, recorded=rest[0], replayed=rest[1])
    was, now = plain(recorded), plain(replayed)
    keys = [key for key in was if was[key] != now.get(key) and key not in ("events", "id")]
    return Divergence(
        position=position,
        index=-1,
        recorded={key: was[key] for key in keys},
        replayed={key: now.get(key) for key in keys},
    )
