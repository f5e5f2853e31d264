"""What became of evaluations: who may say so, what is told to others, and what is kept of it (1.12)."""

import pytest

from fairlease.core.outcome import MAX_REQUESTS, Recorded
from fairlease.core.world import World
from fairlease_schemas.commands import ChangeMember, RecordEvaluation
from fairlease_schemas.evaluation import EvaluationRecorded, Outcome
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import Array, CommandRefused, Problem
from tests.dsl.cell import MINUTE, T0, Cell, admitted, submitted

PASSED, FAILED, ERROR = Outcome.PASSED, Outcome.FAILED, Outcome.ERROR


def cell(*budgets: str) -> Cell:
    """A host, and in each budget (`a`) a job of `mmlu`; `lead` leads, and everybody is a member."""
    here = Cell().hosts(1).budgets(**dict.fromkeys(budgets or ("a",), 1))
    for budget in budgets or ("a",):
        here.submit("r1", budget, evaluation="mmlu")
    return here


def say(request_id: str = "e1", outcome: Outcome = PASSED, **fields: object) -> RecordEvaluation:
    return RecordEvaluation(request_id=request_id, outcome=outcome, **({"evaluation": "mmlu"} | fields))  # type: ignore[arg-type]  # fields by name


def told(request_id: str = "e1", outcome: Outcome = PASSED, **fields: object) -> EvaluationRecorded:
    whole = {"evaluation": "mmlu", "budget": "a", "account": "ann"} | fields
    return EvaluationRecorded(request_id=request_id, outcome=outcome, **whole)  # type: ignore[arg-type]  # fields by name


def refused(field: str, value: str, limit: str, way_out: str, *, rule: str = "1.12", seq: int = 2) -> CommandRefused:
    problem = Problem(field=field, rule=rule, value=value, limit=limit, way_out=way_out)
    return CommandRefused(account="ann", verb="record-evaluation", seq=seq, problems=(problem,))


def test_a_member_records_what_became_of_an_evaluation_and_the_newest_word_stands() -> None:
    # rule: 1.12
    here = cell()
    here.when(say(score_permille=873)).then(told(score_permille=873))
    here.at(MINUTE).when(say("e2", FAILED), who="bob").then(told("e2", FAILED, account="bob"))
    requests = (("e1", "passed 873"), ("e2", "failed"))
    expected = Recorded(
        outcome=FAILED, account="bob", at_ms=T0 + MINUTE, job="", score_permille=None, requests=requests
    )
    assert here.world.evaluations.outcomes("mmlu") == {"a": expected}
    assert World.load(here.world.dump()).evaluations.outcomes("mmlu") == {"a": expected}
    assert World.load(here.world.dump()).evaluations.first_jobs("mmlu") == {"a": job_id("ann", "a", "r1")}


def test_the_record_rests_on_the_job_that_names_the_evaluation() -> None:
    here = cell()
    job = here.world.jobs[job_id("ann", "a", "r1")]
    here.say(say(), settle=False)
    assert here.record(len(here.records)).causes == (job.admitted,)


def test_the_same_request_again_changes_nothing_and_another_outcome_under_its_id_is_refused() -> None:
    # rule: 1.14
    here = cell()
    here.when(say()).then(told())
    here.when(say("e2", ERROR)).then(told("e2", ERROR))
    here.when(say()).then()
    assert here.world.evaluations.outcomes("mmlu")["a"].outcome is ERROR, "a late repeat must not undo what came after"
    way_out = "use a new request id to record another outcome"
    problem = refused("request_id", "failed", "passed, as first recorded", way_out, rule="1.14", seq=5)
    here.when(say(outcome=FAILED)).then(problem)


def test_messages_of_one_record_see_each_other() -> None:
    here = Cell().hosts(1).budgets(a=1)
    here.when(submitted("r1", evaluation="mmlu"), say(), say(), say("e2", FAILED)).then(
        admitted("r1", evaluation="mmlu"), told(), told("e2", FAILED)
    )


def test_only_so_many_request_ids_are_kept() -> None:
    here = cell()
    for number in range(MAX_REQUESTS + 3):
        here.say(say(f"e{number}"))
    kept = here.world.evaluations.outcomes("mmlu")["a"].requests
    assert [request for request, _ in kept] == [f"e{number}" for number in range(3, MAX_REQUESTS + 3)]


def test_an_evaluation_that_no_job_of_the_senders_budgets_names_is_refused_whoever_elses_it_is() -> None:
    # rule: 1.1
    here = cell()
    here.say(ChangeMember(budget="a", account="*", role=""), "lead")
    limit, way_out = (
        "an evaluation that a job in a budget of this account names",
        "submit its jobs with `evaluation` first",
    )
    here.when(say()).then(refused("evaluation", "mmlu", limit, way_out))
    here.when(say(evaluation="other")).then(refused("evaluation", "other", limit, way_out, seq=3))
    job = job_id("ann", "a", "r1")
    limit, way_out = (
        "a job of the evaluation, in a budget of this account",
        "leave the job out, or name one of the evaluation",
    )
    here.when(say(job=job)).then(refused("job", job, limit, way_out, seq=4))
    here.when(say(job="job-none")).then(refused("job", "job-none", limit, way_out, seq=5))


def test_with_jobs_in_several_budgets_the_sender_says_which_is_meant() -> None:
    here = cell("a", "b")
    here.when(say()).then(refused("budget", "2 budgets", "one budget", "name one of a, b", seq=3))
    here.when(say(budget="b")).then(told(budget="b"))
    job = job_id("ann", "a", "r1")
    here.when(say(job=job)).then(told(job=job))
    limit = "this account's, with jobs of the evaluation"
    here.when(say("e2", job=job, budget="b")).then(refused("budget", "b", limit, "name a", seq=6))
    assert {budget: one.outcome for budget, one in here.world.evaluations.outcomes("mmlu").items()} == {
        "a": PASSED,
        "b": PASSED,
    }


def test_a_whole_array_may_be_named() -> None:
    here = Cell().hosts(1).budgets(a=1)
    array = here.submit("many", evaluation="mmlu", array=Array(count=2))
    here.when(say(job=array)).then(told(job=array))


@pytest.mark.parametrize(
    ("said", "field", "rule"),
    [
        pytest.param(say(""), "request_id", "1.14", id="no request id"),
        pytest.param(say("a b"), "request_id", "1.14", id="a request id with a space"),
        pytest.param(say("ghp_" + "a1" * 18), "request_id", "1.13", id="a token for a request id"),
        pytest.param(say(score_permille=10**12 + 1), "score_permille", "1.12", id="a score beyond all scores"),
    ],
)
def test_what_cannot_be_kept_is_refused(said: RecordEvaluation, field: str, rule: str) -> None:
    (event,) = cell().when(said).events()
    assert isinstance(event, CommandRefused)
    assert [(problem.field, problem.rule) for problem in event.problems] == [(field, rule)]
    assert "ghp_" not in str(event)
