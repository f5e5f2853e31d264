"""Quantile tables of 4,096 points, exact: `python -m fairlease.simulator.quantiles` writes those of lab-1024 anew.

Point i is F^-1((i + 0.5) / 4096), rounded down to the millisecond. Logarithms and powers of a C library differ in their
last bit from one machine to the next, and a table would then differ with them; so they are taken in decimal arithmetic,
which rounds correctly everywhere. A normal quantile begins as a float that is right to 13 digits or more, and one step
of Newton's makes twice as many of them. The shipped tables save the second that this takes; of a workload in a file
they are made when it is read.
"""

import json
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Final, TypeVar

from fairlease.simulator.draws import POINTS, TABLES_FILE
from fairlease.simulator.scenario import Duration, Scenario, lab_1024
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

FAULT, THINK = "fault", "think"
LOGNORMAL: Final = "lognormal"
EXPONENTIAL: Final = "exponential"
_DIGITS: Final = 40
_ROOT_OF_TWO_PI: Final = Decimal("2.506628274631000502415765284811045253006986740609938316629923576342")
_SMALLEST: Final = Decimal("1e-40")
_T = TypeVar("_T")


def made(scenario: Scenario) -> dict[str, list[int]]:
    """Every table that a run of the scenario draws from, unclamped, in ms."""
    found = {name: _duration(of.duration) for name, of in scenario.classes.items()}
    found[FAULT] = exponential(scenario.cluster.host_mtbf_days * DAY_MS)
    found[THINK] = exponential(scenario.demand.think_time_mean_min * MINUTE_MS)
    return found


def exponential(mean_ms: int) -> list[int]:
    """-mean x ln(1 - p)."""
    return _exactly(lambda: [int(-mean_ms * (1 - _quantile(i)).ln()) for i in range(POINTS)])


def _duration(of: Duration) -> list[int]:
    if of.kind == EXPONENTIAL:
        return exponential(of.mean_s * SECOND_MS)
    median_ms, sigma = Decimal(str(of.median_h)) * HOUR_MS, Decimal(str(of.sigma))
    return _exactly(lambda: [int(median_ms * (sigma * z).exp()) for z in _normal()])


def _exactly(compute: Callable[[], _T]) -> _T:
    with localcontext() as context:
        context.prec = _DIGITS
        return compute()


def _quantile(i: int) -> Decimal:
    return Decimal(2 * i + 1) / (2 * POINTS)


@cache
def _normal() -> tuple[Decimal, ...]:
    """The quantiles of the normal distribution; the lower half is the upper one's mirror."""
    upper = [_normal_quantile(_quantile(i)) for i in range(POINTS // 2, POINTS)]
    return (*(-z for z in reversed(upper)), *upper)


def _normal_quantile(p: Decimal) -> Decimal:
    """For p above a half. Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/15 + ...); Newton's step divides by phi."""
    x = Decimal(NormalDist().inv_cdf(float(p)))
    density = (-x * x / 2).exp() / _ROOT_OF_TWO_PI
    term, total, odd = x, x, 1
    while term > _SMALLEST:
        odd += 2
        term = term * x * x / odd
        total += term
    return x - (Decimal("0.5") + density * total - p) / density


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {json.dumps(points)}" for name, points in made(lab_1024()).items())
    Path(__file__).with_name(TABLES_FILE).write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
