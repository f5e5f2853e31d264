"""Quantiles and means of whole numbers: always one of the values, never something between two.

A quantile is the ⌈p·n⌉-th smallest value, so that every figure can be pointed at in the log, and so
that two programs agree on it without agreeing on a way to interpolate.
"""

from collections.abc import Iterable, Sequence

import msgspec


def quantile(ordered: Sequence[int], permille: int) -> int | None:
    """The ⌈p·n⌉-th smallest of values in ascending order, p in permille from 1 to 1000; None of no values."""
    assert 0 < permille <= 1000, "a quantile is asked for in permille"
    if not ordered:
        return None
    return ordered[(len(ordered) * permille + 999) // 1000 - 1]


CURVE_PERMILLE = (1, *range(25, 1000, 25), 990, 1000)
"""Where a curve is drawn through: the least value, every fortieth, and what only a few are above."""


def curve(values: Iterable[int]) -> tuple[int, ...]:
    """The quantiles at CURVE_PERMILLE of values in any order; empty of no values."""
    ordered = sorted(values)
    points = (quantile(ordered, permille) for permille in CURVE_PERMILLE)
    return tuple(point for point in points if point is not None)


def mean(values: Sequence[int]) -> int | None:
    """The mean, rounded down; None of no values."""
    return sum(values) // len(values) if values else None


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How a figure is spread over jobs, in the unit of the figure; absent numbers when there is no job."""

    count: int
    p50: int | None
    p90: int | None
    p99: int | None
    mean: int | None


def spread(values: Iterable[int]) -> Spread:
    """The spread of values in any order."""
    ordered = sorted(values)
    return Spread(
        count=len(ordered),
        p50=quantile(ordered, 500),
        p90=quantile(ordered, 900),
        p99=quantile(ordered, 990),
        mean=mean(ordered),
    )
