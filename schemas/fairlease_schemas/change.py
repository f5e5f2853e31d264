"""Changes of the policy and the tree that are judged before they hold (decisions.md 10): proposed, simulated, accepted.

A proposal names the fold that it was made on; a report says what that fold's cell would have been under the change
and without it. Figures are integers: lengths in ms, shares in permille.
"""

from enum import StrEnum

import msgspec

from fairlease_schemas.commands import Change
from fairlease_schemas.ids import AccountId
from fairlease_schemas.simulated import BudgetFigures, Figures, Source


class ChangeProposed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="change-proposed"):
    """Somebody who may wants these changes, and nothing has changed yet.

    `position` is the last record that the proposal saw, `log_digest` that of the log up to there (each record's id
    hashed onto those before it), and `change` the SHA-256 of the canonical `changes`: a report must name all three.
    `span_ms` is how much log there was.
    """

    proposal: str
    author: AccountId
    changes: tuple[Change, ...]
    position: int
    log_digest: str
    change: str
    span_ms: int
    reason: str = ""


class ChangeSimulated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="change-simulated"):
    """A report on the proposal that fits it and keeps the limits. `report` is its digest.

    `before` is the simulation of the present policy and tree, `after` that of the proposal, on the same workload;
    `budgets` are fulfilments, in permille.
    """

    proposal: str
    report: str
    author: AccountId
    source: Source
    span_ms: int
    before: Figures
    after: Figures
    seeds: tuple[int, ...] = ()
    budgets: tuple[BudgetFigures, ...] = ()


class ChangeForced(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="change-forced"):
    """Somebody who may wants the proposal without a report; it holds when a second person says so too (10.2)."""

    proposal: str
    author: AccountId
    reason: str = ""


class ChangeAccepted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="change-accepted"):
    """The proposal holds from here on; the events of its changes follow in this record.

    `report` is the digest of the report that it rests on, empty for a forced one, which `first` asked for before.
    """

    proposal: str
    author: AccountId
    report: str = ""
    first: AccountId = ""


class ChangeEnd(StrEnum):
    """Why a proposal ended without being accepted."""

    REPLACED = "replaced"
    STALE = "stale"


class ChangeWithdrawn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="change-withdrawn"):
    """A proposal that nobody can accept any more: its author made another of that name, or what it saw is past."""

    proposal: str
    why: ChangeEnd
