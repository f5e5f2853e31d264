"""How long jobs waited for their first start lately, by size and window: what advice on a contract rests on (1.18).

A few of the newest of each kind are kept in the fold, so that advice is a part of the decision and a replay gives the
same. Sizes are powers of two, rounded up; windows are in classes by their upper bound.
"""

from collections.abc import Mapping, Sequence

import msgspec

from fairlease.core.metrics.quantile import quantile
from fairlease_schemas.units import HOUR_MS, MINUTE_MS, SECOND_MS, format_length

KEPT = 40
FEWEST = 8
"""So many of a kind are an experience, fewer are chance."""
WINDOWS_MS = (15 * MINUTE_MS, 30 * MINUTE_MS, HOUR_MS, 2 * HOUR_MS, 4 * HOUR_MS, 8 * HOUR_MS)
"""Upper bounds; what is longer is of the last class, which has none."""


class Start(msgspec.Struct, frozen=True, array_like=True):
    """A job's first grant at `at_ms`, after `wait_ms`."""

    at_ms: int
    wait_ms: int


Starts = Mapping[str, Sequence[Start]]
"""The newest starts of each kind, oldest first."""


def window_class(window_ms: int) -> int:
    """Its place in `WINDOWS_MS`, or behind them."""
    return next((place for place, bound_ms in enumerate(WINDOWS_MS) if window_ms <= bound_ms), len(WINDOWS_MS))


def size_class(gpus: int) -> int:
    """The least power of two that is not below it."""
    return 1 << (gpus - 1).bit_length()


def kind(size: int, window: int) -> str:
    """The key of a size class and a window class."""
    return f"{size}/{window}"


def started(starts: dict[str, list[Start]], gpus: int, window_ms: int, start: Start) -> None:
    """Remember a start, and forget the oldest of too many."""
    known = starts.setdefault(kind(size_class(gpus), window_class(window_ms)), [])
    known.append(start)
    del known[:-KEPT]


def usual_wait_ms(starts: Starts, size: int, window: int, since_ms: int) -> int | None:
    """The median wait of a kind's starts from an instant on; None of fewer than `FEWEST`."""
    waits = sorted(start.wait_ms for start in starts.get(kind(size, window), ()) if start.at_ms >= since_ms)
    return quantile(waits, 500) if len(waits) >= FEWEST else None


def told_window(window: int) -> str:
    """The class in words."""
    return f"up to {format_length(WINDOWS_MS[window])}" if window < len(WINDOWS_MS) else "longer than 8h"


def told_wait(wait_ms: int) -> str:
    """A wait in whole minutes, or seconds below one."""
    unit_ms = MINUTE_MS if wait_ms >= MINUTE_MS else SECOND_MS
    return format_length(wait_ms // unit_ms * unit_ms)
