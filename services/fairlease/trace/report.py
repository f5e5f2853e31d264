"""What a played trace showed: the figures of waiting (M3), every rule that was applied, and the verdict.

Times are the cell's own, in seconds: of a trace played at twice its speed, a wait of one second stood
for two. Key names are public (outputs); `wait` has those of the simulator's report.
"""

from typing import Any, Final

import msgspec

from fairlease.core.job import Job, Phase
from fairlease.core.metrics.quantile import Spread
from fairlease.core.metrics.waiting import ALL, Waiting, life, waiting
from fairlease.trace.player import Result
from fairlease.trace.recorded import Recorded, Rule, met
from fairlease.trace.workload import Workload

API_VERSION: Final = "fairlease/v1"


def report_of(
    name: str, recorded: Recorded, workload: Workload, result: Result, replay: dict[str, Any]
) -> dict[str, Any]:
    """The TraceReport. `name` is the trace's file name; `replay` the ReplayReport of the played log."""
    world = result.world
    mine = [world.jobs[task.job] for task in workload.tasks if task.job in world.jobs]
    figures = waiting(life(job, world.log_time_ms, workload.debug) for job in mine)
    return {
        "apiVersion": API_VERSION,
        "kind": "TraceReport",
        "trace": {"file": name, "format": recorded.format, "sha256": recorded.sha256},
        "policy": world.policy_name,
        "hosts": workload.hosts,
        "gpus": workload.hosts * workload.gpus_per_host,
        "speed": workload.speed_permille / 1_000,
        "cut_s": None if workload.cut_ms is None else workload.cut_ms / 1_000,
        "jobs": _jobs(workload, mine, result),
        "wait": {group: _seconds(spread) for group, spread in figures.wait.items()},
        "startup": _seconds(figures.startup[ALL]),
        "pending": _seconds(figures.pending[ALL]),
        "slowdown": _ratios(figures),
        "rules": [{"rule": rule.rule, "count": rule.count} for rule in (*workload.rules, *_gaps(result))],
        "wall_s": round(result.wall_s, 3),
        "positions": world.position,
        "events": replay["events"],
        "digest": replay["digest"],
        "replay": {key: replay[key] for key in ("decisions", "divergences", "first", "events_per_s")},
    }


def is_good(report: dict[str, Any]) -> bool:
    """Whether every job of the trace was admitted and came to an end, and the log comes out the same again."""
    jobs = report["jobs"]
    return not (jobs["refused"] or jobs["lost"] or report["replay"]["divergences"])


def _jobs(workload: Workload, mine: list[Job], result: Result) -> dict[str, int]:
    """Jobs by what became of them; `otherwise` ended in another way than was recorded."""
    phases = [job.phase for job in mine]
    recorded = {task.job: task.outcome for task in workload.tasks}
    return {
        "submitted": len(workload.tasks),
        "started": sum(any(attempt.started_ms is not None for attempt in job.attempts) for job in mine),
        "finished": sum(job.is_terminal for job in mine),
        "succeeded": phases.count(Phase.SUCCEEDED),
        "failed": phases.count(Phase.FAILED),
        "cancelled": phases.count(Phase.CANCELLED),
        "timed_out": phases.count(Phase.TIMED_OUT),
        "otherwise": sum(job.is_terminal and str(job.phase) != recorded[job.id] for job in mine),
        "refused": len(result.refused),
        "lost": len(result.lost),
    }


def _gaps(result: Result) -> tuple[Rule, ...]:
    hours = result.skipped_trace_ms / 3_600_000
    return met(((f"gaps in which nothing ran or waited are skipped: {hours:.1f} h of the trace", result.gaps),))


def _seconds(spread: Spread) -> dict[str, float | None]:
    return {f"{key}_s": _thousandth(value) for key, value in _numbers(spread).items()}


def _ratios(figures: Waiting) -> dict[str, float | None]:
    return {key: _thousandth(value) for key, value in _numbers(figures.slowdown[ALL]).items()}


def _numbers(spread: Spread) -> dict[str, int | None]:
    return {"p50": spread.p50, "p90": spread.p90, "p99": spread.p99, "mean": spread.mean}


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1_000


def table_of(report: dict[str, Any]) -> str:
    """The same for a person: a head line, the waits by class, the rules, the verdict."""
    jobs, replay = report["jobs"], report["replay"]
    told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in jobs.items() if count)
    head = (
        f"{report['trace']['file']} on {report['hosts']} x {report['gpus'] // report['hosts']} SIMULATED GPUs, "
        f"{report['speed']:g} times as fast as recorded: {report['wall_s']:.1f} s, {report['positions']} records\n"
        f"jobs: {told}\n"
    )
    lines = [f"{'seconds of the cell':<22}{'p50':>10}{'p90':>10}{'p99':>10}{'mean':>10}"]
    lines += [_line(f"wait, {group}", numbers) for group, numbers in report["wait"].items()]
    lines.append(_line("grant to running", report["startup"]))
    rules = [f"  {rule['count']:>6}  {rule['rule']}" for rule in report["rules"]]
    verdict = f"replay: {replay['decisions']} decisions, {replay['divergences']} divergences\n"
    return head + "\n".join(lines) + "\nrules (how many each met):\n" + "\n".join(rules) + "\n" + verdict


def _line(title: str, numbers: dict[str, float | None]) -> str:
    return f"{title:<22}" + "".join(_cell(value) for value in numbers.values())


def _cell(value: float | None) -> str:
    return f"{'-':>10}" if value is None else f"{value:>10.3f}"


def encoded(report: dict[str, Any], form: str) -> str:
    """The report as JSON, which YAML reads too; `jsonl` on one line."""
    raw = msgspec.json.encode(report)
    return (raw if form == "jsonl" else msgspec.json.format(raw, indent=2)).decode() + "\n"
