"""Hadoop's Fair Scheduler: shares by water-filling, and the order of who is asked next.

A child's share is `clamp(weight x R, minimum, maximum or demand)`, with the R at which all shares together are the
capacity. Hadoop searches R by halving and cuts to whole numbers; here R is solved for exactly, which also ends where
a search has to be stopped (two children of 2^31 - 1). Source: `FairSharePolicy`, `ComputeFairShares`, Hadoop 04cd33a.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple


class Child(NamedTuple):
    """One of several siblings. `most` is the lesser of its maximum and its demand; None is without bound."""

    name: str
    weight: Fraction = Fraction(1)
    least: int = 0
    most: int | None = None


class Claim(NamedTuple):
    """What the order of siblings reads: integers of one unit, and when the first of its jobs came."""

    name: str
    usage: int
    demand: int
    least: int
    weight: Fraction
    start_ms: int


def shares(capacity: int, children: Sequence[Child]) -> tuple[Fraction, ...]:
    """The share of each child, in their order; none for no children.

    Minimums are kept even where they are more than the capacity together; a maximum below a minimum yields to it, as
    there. Where all maximums together are less than the capacity, the rest is nobody's.
    """
    points = sorted({point for child in children for point in _bends(child)})
    lower = Fraction(0)
    for upper in points:
        if _filled(upper, children) >= capacity:
            return _at(_level(capacity, lower, upper, children), children)
        lower = upper
    slope = sum((child.weight for child in children if child.most is None), Fraction(0))
    if slope == 0:
        return _at(lower, children)
    return _at(lower + (capacity - _filled(lower, children)) / slope, children)


def _bends(child: Child) -> tuple[Fraction, ...]:
    """The values of R at which a child's share begins and ceases to grow."""
    if child.weight <= 0:
        return ()
    starts = Fraction(child.least) / child.weight
    return (starts,) if child.most is None else (starts, max(starts, Fraction(child.most) / child.weight))


def _share(level: Fraction, child: Child) -> Fraction:
    wanted = child.weight * level
    return max(Fraction(child.least), wanted if child.most is None else min(wanted, Fraction(child.most)))


def _at(level: Fraction, children: Sequence[Child]) -> tuple[Fraction, ...]:
    return tuple(_share(level, child) for child in children)


def _filled(level: Fraction, children: Sequence[Child]) -> Fraction:
    return sum(_at(level, children), Fraction(0))


def _level(capacity: int, lower: Fraction, upper: Fraction, children: Sequence[Child]) -> Fraction:
    """The R between two neighbouring bends, where the sum is a straight line."""
    low, high = _filled(lower, children), _filled(upper, children)
    if capacity <= low or high == low:
        return lower
    return lower + (upper - lower) * (capacity - low) / (high - low)


def claim_order(claim: Claim) -> tuple[bool, bool, Fraction, int, str]:
    """Which sibling is asked next.

    1. who wants something before who wants nothing;
    2. the needy (usage below the lesser of minimum and demand) before the others;
    3. two needy by usage / minimum, two others by usage / weight (without weight: last);
    4. the earlier start;
    5. the name.
    """
    floor = min(claim.least, claim.demand)
    is_needy = claim.usage < floor
    if is_needy:
        ratio = Fraction(claim.usage, floor)
    else:
        ratio = claim.usage / claim.weight if claim.weight > 0 else Fraction(1 << 63)
    return (claim.demand == 0, not is_needy, ratio, claim.start_ms, claim.name)
