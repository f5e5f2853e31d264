"""Numbers in the words of people: how long ago, how many, what share.

Only here, in `figures.wording` and in the pages do hours and per cents appear; everything behind speaks integers. All
rounding is to the nearest with halves up, in integers, so that a golden text is the same everywhere.
"""

from typing import Final

from fairlease.core.words import about
from fairlease_schemas.explain import AsOf
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, format_length

_STEPS: Final = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m"), (SECOND_MS, "s"))


def ago(at_ms: int, now_ms: int) -> str:
    """How far back an instant is, in its largest unit: `2m ago`, `just now`; empty for 0."""
    if not at_ms:
        return ""
    return f"{_passed(now_ms - at_ms)} ago" if now_ms - at_ms >= SECOND_MS else "just now"


def until(at_ms: int | None, now_ms: int) -> str:
    """How far ahead an instant is, never told too short: `in 2m`, `now`; empty when there is none."""
    if at_ms is None:
        return ""
    return f"in {about(at_ms - now_ms)}" if at_ms - now_ms >= SECOND_MS else "now"


def _passed(length_ms: int) -> str:
    """A length that is over, in its largest unit; with minutes for hours below ten, hours for days below ten."""
    for index, (unit_ms, unit) in enumerate(_STEPS):
        amount, rest_ms = divmod(length_ms, unit_ms)
        if not amount:
            continue
        if unit_ms >= HOUR_MS and amount < 10:
            smaller_ms, smaller = _STEPS[index + 1]
            rest = rest_ms // smaller_ms
            return f"{amount}{unit}{rest}{smaller}" if rest else f"{amount}{unit}"
        return f"{amount}{unit}"
    return "0s"


def length(length_ms: int) -> str:
    """A length as contracts write it, to the second: `1h30m`; `idle` and the like are the caller's to say."""
    return format_length(length_ms - length_ms % SECOND_MS if abs(length_ms) >= SECOND_MS else length_ms)


def share(permille: int | None) -> str:
    """A standing with its three decimals: `0.950`; a dash where nothing is entitled."""
    if permille is None:
        return "-"
    sign = "-" if permille < 0 else ""
    return f"{sign}{abs(permille) // 1000}.{abs(permille) % 1000:03}"


def count(number: int, noun: str) -> str:
    """`1 host`, `4 hosts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def foot(as_of: AsOf, *, is_quiet: bool, lead: str = "", now_ms: int | None = None) -> str:
    """The last line of a screen: what the rows count, and the log position they were read at.

    With `now_ms` it says too when that was, if it is a while ago: the screen's lengths count from there.
    """
    is_old = now_ms is not None and now_ms - as_of.log_time_ms >= MINUTE_MS
    when = f", {ago(as_of.log_time_ms, now_ms or 0)}" if is_old else ""
    return "" if is_quiet else f"\n{lead}as of log position {as_of.epoch}-{as_of.position}{when}\n"
