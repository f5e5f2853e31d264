"""The policies that a simulation may run, by name: a set of rules for the services each.

A policy of another kind puts its own rule in the place of the ranker's, or of any other service; what the log
then says is decided by it alone. The services' own rules are `budget-window`.
"""

from collections.abc import Mapping
from typing import Final

from fairlease.core.deciders import RULES, Rule

BUDGET_WINDOW: Final = "budget-window"

POLICIES: Final[Mapping[str, Mapping[str, Rule]]] = {BUDGET_WINDOW: RULES}
