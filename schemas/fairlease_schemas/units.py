"""Lengths of time and memory as people write them, as the integers that decisions use.

Integers in every decision: milliseconds, mebibytes. A bare number is refused rather than guessed,
because "30" was minutes for whoever wrote it and seconds for whoever reads it.
"""

import re
from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

MAX_LENGTH_MS: Final = 366 * DAY_MS
"""The longest length anyone may write: a year and a day; more is a slip of units."""

_FACTORS_MS: Final = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_FACTORS_MIB: Final = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_PART: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_WHOLE: Final = re.compile(r"(?:[0-9]{1,12}(?:ms|s|m|h|d))+")
_MEMORY: Final = re.compile(r"([0-9]{1,9})(Mi|Gi|Ti)")


def parse_length_ms(text: str) -> int:
    """Milliseconds of a length such as `90s`, `1h30m`, `7d` or `0s`.

    Raises ValueError, which says the way out, for a bare number, an unknown unit, a unit used
    twice or out of order, and anything above `MAX_LENGTH_MS`.
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(
            f"{text[:40]!r} is not a length of time: write a whole number and a unit, "
            "one of ms, s, m, h, d, for example 30m or 1h30m"
        )
    total_ms = 0
    last_factor_ms = MAX_LENGTH_MS
    for amount, unit in _PART.findall(text):
        factor_ms = _FACTORS_MS[unit]
        if factor_ms >= last_factor_ms:
            raise ValueError(f"{text[:40]!r} has units out of order: write the largest first, each once")
        last_factor_ms = factor_ms
        total_ms += int(amount) * factor_ms
    if total_ms > MAX_LENGTH_MS:
        raise ValueError(f"{text[:40]!r} is longer than {MAX_LENGTH_MS // DAY_MS} days")
    return total_ms


def format_length(length_ms: int) -> str:
    """The shortest text that `parse_length_ms` reads back as `length_ms`, for example `1h30m`."""
    if length_ms == 0:
        return "0s"
    parts = []
    rest_ms = abs(length_ms)
    for unit in ("d", "h", "m", "s", "ms"):
        amount, rest_ms = divmod(rest_ms, _FACTORS_MS[unit])
        if amount:
            parts.append(f"{amount}{unit}")
    return ("-" if length_ms < 0 else "") + "".join(parts)


def parse_memory_mib(text: str) -> int:
    """Mebibytes of an amount such as `512Mi`, `64Gi` or `1Ti`; ValueError otherwise."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text[:40]!r} is not an amount of memory: write a whole number and Mi, Gi or Ti, for example 64Gi"
        )
    return int(found[1]) * _FACTORS_MIB[found[2]]


def format_memory(mib: int) -> str:
    """The shortest text that `parse_memory_mib` reads back as `mib`, for example `64Gi`."""
    unit = next(unit for unit in ("Ti", "Gi", "Mi") if mib % _FACTORS_MIB[unit] == 0)
    return f"{mib // _FACTORS_MIB[unit]}{unit}"
