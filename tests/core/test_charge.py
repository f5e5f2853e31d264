"""What an attempt cost its budget: held time, surcharge for its victims, credit for a fault; once (2.4, 2.6)."""

import pytest

from fairlease.core.budget import Uncharged, charge
from fairlease.core.fairshare.standing import standings
from fairlease_schemas.budget import AttemptCharged
from fairlease_schemas.commands import CancelJob, RequestDrain
from fairlease_schemas.cycle import NodeStanding
from fairlease_schemas.envelope import Address
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import End
from tests.core.bench import cell, evictions, idle, left, saved, victims, whole
from tests.dsl.cell import DAY, HOUR, MINUTE, T0, Cell


def row(here: Cell, budget: str, at_ms: int) -> NodeStanding:
    return next(n for n in standings(here.world, "h100", T0 + at_ms) if n.budget == budget)


def charges(here: Cell, job: str) -> list[AttemptCharged]:
    return [e for e in here.events(AttemptCharged) if isinstance(e, AttemptCharged) and e.attempt.startswith(job)]


def due(held: int, caused: int = 0, credit: int = 0, *, is_budgeted: bool = True) -> Uncharged:
    return Uncharged(
        budget="a",
        pool="h100",
        held_gpu_ms=held,
        credit_gpu_ms=credit,
        caused_gpu_ms=caused,
        is_budgeted=is_budgeted,
        ended=Address(1, 1, 0),
    )


@pytest.mark.parametrize(
    ("owed", "charged", "surcharge", "credit"),
    [
        pytest.param(due(100), 100, 0, 0, id="what it held"),
        pytest.param(due(100, caused=60), 100, 0, 0, id="its victims lost less than it held"),
        pytest.param(due(100, caused=100), 100, 0, 0, id="its victims lost as much"),
        pytest.param(due(100, caused=160), 160, 60, 0, id="its victims lost more"),
        pytest.param(due(100, credit=30), 70, 0, 30, id="a fault undid a part"),
        pytest.param(due(100, credit=100), 0, 0, 100, id="a fault undid all"),
        pytest.param(due(100, caused=160, credit=100), 60, 60, 100, id="the dearer of both, less the credit"),
        pytest.param(due(0, caused=5), 5, 5, 0, id="it never started, and its victims are gone all the same"),
        pytest.param(due(100, caused=160, credit=100, is_budgeted=False), 0, 0, 0, id="idle work pays nothing"),
    ],
)
def test_the_charge_is_the_greater_of_held_and_caused_less_the_credit(
    owed: Uncharged, charged: int, surcharge: int, credit: int
) -> None:
    # rule: 2.6 2.4
    assert charge("job-x-a1", owed) == AttemptCharged(
        attempt="job-x-a1",
        budget="a",
        pool="h100",
        held_gpu_ms=owed.held_gpu_ms,
        charged_gpu_ms=charged,
        surcharge_gpu_ms=surcharge,
        credit_gpu_ms=credit,
    )


# faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saved_at", "credit"),
    [
        pytest.param(None, 2 * 40 * MINUTE, id="never saved: all that it held"),
        pytest.param(30, 2 * 10 * MINUTE, id="since its last checkpoint"),
        pytest.param(40, 0, id="saved just before"),
    ],
)
def test_a_fault_credits_what_was_held_since_the_last_checkpoint(saved_at: int | None, credit: int) -> None:
    # rule: 2.6
    here = cell()
    job = here.submit("r1", gpus_per_host=2)
    here.start(job)
    if saved_at is not None:
        saved(here.at(saved_at * MINUTE), job)
    here.at(40 * MINUTE).gone(job, End.FAULT, None)
    held = 2 * 40 * MINUTE
    (found,) = charges(here, job)
    assert (found.held_gpu_ms, found.credit_gpu_ms, found.charged_gpu_ms) == (held, credit, held - credit)
    assert row(here, "a", 40 * MINUTE).used_gpu_ms == held - credit


@pytest.mark.parametrize("end", [End.FAILED, End.SUCCEEDED, End.CANCELLED, End.START_FAILED])
def test_nothing_else_credits_anything(end: End) -> None:
    # rule: 2.6
    here = cell()
    job = here.submit("r1")
    here.at(MINUTE).gone(job, end, 1)
    assert [c.credit_gpu_ms for c in charges(here, job)] == [0]


