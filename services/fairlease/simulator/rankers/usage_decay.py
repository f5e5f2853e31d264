"""Order by decayed usage for each unit of weight: HTCondor's user priority and Kueue's admission fair sharing.

Both keep one number: `u <- (1 - A) u + A now`, A = 1 - 2^(-elapsed / half-life). It is not an integral: it depends on
when it was sampled, and a burst between two samples would be free, which Kueue mends with an entry penalty of A x
request at admission. Numbers are whole, in whatever unit of usage the caller counts (thousandths of a GPU are fine
enough). Sources: Kueue ff69552, `pkg/util/admissionfairsharing`; HTCondor 7491a14.
"""

from fractions import Fraction
from typing import Final, NamedTuple

from fairlease.simulator.rankers.half_life import half_to_the

_FINE: Final = 10**18


class Consumer(NamedTuple):
    """Somebody with a decayed usage; `penalty` is what admissions since the last sample have added."""

    name: str
    usage: int
    weight: Fraction
    penalty: int = 0


def step(elapsed_ms: int, half_life_ms: int) -> Fraction:
    """A: how much of a new sample is taken over. 1 without a half-life (0): only now counts."""
    if not half_life_ms:
        return Fraction(1)
    return 1 - Fraction(half_to_the(Fraction(elapsed_ms, half_life_ms), _FINE), _FINE)


def sampled(usage: int, now: int, elapsed_ms: int, half_life_ms: int) -> int:
    """Usage after a sample of `now`, rounded to the nearest unit, a half up; small usage therefore fades to 0."""
    part = step(elapsed_ms, half_life_ms)
    mixed = (1 - part) * usage + part * now
    return (2 * mixed.numerator + mixed.denominator) // (2 * mixed.denominator)


def entry_penalty(request: int, sample_ms: int, half_life_ms: int) -> Fraction:
    """What an admission adds at once: what it would add if it ran until the next sample."""
    return step(sample_ms, half_life_ms) * request


def weighted(amounts: tuple[tuple[int, int], ...], weight: Fraction) -> Fraction | None:
    """Sum of resource weight x amount, over the queue's weight; None (more than any) for a weight of 0 or less."""
    return Fraction(sum(factor * amount for factor, amount in amounts)) / weight if weight > 0 else None


def pie_weights(priorities: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """HTCondor's slices: each consumer's part of the pool, inverse to its effective priority (all above 0)."""
    total = sum((1 / priority for priority in priorities), Fraction(0))
    return tuple(1 / priority / total for priority in priorities)


def consumer_order(consumer: Consumer) -> tuple[bool, Fraction, str]:
    """Who goes first.

    1. consumers with a weight before consumers without;
    2. the smaller (usage + penalty) / weight;
    3. the name.
    """
    ratio = weighted(((1, consumer.usage + consumer.penalty),), consumer.weight)
    return (ratio is None, ratio or Fraction(0), consumer.name)
