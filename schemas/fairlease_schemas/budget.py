"""The budget tree and what attempts were charged, as the ledger records it (scope `intake`)."""

import msgspec

from fairlease_schemas.ids import AccountId, AttemptId, BudgetId, PoolId


class BudgetChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="budget-changed"):
    """A node of the tree was made, moved or re-weighted. `parent` is empty for a child of the root.

    `order` is how a leaf's own jobs are ordered (3.2): `fifo`, `least-attained` or `smallest`. Caps are in
    permille of the node's entitled GPUs now, 0 for none (2.9).
    """

    budget: BudgetId
    weight: int
    author: AccountId
    parent: BudgetId = ""
    reason: str = ""
    order: str = "fifo"
    max_protected_permille: int = 0
    burst_permille: int = 0


class BudgetMemberChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="budget-member-changed"):
    """What an account may do in a budget and all below it (1.1): `member` submits, `lead` also changes it.

    `*` is everybody, an empty role nobody's. Whoever makes a budget becomes its lead.
    """

    budget: BudgetId
    account: AccountId
    role: str
    author: AccountId


class AttemptCharged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="attempt-charged"):
    """What one attempt cost its budget, written once, after its end (decisions.md 2.4, 2.6).

    `held_gpu_ms` = GPUs x (release - grant) in log time. `charged_gpu_ms` = max(held, what its victims lost)
    - credit for budgeted work, 0 for idle; `surcharge_gpu_ms` is what the victims' loss adds to held.
    """

    attempt: AttemptId
    budget: BudgetId
    pool: PoolId
    held_gpu_ms: int
    charged_gpu_ms: int
    credit_gpu_ms: int = 0
    surcharge_gpu_ms: int = 0
