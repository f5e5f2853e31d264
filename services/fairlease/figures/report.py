"""The figures under their public names: what the live log, the simulator and a replay report alike.

Names and units are fixed (docs/outputs.md): seconds where a key ends in `_s`, GPU-hours in `_gpu_h`, ratios from
0 to 1, null where there is nothing to divide.
"""

from typing import Any

from fairlease.core.metrics.integral import PPM, ratio_ppm
from fairlease.core.metrics.meter import Figures
from fairlease.core.metrics.quantile import Spread
from fairlease.core.metrics.recovery import Cost
from fairlease.core.metrics.waiting import ALL, GANGS, WaitClass
from fairlease_schemas.units import DAY_MS, HOUR_MS, SECOND_MS

Data = dict[str, Any]

WAITS = (ALL, WaitClass.DEBUG, WaitClass.SMALL, WaitClass.MEDIUM, WaitClass.LARGE, GANGS, WaitClass.IDLE)
"""Groups of jobs in the order in which waits are told."""


def report_of(figures: Figures) -> Data:
    """All figures but those of whoever ran the fold: kind, policy, seed, digest and speed are the caller's."""
    levels, counts = figures.levels, figures.counts
    return {
        "hosts": counts.hosts,
        "gpus": counts.gpus,
        "days": round((figures.period.until_ms - figures.period.since_ms) / DAY_MS, 4),
        "jobs": {"submitted": counts.submitted, "started": counts.started, "finished": counts.finished},
        "availability": ratio(levels.schedulable_gpu_ms, levels.installed_gpu_ms),
        "occupancy": ratio(levels.held_gpu_ms, levels.schedulable_gpu_ms),
        "impact": ratio(figures.entitled.within_gpu_ms, levels.held_gpu_ms),
        "progress": ratio(figures.progress.kept_gpu_ms, figures.progress.known_gpu_ms),
        "utilisation": None,
        "fulfilment": _fulfilment(figures),
        "wait": {str(group): seconds(figures.waiting.wait[group]) for group in WAITS},
        "completion": _completion(figures),
        "preemption": _preemption(figures),
        "promises": _promises(figures),
        "events": counts.events,
        "decisions": counts.records,
        "startup": seconds(figures.waiting.startup[ALL]),
        "pending": seconds(figures.waiting.pending[ALL]),
        "slowdown": _slowdown(figures.waiting.slowdown[ALL]),
        "gpu_hours": _gpu_hours(figures),
        "recovery": _recovery(figures),
        "operations": _operations(figures),
    }


def ratio(part: int, whole: int) -> float | None:
    """Part of whole to six places, rounded down; None of nothing."""
    return _of_ppm(ratio_ppm(part, whole))


def gpu_hours(gpu_ms: int) -> float:
    """GPU-hours to six places."""
    return round(gpu_ms / HOUR_MS, 6)


def seconds(spread: Spread) -> Data:
    """A spread of milliseconds, in seconds."""
    return {f"{name}_s": _second(getattr(spread, name)) for name in ("p50", "p90", "p99", "mean")}


def _second(value_ms: int | None) -> float | None:
    return None if value_ms is None else value_ms / SECOND_MS


def _of_ppm(value_ppm: int | None) -> float | None:
    return None if value_ppm is None else value_ppm / PPM


