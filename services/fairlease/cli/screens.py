"""Each answer as a person reads it: a table, a list of facts, or both.

A screen is a pure function of the view, the time and the terminal; it prints nothing. Simulated
devices are named in every screen that shows a host. What a screen leaves out is in `-o json`.
"""

from collections.abc import Iterator
from typing import Any, Final, assert_never

from fairlease.cli.proposals import proposals
from fairlease.cli.shares import shares
from fairlease.cli.table import Column, Style, facts, table
from fairlease.cli.wording import ago, count, foot, length, share, until
from fairlease.core.words import about
from fairlease.figures.wording import gpu_hours
from fairlease_schemas.explain import (
    AttemptView,
    CommandAnswer,
    DrainView,
    FeedEvent,
    Health,
    HostEvent,
    HostsView,
    JobView,
    PlanView,
    PolicyView,
    ProposalsView,
    QueueRow,
    QueueView,
    RankView,
    Reply,
    SharesView,
    Trouble,
    Why,
    WhyReason,
)
from fairlease_schemas.units import SECOND_MS

_JOB: Final = Column("JOB")
_STATE: Final = Column("STATE")


def screen(
    view: Reply, now_ms: int, style: Style, *, is_quiet: bool = False, lang: str = "en", is_past: bool = False
) -> str:
    """The view as text, ending in a line end; with `is_quiet` without titles and the line about the log.

    Lengths are told from now, but of a view that `is_past` from its own log time, and so is all that gives reasons,
    because its sentences do.
    """
    match view:
        case QueueView():
            return _queue(view, now_ms, style, is_quiet=is_quiet, is_past=is_past)
        case Why():
            return _why(view, now_ms, style, lang)
        case RankView():
            return _rank(view, style, is_quiet=is_quiet)
        case PlanView():
            return _plan(view, now_ms, style, lang)
        case SharesView():
            return shares(view, style, is_quiet=is_quiet)
        case HostsView():
            return _hosts(view, style, is_quiet=is_quiet)
        case JobView():
            return _job(view, now_ms, style)
        case PolicyView():
            return facts([("policy", view.name), *_settings(view.policy)]) + foot(view.as_of, is_quiet=is_quiet)
        case ProposalsView():
            return proposals(view, now_ms, style, is_quiet=is_quiet)
        case CommandAnswer():
            return facts([("outcome", view.outcome), ("job", view.job), ("state", view.state)])
        case FeedEvent():
            return facts([("job", view.job), ("event", view.event), ("state", view.state)])
        case HostEvent():
            return facts([("host", view.host), ("event", view.event), ("holds", ", ".join(view.holds))])
        case Health():
            return facts([("service", view.service), ("ready", "yes" if view.is_ready else "no")])
        case Trouble():
            return facts([("trouble", view.code), ("text", view.text)])
        case _:
            assert_never(view)


def names(view: Reply) -> tuple[str, ...]:
    """The ids a view is about, for `-o name`."""
    match view:
        case QueueView():
            return tuple(row.job for row in view.rows)
        case RankView():
            return tuple(row.job for row in view.rows)
        case PlanView():
            return view.hosts
        case SharesView():
            return tuple(row.budget for row in view.rows)
        case HostsView():
            return tuple(row.host for row in view.rows)
        case Why() | JobView() | FeedEvent():
            return (view.job,)
        case CommandAnswer():
            return (view.job,) if view.job else ()
        case HostEvent():
            return (view.host,)
        case PolicyView():
            return (view.name,)
        case ProposalsView():
            return tuple(row.proposal for row in view.rows)
        case Health():
            return (view.service,)
        case Trouble():
            return ()
        case _:
            assert_never(view)


def _queue(view: QueueView, now_ms: int, style: Style, *, is_quiet: bool, is_past: bool) -> str:
    clock_ms = view.as_of.log_time_ms if is_past else now_ms
    has_starts = any(row.start_by_ms is not None for row in view.rows)
    columns = (
        _JOB,
        _STATE,
        Column("ACCOUNT", is_wide=True),
        Column("BUDGET", is_flexible=True),
        Column("HOSTS", is_number=True, is_wide=True),
        Column("GPUS", is_number=True),
        Column("WINDOW", is_number=True),
        Column("SINCE", is_number=True),
        Column("RANK", is_number=True),
        *((Column("START BY", is_number=True),) if has_starts else ()),
        Column("REASON", is_flexible=True),
    )
    rows = (_queue_row(row, clock_ms, has_starts=has_starts) for row in view.rows)
    hidden = view.running + view.waiting + view.parked - len(view.rows)
    rest = f", {hidden} not shown" if hidden > 0 else ""
    parked = f", {view.parked} not competing" if view.parked else ""
    lead = f"{view.running} running, {view.waiting} waiting{parked}{rest}; "
    last = foot(view.as_of, is_quiet=is_quiet, lead=lead, now_ms=now_ms if is_past else None)
    return table(columns, rows, style, has_titles=not is_quiet) + last


