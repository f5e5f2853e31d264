"""Exact integrals of things that change by steps, over one period, and the period itself.

The slow, right model is `fairshare.usage.Meter` with every step kept. A figure needs one period alone, so
that nothing is kept here but the sum so far: a change costs two additions, however long the log. Instants
are log time and are clipped to the period by whoever calls: what lies outside has no length.
"""

import msgspec

PPM = 1_000_000
"""Ratios of figures are whole parts per million, rounded down."""


class Period(msgspec.Struct, frozen=True):
    """From `since_ms` to `until_ms` of log time. What happened counts after the first and up to the last instant."""

    since_ms: int
    until_ms: int

    def clip(self, at_ms: int) -> int:
        """The instant of the period nearest to `at_ms`."""
        return min(max(at_ms, self.since_ms), self.until_ms)

    def length_ms(self, from_ms: int, to_ms: int) -> int:
        """How much of [from, to) lies in the period; 0 where that is empty."""
        return max(0, min(to_ms, self.until_ms) - max(from_ms, self.since_ms))

    def holds(self, at_ms: int) -> bool:
        """Whether something that happened then is counted: periods side by side count everything once."""
        return self.since_ms < at_ms <= self.until_ms


class Integral:
    """The sum of value x milliseconds of one step function, up to its last change."""

    __slots__ = ("_at_ms", "_sum", "value")

    def __init__(self) -> None:
        self.value = 0
        self._sum = 0
        self._at_ms = 0

    def set(self, at_ms: int, value: int) -> None:
        """From `at_ms` on, which is not before the last change, the value is this."""
        self._sum += self.value * (at_ms - self._at_ms)
        self._at_ms = at_ms
        self.value = value

    def add(self, at_ms: int, delta: int) -> None:
        """From `at_ms` on the value is so much more."""
        self.set(at_ms, self.value + delta)

    def upto(self, at_ms: int) -> int:
        """The integral up to `at_ms`, which is not before the last change."""
        return self._sum + self.value * (at_ms - self._at_ms)


def ratio_ppm(part: int, whole: int) -> int | None:
    """Part over whole in parts per million; None of nothing."""
    return part * PPM // whole if whole else None
