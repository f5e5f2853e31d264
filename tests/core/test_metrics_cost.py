"""What jobs, people and evaluations cost: two GPUs an hour are two GPU-hours; a GPU-hour costs 2.50 in `h100`."""

import pytest

from fairlease.core.budget import Node, Tree
from fairlease.core.job import Job, Phase
from fairlease.core.metrics.cost import By, Spent, costs
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.scope import EVERYBODY, Scope
from fairlease.core.outcome import Evaluations
from fairlease_schemas.evaluation import EvaluationRecorded, Outcome
from fairlease_schemas.job import End
from tests.core.told import past, run
from tests.dsl.cell import HOUR, T0

ALWAYS = Period(T0 - 1, T0 + 10 * HOUR)
PRICES = {"h100": 2_500_000, "l40s": 1_000_000}
TREE = Tree({"a": Node("org", 1), "b": Node("", 1), "org": Node("", 1)})
RETRIED = past(
    run(1, 0, HOUR, End.FAILED),
    run(2, HOUR, 3 * HOUR, End.SUCCEEDED),
    name="job-r",
    phase=Phase.SUCCEEDED,
    evaluation="mmlu",
)
"""An hour lost, then two hours to its success: six GPU-hours."""
FAILED = past(run(1, 0, HOUR, End.FAILED), name="job-f", phase=Phase.FAILED, account="bob", evaluation="mmlu")
FAR = past(run(1, 0, HOUR, End.SUCCEEDED, pool="l40s"), name="job-l", phase=Phase.SUCCEEDED, budget="b")
RUNS = past(run(1, 9 * HOUR), name="job-u", phase=Phase.RUNNING, budget="b")
NEVER = past(name="job-n")
JOBS = (RETRIED, FAILED, FAR, RUNS, NEVER)


def spent(
    key: str, jobs: tuple[int, int], held: int, lost: int, money: int | None, per: tuple[int, int | None] | None
) -> Spent:
    """Jobs and those that succeeded, GPU-hours, and money in hundredths."""
    return Spent(
        key=key,
        jobs=jobs[0],
        succeeded=jobs[1],
        held_gpu_ms=held * HOUR,
        lost_gpu_ms=lost * HOUR,
        money_micros=None if money is None else money * 10_000,
        gpu_ms_per_success=None if per is None else per[0] * HOUR,
        money_per_success_micros=None if per is None or per[1] is None else per[1] * 10_000,
    )


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        pytest.param(
            By.JOB,
            [
                spent("job-r", (1, 1), 6, 2, 1_500, (6, 1_500)),
                spent("job-f", (1, 0), 2, 2, 500, None),
                spent("job-u", (1, 0), 2, 0, 500, None),
                spent("job-l", (1, 1), 2, 0, 200, (2, 200)),
            ],
            id="by job: a success costs its retries too, the dearest first",
        ),
        pytest.param(
            By.BUDGET,
            [spent("a", (2, 1), 8, 4, 2_000, (8, 2_000)), spent("b", (2, 1), 4, 0, 700, (4, 700))],
            id="by budget: a success costs the failures beside it",
        ),
        pytest.param(
            By.PERSON,
            [spent("ann", (3, 2), 10, 2, 2_200, (5, 1_100)), spent("bob", (1, 0), 2, 2, 500, None)],
            id="by person",
        ),
        pytest.param(
            By.EVALUATION, [spent("mmlu", (2, 1), 8, 4, 2_000, (8, 2_000))], id="by evaluation: only jobs that have one"
        ),
        pytest.param(
            By.POOL,
            [spent("h100", (3, 1), 10, 4, 2_500, (10, 2_500)), spent("l40s", (1, 1), 2, 0, 200, (2, 200))],
            id="by pool",
        ),
    ],
)
def test_costs_are_told_by(by: By, expected: list[Spent]) -> None:
    # rule: 1.12
    rows, total = costs(JOBS, TREE, ALWAYS, by, EVERYBODY, PRICES)
    assert list(rows) == expected
    assert total.held_gpu_ms == sum(row.held_gpu_ms for row in rows)
    assert total.money_micros == sum(row.money_micros or 0 for row in rows)


def test_without_a_price_for_every_pool_that_was_used_there_is_no_money() -> None:
    rows, total = costs(JOBS, TREE, ALWAYS, By.BUDGET, EVERYBODY, {"h100": 2_500_000})
    assert [(row.key, row.money_micros) for row in rows] == [("a", 20_000_000), ("b", None)]
    assert total.money_micros is None
    assert costs(JOBS, TREE, ALWAYS, By.JOB, EVERYBODY, {})[1].money_micros is None


