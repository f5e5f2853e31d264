"""The newest outcome of every evaluation, by budget, and which budgets have jobs of an evaluation (1.12).

Which jobs name an evaluation is an index, made again from the jobs; the outcomes are state. Both are bounded by the
jobs that there are: nothing can be recorded of an evaluation that no job names.
"""

from collections.abc import Mapping

import msgspec

from fairlease.core.job import Job
from fairlease_schemas.evaluation import EvaluationRecorded, Outcome
from fairlease_schemas.ids import AccountId, BudgetId, JobId

MAX_REQUESTS = 16
"""How many request ids of an evaluation are remembered; a message that is older than so many others counts as new."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The newest outcome of an evaluation in a budget; `requests` are the last request ids with what they said."""

    outcome: Outcome
    account: AccountId
    at_ms: int
    job: JobId
    score_permille: int | None
    requests: tuple[tuple[str, str], ...]


def content_of(event: EvaluationRecorded) -> str:
    """What was recorded, in one line: two requests of one id must say the same."""
    score = "" if event.score_permille is None else f" {event.score_permille}"
    return f"{event.outcome}{score}{' ' if event.job else ''}{event.job}"


def evolve(before: Recorded | None, event: EvaluationRecorded, at_ms: int) -> Recorded:
    """The outcome after the event, whatever was before."""
    requests = tuple(one for one in (before.requests if before else ()) if one[0] != event.request_id)
    return Recorded(
        outcome=event.outcome,
        account=event.account,
        at_ms=at_ms,
        job=event.job,
        score_permille=event.score_permille,
        requests=(*requests, (event.request_id, content_of(event)))[-MAX_REQUESTS:],
    )


class Evaluations:
    """Evaluations by name: their outcomes, and the first job of each in every budget."""

    def __init__(self, jobs: Mapping[JobId, Job], outcomes: dict[str, dict[BudgetId, Recorded]]) -> None:
        self._outcomes = outcomes
        self._first: dict[str, dict[BudgetId, JobId]] = {}
        for job in jobs.values():
            self.admitted(job)

    def admitted(self, job: Job) -> None:
        """A job was admitted; nothing of one that names no evaluation."""
        if job.request.evaluation:
            self._first.setdefault(job.request.evaluation, {}).setdefault(job.budget, job.id)

    def recorded(self, event: EvaluationRecorded, now_ms: int) -> None:
        """An outcome was recorded: written by the world's `apply` alone."""
        of_budget = self._outcomes.setdefault(event.evaluation, {})
        of_budget[event.budget] = evolve(of_budget.get(event.budget), event, now_ms)

    def first_jobs(self, evaluation: str) -> Mapping[BudgetId, JobId]:
        """By budget the first job that named the evaluation; empty where none did."""
        return self._first.get(evaluation, {})

    def outcomes(self, evaluation: str) -> Mapping[BudgetId, Recorded]:
        """By budget the newest outcome of the evaluation; empty before the first."""
        return self._outcomes.get(evaluation, {})
