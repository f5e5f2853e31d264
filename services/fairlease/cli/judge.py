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
from fairlease.cli.proposals import found
from fairlease.cli.twice import played_twice
from fairlease.cli.wishes import sent, tell
from fairlease.cli.wording import length
from fairlease.core.change import MAX_BUDGETS, difference, digest_of
from fairlease.core.metrics.integral import Period
from fairlease.runtime.version import version
from fairlease.simulator.again import SEED, Change
from fairlease.simulator.past import Past, Reading
from fairlease.simulator.regrown import unplayable
from fairlease_schemas.commands import Change as Wanted
from fairlease_schemas.commands import ChangeBudget, ChangePolicy, ReportChange
from fairlease_schemas.explain import ProposalRow, ProposalsView
from fairlease_schemas.simulated import BudgetFigures, Figures, SimulatedChange, Source

Data = dict[str, Any]
_ELSEWHERE: Final = (
    "hang it below a budget that has children or never had jobs, which may be new; or accept it with --force, and a"
    " second person"
)


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
        head = f"{length(report.span_ms)} of the cell's own log, up to position {report.position}\n"
        print_text(head + found(report, output.style) + _assumed(would["rules"]) + "\n")
    then = f"next: fairlease policy accept {row.proposal} --report {report.digest}"
    return tell(args, asyncio.run(_sent(args, report)), f"report on {row.proposal}", then)


async def _proposal(args: argparse.Namespace) -> ProposalRow:
    async with linked(args) as link:
        view = (await link.ask("proposals", {})).view
    assert isinstance(view, ProposalsView)
    row = next((row for row in view.rows if row.proposal == args.proposal), None)
    if row is None:
        known = ", ".join(one.proposal for one in view.rows) or "none"
        text = f"there is no open proposal {args.proposal}"
        raise CommandError(FAILED, text, way_out=f"open are: {known}; see `fairlease policy proposals`")
    if row.is_stale:
        raise CommandError(FAILED, f"the proposal {args.proposal} is stale", way_out="propose it again")
    return row


async def _sent(args: argparse.Namespace, report: SimulatedChange) -> Receipt:
    async with linked(args) as link:
        return await sent(link, ReportChange(report=report), args.answer_timeout_ms)


def change_of(row: ProposalRow) -> Change:
    """The proposal as a what-if plays it: of several policies the last, of budgets all that is said."""
    said = msgspec.convert(row.changes, tuple[Wanted, ...])
    policies = [one.policy for one in said if isinstance(one, ChangePolicy)]
    budgets = tuple(one for one in said if isinstance(one, ChangeBudget))
    return Change(policy=policies[-1] if policies else None, budgets=budgets)


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
    """CommandError for a change that the log cannot be played with."""
    if why := unplayable(past, change.budgets):
        raise CommandError(USAGE, f"{why}, so no simulation can play it", way_out=_ELSEWHERE)


def _assumed(rules: list[Data]) -> str:
    """What of the past could not be played under the proposal, which its figures do not tell."""
    return "".join(f"{one['count']:,} {one['rule']}\n" for one in rules)


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
    budgets.sort(key=difference)
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