@pytest.mark.parametrize(
    ("scope", "keys"),
    [
        pytest.param(Scope(budget="org"), ["job-r", "job-f"], id="a budget with all below it"),
        pytest.param(Scope(account="bob"), ["job-f"], id="a person"),
        pytest.param(Scope(pool="l40s"), ["job-l"], id="a pool"),
        pytest.param(Scope(job="job-u"), ["job-u"], id="a job"),
        pytest.param(Scope(budget="nobody"), [], id="nobody"),
    ],
)
def test_only_the_scope_is_counted(scope: Scope, keys: list[str]) -> None:
    rows, _ = costs(JOBS, TREE, ALWAYS, By.JOB, scope, PRICES)
    assert [row.key for row in rows] == keys


def test_only_the_part_in_the_period_is_counted() -> None:
    job: Job = RETRIED
    (row,), _ = costs([job], TREE, Period(T0 + HOUR // 2, T0 + 2 * HOUR), By.JOB, EVERYBODY, PRICES)
    assert (row.held_gpu_ms, row.lost_gpu_ms) == (3 * HOUR, HOUR)


def judged(*outcomes: tuple[str, str, Outcome]) -> Evaluations:
    """Evaluations as (name, budget, outcome), recorded a millisecond apart."""
    evaluations = Evaluations({job.id: job for job in JOBS}, {})
    for number, (name, budget, outcome) in enumerate(outcomes):
        event = EvaluationRecorded(
            evaluation=name, budget=budget, outcome=outcome, account="ann", request_id=f"e{number}"
        )
        evaluations.recorded(event, T0 + number)
    return evaluations


MMLU_B = past(run(1, 0, HOUR, End.SUCCEEDED), name="job-m", phase=Phase.SUCCEEDED, budget="b", evaluation="mmlu")
GSM = past(run(1, 0, 3 * HOUR, End.SUCCEEDED), name="job-g", phase=Phase.SUCCEEDED, evaluation="gsm")
PASSED, MISSED = Outcome.PASSED, Outcome.FAILED


@pytest.mark.parametrize(
    ("outcomes", "told", "passed", "per_pass_h", "money_per_pass"),
    [
        pytest.param([], {"mmlu": None, "gsm": None}, 0, None, None, id="nothing recorded: no pass has a cost"),
        pytest.param(
            [("mmlu", "a", PASSED)],
            {"mmlu": PASSED, "gsm": None},
            1,
            16,
            40,
            id="a pass costs what was never recorded too",
        ),
        pytest.param(
            [("mmlu", "a", PASSED), ("gsm", "a", MISSED)],
            {"mmlu": PASSED, "gsm": MISSED},
            1,
            16,
            40,
            id="and what failed",
        ),
        pytest.param(
            [("mmlu", "a", PASSED), ("gsm", "a", PASSED)], {"mmlu": PASSED, "gsm": PASSED}, 2, 8, 20, id="two share it"
        ),
        pytest.param(
            [("mmlu", "a", PASSED), ("mmlu", "b", MISSED)],
            {"mmlu": MISSED, "gsm": None},
            0,
            None,
            None,
            id="of two budgets the newer word stands",
        ),
    ],
)
def test_a_passed_evaluation_costs_all_that_was_spent_on_evaluations(
    outcomes: list[tuple[str, str, Outcome]],
    told: dict[str, Outcome | None],
    passed: int,
    per_pass_h: int | None,
    money_per_pass: int | None,
) -> None:
    # rule: 1.12
    jobs = (*JOBS, MMLU_B, GSM)
    rows, total = costs(jobs, TREE, ALWAYS, By.EVALUATION, EVERYBODY, PRICES, evaluations=judged(*outcomes))
    assert {row.key: row.outcome for row in rows} == told
    assert (total.passed, total.outcome) == (passed, None)
    assert total.gpu_ms_per_pass == (None if per_pass_h is None else per_pass_h * HOUR)
    assert total.money_per_pass_micros == (None if money_per_pass is None else money_per_pass * 1_000_000)


def test_in_the_scope_of_a_budget_its_own_word_counts() -> None:
    evaluations = judged(("mmlu", "a", PASSED), ("mmlu", "b", MISSED))
    (row,), total = costs(
        (*JOBS, MMLU_B), TREE, ALWAYS, By.EVALUATION, Scope(budget="org"), PRICES, evaluations=evaluations
    )
    assert (row.outcome, row.gpu_ms_per_pass, total.passed) == (PASSED, 8 * HOUR, 1)
