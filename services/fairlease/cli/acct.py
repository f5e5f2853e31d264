"""`fairlease acct`: one row for each attempt, with what it held, was charged and lost; and for jobs that never ran."""

import argparse
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from fairlease.cli.exits import FAILED, CommandError
from fairlease.cli.history import check_scope, clock, folded, opened, period_of, scope_of
from fairlease.cli.output import output_of, print_data, print_text
from fairlease.cli.table import Column, Style, table
from fairlease.core.job import Attempt, Job
from fairlease.core.metrics.cost import lost_gpu_ms
from fairlease.core.metrics.integral import Period
from fairlease.core.world import World
from fairlease.figures.report import gpu_hours
from fairlease.figures.wording import gpu_hours as shown_hours
from fairlease_schemas.budget import AttemptCharged
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import AttemptId

Row = dict[str, Any]
_SUMMED: Final = ("held_gpu_ms", "charged_gpu_ms", "lost_gpu_ms")


def run(args: argparse.Namespace) -> int:
    """Print the rows by grant; 0, or CommandError: 1 for a job that the log does not know."""
    output, scope = output_of(args), scope_of(args)
    charged: dict[AttemptId, int] = {}

    def note(_world: World, record: Record, _stored_ms: int | None) -> None:
        for event in record.events:
            if isinstance(event, AttemptCharged):
                charged[event.attempt] = event.charged_gpu_ms

    with opened(args.log) as log:
        period = period_of(args, log)
        world = folded(log, period, note, output)
    check_scope(world, scope)
    for name in args.jobs:
        if name not in world.jobs:
            way_out = "see `fairlease acct` without a name, or `fairlease queue`"
            raise CommandError(FAILED, f"the log knows no job {name}", way_out=way_out, facts={"job": name})
    jobs = [
        job
        for job in world.jobs.values()
        if scope.has_job(world.tree, job)
        and (not args.jobs or job.id in args.jobs)
        and (args.state is None or job.phase == args.state)
    ]
    rows = sorted((row for job in jobs for row in _rows(job, period, charged)), key=_order)
    if output.form in ("table", "wide"):
        foot = "" if output.is_quiet else f"\ntimes in UTC, as of log position {world.epoch}-{world.position}\n"
        print_text(_table(rows, output.style, is_quiet=output.is_quiet) + foot)
    else:
        as_of = {"epoch": world.epoch, "position": world.position, "log_time_ms": world.log_time_ms}
        told, total = [_told(row) for row in rows], _told(_total(rows))
        view = {"apiVersion": "fairlease/v1", "kind": "Acct", "rows": told, "total": total, "as_of": as_of}
        print_data(output.form, msgspec.json.encode(view), [row["attempt"] or row["job"] for row in rows])
    return 0


def _rows(job: Job, period: Period, charged: dict[AttemptId, int]) -> Iterator[Row]:
    """Attempts that held something in the period; a job without one, if it was submitted in it."""
    attempts = [attempt for attempt in job.attempts if not attempt.is_stillborn]
    if not attempts and period.holds(job.submitted_ms):
        yield {**_of(job), **dict.fromkeys(_OF_ATTEMPT)}
    for place, attempt in enumerate(job.attempts):
        until_ms = attempt.ended_ms if attempt.is_over else period.until_ms
        if not attempt.is_stillborn and until_ms > period.since_ms:
            yield {**_of(job), **_attempt(job, place, attempt, period.until_ms, charged)}


_OF_ATTEMPT: Final = (
    *("attempt", "number", "pool", "hosts", "granted_ms", "started_ms", "ended_ms", "end", "exit_code"),
    *_SUMMED,
)
"""Keys of an attempt; all null for a job that has none."""


def _of(job: Job) -> Row:
    return {
        "job": job.id,
        "state": str(job.phase),
        "account": job.account,
        "budget": job.budget,
        "evaluation": job.request.evaluation or None,
        "gpus": job.gpus,
        "submitted_ms": job.submitted_ms,
    }


def _attempt(job: Job, place: int, attempt: Attempt, now_ms: int, charged: dict[AttemptId, int]) -> Row:
    """The whole attempt, however much of it lies in the period: that is what it is charged for."""
    gpu_ms = charged.get(attempt.id)
    always = Period(0, now_ms)
    return {
        "attempt": attempt.id,
        "number": attempt.number,
        "pool": attempt.pool,
        "hosts": list(attempt.hosts),
        "granted_ms": attempt.granted_ms,
        "started_ms": attempt.started_ms,
        "ended_ms": attempt.ended_ms if attempt.is_over else None,
        "end": str(attempt.end) if attempt.end is not None else None,
        "exit_code": attempt.exit_code,
        "held_gpu_ms": attempt.held_gpu_ms(now_ms),
        "charged_gpu_ms": gpu_ms,
        "lost_gpu_ms": lost_gpu_ms(job, place, always) if attempt.is_over else None,
    }


def _order(row: Row) -> tuple[int, str]:
    """By grant, jobs that have none by their submission; then by id."""
    return row["granted_ms"] or row["submitted_ms"], row["attempt"] or row["job"]


def _total(rows: list[Row]) -> Row:
    return {"attempts": sum(row["attempt"] is not None for row in rows)} | {
        key: sum(row[key] or 0 for row in rows) for key in _SUMMED
    }


def _told(row: Row) -> Row:
    """The row as it is printed as data: its GPU-time in hours."""
    return {
        f"{key.removesuffix('_gpu_ms')}_gpu_h" if key in _SUMMED else key: gpu_hours(value)
        if key in _SUMMED and value is not None
        else value
        for key, value in row.items()
    }


def _table(rows: list[Row], style: Style, *, is_quiet: bool) -> str:
    columns = (
        Column("JOB"),
        Column("TRY", is_number=True),
        Column("ACCOUNT", is_wide=True),
        Column("BUDGET", is_flexible=True),
        Column("POOL", is_wide=True),
        Column("HOSTS", is_flexible=True, is_wide=True),
        Column("GPUS", is_number=True),
        Column("GRANTED"),
        Column("ENDED"),
        Column("END"),
        Column("EXIT", is_number=True),
        Column("HELD GPU-H", is_number=True),
        Column("CHARGED", is_number=True),
        Column("LOST", is_number=True),
    )
    cells = [_cells(row) for row in rows]
    total = _total(rows)
    if rows and not is_quiet:
        sums = [shown_hours(total[key]) for key in _SUMMED]
        cells.append(("total", str(total["attempts"]), *[""] * (len(columns) - 5), *sums))
    return table(columns, cells, style, has_titles=not is_quiet)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row["job"],
        _shown(row["number"]),
        row["account"],
        row["budget"],
        _shown(row["pool"]),
        ",".join(row["hosts"] or ()) or "-",
        str(row["gpus"]),
        clock(row["granted_ms"]) if row["granted_ms"] else "-",
        clock(row["ended_ms"]) if row["ended_ms"] else "-",
        row["end"] or row["state"],
        _shown(row["exit_code"]),
        *("-" if row[key] is None else shown_hours(row[key]) for key in _SUMMED),
    )


def _shown(value: object) -> str:
    return "-" if value is None else str(value)
