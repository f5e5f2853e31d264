"""What is left after some half-lives, in integers: 2 to the power of minus x.

Slurm multiplies by `1 - 0.693/h` every second, which after its seven days leaves 0.50007 of what was, not a half.
Here one half-life leaves exactly half and two a quarter. The rest is square roots of whole numbers, 128 bits wide:
the same answer on every machine, which a C library's `pow` does not promise.
"""

from fractions import Fraction
from math import isqrt
from typing import Final

_BITS: Final = 128
_PLACES: Final = 96


def _roots() -> tuple[int, ...]:
    """The square root of a half, the root of that, and so on, times 2^128, rounded down."""
    roots, root = [], 1 << (_BITS - 1)
    for _ in range(_PLACES):
        root = isqrt(root << _BITS)
        roots.append(root)
    return tuple(roots)


_ROOTS: Final = _roots()


def half_to_the(exponent: Fraction, scale: int) -> int:
    """`scale` x 2^-exponent to the nearest whole number, a half rounded up; exact where the exponent is whole.

    ValueError for a negative exponent: nothing grows by getting older.
    """
    if exponent < 0:
        raise ValueError(f"exponent {exponent} is negative: a half-life has only halved since the past")
    whole = int(exponent)
    places = int((exponent - whole) * (1 << _PLACES))
    value = 1 << _BITS
    for place, root in enumerate(_ROOTS, start=1):
        if places >> (_PLACES - place) & 1:
            value = value * root >> _BITS
    shift = _BITS + whole
    return (value * scale + (1 << (shift - 1))) >> shift if whole <= _BITS + scale.bit_length() else 0


def faded(amount: int, elapsed_ms: int, half_life_ms: int) -> int:
    """What is left of an amount after `elapsed_ms`, to the nearest unit; all of it where there is no half-life (0)."""
    return half_to_the(Fraction(elapsed_ms, half_life_ms), amount) if half_life_ms else amount
