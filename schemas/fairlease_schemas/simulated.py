"""What a simulation of a proposed change found, as the gate reads it (decisions.md 10.1)."""

from enum import StrEnum

import msgspec

from fairlease_schemas.ids import BudgetId


class Source(StrEnum):
    """What was simulated: the cell's own log, or the reference workload scaled to the cell."""

    LOG = "log"
    LAB_1024 = "lab-1024"


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one simulation; what nobody waited for or held is null.

    `fulfilment_permille` is the mean over budgets, `lowest_permille` the least of them, `overhead_permille` what
    preemption lost of the GPU-time held.
    """

    windows_broken: int
    loops: int
    promises_broken: int
    fulfilment_permille: int | None = None
    lowest_permille: int | None = None
    occupancy_permille: int | None = None
    overhead_permille: int | None = None
    debug_wait_p90_ms: int | None = None
    wait_p50_ms: int | None = None
    wait_p90_ms: int | None = None


class BudgetFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The fulfilment of one budget in permille, without the change and with it; null where it asked for nothing."""

    budget: BudgetId
    before_permille: int | None
    after_permille: int | None


class SimulatedChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A report on a proposal. `digest` is the SHA-256 of the canonical rest: a figure that is altered does not fit it.

    `proposal`, `position`, `log_digest` and `change` are those of the proposal that it judges. `span_ms` is the time
    that was measured, `seeds` those of the draws, `made_by` the version that simulated: anybody can do it again.
    """

    proposal: str
    position: int
    log_digest: str
    change: str
    source: Source
    span_ms: int
    before: Figures
    after: Figures
    seeds: tuple[int, ...] = ()
    budgets: tuple[BudgetFigures, ...] = ()
    made_by: str = ""
    digest: str = ""
