"""What a simulation drew in time: the numbers behind its pictures, all of them whole.

Every list of a picture in time has one number for each stretch, in their order. `ends_ms` are the ends of the
stretches, counted from the beginning of what is measured; the first begins at 0, the last may be shorter. How long
they are follows from how long was measured, so that a report is as large for a year as for a day.
"""

import msgspec

from fairlease_schemas.ids import BudgetId, HostId


class WaitCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Waits of a class of jobs: at `permille[k]` of them `wait_ms[k]` or less. Empty of no jobs."""

    jobs: int
    wait_ms: tuple[int, ...]


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """Waits from submission to first grant by class; `permille` are the points that every curve is drawn through."""

    permille: tuple[int, ...]
    by_class: dict[str, WaitCurve]


class BudgetCourse(msgspec.Struct, frozen=True, kw_only=True):
    """What a budget's work held and what the budget was due, in GPU-ms by stretch."""

    held_gpu_ms: tuple[int, ...]
    due_gpu_ms: tuple[int, ...]


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """A host, or `hosts` of them from `first` to `last` in the order in which they came up.

    `permille` is by state the part of the row's GPU-time of each stretch, rounded down; a state that never was is left
    out. In the order in which they are asked for: `faulty` something broke there, `saving` its work is told to leave,
    `busy` it works, `drained` it is free and takes no work, `idle` it is free.
    """

    first: HostId
    last: HostId
    hosts: int
    permille: dict[str, tuple[int, ...]]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """All pictures of one simulation.

    `lost_gpu_ms` is by cause, counted where it became known; `evictions` by reason and `promises` by what became of
    them are counts of each stretch.
    """

    ends_ms: tuple[int, ...]
    waits: Waits
    budgets: dict[BudgetId, BudgetCourse]
    hosts: tuple[HostRow, ...]
    lost_gpu_ms: dict[str, tuple[int, ...]]
    evictions: dict[str, tuple[int, ...]]
    promises: dict[str, tuple[int, ...]]
