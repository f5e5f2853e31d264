"""The screen of the budget tree: shares, and how each budget is set."""

from collections.abc import Sequence
from typing import Final

from fairlease.cli.table import Column, Style, table
from fairlease.cli.wording import foot, share
from fairlease.figures.wording import gpu_hours
from fairlease_schemas.explain import BudgetNode, SharesView

NO_BUDGETS: Final = "no budgets yet, `fairlease budget set NAME --weight 1` makes one; "


def shares(view: SharesView, style: Style, *, is_quiet: bool) -> str:
    """The tree; entitled, used and promised in GPU-hours."""
    columns = (
        Column("BUDGET", is_flexible=True),
        Column("POOL"),
        Column("WEIGHT", is_number=True, is_wide=True),
        Column("ENTITLED", is_number=True),
        Column("USED", is_number=True),
        Column("PROMISED", is_number=True),
        Column("STANDING", is_number=True),
        Column("GPUS", is_number=True),
        Column("WAITING", is_number=True),
    )
    rows = (
        (
            "  " * row.depth + row.budget,
            row.pool,
            str(row.weight),
            gpu_hours(row.entitled_gpu_ms),
            gpu_hours(row.used_gpu_ms),
            gpu_hours(row.promised_gpu_ms),
            share(row.standing_permille),
            str(row.held_gpus),
            str(row.waiting_jobs),
        )
        for row in view.rows
    )
    lead = "in GPU-hours, " if view.rows else "no hosts yet; " if view.nodes else NO_BUDGETS
    return table(columns, rows, style, has_titles=not is_quiet) + foot(view.as_of, is_quiet=is_quiet, lead=lead)


def settings(nodes: Sequence[BudgetNode], style: Style, *, is_quiet: bool = False) -> str:
    """How budgets are set: the order of their jobs, their caps, and who may what there."""
    columns = (
        Column("BUDGET"),
        Column("PARENT"),
        Column("WEIGHT", is_number=True),
        Column("ORDER"),
        Column("WINDOW CAP", is_number=True),
        Column("CAP", is_number=True),
        Column("LEADS", is_flexible=True),
        Column("MEMBERS", is_flexible=True),
    )
    rows = (
        (
            node.budget,
            node.parent or "-",
            str(node.weight),
            node.order,
            share(node.max_protected_permille or None),
            share(node.burst_permille or None),
            *_people(node),
        )
        for node in nodes
    )
    note = "" if is_quiet else "caps in shares of the entitled GPUs: those in windows, and all while others wait\n"
    return table(columns, rows, style, has_titles=not is_quiet) + note


def _people(node: BudgetNode) -> tuple[str, str]:
    if node.is_everybodys:
        return "everybody", "everybody"
    more = (f"{node.more_accounts} more",) if node.more_accounts else ()
    nobody = "as above" if node.parent else "-"
    return ", ".join(node.leads) or nobody, ", ".join((*node.members, *more)) or nobody
