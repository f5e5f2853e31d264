"""`policy simulate`: the cell's own log with a proposed change and without it, told here and then to the cell (10.1).

The log is taken up to the position that the proposal names, and must have its digest there: so the report is on what
the proposal saw. What is told to the cell is what stands on the screen, as integers, with the digest of itself.
"""

import argparse
import asyncio
import tempfile
from itertools import islice
from typing import Any, Final

import msgspec

from fairlease.cli.exits import FAILED, USAGE, CommandError
from fairlease.cli.history import Log, folded, opened, spanned
from fairlease.cli.link import Receipt, linked
from fairlease.cli.output import Output, output_of, print_text
from fairlease.cli.table import Column, Style, table
from fairlease.cli.twice import played_twice
from fairlease.cli.wishes import sent, tell
from fairlease.cli.wording import length, share
from fairlease.core.change import MAX_BUDGETS, digest_of
from fairlease.core.metrics.integral import Period
from fairlease.runtime.version import version
from fairlease.simulator.again import SEED, Change
from fairlease.simulator.past import Past, Reading
from fairlease_schemas.commands import ChangeBudget, ReportChange
from fairlease_schemas.explain import ProposalRow, ProposalsView
from fairlease_schemas.policy import Policy
from fairlease_schemas.simulated import BudgetFigures, Figures, SimulatedChange, Source

Data = dict[str, Any]
_FORCE: Final = "accept it with --force, and a second person"


def run(args: argparse.Namespace) -> int:
    """0 once the cell took the report; 1 when it refused it, or when the log or the proposal cannot be simulated."""
    output = output_of(args)
    row = asyncio.run(_proposal(args))
    change = change_of(row)
    with opened(args.log) as log:
        past = _past(log, row, output)
    _check(past, change)
    again, would = played_twice(past, change, output)
    report = report_of(row, past, again, would)
    if output.form in ("table", "wide"):
        print_text(_table(report, output.style))
    then = f"next: fairlease policy accept {row.proposal} --report {report.digest}"
    return tell(args, asyncio.run(_sent(args, report)), f"report on {row.proposal}", then)


async def _proposal(args: argparse.Namespace) -> ProposalRow:
    async with linked(args) as link:
        view = (await link.ask("proposals", {})).view
    assert isinstance(view, ProposalsView)
    found = next((row for row in view.rows if row.proposal == args.proposal), None)
    if found is None:
        known = ", ".join(row.proposal for row in view.rows) or "none"
        text = f"there is no open proposal {args.proposal}"
        raise CommandError(FAILED, text, way_out=f"open are: {known}; see `fairlease policy proposals`")
    if found.is_stale:
        raise CommandError(FAILED, f"the proposal {args.proposal} is stale", way_out="propose it again")
    return found


async def _sent(args: argparse.Namespace, report: SimulatedChange) -> Receipt:
    async with linked(args) as link:
        return await sent(link, ReportChange(report=report), args.answer_timeout_ms)


def change_of(row: ProposalRow) -> Change:
    """The proposal as a what-if plays it; CommandError for what it cannot play."""
    policy, weights = None, {}
    for one in row.changes:
        if one["type"] == "change-policy":
            policy = msgspec.convert(one["policy"], Policy)
            continue
        other = sorted(set(one) - {"type", "budget", "weight", "reason"})
        if other:
            text = f"the proposal {row.proposal} changes {', '.join(other)} of budget {one['budget']}"
            raise CommandError(USAGE, f"{text}, which no simulation can play yet", way_out=_FORCE)
        weights[one["budget"]] = one["weight"]
    return Change(policy=policy, weights=weights)


