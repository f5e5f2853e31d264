"""Events of evaluations: what became of one, by the word of whoever ran it (1.12)."""

from enum import StrEnum

import msgspec

from fairlease_schemas.ids import AccountId, BudgetId, JobId


class Outcome(StrEnum):
    """What an evaluation came to."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """It came to no result: neither for nor against what was evaluated."""


class EvaluationRecorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="evaluation-recorded"):
    """An evaluation came to this outcome, by the word of a member of the budget.

    `job` is the job that it names as having decided it, if any; `score_permille` a figure in thousandths of whatever
    the evaluation measures, and it decides nothing.
    """

    evaluation: str
    budget: BudgetId
    outcome: Outcome
    account: AccountId
    request_id: str
    job: JobId = ""
    score_permille: int | None = None