def _queue_row(row: QueueRow, now_ms: int, *, has_starts: bool) -> tuple[str, ...]:
    start = (
        "" if row.start_by_ms is None else until(row.start_by_ms, now_ms) + (" (promised)" if row.is_promised else "")
    )
    return (
        row.job,
        row.state,
        row.account,
        row.budget,
        str(row.hosts),
        str(row.gpus),
        length(row.min_runtime_ms) if row.min_runtime_ms else "idle",
        ago(row.since_ms, now_ms),
        "" if row.rank is None else str(row.rank),
        *((start,) if has_starts else ()),
        row.reason,
    )


def _rank(view: RankView, style: Style, *, is_quiet: bool) -> str:
    columns = (
        Column("RANK", is_number=True),
        _JOB,
        Column("POOL"),
        Column("PARTITION"),
        Column("GPUS", is_number=True),
        Column("WINDOW", is_number=True, is_wide=True),
        Column("STANDING", is_flexible=True),
        Column("LICENCE", is_wide=True),
        Column("REASON", is_flexible=True),
    )
    rows = (
        (
            str(row.rank),
            row.job,
            row.pool,
            row.partition,
            str(row.gpus),
            length(row.min_runtime_ms) if row.min_runtime_ms else "idle",
            " in ".join(f"{name} {share(permille)}" for name, permille in row.path)
            + (", due more" if row.is_due_more else ""),
            row.licence,
            row.reason,
        )
        for row in view.rows
    )
    return table(columns, rows, style, has_titles=not is_quiet) + foot(view.as_of, is_quiet=is_quiet)


def _plan(view: PlanView, now_ms: int, style: Style, lang: str) -> str:
    clock_ms = view.as_of.log_time_ms
    head = facts(
        (
            ("when", view.when),
            ("pool", view.pool),
            ("starts", f"{until(view.start_by_ms, clock_ms)} at the latest" if view.start_by_ms is not None else ""),
            ("hosts", ", ".join(view.hosts)),
            ("costs others", f"{gpu_hours(view.lost_gpu_ms)} GPU-h of lost work" if view.evictions else ""),
            ("reason", view.code),
            ("in words", view.text.zh if lang == "zh" else view.text.en),
        ),
        style.width,
    )
    parts = [head]
    if view.evictions:
        columns = (Column("WOULD LEAVE"), Column("BUDGET"), Column("LOSES GPU-H", is_number=True))
        leaving = [(item.attempt, item.budget, gpu_hours(item.lost_gpu_ms)) for item in view.evictions]
        parts += ["\n", table(columns, leaving, style)]
    for problem in view.problems:
        limit = f" (limit {problem.limit})" if problem.limit else ""
        parts.append(f"{problem.field}: rule {problem.rule}: {problem.value}{limit}: {problem.way_out}\n")
    parts += [f"advice: {item.field}: {item.text}\n" for item in view.advice]
    return "".join(parts) + foot(view.as_of, is_quiet=False, now_ms=now_ms)


def _why(view: Why, now_ms: int, style: Style, lang: str) -> str:
    sentence = view.text.zh if lang == "zh" else view.text.en
    clock_ms = view.as_of.log_time_ms
    head = facts(
        (
            ("job", view.job),
            ("state", view.state),
            ("rank", "" if view.rank is None else str(view.rank)),
            ("ahead of it", f"{view.ahead_gpus} GPUs" if view.ahead_gpus else ""),
            ("starts", f"{until(view.start_by_ms, clock_ms)} at the latest" if view.start_by_ms is not None else ""),
            ("why", sentence),
        ),
        style.width,
    )
    reasons = "".join(_reason_line(reason, clock_ms) for reason in view.reasons)
    columns = (Column("REASON"), Column("EVIDENCE", is_flexible=True), Column("RECORDED AT", is_wide=True))
    evidence = [
        (
            reason.code,
            ", ".join(_evidence(reason, clock_ms)),
            _places(reason.positions),
        )
        for reason in view.reasons
    ]
    parts = [head]
    if view.reasons:
        parts += ["\n", reasons, "\n", table(columns, evidence, style)]
    changes = [
        (", ".join(f"{key} {value}" for key, value in sorted(item.change.items())), until(item.start_by_ms, clock_ms))
        for item in view.counterfactuals
    ]
    if changes:
        parts += ["\n", table((Column("WITH"), Column("IT WOULD START")), changes, style)]
    return "".join(parts) + foot(view.as_of, is_quiet=False, now_ms=now_ms)