@pytest.mark.parametrize(
    ("end", "is_cancelled", "credit"),
    [
        pytest.param(End.SUCCEEDED, False, 0, id="it was done in its grace"),
        pytest.param(End.CANCELLED, False, 8 * 32 * MINUTE, id="it was stopped"),
        pytest.param(End.FAILED, False, 8 * 32 * MINUTE, id="it failed while it was stopped"),
        pytest.param(End.CANCELLED, True, 0, id="it was cancelled meanwhile"),
        pytest.param(End.FAULT, True, 8 * 32 * MINUTE, id="a fault came meanwhile"),
    ],
)
def test_a_deadline_credits_what_it_ended_and_nothing_else(end: End, is_cancelled: bool, credit: int) -> None:
    # rule: 2.6 7.2
    here = cell()
    job = whole(here, "run", min_runtime_ms=2 * HOUR, grace_ms=5 * MINUTE)
    here.start(job)
    here.say(RequestDrain(host="host-001", deadline_ms=T0 + 30 * MINUTE), "bot")
    here.at(32 * MINUTE)
    if is_cancelled:
        here.say(CancelJob(job=job))
    here.gone(job, end, 0 if end is End.SUCCEEDED else None)
    assert [(c.held_gpu_ms, c.credit_gpu_ms) for c in charges(here, job)] == [(8 * 32 * MINUTE, credit)]


# surcharges -------------------------------------------------------------------------------------------


def claimed(here: Cell) -> str:
    """Idle work an hour old has left for a claim of `b`, which holds its host since 1:01."""
    spare = idle(here, "spare")
    here.at(HOUR)
    claim = whole(here, "claim", "b")
    left(here.at(HOUR + MINUTE), spare)
    return claim


def test_an_attempt_that_evicted_is_charged_at_least_what_its_victims_lost() -> None:
    # rule: 2.6
    here = cell()
    claim = claimed(here)
    here.at(HOUR + 2 * MINUTE).gone(claim)
    (found,) = charges(here, claim)
    assert found == AttemptCharged(
        attempt=attempt_id(claim, 1),
        budget="b",
        pool="h100",
        held_gpu_ms=8 * MINUTE,
        charged_gpu_ms=8 * HOUR,
        surcharge_gpu_ms=8 * 59 * MINUTE,
    )
    assert row(here, "b", HOUR + 2 * MINUTE).used_gpu_ms == 8 * HOUR


def test_an_attempt_that_runs_longer_than_its_victims_lost_pays_what_it_held() -> None:
    # rule: 2.6
    here = cell()
    claim = claimed(here)
    here.at(HOUR + 91 * MINUTE).gone(claim)
    assert [c.charged_gpu_ms for c in charges(here, claim)] == [8 * 90 * MINUTE]


def test_a_second_attempt_is_not_charged_for_the_victims_of_the_first() -> None:
    # rule: 2.6
    here = cell(rank_period_ms=10_000)
    spare = idle(here, "spare")
    here.at(HOUR)
    claim = whole(here, "claim", "b", max_retries=1)
    here.say(CancelJob(job=spare))
    left(here, spare).gone(claim, End.FAILED, 1).at(HOUR + 10 * MINUTE)
    here.gone(claim)
    assert [c.surcharge_gpu_ms for c in charges(here, claim)] == [8 * HOUR, 0]


def test_a_claim_that_evicts_twice_before_its_grant_answers_for_both() -> None:
    # rule: 2.6 5.6
    here = cell(2)
    spare = [idle(here, f"i{n}") for n in range(2)]
    here.at(MINUTE)
    claim = whole(here, "claim", "b")
    here.at(5 * MINUTE)
    assert sorted(victims(here)) == sorted(spare)
    lost = [order.lost_gpu_ms for order in evictions(here)]
    left(here, spare[0]).gone(claim)
    assert charges(here, claim)[0].charged_gpu_ms == sum(lost)


def test_a_surcharge_leaves_the_lookback_with_its_attempt() -> None:
    # rule: 2.6
    here = cell(lookback_ms=DAY)
    claim = claimed(here)
    end_ms = HOUR + 2 * MINUTE
    here.at(end_ms).gone(claim)
    assert row(here, "b", end_ms + DAY - 1).used_gpu_ms == 8 + 8 * 59 * MINUTE
    assert row(here, "b", end_ms + DAY).used_gpu_ms == 0


def test_a_charge_that_is_written_late_counts_from_the_end_of_the_attempt() -> None:
    # rule: 2.6
    here = cell(lookback_ms=DAY)
    claim = claimed(here)
    here.away.add("ledger")
    end_ms = HOUR + 2 * MINUTE
    here.at(end_ms).gone(claim)
    here.at(end_ms + HOUR).submit("other", "a")
    here.away.clear()
    here.settle()
    assert row(here, "b", end_ms + HOUR).used_gpu_ms == 8 * HOUR
    assert row(here, "b", end_ms + DAY).used_gpu_ms == 0


def test_parents_pay_with_their_children() -> None:
    # rule: 2.4 2.6
    here = Cell().hosts(1).budgets(org=1, org__a=1, org__b=1)
    spare = idle(here, "spare")
    here.at(HOUR)
    claim = whole(here, "claim", "b")
    left(here, spare)
    here.at(HOUR + MINUTE).gone(claim)
    used = {n.budget: n.used_gpu_ms for n in standings(here.world, "h100", T0 + HOUR + MINUTE)}
    assert used == {"org": 8 * HOUR, "a": 0, "b": 8 * HOUR}
