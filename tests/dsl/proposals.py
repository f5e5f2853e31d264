"""Words of stories about changes that are judged first (decisions.md 10)."""

from typing import Any

from msgspec.structs import replace

from fairlease.core.change import digest_of
from fairlease_schemas.change import ChangeProposed
from fairlease_schemas.commands import Change, ProposeChange
from fairlease_schemas.simulated import BudgetFigures, Figures, SimulatedChange, Source
from tests.dsl.cell import DAY, Cell

GOOD = Figures(windows_broken=0, loops=0, promises_broken=0, fulfilment_permille=990)


def proposed(cell: Cell, *changes: Change, name: str = "wider", who: str = "lead") -> ChangeProposed:
    """The proposal of these changes, which the cell took."""
    events = cell.say(ProposeChange(proposal=name, changes=changes), who, settle=False)
    (event,) = [event for event in events if isinstance(event, ChangeProposed)]
    return event


def reported(proposal: ChangeProposed, **other: object) -> SimulatedChange:
    """A report on it that fits and keeps the limits, but for what is said."""
    facts: dict[str, Any] = {
        "proposal": proposal.proposal,
        "position": proposal.position,
        "log_digest": proposal.log_digest,
        "change": proposal.change,
        "source": Source.LOG,
        "span_ms": 2 * DAY,
        "before": GOOD,
        "after": GOOD,
        "seeds": (1,),
        "budgets": (BudgetFigures(budget="a", before_permille=980, after_permille=990),),
    }
    report = SimulatedChange(**(facts | other))
    return replace(report, digest=digest_of(report))
