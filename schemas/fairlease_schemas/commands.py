"""What clients ask for, on `fl.<cell>.cmd.<account>.<verb>`. The verb is the tag; the sender is the account.

Unknown fields are refused: a typo is told to its sender. Who asks is never read from the body.
"""

import msgspec

from fairlease_schemas.evaluation import Outcome
from fairlease_schemas.host import Check
from fairlease_schemas.ids import AccountId, BudgetId, HostId, JobId
from fairlease_schemas.policy import Policy
from fairlease_schemas.simulated import SimulatedChange


class SubmitJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="submit-job"):
    """Make a job of this contract; the same request id and body again names the same job (1.14)."""

    request_id: str
    contract: msgspec.Raw


class CancelJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="cancel-job"):
    """End the job: at once when it waits, by its grace when it runs. Its owner may, and a lead of its budget."""

    job: JobId


class HoldJob(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="hold-job"
):
    """Keep a waiting job from competing until it is released."""

    job: JobId
    reason: str = ""


class ReleaseJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="release-job"):
    """Let a held job compete again."""

    job: JobId


class RecordEvaluation(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="record-evaluation"
):
    """Record what became of an evaluation; the same request id again is the same record (1.12).

    The sender is a member of the budget of its jobs; `budget` is needed where jobs of several name the evaluation.
    `score_permille` is in thousandths of whatever was measured.
    """

    request_id: str
    evaluation: str
    outcome: Outcome
    budget: BudgetId = ""
    job: JobId = ""
    score_permille: int | None = None


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


class ChangeMember(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="change-member"):
    """Give an account (`*`: everybody) a role in a budget (`/`: the root): `member`, `lead`, none with an empty text.

    The root has leads alone, each by name.
    """

    budget: BudgetId
    account: AccountId
    role: str


class ChangePolicy(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="change-policy"
):
    """Put another policy in force, under a name of its own."""

    name: str
    policy: Policy
    reason: str = ""


Change = ChangePolicy | ChangeBudget
"""What a proposal may hold."""


class ProposeChange(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="propose-change"
):
    """Ask for changes that are simulated before they hold (10.1). A second one of that name replaces one's first."""

    proposal: str
    changes: tuple[Change, ...]
    reason: str = ""


class ReportChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="report-change"):
    """Say what a simulation of the proposal found."""

    report: SimulatedChange


class AcceptChange(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="accept-change"
):
    """Let the proposal hold: by the digest of a report on it, or forced, which takes a second person (10.2)."""

    proposal: str
    report: str = ""
    is_forced: bool = False
    reason: str = ""


class CordonHost(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="cordon-host"
):
    """Give the host no new work; what runs there goes on."""

    host: HostId
    reason: str = ""


class ReturnHost(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="return-host"
):
    """Take back the sender's hold on the host: its cordon, or what its drain left, with the checks it passed (7.4)."""

    host: HostId
    checks: tuple[Check, ...] = ()


class RequestDrain(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="request-drain"
):
    """Empty the host for its owner, the sender. Instants are ms since 1970; 0 is now, and no deadline."""

    host: HostId
    reason: str = ""
    not_before_ms: int = 0
    deadline_ms: int = 0
    external_id: str = ""


class UndrainHost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="undrain-host"):
    """Call off the sender's drain of the host, and all that is pending for it."""

    host: HostId


VERBS = {
    "submit-job": SubmitJob,
    "cancel-job": CancelJob,
    "hold-job": HoldJob,
    "release-job": ReleaseJob,
    "record-evaluation": RecordEvaluation,
    "change-budget": ChangeBudget,
    "change-member": ChangeMember,
    "change-policy": ChangePolicy,
    "propose-change": ProposeChange,
    "report-change": ReportChange,
    "accept-change": AcceptChange,
    "cordon-host": CordonHost,
    "return-host": ReturnHost,
    "request-drain": RequestDrain,
    "undrain-host": UndrainHost,
}
"""Verb of the subject to type of the body."""

OWNERS = {
    "admission": ("submit-job", "cancel-job", "hold-job", "release-job", "record-evaluation"),
    "ledger": ("change-budget", "change-member", "change-policy", "propose-change", "report-change", "accept-change"),
    "health": ("cordon-host", "return-host", "request-drain", "undrain-host"),
}
"""Which service answers which verbs: each reads every inbox, and only its own verbs."""
