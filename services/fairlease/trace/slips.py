"""Slips of units that only a whole file shows: each number by itself could be right.

The times of all known traces are whole seconds. Written in a unit a thousand times finer, and read as if they were not,
all of them are multiples of a thousand seconds; in a coarser one most are fractions of a second. Both are told from ten
different values on: fewer may be chance, and a short hand-made trace is somebody's own affair.
"""

from collections.abc import Sequence
from math import gcd
from statistics import median_low
from typing import Final

from fairlease.trace.cells import Problem
from fairlease.trace.recorded import RecordedJob
from fairlease.trace.tables import Format
from fairlease_schemas.units import SECOND_MS

ENOUGH: Final = 10
_FACTOR: Final = 1_000


def slips(jobs: Sequence[RecordedJob], format_: Format) -> list[Problem]:
    """One problem for each column of time that is in another unit; rows as they were read, in the order of the file."""
    durations = [job.duration_ms for job in jobs]
    found = [(format_.duration, _too_large(durations) or _too_small(durations))]
    if format_.arrival[1]:
        found.append((format_.arrival, _too_large([job.arrive_ms for job in jobs])))
    return [Problem(jobs[0].row, name, "", text.format(unit=unit)) for (name, unit), text in found if text]


def _too_large(values_ms: Sequence[int]) -> str:
    different = {value for value in values_ms if value}
    if len(different) < ENOUGH or gcd(*different) % (_FACTOR * SECOND_MS):
        return ""
    return (
        f"begins {len(values_ms)} values that are all multiples of {_FACTOR} seconds: is it in {{unit}}? "
        f"divide the column by {_FACTOR}"
    )


def _too_small(values_ms: Sequence[int]) -> str:
    broken = sum(value % SECOND_MS > 0 for value in values_ms)
    if len(set(values_ms)) < ENOUGH or 2 * broken <= len(values_ms) or median_low(values_ms) >= SECOND_MS:
        return ""
    return (
        f"begins {len(values_ms)} lengths of which half are under a second, and {broken} no whole second: "
        f"is it in a larger unit? multiply the column by {_FACTOR}"
    )