def _reason_line(reason: WhyReason, clock_ms: int) -> str:
    since = f"since {ago(reason.since_ms, clock_ms)}" if clock_ms - reason.since_ms >= SECOND_MS else "since now"
    ends = f", ends {until(reason.until_ms, clock_ms)}" if reason.until_ms is not None else ""
    return f"{reason.code} {since}{ends}\n"


def _evidence(reason: WhyReason, clock_ms: int) -> Iterator[str]:
    """The evidence, its length as the sentence tells it: what is left of it."""
    for key, value in reason.evidence.items():
        if key == "for_ms" and reason.until_ms is not None:
            yield f"for {about(reason.until_ms - clock_ms)}"
        else:
            yield from (f"{name} {text}" for name, text in _numbers({key: value}))


def _places(positions: tuple[int, ...]) -> str:
    return ", ".join(str(position) for position in positions)


def drain_told(drain: DrainView, now_ms: int) -> str:
    """A drain in a few words: its state, what is left, and by when the host is empty; a queued one has no time yet."""
    if drain.state == "drained":
        return f"drained for {drain.owner}"
    start = f", begins {until(drain.start_ms, now_ms)}" if drain.state == "planned" else ""
    left = f", {drain.left} left" if drain.left else ""
    if drain.empty_ms is None:
        return f"{drain.state}{' behind ' if drain.behind else ''}{', '.join(drain.behind)}{left}"
    return f"{drain.state}{start}{left}, empty {until(drain.empty_ms, now_ms)} at the latest"


def _hosts(view: HostsView, style: Style, *, is_quiet: bool) -> str:
    has_drains = any(row.drain is not None for row in view.rows)
    now_ms = view.as_of.log_time_ms
    columns = (
        Column("HOST"),
        Column("POOL"),
        Column("DEVICES"),
        Column("MODEL", is_flexible=True),
        Column("BLOCK", is_wide=True),
        Column("GPUS", is_number=True),
        Column("FREE", is_number=True),
        *((Column("DRAIN", is_flexible=True),) if has_drains else ()),
        Column("HOLDS", is_flexible=True),
        Column("RUNNING", is_flexible=True),
    )
    rows = (
        (
            row.host,
            row.pool,
            "simulated" if row.is_simulated else "real",
            row.model,
            row.block,
            str(row.gpus),
            str(row.free_gpus),
            *((drain_told(row.drain, now_ms) if row.drain is not None else "",) if has_drains else ()),
            "; ".join(row.holds),
            ", ".join(row.attempts),
        )
        for row in view.rows
    )
    total, free = sum(row.gpus for row in view.rows), sum(row.free_gpus for row in view.rows)
    simulated = sum(row.gpus for row in view.rows if row.is_simulated)
    note = f", {simulated} of them simulated" if simulated else ""
    lead = f"{count(len(view.rows), 'host')}, {count(total, 'GPU')}{note}, {free} free; "
    warnings = "".join(
        f"pool {pool}: the breaker tripped {ago(at_ms, now_ms)}, "
        "silent hosts there are not held; see `fairlease doctor`\n"
        for pool, at_ms in view.tripped.items()
    )
    last = foot(view.as_of, is_quiet=is_quiet, lead=lead)
    return table(columns, rows, style, has_titles=not is_quiet) + last + warnings


