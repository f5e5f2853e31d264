"""Series: what a run looked like in time, taken on the way in as much memory for a year as for a day.

Nothing is sampled. Sums that only grow are read at the ends of stretches of equal length, and what lies between two
readings is their difference. When the readings become too many, the stretches become longer: their lengths divide each
other, so that the readings which are kept are true ones, and a run of unknown length ends with what a known one has.
"""

from collections.abc import Iterator
from typing import Final

from fairlease.core.metrics.course import CAUSES, Sums
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.meter import Meter
from fairlease.core.metrics.quantile import CURVE_PERMILLE
from fairlease.core.world import World
from fairlease.simulator.rows import Rows
from fairlease_schemas.series import BudgetCourse, Series, WaitCurve, Waits
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS

MAX_STRETCHES: Final = 128
_LENGTHS_MS: Final = (
    *(minutes * MINUTE_MS for minutes in (1, 5, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 6, 12)),
)


def next_length_ms(length_ms: int) -> int:
    """The next longer stretch: a multiple of this one, familiar up to a day, and twice as long from there on."""
    longer = (other for other in (*_LENGTHS_MS, DAY_MS) if other > length_ms)
    return next(longer, 2 * length_ms)


class Course:
    """Reads the meter, and the rows of hosts, at the end of each stretch. Told of each instant before its records."""

    def __init__(self, meter: Meter, period: Period) -> None:
        self._meter = meter
        self._period = period
        self._rows = Rows(period)
        self.follow = self._rows.follow
        """To be called behind every record."""
        self._length_ms = _LENGTHS_MS[0]
        self._readings: list[Sums] = []
        self._next_ms = period.since_ms + self._length_ms

    def passes(self, at_ms: int) -> None:
        """Time comes to this instant, and what is told next happened then: whatever ended before it is read."""
        while self._next_ms < at_ms and self._next_ms < self._period.until_ms:
            self._read(self._next_ms)
            if len(self._readings) > MAX_STRETCHES:
                self._thin()
            self._next_ms = self._period.since_ms + (len(self._readings) + 1) * self._length_ms

    def result(self, world: World, now_ms: int) -> Series:
        """The series up to this instant, behind the last record; to be asked for once."""
        until_ms = self._period.clip(now_ms)
        self.passes(until_ms)
        length_ms = self._length_ms
        ends_ms = [length_ms * number for number in range(1, len(self._readings) + 1)]
        if until_ms - self._period.since_ms > (ends_ms[-1] if ends_ms else 0):
            self._read(until_ms)
            ends_ms.append(until_ms - self._period.since_ms)
        waits = self._meter.waits(world).items()
        curves = {name: WaitCurve(jobs=jobs, wait_ms=points) for name, (jobs, points) in waits}
        return Series(
            ends_ms=tuple(ends_ms),
            waits=Waits(permille=CURVE_PERMILLE, by_class=curves),
            budgets={
                name: BudgetCourse(held_gpu_ms=self._of("held", name), due_gpu_ms=self._of("due", name))
                for name in self._names("held")
            },
            hosts=self._rows.result(),
            lost_gpu_ms={cause: self._of("lost", cause) for cause in CAUSES},
            evictions={reason: self._of("evicted", reason) for reason in self._names("evicted")},
            promises={fate: self._of("promised", fate) for fate in self._names("promised")},
        )

    def _read(self, at_ms: int) -> None:
        self._readings.append(self._meter.sums(at_ms))
        self._rows.read(at_ms)

    def _thin(self) -> None:
        """Longer stretches: keep the readings at their ends."""
        longer_ms = next_length_ms(self._length_ms)
        times = longer_ms // self._length_ms
        self._readings = self._readings[times - 1 :: times]
        self._rows.thin(times)
        self._length_ms = longer_ms

    def _names(self, group: str) -> list[str]:
        """Whoever is in the last reading: sums only grow, so nobody leaves."""
        return list(getattr(self._readings[-1], group)) if self._readings else []

    def _of(self, group: str, name: str) -> tuple[int, ...]:
        return tuple(added(getattr(reading, group).get(name, 0) for reading in self._readings))


def added(readings: Iterator[int]) -> Iterator[int]:
    """What each reading has more than the one before it; the first, more than 0."""
    before = 0
    for reading in readings:
        yield reading - before
        before = reading
