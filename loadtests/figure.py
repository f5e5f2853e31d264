"""A figure, its limit, and the report that holds them (outputs: LoadReport)."""

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairlease.core.metrics.quantile import quantile


class Figure(NamedTuple):
    """One number that was measured. `beside` are more numbers of the same measurement."""

    name: str
    value: float
    unit: str
    beside: dict[str, Any] | None = None


class Limits(NamedTuple):
    """What the profile allows, by figure: `at_most` or `at_least`."""

    rows: dict[str, dict[str, float]]

    def entry(self, figure: Figure) -> dict[str, Any]:
        """The figure beside its limit. The ratio is 1 at the limit and above 1 beyond it, whichever way it goes."""
        row = self.rows.get(figure.name, {})
        limit, ratio = None, None
        if "at_most" in row:
            limit = row["at_most"]
            ratio = figure.value / limit
        elif "at_least" in row:
            limit = row["at_least"]
            ratio = limit / figure.value if figure.value else float("inf")
        return {
            "value": figure.value,
            "unit": figure.unit,
            "limit": limit,
            "ratio_to_limit": None if ratio is None else round(ratio, 3),
            **(figure.beside or {}),
        }


def report_of(
    profile: str, before: dict[str, Any], figures: Sequence[Figure], limits: Limits, wall_s: float
) -> dict[str, Any]:
    """The LoadReport; `before` is the machine as it was when the run began."""
    return {
        "apiVersion": "fairlease/v1",
        "kind": "LoadReport",
        "profile": profile,
        "machine": before,
        "figures": {figure.name: limits.entry(figure) for figure in figures},
        "missed": missed(figures, limits),
        "wall_s": round(wall_s, 1),
    }


def missed(figures: Sequence[Figure], limits: Limits) -> list[str]:
    """Figures beyond their limit, and limits that nothing was measured for."""
    entries = {figure.name: limits.entry(figure) for figure in figures}
    beyond = [name for name, entry in entries.items() if (entry["ratio_to_limit"] or 0) > 1]
    return beyond + [name for name in limits.rows if name not in entries]


def table_of(report: dict[str, Any]) -> str:
    """The same for a person."""
    lines = [f"{'figure':<34}{'value':>12}  {'unit':<9}{'limit':>9}{'ratio':>8}"]
    for name, entry in report["figures"].items():
        limit, ratio = entry["limit"], entry["ratio_to_limit"]
        shown = f"{'-':>9}{'-':>8}" if limit is None else f"{limit:>9g}{ratio:>8.2f}"
        lines.append(f"{name:<34}{entry['value']:>12g}  {entry['unit']:<9}{shown}")
    verdict = f"missed: {', '.join(report['missed'])}" if report["missed"] else "every limit is kept"
    return "\n".join(lines) + f"\n{verdict}, {report['wall_s']:g} s\n"


def machine() -> dict[str, Any]:
    """What the figures are measured on; `load_1m` says how much else it does."""
    model = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "")
    memory = next((int(line.split()[1]) // 1024 for line in _lines("/proc/meminfo") if "MemTotal" in line), 0)
    return {
        "cpus": os.cpu_count(),
        "cpu": model or platform.processor(),
        "memory_mib": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def spread_ms(lengths_ns: Sequence[int]) -> tuple[float, float]:
    """p50 and p99 of lengths in nanoseconds, in milliseconds to two places."""
    ordered = sorted(lengths_ns)
    p50, p99 = quantile(ordered, 500), quantile(ordered, 990)
    if p50 is None or p99 is None:
        sys.exit("nothing was measured")
    return round(p50 / 1e6, 2), round(p99 / 1e6, 2)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
