"""Rows: what every host did in time, or every few of them where there are many.

The slow, right model writes down every change of every host. Here each row keeps, by state, two sums: of its GPUs, and
of its GPUs times the instant at which they came. The integral up to any instant is the first times that instant less
the second, so that a change costs two additions and a reading one product, whatever lies between.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from fairlease.core.host import FAULT, FAULT_KINDS
from fairlease.core.job import Attempt
from fairlease.core.metrics.integral import Period
from fairlease.core.world import World
from fairlease_schemas.cycle import EvictionOrdered, GangGranted
from fairlease_schemas.envelope import Record
from fairlease_schemas.host import HostHeld, HostHoldCleared, HostRegistered
from fairlease_schemas.ids import AttemptId, HostId, job_of
from fairlease_schemas.job import AttemptEnded, AttemptEnding
from fairlease_schemas.series import HostRow

MAX_ROWS: Final = 128
BUSY, SAVING, FAULTY, DRAINED, IDLE = range(5)
STATES: Final = ("busy", "saving", "faulty", "drained", "idle")
_NOTHING: Final = (0, 0, 0, 0, 0)
Counts = tuple[int, int, int, int, int]


class _Host:
    """One host now. `shown` is what it adds to its row, by state."""

    __slots__ = ("busy", "gpus", "is_faulty", "is_held", "row", "saving", "shown")

    def __init__(self, row: int) -> None:
        self.row = row
        self.gpus = self.busy = self.saving = 0
        self.is_faulty = self.is_held = False
        self.shown: Counts = _NOTHING

    def counts(self) -> Counts:
        """Its GPUs by state; a fault counts before everything else, and work before what is to come of the host."""
        if self.is_faulty:
            return (0, 0, self.gpus, 0, 0)
        free = max(0, self.gpus - self.busy - self.saving)
        return (self.busy, self.saving, 0, free, 0) if self.is_held else (self.busy, self.saving, 0, 0, free)


class _Row:
    """Some hosts together: by state GPUs, GPUs x instant, and the readings so far."""

    __slots__ = ("first", "gpus", "hosts", "last", "moments", "readings")

    def __init__(self, first: HostId, reads: int) -> None:
        self.first = self.last = first
        self.hosts = 0
        self.gpus = [0] * len(STATES)
        self.moments = [0] * len(STATES)
        self.readings: list[tuple[int, ...]] = [_NOTHING] * reads

    def upto(self, at_ms: int) -> tuple[int, ...]:
        return tuple([gpus * at_ms - moment for gpus, moment in zip(self.gpus, self.moments, strict=True)])

    def take(self, other: "_Row") -> None:
        """The hosts that came up behind these belong to this row too."""
        self.last, self.hosts = other.last, self.hosts + other.hosts
        self.gpus = [one + more for one, more in zip(self.gpus, other.gpus, strict=True)]
        self.moments = [one + more for one, more in zip(self.moments, other.moments, strict=True)]
        self.readings = [
            tuple([one + more for one, more in zip(mine, others, strict=True)])
            for mine, others in zip(self.readings, other.readings, strict=True)
        ]


class Rows:
    """All hosts of a run, in the order in which they came up, in at most MAX_ROWS rows of equally many."""

    def __init__(self, period: Period) -> None:
        self._period = period
        self._hosts: dict[HostId, _Host] = {}
        self._rows: list[_Row] = []
        self._each = 1
        self._reads = 0
        self._saving: set[AttemptId] = set()
        self._now_ms = 0
        self._handlers: dict[type, Callable[[World, Any], None]] = {
            GangGranted: self._granted,
            EvictionOrdered: self._told,
            AttemptEnding: self._told,
            AttemptEnded: self._ended,
            HostRegistered: self._host_changed,
            HostHeld: self._host_changed,
            HostHoldCleared: self._host_changed,
        }

    def follow(self, world: World, record: Record) -> None:
        """The record is folded into the world."""
        self._now_ms = self._period.clip(world.log_time_ms)
        handlers = self._handlers
        for event in record.events:
            kind = type(event)
            if kind in handlers:
                handlers[kind](world, event)

    def read(self, at_ms: int) -> None:
        """A stretch ends here; no record taken so far is later."""
        self._reads += 1
        for row in self._rows:
            row.readings.append(row.upto(at_ms))

    def thin(self, times: int) -> None:
        """Only every so many-th reading counts from now on."""
        self._reads //= times
        for row in self._rows:
            row.readings = row.readings[times - 1 :: times]

    def result(self) -> tuple[HostRow, ...]:
        """The rows as they are told."""
        return tuple(_told(row) for row in self._rows)

    # what happens ------------------------------------------------------------------------------------
    def _granted(self, world: World, event: GangGranted) -> None:
        attempt = world.jobs[event.job].attempts[-1]
        if not attempt.is_stillborn:
            self._hold(attempt, 1, is_saving=False)

    def _told(self, world: World, event: EvictionOrdered | AttemptEnding) -> None:
        name = event.attempt
        found = world.attempt(name)
        if found is not None and not found[1].is_over and name not in self._saving:
            self._hold(found[1], -1, is_saving=False)
            self._saving.add(name)
            self._hold(found[1], 1, is_saving=True)

    def _ended(self, world: World, event: AttemptEnded) -> None:
        name = event.attempt
        job = world.jobs.get(job_of(name))
        attempt = next((one for one in reversed(job.attempts) if one.id == name), None) if job is not None else None
        if attempt is not None and not attempt.is_stillborn:
            self._hold(attempt, -1, is_saving=name in self._saving)
        self._saving.discard(name)

    def _hold(self, attempt: Attempt, sign: int, *, is_saving: bool) -> None:
        for part in attempt.parts:
            host = self._hosts[part.host]
            gpus = sign * len(part.gpus)
            if is_saving:
                host.saving += gpus
            else:
                host.busy += gpus
            self._recount(host)

    def _host_changed(self, world: World, event: HostRegistered | HostHeld | HostHoldCleared) -> None:
        known = world.fleet.hosts[event.host]
        host = self._hosts.get(known.id)
        if host is None:
            host = self._hosts[known.id] = _Host(self._row_for(known.id))
        host.gpus = known.gpus
        host.is_held = bool(known.holds)
        host.is_faulty = any(hold.kind in FAULT_KINDS or hold.reason == FAULT for hold in known.holds)
        self._recount(host)

    def _row_for(self, name: HostId) -> int:
        """The row of a host that comes up; with too many rows two and two become one."""
        if len(self._hosts) >= MAX_ROWS * self._each:
            self._each *= 2
            for first, second in zip(self._rows[::2], self._rows[1::2], strict=True):
                first.take(second)
            self._rows = self._rows[::2]
            for known in self._hosts.values():
                known.row //= 2
        number = len(self._hosts) // self._each
        if number == len(self._rows):
            self._rows.append(_Row(name, self._reads))
        row = self._rows[number]
        row.last, row.hosts = name, row.hosts + 1
        return number

    def _recount(self, host: _Host) -> None:
        """Move the row's sums by what the host adds otherwise than before."""
        counts = host.counts()
        if counts == host.shown:
            return
        row = self._rows[host.row]
        for state in range(len(STATES)):
            more = counts[state] - host.shown[state]
            if more:
                row.gpus[state] += more
                row.moments[state] += more * self._now_ms
        host.shown = counts


def _told(row: _Row) -> HostRow:
    stretches = list(_stretches(row))
    permille = {
        name: tuple([part[state] * 1000 // sum(part) if any(part) else 0 for part in stretches])
        for state, name in enumerate(STATES)
        if any(part[state] for part in stretches)
    }
    return HostRow(first=row.first, last=row.last, hosts=row.hosts, permille=permille)


def _stretches(row: _Row) -> Iterator[tuple[int, ...]]:
    """GPU-ms by state of each stretch."""
    before: tuple[int, ...] = _NOTHING
    for reading in row.readings:
        yield tuple([now - then for now, then in zip(reading, before, strict=True)])
        before = reading
