"""The screen of proposed changes: what each would change, and whether it may be accepted."""

from typing import Any, Final

from fairlease.cli.table import Column, Style, table
from fairlease.cli.wording import ago, foot, length
from fairlease_schemas.explain import ProposalRow, ProposalsView

_NONE: Final = "no open proposals, `fairlease policy set NAME --set NUMBER=VALUE --propose PROPOSAL` makes one; "
_SHOWN: Final = 12


def proposals(view: ProposalsView, now_ms: int, style: Style, *, is_quiet: bool) -> str:
    """A row for each proposal, and one for each of its reports."""
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
            "; ".join(map(_change, row.changes)) if not place else "",
            _standing(row) if not place else "",
            report,
        )
        for row in view.rows
        for place, report in enumerate([one.digest for one in row.reports] or ["-"])
    ]
    return table(columns, rows, style, has_titles=not is_quiet) + foot(
        view.as_of, is_quiet=is_quiet, lead="" if view.rows else _NONE
    )


def _standing(row: ProposalRow) -> str:
    if row.is_stale:
        return "stale"
    if row.forced_by:
        return f"forced by {row.forced_by}"
    return "reported" if row.reports else "to simulate"


def _change(change: dict[str, Any]) -> str:
    """One change in a few words."""
    if change["type"] == "change-budget":
        rest = {key: value for key, value in change.items() if key not in ("type", "budget", "reason")}
        return f"budget {change['budget']} " + " ".join(f"{key}={value}" for key, value in rest.items())
    numbers = list(change["policy"].items())
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    told = " ".join(f"{key}={_value(key, value)}" for key, value in numbers[:_SHOWN] if not isinstance(value, list))
    return f"policy {change['name']} {told}{more}"


def _value(key: str, value: Any) -> str:  # noqa: ANN401 - one number of a policy
    """The value as `--set` takes it: lengths with their units."""
    is_length = key.endswith("_ms") and not key.endswith("_gpu_ms") and isinstance(value, int)
    return length(value) if is_length else str(value)
