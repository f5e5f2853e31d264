"""The budget tree and what attempts were charged, as the ledger records it (scope `intake`)."""

import msgspec

from fairlease_schemas.ids import AccountId, AttemptId, BudgetId, PoolId


class BudgetChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="budget-changed"):
    """A node of the tree was made, moved or re-weighted. `parent` is empty for a child of the root."""

    budget: BudgetId
    weight: int
    author: AccountId
    parent: BudgetId = ""
    reason: str = ""


class AttemptCharged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="attempt-charged"):
    """What one attempt cost its budget, written once, after its end (decisions.md 2.4, 2.6).

    `held_gpu_ms` = GPUs x (release - grant) in log time; `charged_gpu_ms` is that for budgeted work, 0 for idle.
    """

    attempt: AttemptId
    budget: BudgetId
    pool: PoolId
    held_gpu_ms: int
    charged_gpu_ms: int
