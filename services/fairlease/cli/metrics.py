"""`fairlease metrics`: what the log shows of a period, with the keys that the simulator's report has."""

import argparse
import resource
import sys
import time
from typing import Any, Final

import msgspec

from fairlease.cli.figures import figures
from fairlease.cli.history import Log, check_scope, folded, opened, period_of, scope_of
from fairlease.cli.output import Output, output_of, print_data, print_text
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.meter import Meter
from fairlease.core.metrics.scope import Scope
from fairlease.figures.report import report_of

API_VERSION: Final = "fairlease/v1"


def run(args: argparse.Namespace) -> int:
    """Read the log, measure, print; 0, or CommandError."""
    output = output_of(args)
    scope = scope_of(args)
    with opened(args.log) as log:
        report = measured(log, period_of(args, log), scope, output)
    if output.form in ("table", "wide"):
        print_text(figures(report, output.style, is_quiet=output.is_quiet))
    else:
        print_data(output.form, msgspec.json.encode(report), report["fulfilment"]["by_budget"])
    return 0


def measured(log: Log, period: Period, scope: Scope, output: Output) -> dict[str, Any]:
    """The MetricsReport. What the fold cost stands in `speed`, and is of this run alone."""
    started_s = time.perf_counter()
    meter = Meter(period, scope)
    world = folded(log, period, meter.take, output)
    check_scope(world, scope)
    found = report_of(meter.report(world))
    wall_s = time.perf_counter() - started_s
    whose = {"budget": scope.budget, "pool": scope.pool, "person": scope.account, "job": scope.job}
    return {
        "apiVersion": API_VERSION,
        "kind": "MetricsReport",
        "policy": world.policy_name,
        "seed": None,
        **found,
        "workload_digest": None,
        "digest": world.digest(),
        "speed": {
            "wall_s": round(wall_s, 3),
            "jobs_per_s": _per_s(len(world.jobs), wall_s),
            "decisions_per_s": _per_s(world.position, wall_s),
            "peak_rss_mib": round(_peak_rss_mib(), 1),
        },
        "period": {"since_ms": period.since_ms, "until_ms": period.until_ms},
        "scope": {name: value for name, value in whose.items() if value},
        "clock": "bus" if log.stored_ms else "log",
        "as_of": {"epoch": world.epoch, "position": world.position, "log_time_ms": world.log_time_ms},
    }


def _per_s(count: int, wall_s: float) -> float:
    return round(count / wall_s, 1) if wall_s else 0.0


def _peak_rss_mib() -> float:
    """Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
