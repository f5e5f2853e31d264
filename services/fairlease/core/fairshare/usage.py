"""Exact integrals of things that change by steps: GPUs held, GPUs schedulable.

The slow model: sum value x length over all pieces between two instants. This one keeps running sums
at each step, so that an integral is two binary searches, and a change is O(1) amortised. Pieces that
have left the remembered past are dropped when a new step is written, never when somebody looks, so
that looking changes nothing. All instants are log time.
"""

from bisect import bisect_right

import msgspec


class Meter(msgspec.Struct):
    """A step function of time with its running integral.

    `times_ms[i]` begins a piece of `values[i]`; `sums[i]` is the integral from the first remembered
    step up to `times_ms[i]`. Before the first step the value is 0.
    """

    times_ms: list[int] = []
    values: list[int] = []
    sums: list[int] = []

    @property
    def value(self) -> int:
        """The value now, after the last step."""
        return self.values[-1] if self.values else 0

    def add(self, at_ms: int, delta: int, *, forget_before_ms: int) -> None:
        """Change the value by `delta` at `at_ms`, which is not before the last step.

        Steps that cannot matter to an integral from `forget_before_ms` on are dropped, in lots.
        """
        if not self.times_ms:
            self.times_ms.append(at_ms)
            self.values.append(delta)
            self.sums.append(0)
            return
        if self.times_ms[-1] == at_ms:
            self.values[-1] += delta
            return
        self.sums.append(self.sums[-1] + self.values[-1] * (at_ms - self.times_ms[-1]))
        self.times_ms.append(at_ms)
        self.values.append(self.values[-1] + delta)
        if len(self.times_ms) >= 128:
            kept = bisect_right(self.times_ms, forget_before_ms) - 1
            if kept > len(self.times_ms) // 2:
                del self.times_ms[:kept], self.values[:kept], self.sums[:kept]

    def integral(self, from_ms: int, to_ms: int) -> int:
        """Value x milliseconds over [from_ms, to_ms); 0 when the interval is empty."""
        if to_ms <= from_ms or not self.times_ms:
            return 0
        return self._upto(to_ms) - self._upto(from_ms)

    def _upto(self, at_ms: int) -> int:
        times_ms = self.times_ms
        if at_ms >= times_ms[-1]:  # most ask up to now
            return self.sums[-1] + self.values[-1] * (at_ms - times_ms[-1])
        index = bisect_right(times_ms, at_ms) - 1
        if index < 0:
            return self.sums[0]
        return self.sums[index] + self.values[index] * (at_ms - times_ms[index])


class Lumps(msgspec.Struct):
    """Sums that count from one instant on and leave the lookback with it: surcharges and credits (2.6)."""

    times_ms: list[int] = []
    sums: list[int] = []

    def add(self, at_ms: int, amount: int, *, forget_before_ms: int) -> None:
        """One more lump, never before the last; those that no lookback can reach are dropped."""
        self.times_ms.append(max(at_ms, self.times_ms[-1]) if self.times_ms else at_ms)
        self.sums.append((self.sums[-1] if self.sums else 0) + amount)
        if len(self.times_ms) >= 128:
            kept = bisect_right(self.times_ms, forget_before_ms) - 1
            if kept > len(self.times_ms) // 2:
                del self.times_ms[:kept], self.sums[:kept]

    def within(self, from_ms: int) -> int:
        """The sum of the lumps after `from_ms`."""
        if not self.sums:
            return 0
        index = bisect_right(self.times_ms, from_ms) - 1
        return self.sums[-1] - (self.sums[index] if index >= 0 else 0)

    def each(self) -> list[tuple[int, int]]:
        """Every remembered lump: its instant and its amount."""
        befores = [0, *self.sums[:-1]] if self.sums else []
        return [(at_ms, total - before) for at_ms, total, before in zip(self.times_ms, self.sums, befores, strict=True)]
