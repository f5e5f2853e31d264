"""What became of evaluations: passed, failed or broken, as a member of their jobs' budget recorded it (1.12).

An evaluation is a name that contracts carry. Of each in each budget the fold keeps the newest outcome, and the last few
request ids, so that a pipeline may send again what it sent. The surprising choice: an outcome belongs to a
budget and not to the cell, because two teams that call something `mmlu` do not speak for each other.
"""

from fairlease.core.membership import role_of
from fairlease.core.outcome import content_of
from fairlease.core.stage import Stage
from fairlease_schemas.commands import RecordEvaluation
from fairlease_schemas.credential import kind_of
from fairlease_schemas.envelope import Answer
from fairlease_schemas.evaluation import EvaluationRecorded
from fairlease_schemas.ids import BudgetId, is_request_id
from fairlease_schemas.job import CommandRefused, Problem

MAX_SCORE_PERMILLE = 10**12
SHOWN = 8


def record(stage: Stage, answer: Answer, said: RecordEvaluation) -> None:
    """Record the outcome, refuse it, or see that this request has recorded it already."""
    found = _budget_of(stage, answer.who, said)
    problem = _problem_of(said) or (found if isinstance(found, Problem) else None)
    if problem is None:
        problem = _record(stage, answer, said, str(found))
    if problem is not None:
        verb = str(said.__struct_config__.tag)
        stage.events.append(CommandRefused(account=answer.who, verb=verb, seq=answer.seq, problems=(problem,)))


def _record(stage: Stage, answer: Answer, said: RecordEvaluation, budget: BudgetId) -> Problem | None:
    event = EvaluationRecorded(
        evaluation=said.evaluation,
        budget=budget,
        outcome=said.outcome,
        account=answer.who,
        request_id=said.request_id,
        job=said.job,
        score_permille=said.score_permille,
    )
    before = stage.outcome(said.evaluation, budget)
    known = dict(before.requests).get(said.request_id) if before is not None else None
    if known is None:
        stage.record(event, stage.evaluated(said.evaluation)[budget])
        return None
    if known == content_of(event):
        return None
    return Problem(
        field="request_id",
        rule="1.14",
        value=content_of(event),
        limit=f"{known}, as first recorded",
        way_out="use a new request id to record another outcome",
    )


def _budget_of(stage: Stage, who: str, said: RecordEvaluation) -> BudgetId | Problem:
    """The one budget that is meant: with jobs of the evaluation, and the sender a member of it (1.1).

    What is none of the sender's is refused in the same words as what is not there.
    """
    tree, members = stage.world.tree, stage.world.members
    mine = [name for name in sorted(stage.evaluated(said.evaluation)) if role_of(tree, members, who, name)]
    if said.job:
        job = next(iter(stage.named(said.job)), None)
        if job is None or job.request.evaluation != said.evaluation or job.budget not in mine:
            way_out = "leave the job out, or name one of the evaluation"
            return _unfit("job", said.job, "a job of the evaluation, in a budget of this account", way_out)
        mine = [job.budget]
    if said.budget:
        if said.budget not in mine:
            way_out = f"name {', '.join(mine[:SHOWN])}" if mine else "submit a job of the evaluation first"
            return _unfit("budget", said.budget, "this account's, with jobs of the evaluation", way_out)
        return said.budget
    if not mine:
        limit = "an evaluation that a job in a budget of this account names"
        return _unfit("evaluation", said.evaluation, limit, "submit its jobs with `evaluation` first")
    if len(mine) > 1:
        return _unfit("budget", f"{len(mine)} budgets", "one budget", f"name one of {', '.join(mine[:SHOWN])}")
    return mine[0]


def _problem_of(said: RecordEvaluation) -> Problem | None:
    """What is wrong with the command itself; nothing of what looks like a secret is repeated."""
    if kind_of(said.request_id):
        told = f"this looks like {kind_of(said.request_id)}: choose another request id"
        return Problem(field="request_id", rule="1.13", way_out=told)
    if not is_request_id(said.request_id):
        limit = "1-128 letters, digits and . _ : @ / + = -, beginning with a letter or digit"
        value = said.request_id[:80] or "nothing"
        return Problem(field="request_id", rule="1.14", value=value, limit=limit, way_out="choose another request id")
    score = said.score_permille
    if score is not None and not -MAX_SCORE_PERMILLE <= score <= MAX_SCORE_PERMILLE:
        limit = f"-{MAX_SCORE_PERMILLE} to {MAX_SCORE_PERMILLE}"
        return Problem(field="score_permille", rule="1.12", value=str(score)[:40], limit=limit, way_out="scale it down")
    return None


def _unfit(field: str, value: str, limit: str, way_out: str) -> Problem:
    return Problem(field=field, rule="1.12", value=value[:80] or "nothing", limit=limit, way_out=way_out)
