"""The budget tree of a past, grown again: each change when it was made, and what is wanted otherwise at once.

What is said of a budget holds from when the budget is there. A budget that the past does not have is made at once, and
one that is moved hangs in its new place, as soon as that place is there. Who may was asked when the past was
made: here one account makes all of the tree, and every account may submit.
"""

from collections.abc import Iterable

from msgspec.structs import asdict, replace

from fairlease.simulator.past import Past
from fairlease.simulator.runs import Simulation
from fairlease_schemas.commands import ChangeBudget
from fairlease_schemas.ids import BudgetId


def wanted_of(budgets: Iterable[ChangeBudget]) -> dict[BudgetId, ChangeBudget]:
    """By budget what several changes come to, in the order in which they make budgets; of a field the last word."""
    wanted: dict[BudgetId, ChangeBudget] = {}
    for said in budgets:
        before = wanted.get(said.budget)
        wanted[said.budget] = said if before is None else _over(before, said)
    return wanted


def _over(said: ChangeBudget, wanted: ChangeBudget) -> ChangeBudget:
    """The change with everything that is wanted instead; what is not said stays."""
    return replace(said, **{name: value for name, value in asdict(wanted).items() if value is not None})


def unplayable(past: Past, budgets: Iterable[ChangeBudget]) -> str:
    """Why no simulation can play these changes on this past; empty when one can.

    Jobs are charged to leaves alone: below a budget that had jobs, and has no children by the end of the past, nothing
    can hang while they are played.
    """
    parents = {one.said.budget: one.said.parent or "" for one in past.heard if isinstance(one.said, ChangeBudget)}
    charged, inner = set(past.budgets.values()), set(parents.values())
    for name, wanted in wanted_of(budgets).items():
        if wanted.parent in charged and wanted.parent not in inner:
            count = sum(budget == wanted.parent for budget in past.budgets.values())
            jobs = "1 job of the log is" if count == 1 else f"{count} jobs of the log are"
            return f"budget {name} is to hang below {wanted.parent}, which {jobs} charged to"
    return ""


class Regrown:
    """The tree of a run that plays a past with these changes. `refused` changes of the past had no room in it."""

    def __init__(self, run: Simulation, past: Past, budgets: Iterable[ChangeBudget]) -> None:
        self._run = run
        self._wanted = wanted_of(budgets)
        self._charged = set(past.budgets.values())
        self._known = {heard.said.budget for heard in past.heard if isinstance(heard.said, ChangeBudget)}
        self.refused = 0

    def say(self, said: ChangeBudget) -> None:
        """A change of the past, with what is wanted of that budget instead."""
        wanted = self._wanted.get(said.budget)
        if wanted is not None:
            present = self._run.engine.world.tree.nodes.get(said.budget)
            place = wanted.parent if self._can_hang(wanted) else said.parent if present is None else present.parent
            said = replace(_over(said, wanted), parent=said.parent if wanted.parent is None else place)
        self._run.node(said)
        self.refused += not self._is_so(said)
        self.reach()

    def reach(self) -> None:
        """Make and move what is wanted, as far as it can be by now."""
        nodes = self._run.engine.world.tree.nodes
        for name, wanted in self._wanted.items():
            is_to_come = name in self._known and name not in nodes
            if not is_to_come and not self._is_so(wanted) and self._can_hang(wanted):
                self._run.node(wanted)

    def missed(self) -> list[BudgetId]:
        """Budgets of which what is wanted does not hold, in the order of the changes."""
        return [name for name, wanted in self._wanted.items() if not self._is_so(wanted)]

    def _can_hang(self, wanted: ChangeBudget) -> bool:
        """Whether its place is there: one that jobs were charged to is once it has children and no job can come."""
        tree, parent = self._run.engine.world.tree, wanted.parent
        return not parent or (parent in tree.nodes and (parent not in self._charged or not tree.is_leaf(parent)))

    def _is_so(self, said: ChangeBudget) -> bool:
        """Whether the budget is as the change says."""
        node = self._run.engine.world.tree.nodes.get(said.budget)
        asked = {name: value for name, value in asdict(said).items() if name not in ("budget", "reason")}
        return node is not None and all(value is None or getattr(node, name) == value for name, value in asked.items())
