"""What clients ask for, on `fl.<cell>.cmd.<account>.<verb>`. The verb is the tag; the sender is the account.

Unknown fields are refused: a typo is told to its sender. Who asks is never read from the body.
"""

import msgspec

from fairlease_schemas.ids import BudgetId, HostId, JobId
from fairlease_schemas.policy import Policy


class SubmitJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="submit-job"):
    """Make a job of this contract; the same request id and body again names the same job (1.14)."""

    request_id: str
    contract: msgspec.Raw


class CancelJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="cancel-job"):
    """End the job: at once when it waits, by its grace when it runs."""

    job: JobId


class ChangeBudget(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="change-budget"
):
    """Make, move or re-weight a node; what is absent stays as it is (the root, `fifo`, no caps for a new node)."""

    budget: BudgetId
    weight: int
    parent: BudgetId | None = None
    reason: str = ""
    order: str | None = None
    max_protected_permille: int | None = None
    burst_permille: int | None = None


class ChangePolicy(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="change-policy"
):
    """Put another policy in force, under a name of its own."""

    name: str
    policy: Policy
    reason: str = ""


class CordonHost(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="cordon-host"
):
    """Give the host no new work; what runs there goes on."""

    host: HostId
    reason: str = ""


class ReturnHost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="return-host"):
    """Take back the sender's hold on the host."""

    host: HostId


VERBS = {
    "submit-job": SubmitJob,
    "cancel-job": CancelJob,
    "change-budget": ChangeBudget,
    "change-policy": ChangePolicy,
    "cordon-host": CordonHost,
    "return-host": ReturnHost,
}
"""Verb of the subject to type of the body."""

OWNERS = {
    "admission": ("submit-job", "cancel-job"),
    "ledger": ("change-budget", "change-policy"),
    "health": ("cordon-host", "return-host"),
}
"""Which service answers which verbs: each reads every inbox, and only its own verbs."""