def _job(view: JobView, now_ms: int, style: Style) -> str:
    cause = view.attempts[-1].detail if view.attempts else ""
    head = facts(
        (
            ("job", view.job),
            ("state", view.state),
            ("held by", f"{view.held_by}: {view.held_for}" if view.held_for else view.held_by),
            ("waited for", f"{view.cancelled_for}, which did not end well" if view.cancelled_for else ""),
            ("ready", _readiness(view)),
            ("rendezvous", view.attempts[-1].rendezvous if view.attempts else ""),
            ("end", view.end),
            ("cause", cause),
            ("exit code", "" if view.exit_code is None else str(view.exit_code)),
            ("account", view.account),
            ("budget", view.budget),
            ("request id", view.request_id),
            ("submitted", ago(view.submitted_ms, now_ms)),
            ("gang", f"{count(view.hosts, 'host')} with {count(view.gpus_per_host, 'GPU')} each"),
            ("window", length(view.min_runtime_ms) if view.min_runtime_ms else "none (idle work)"),
            ("window left", "" if view.rest_ms is None else f"{length(view.rest_ms)}, by a fault"),
            ("timeout", length(view.timeout_ms)),
            ("keeps to", f"pool {view.bound_to}, where its checkpoint can be read" if view.bound_to else ""),
            ("begins anew", "its checkpoint does not fit and is set aside" if view.is_clean else ""),
            ("lane", view.lane),
            ("array", f"index {view.array_index}, of {view.array_count} jobs" if view.array_index is not None else ""),
            ("contract", view.digest),
        ),
        style.width,
    )
    has_left = any(attempt.stop_for or attempt.drained_from or attempt.is_moved for attempt in view.attempts)
    columns = (
        Column("ATTEMPT", is_number=True),
        Column("POOL"),
        Column("GPUS", is_number=True),
        Column("GRANTED", is_number=True),
        Column("RAN", is_number=True),
        Column("END"),
        *((Column("LEFT FOR"),) if has_left else ()),
        Column("CODE", is_number=True),
        Column("TOKEN", is_wide=True),
        Column("DETAIL", is_wide=True),
        Column("HOSTS", is_flexible=True),
    )
    attempts = [_attempt_row(attempt, now_ms, has_left=has_left) for attempt in view.attempts]
    body = "\n" + table(columns, attempts, style) if attempts else ""
    return head + body + foot(view.as_of, is_quiet=False)


def _readiness(view: JobView) -> str:
    """What the start of a gang waits for, of many hosts a few; empty for everything else."""
    last = view.attempts[-1] if view.attempts else None
    if last is None or not last.not_ready or view.state != "granted":
        return ""
    all_hosts, late = len(last.hosts), max(last.late_hosts, len(last.not_ready))
    others = late - len(last.not_ready)
    more = f" and {others} more" if others else ""
    return f"{all_hosts - late} of {count(all_hosts, 'host')} ready, waits for {', '.join(last.not_ready)}{more}"


def _attempt_row(attempt: AttemptView, now_ms: int, *, has_left: bool) -> tuple[str, ...]:
    left_for = f"the drain of {attempt.drained_from}" if attempt.drained_from else attempt.stop_for
    if attempt.is_moved:
        left_for = "a whole host"
    ran = ""
    if attempt.started_ms is not None:
        ran = length(max((attempt.ended_ms or now_ms) - attempt.started_ms, 0))
    return (
        str(attempt.number),
        attempt.pool,
        str(attempt.gpus),
        ago(attempt.granted_ms, now_ms),
        ran,
        attempt.end,
        *((left_for,) if has_left else ()),
        "" if attempt.exit_code is None else str(attempt.exit_code),
        attempt.token,
        attempt.detail,
        ", ".join(attempt.hosts),
    )


def _settings(values: dict[str, Any], lead: str = "") -> Iterator[tuple[str, str]]:
    """A policy's numbers by the names that `policy set` takes, in readable units; an empty text as it is written."""
    for key, value in values.items():
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            for index, item in enumerate(value):
                yield from _settings(item, f"{lead}{key}[{index}].")
        else:
            yield from ((lead + key, text or '""') for _, text in _numbers({key: value}))


def _numbers(values: dict[str, Any], lead: str = "") -> Iterator[tuple[str, str]]:
    """Named numbers in readable units: `_ms` as a length, `_gpu_ms` as GPU-hours, the rest as it is."""
    for key, value in values.items():
        name = lead + key
        if isinstance(value, dict):
            yield from _numbers(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            for index, item in enumerate(value):
                yield from _numbers(item if isinstance(item, dict) else {"": item}, f"{name}[{index}].")
        elif name.endswith("_gpu_ms") and isinstance(value, int):
            yield name.removesuffix("_gpu_ms"), f"{gpu_hours(value)} GPU-h"
        elif name.endswith("_ms") and isinstance(value, int) and not name.endswith(("at_ms", "since_ms", "until_ms")):
            yield name.removesuffix("_ms"), length(value)
        elif isinstance(value, list):
            yield name, ", ".join(str(item) for item in value) or "none"
        else:
            yield name, str(value)