def _fulfilment(figures: Figures) -> Data:
    fairness = figures.fairness
    due = {name: one for name, one in fairness.by_budget.items() if one.due_gpu_ms_ppm}
    return {
        "mean": _of_ppm(fairness.mean_ppm),
        "lowest": _of_ppm(fairness.lowest_ppm),
        "at_least_95": fairness.at_least_95,
        "budgets": len(due),
        "by_budget": {name: _of_ppm(one.ratio_ppm) for name, one in due.items()},
        "uncapped_mean": _of_ppm(fairness.uncapped_mean_ppm),
        "uncapped_by_budget": {name: _of_ppm(one.uncapped_ppm) for name, one in fairness.by_budget.items()},
        "held_gpu_h": {name: gpu_hours(one.held_gpu_ms) for name, one in fairness.by_budget.items()},
        "due_gpu_h": {name: gpu_hours(one.due_gpu_ms_ppm // PPM) for name, one in fairness.by_budget.items()},
        "share_error": _of_ppm(fairness.share_error_ppm),
    }


def _completion(figures: Figures) -> Data:
    completion = figures.completion
    return {
        "mean_s": _second(completion.spread.mean),
        "p99_s": _second(completion.spread.p99),
        "makespan_s": _second(completion.makespan_ms),
    }


def _preemption(figures: Figures) -> Data:
    recovery = figures.recovery
    preempted = recovery.preempted
    return {
        "count": preempted.count,
        "lost_gpu_h": gpu_hours(preempted.lost_gpu_ms),
        "restart_gpu_h": gpu_hours(preempted.restart_gpu_ms),
        "overhead": ratio(preempted.lost_gpu_ms + preempted.restart_gpu_ms, recovery.held_gpu_ms),
        "window_breaks": recovery.window_breaks,
        "loops": recovery.loops,
        "turns": recovery.turns,
        "by_reason": recovery.evicted,
    }


def _promises(figures: Figures) -> Data:
    promises = figures.promises
    return {
        "made": promises.made,
        "kept": promises.kept,
        "earlier": promises.earlier,
        "voided": sum(promises.voided.values()),
        "broken": promises.broken,
        "voided_by": promises.voided,
    }


def _slowdown(spread: Spread) -> Data:
    return {name: _second(getattr(spread, name)) for name in ("p50", "p90", "p99", "mean")}


def _gpu_hours(figures: Figures) -> Data:
    levels, progress, entitled = figures.levels, figures.progress, figures.entitled
    numbers = {
        "installed": levels.installed_gpu_ms,
        "schedulable": levels.schedulable_gpu_ms,
        "held": levels.held_gpu_ms,
        "held_by_everybody": levels.everybody_gpu_ms,
        "held_budgeted": levels.budgeted_gpu_ms,
        "within_entitlement": entitled.within_gpu_ms,
        "beyond_entitlement": entitled.beyond_gpu_ms,
        "held_idle": levels.held_gpu_ms - levels.budgeted_gpu_ms,
        "free_reserved": levels.reserved_gpu_ms,
        "free_fragmentation": levels.fragmentation_gpu_ms,
        "free_no_demand": levels.no_demand_gpu_ms,
        "kept": progress.kept_gpu_ms,
        "lost_stopped": progress.stopped_gpu_ms,
        "lost_failed": progress.failed_gpu_ms,
        "lost_restart": progress.restart_gpu_ms,
        "lost_abandoned": progress.abandoned_gpu_ms,
        "unknown": figures.recovery.held_gpu_ms - progress.known_gpu_ms,
    }
    return {name: gpu_hours(amount) for name, amount in numbers.items()}


def _recovery(figures: Figures) -> Data:
    recovery = figures.recovery
    return {
        "faults": _cost(recovery.faults),
        "retries": _cost(recovery.retries),
        "resumes": recovery.resumes,
        "resumed": recovery.resumed,
        "resume_rate": ratio(recovery.resumed, recovery.resumes),
        "checkpoints": recovery.checkpoints,
    }


def _cost(cost: Cost) -> Data:
    return {
        "count": cost.count,
        "lost_gpu_h": gpu_hours(cost.lost_gpu_ms),
        "restart_gpu_h": gpu_hours(cost.restart_gpu_ms),
    }


def _operations(figures: Figures) -> Data:
    operations = figures.operations
    drains = operations.drains
    return {
        "drains": {
            "asked": drains.asked,
            "emptied": drains.emptied,
            "in_time": drains.in_time,
            "took": seconds(drains.took),
            "promised": seconds(drains.promised),
        },
        "fault_to_detection": seconds(operations.detection),
        "fault_to_requeue": seconds(operations.requeue),
        "submit_to_running": seconds(operations.start),
        "decision": seconds(operations.decision),
    }
