"""The figures of a period as a person reads them: the pyramid, fulfilment, waits, and the rest in a line each."""

from collections.abc import Iterator
from typing import Any, Final

from fairlease.cli.history import clock
from fairlease.cli.table import Column, Style, facts, table
from fairlease.cli.wording import count
from fairlease.figures.wording import NOTHING, hours, percent, rough

Data = dict[str, Any]

_WAITS: Final = {"all": "all but idle", "gangs_128": "gangs from 128 GPUs", "idle": "idle work"}


def figures(report: Data, style: Style, *, is_quiet: bool) -> str:
    """The report as text; `report` is what `-o json` prints."""
    parts = [_pyramid(report, style), _fulfilment(report, style), _waits(report, style), _rest(report, style)]
    if is_quiet:
        return "\n".join(parts)
    as_of = report["as_of"]
    whose = "".join(f", {name} {value}" for name, value in report["scope"].items())
    since_ms, until_ms = report["period"]["since_ms"], report["period"]["until_ms"]
    head = (
        f"{clock(since_ms + 1)} to {clock(until_ms)} UTC, "
        f"{rough((until_ms - since_ms) / 1_000)}{whose}; {count(report['hosts'], 'host')}, "
        f"{count(report['gpus'], 'GPU')}, policy {report['policy']}\n"
    )
    foot = f"\nas of log position {as_of['epoch']}-{as_of['position']}\n"
    return "\n".join([head, *parts]) + foot


def _pyramid(report: Data, style: Style) -> str:
    columns = (
        Column("LEVEL"),
        Column("GPU-H", is_number=True),
        Column("OF THE ONE ABOVE", is_number=True),
        Column("LOST ON THE WAY", is_flexible=True),
    )
    return table(columns, _levels(report), style)


def _levels(report: Data) -> Iterator[tuple[str, str, str, str]]:
    h = report["gpu_hours"]
    down = h["installed"] - h["schedulable"]
    yield "installed", hours(h["installed"]), "", ""
    yield "schedulable", hours(h["schedulable"]), percent(report["availability"]), _lost(("on held hosts", down))
    free = (
        ("reserved and waiting", h["free_reserved"]),
        ("fragmentation", h["free_fragmentation"]),
        ("no demand", h["free_no_demand"]),
        ("others'", h["held_by_everybody"] - h["held"]),
    )
    yield "held", hours(h["held"]), percent(report["occupancy"]), _lost(*free)
    rest = (("beyond entitlement", h["beyond_entitlement"]), ("idle work", h["held_idle"]))
    yield "within entitlement", hours(h["within_entitlement"]), percent(report["impact"]), _lost(*rest)
    lost = (
        ("since a checkpoint", h["lost_stopped"]),
        ("failed", h["lost_failed"]),
        ("restarts", h["lost_restart"]),
        ("unused checkpoints", h["lost_abandoned"]),
        ("not known yet", h["unknown"]),
    )
    yield "kept, of all held", hours(h["kept"]), percent(report["progress"]), _lost(*lost)
    yield "used by devices", NOTHING, NOTHING, "from telemetry, not measured yet"


def _lost(*parts: tuple[str, float]) -> str:
    return ", ".join(f"{hours(amount)} {name}" for name, amount in parts if amount > 0)


def _fulfilment(report: Data, style: Style) -> str:
    found = report["fulfilment"]
    columns = (
        Column("BUDGET", is_flexible=True),
        Column("HELD GPU-H", is_number=True),
        Column("DUE GPU-H", is_number=True),
        Column("FULFILMENT", is_number=True),
        Column("WITHOUT CAPS", is_number=True),
    )
    rows = (
        (
            name,
            hours(found["held_gpu_h"][name]),
            hours(found["due_gpu_h"][name]),
            percent(found["by_budget"].get(name)),
            percent(uncapped),
        )
        for name, uncapped in found["uncapped_by_budget"].items()
    )
    if not found["uncapped_by_budget"]:
        return "no budget was due anything\n"
    told = (
        f"mean {percent(found['mean'])}, lowest {percent(found['lowest'])}, "
        f"{found['at_least_95']} of {found['budgets']} at 95 % or more"
    )
    error = found["share_error"]
    more = f"; largest share error {percent(error)}" if error is not None else ""
    return table(columns, rows, style) + told + more + "\n"


def _waits(report: Data, style: Style) -> str:
    columns = (
        Column("WAIT"),
        Column("P50", is_number=True),
        Column("P90", is_number=True),
        Column("P99", is_number=True),
        Column("MEAN", is_number=True),
    )
    spreads = [(_WAITS.get(group, group), spread) for group, spread in report["wait"].items()]
    spreads.append(("grant to running", report["startup"]))
    rows = [
        (name, *(rough(spread[f"{key}_s"]) for key in ("p50", "p90", "p99", "mean")))
        for name, spread in spreads
        if spread["mean_s"] is not None
    ]
    return table(columns, rows, style) if rows else "nobody waited\n"


def _rest(report: Data, style: Style) -> str:
    jobs, promises, recovery = report["jobs"], report["promises"], report["recovery"]
    drains = report["operations"]["drains"]
    preemption = report["preemption"]
    voided = "".join(f", {number} voided by {name}" for name, number in promises["voided_by"].items())
    left = (
        f"{preemption['count']}: {hours(preemption['lost_gpu_h'])} GPU-h lost, "
        f"{hours(preemption['restart_gpu_h'])} to run again, {percent(preemption['overhead'])} of what was held; "
        f"{count(preemption['turns'], 'turn')}, {count(preemption['loops'], 'loop')}, "
        f"{count(preemption['window_breaks'], 'broken window')}"
    )
    promised = (
        f"{promises['made']} made, {promises['kept']} kept, {promises['earlier']} for an earlier one"
        f"{voided}, {promises['broken']} broken"
    )
    pairs = [
        ("jobs", f"{jobs['submitted']} submitted, {jobs['started']} started, {jobs['finished']} finished"),
        ("preemptions", left),
        ("promises", promised),
        ("resumes", f"{recovery['resumed']} of {recovery['resumes']}" if recovery["resumes"] else ""),
        ("retries", _told(recovery["retries"])),
        ("faults", _told(recovery["faults"])),
        (
            "drains",
            f"{drains['asked']} asked for, {drains['emptied']} emptied, {drains['in_time']} of them in time"
            if drains["asked"] or drains["emptied"]
            else "",
        ),
        ("decisions", _decisions(report["operations"]["decision"], report["clock"])),
    ]
    return facts(pairs, style.width)


def _told(cost: Data) -> str:
    if not cost["count"]:
        return ""
    return f"{cost['count']}: {hours(cost['lost_gpu_h'])} GPU-h lost, {hours(cost['restart_gpu_h'])} to run again"


def _decisions(spread: Data, told_by: str) -> str:
    """From the news to the end of its cycle; by the log's own time most take nothing, and nothing is said."""
    if told_by != "bus" or spread["p50_s"] is None:
        return ""
    half, most = (f"{spread[key] * 1_000:.0f} ms" for key in ("p50_s", "p99_s"))
    return f"{half} from the news to the end of its cycle, p99 {most}"