def _past(log: Log, row: ProposalRow, output: Output) -> Past:
    """What the proposal saw: the log up to its position, where its digest must be the proposal's."""
    if log.records < row.position:
        text = f"the log ends at {log.records}, and the proposal was made at position {row.position}"
        raise CommandError(FAILED, text, way_out="name the whole log of this cell with --log, or the running cell's")
    with tempfile.TemporaryFile() as file:
        log.file.seek(0)
        file.writelines(islice(log.file, row.position))
        seen = spanned(file, log.stored_ms)
        # What comes after the proposal is no part of what it saw.
        period = Period(log.first_ms - 1, seen.last_ms)
        reading = Reading(period)
        world = folded(seen, period, reading.take, output)
        if world.log_digest != row.log_digest:
            raise CommandError(
                FAILED,
                f"the log has the digest {world.log_digest} at position {row.position}, the proposal {row.log_digest}",
                way_out="name the log of this cell",
            )
        return reading.past(world)


def _check(past: Past, change: Change) -> None:
    """CommandError for a budget that the log does not know."""
    known = {heard.said.budget for heard in past.heard if isinstance(heard.said, ChangeBudget)}
    unknown = sorted(set(change.weights) - known)
    if unknown:
        text = f"the proposal makes a budget {unknown[0]}, for which nobody in the log has any work"
        raise CommandError(USAGE, text, way_out=_FORCE)


# the report ------------------------------------------------------------------------------------------
def report_of(row: ProposalRow, past: Past, again: Data, would: Data) -> SimulatedChange:
    """What is told to the cell, sealed by its own digest; of very many budgets those that differ most."""
    before, after = (one["fulfilment"]["by_budget"] for one in (again, would))
    budgets = [
        BudgetFigures(
            budget=name, before_permille=_permille(before.get(name)), after_permille=_permille(after.get(name))
        )
        for name in sorted(before.keys() | after.keys())
    ]
    budgets.sort(key=lambda one: (-abs((one.after_permille or 0) - (one.before_permille or 0)), one.budget))
    report = SimulatedChange(
        proposal=row.proposal,
        position=row.position,
        log_digest=row.log_digest,
        change=row.change,
        source=Source.LOG,
        span_ms=past.length_ms,
        before=_figures(again),
        after=_figures(would),
        seeds=(SEED,),
        budgets=tuple(budgets[:MAX_BUDGETS]),
        made_by=f"fairlease {version() or 'from its sources'}",
    )
    return msgspec.structs.replace(report, digest=digest_of(report))


def _figures(report: Data) -> Figures:
    wait = report["wait"]
    return Figures(
        windows_broken=report["preemption"]["window_breaks"],
        loops=report["preemption"]["loops"],
        promises_broken=report["promises"]["broken"],
        fulfilment_permille=_permille(report["fulfilment"]["mean"]),
        lowest_permille=_permille(report["fulfilment"]["lowest"]),
        occupancy_permille=_permille(report["occupancy"]),
        overhead_permille=_permille(report["preemption"]["overhead"]),
        debug_wait_p90_ms=_ms(wait.get("debug", {}).get("p90_s")),
        wait_p50_ms=_ms(wait["all"]["p50_s"]),
        wait_p90_ms=_ms(wait["all"]["p90_s"]),
    )


def _permille(value: float | None) -> int | None:
    return None if value is None else round(value * 1000)


def _ms(value_s: float | None) -> int | None:
    return None if value_s is None else round(value_s * 1000)


def _table(report: SimulatedChange, style: Style) -> str:
    columns = [Column("FIGURE"), Column("WITHOUT", is_number=True), Column("WITH", is_number=True)]
    rows = [
        (name.removesuffix("_permille").removesuffix("_ms").replace("_", " "), *_shown(name, report))
        for name in Figures.__struct_fields__
    ]
    rows += [
        (f"fulfilment of {one.budget}", share(one.before_permille), share(one.after_permille))
        for one in report.budgets[:20]
    ]
    head = f"{length(report.span_ms)} of the cell's own log, up to position {report.position}\n"
    return head + table(columns, rows, style) + "\n"


def _shown(name: str, report: SimulatedChange) -> tuple[str, str]:
    shown = []
    for figures in (report.before, report.after):
        value = getattr(figures, name)
        if value is None:
            shown.append("-")
        elif name.endswith("_permille"):
            shown.append(share(value))
        elif name.endswith("_ms"):
            shown.append(length(value))
        else:
            shown.append(str(value))
    return shown[0], shown[1]
