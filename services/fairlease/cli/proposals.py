"""The screen of proposed changes: what each would change, what a simulation found, and whether it may be accepted."""

from itertools import starmap, zip_longest
from typing import Any, Final

import msgspec

from fairlease.cli.table import Column, Style, table
from fairlease.cli.wording import ago, foot, length, share
from fairlease_schemas.explain import NumberChange, ProposalRow, ProposalsView, ReportRow
from fairlease_schemas.simulated import BudgetFigures, Figures, SimulatedChange, Source

_NONE: Final = "no open proposals, `fairlease policy set NAME --set NUMBER=VALUE --propose PROPOSAL` makes one; "
_SHOWN: Final = 12
_SHOWN_BUDGETS: Final = 20


def proposals(view: ProposalsView, now_ms: int, style: Style, *, is_quiet: bool) -> str:
    """A row for each proposal, and one for each of its reports; below them what the newest report of each found."""
    columns = (
        Column("PROPOSAL"),
        Column("BY"),
        Column("MADE"),
        Column("CHANGES", is_flexible=True),
        Column("STANDS"),
        Column("REPORT"),
    )
    rows = [
        (
            row.proposal if not place else "",
            row.author if not place else "",
            ago(row.at_ms, now_ms) if not place else "",
            "; ".join(starmap(_change, zip_longest(row.changes, row.numbers, fillvalue=()))) if not place else "",
            _standing(row) if not place else "",
            report,
        )
        for row in view.rows
        for place, report in enumerate([one.digest for one in row.reports] or ["-"])
    ]
    newest = [(row.proposal, row.reports[-1]) for row in view.rows if row.reports] if not is_quiet else []
    return (
        table(columns, rows, style, has_titles=not is_quiet)
        + "".join(f"\n{told(proposal, report, style)}" for proposal, report in newest)
        + foot(view.as_of, is_quiet=is_quiet, lead="" if view.rows else _NONE)
    )


def told(proposal: str, report: ReportRow, style: Style) -> str:
    """What a report on a proposal found, without it and with it, and the budgets that differ most."""
    played = "the cell's own log" if report.source is Source.LOG else "the reference workload"
    head = f"{proposal}, report {report.digest[:12]} of {report.author}: {length(report.span_ms)} of {played}\n"
    return head + found(report, style)


def found(report: SimulatedChange | ReportRow, style: Style) -> str:
    """The figures of a report, and the fulfilment of each budget that it tells, without the proposal and with it."""
    columns = [Column("FIGURE"), Column("WITHOUT", is_number=True), Column("WITH", is_number=True)]
    rows = [
        (
            name.removesuffix("_permille").removesuffix("_ms").replace("_", " "),
            _shown(name, report.before),
            _shown(name, report.after),
        )
        for name in Figures.__struct_fields__
    ]
    rows += [_of_budget(one) for one in report.budgets[:_SHOWN_BUDGETS]]
    return table(columns, rows, style)


def _of_budget(one: BudgetFigures) -> tuple[str, str, str]:
    return f"fulfilment of {one.budget}", share(one.before_permille), share(one.after_permille)


def _shown(name: str, figures: Figures) -> str:
    value = getattr(figures, name)
    if value is None:
        return "-"
    if name.endswith("_permille"):
        return share(value)
    return length(value) if name.endswith("_ms") else str(value)


def _standing(row: ProposalRow) -> str:
    if row.is_stale:
        return "stale"
    if row.forced_by:
        return f"forced by {row.forced_by}"
    return "reported" if row.reports else "to simulate"


def _change(change: dict[str, Any], numbers: tuple[NumberChange, ...]) -> str:
    """One change in a few words: of a policy what it would leave otherwise than it is."""
    if change["type"] == "change-budget":
        rest = {key: value for key, value in change.items() if key not in ("type", "budget", "reason")}
        return f"budget {change['budget']} " + " ".join(f"{key}={value}" for key, value in rest.items())
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    told = ", ".join(
        f"{one.number} {_value(one.number, one.now)} to {_value(one.number, one.then)}" for one in numbers[:_SHOWN]
    )
    return f"policy {change['name']}: {told or 'the numbers in force'}{more}"


def _value(key: str, value: Any) -> str:  # noqa: ANN401 - one number of a policy
    """The value as people read it: lengths with their units, lists and text as JSON."""
    if not isinstance(value, int):
        return msgspec.json.encode(value).decode()
    is_length = key.endswith("_ms") and not key.endswith("_gpu_ms")
    return length(value) if is_length else str(value)
