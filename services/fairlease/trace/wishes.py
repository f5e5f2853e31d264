"""What may be asked of a trace, and everything by which a recorded job becomes a task."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import msgspec

from fairlease.trace.stated import EQUAL, Scale
from fairlease_schemas.ids import AccountId, BudgetId
from fairlease_schemas.units import MINUTE_MS, SECOND_MS

ACCOUNT: Final = "trace"
"""Who submits where users are not told apart."""
START_SLACK_MS: Final = 30 * SECOND_MS
"""What a timeout has on top, because starting takes the same time at any speed."""
CHECKPOINT_MS: Final = 15 * MINUTE_MS
"""How often work is saved in a simulated cell whose hosts break, where nothing else is said."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What may be asked of a trace beyond its speed.

    `begin` is a date and time, or a length after the first arrival; empty: all of it. Runtimes and limits are
    multiplied by `runtime`, gaps between arrivals divided by `load`. With `is_apart` every user is an account of its
    own; a live cell has one account for all. `checkpoint_ms` is said of every job of a table, 0 for never: the process
    of a live cell saves nothing.
    """

    begin: str = ""
    runtime: Fraction = Fraction(1)
    load: Fraction = Fraction(1)
    weights: str = EQUAL
    is_apart: bool = False
    checkpoint_ms: int = 0

    def stretched(self, length_ms: int) -> int:
        """A runtime or a limit as it is wished, rounded down."""
        return int(length_ms * self.runtime)


class Change(msgspec.Struct, frozen=True):
    """Everything by which a recorded job becomes a task."""

    gpus_per_host: int
    scale: Scale
    cut_ms: int | None
    wishes: Wishes
    teams: Mapping[str, BudgetId]
    users: Mapping[str, AccountId]
