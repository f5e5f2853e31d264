"""Makes the quantile tables of lab-1024: `python -m fairlease.simulator.quantiles` writes them beside this file.

Point i is F^-1((i + 0.5) / 4096), rounded down to the millisecond. This is the one place of the simulator that
computes with fractions, and nothing of it runs in a simulation.
"""

import json
import math
from pathlib import Path
from statistics import NormalDist

from fairlease.simulator.draws import POINTS, TABLES_FILE
from fairlease.simulator.scenario import Duration, Scenario, lab_1024
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

FAULT, THINK = "fault", "think"


def made(scenario: Scenario) -> dict[str, list[int]]:
    """Every table that a run of the scenario draws from, unclamped, in ms."""
    found = {name: _duration(of.duration) for name, of in scenario.classes.items()}
    found[FAULT] = _exponential(scenario.cluster.host_mtbf_days * DAY_MS)
    found[THINK] = _exponential(scenario.demand.think_time_mean_min * MINUTE_MS)
    return found


def _duration(of: Duration) -> list[int]:
    if of.kind == "exponential":
        return _exponential(of.mean_s * SECOND_MS)
    normal, median_ms = NormalDist(), of.median_h * HOUR_MS
    return [int(median_ms * math.exp(of.sigma * normal.inv_cdf((i + 0.5) / POINTS))) for i in range(POINTS)]


def _exponential(mean_ms: int) -> list[int]:
    return [int(-mean_ms * math.log1p(-(i + 0.5) / POINTS)) for i in range(POINTS)]


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {json.dumps(points)}" for name, points in made(lab_1024()).items())
    Path(__file__).with_name(TABLES_FILE).write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
