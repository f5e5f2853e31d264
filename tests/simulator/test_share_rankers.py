"""Hadoop's, KAI's, Kueue's and HTCondor's rules on the numbers of policies.md, sections 2, 3, 4 and 6."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from fairlease.simulator.rankers.hadoop_fair import Child, Claim, claim_order, shares
from fairlease.simulator.rankers.kai_time import (
    Position,
    Queue,
    exact_shares,
    queue_order,
    turning_point,
    used_part,
    whole_shares,
)
from fairlease.simulator.rankers.usage_decay import (
    Consumer,
    consumer_order,
    entry_penalty,
    pie_weights,
    sampled,
    step,
    weighted,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ONE, HALF = Fraction(1), Fraction(1, 2)
FOUR_WEIGHTS = (Fraction(2), ONE, ONE, HALF)


def _children(
    weights: Sequence[Fraction] = (ONE,) * 4,
    least: Sequence[int] = (0,) * 4,
    most: Sequence[int | None] = (None,) * 4,
) -> list[Child]:
    return [Child(f"q{at}", *row) for at, row in enumerate(zip(weights, least, most, strict=True))]


@pytest.mark.parametrize(
    ("capacity", "children", "expected"),
    [
        pytest.param(40, _children(), (10, 10, 10, 10), id="four equal"),
        pytest.param(40, _children(most=(100, 50, 11, 3)), (13, 13, 11, 3), id="demands"),
        pytest.param(40, _children(least=(20, 18, 0, 2)), (20, 18, 0, 2), id="minimums that fill it"),
        pytest.param(45, _children(FOUR_WEIGHTS), (20, 10, 10, 5), id="weights"),
        pytest.param(45, _children(FOUR_WEIGHTS, most=(10, 11, 30, 20)), (10, 11, 16, 8), id="weights and demands"),
        pytest.param(45, _children(FOUR_WEIGHTS, (20, 0, 5, 15)), (20, 5, 5, 15), id="weights and minimums"),
        pytest.param(40_000_000, _children(), (10_000_000,) * 4, id="forty million"),
        pytest.param(40, [], (), id="nobody"),
        pytest.param(
            (1 << 32) - 2, _children(most=((1 << 31) - 1,) * 4)[:2], ((1 << 31) - 1,) * 2, id="two at INT_MAX"
        ),
        pytest.param(10, _children(most=(1, 1, 1, 1)), (1, 1, 1, 1), id="less wanted than there is"),
        pytest.param(10, _children(least=(8, 8, 0, 0)), (8, 8, 0, 0), id="minimums above the capacity are kept"),
        pytest.param(10, _children((Fraction(0), ONE, ONE, ONE), most=(9, 0, 4, 9)), (0, 0, 4, 6), id="no weight"),
    ],
)
def test_hadoop_shares(capacity: int, children: list[Child], expected: tuple[int, ...]) -> None:
    assert shares(capacity, children) == expected


def _claims(*claims: Claim) -> list[str]:
    return [claim.name for claim in sorted(claims, key=claim_order)]


def test_of_two_needy_80_per_cent_of_a_minimum_yields_to_50() -> None:
    first = Claim("eight-of-ten", 8, 99, 10, ONE, 0)
    assert _claims(first, Claim("fifty-of-hundred", 50, 999, 100, ONE, 0)) == ["fifty-of-hundred", "eight-of-ten"]


def test_hadoop_asks_the_needy_then_by_usage_for_weight_then_who_wants_nothing() -> None:
    assert _claims(
        Claim("wants-nothing", 0, 0, 10, ONE, 0),
        Claim("heavy", 12, 99, 0, Fraction(4), 5),
        Claim("light", 8, 99, 0, Fraction(2), 5),
        Claim("needy", 9, 99, 10, ONE, 9),
        Claim("demand-below-its-minimum", 3, 3, 10, ONE, 1),
        Claim("no-weight", 0, 9, 0, Fraction(0), 0),
    ) == ["needy", "demand-below-its-minimum", "heavy", "light", "no-weight", "wants-nothing"]


def test_hadoop_breaks_ties_by_start_and_then_by_name() -> None:
    rows = [Claim("b", 1, 9, 0, ONE, 5), Claim("a", 1, 9, 0, ONE, 5), Claim("c", 1, 9, 0, ONE, 4)]
    assert _claims(*rows) == ["c", "a", "b"]


def _two(asked: int, weights: tuple[int, int] = (2, 2), priority: int = 0, limit: int | None = None) -> list[Queue]:
    older = Queue("q1", 2, weights[0], asked, limit=limit)
    return [older, Queue("q2", 2, weights[1], asked, priority=priority)]


@pytest.mark.parametrize(
    ("capacity", "queues", "expected"),
    [
        pytest.param(15, _two(6), (6, 6), id="more than is asked for: a rest of 3"),
        pytest.param(12, _two(6), (6, 6), id="just enough"),
        pytest.param(8, _two(6, (1, 3)), (3, 5), id="weights 1:3"),
        pytest.param(12, _two(6, limit=5), (5, 6), id="a limit leaves a rest of 1"),
        pytest.param(11, _two(10, (1, 4)), (3, 8), id="weights 1:4"),
        pytest.param(11, _two(6), (6, 5), id="the leftover goes to the older"),
        pytest.param(4, _two(6, priority=9), (2, 2), id="what is deserved knows no priority"),
        pytest.param(6, _two(6, priority=9), (2, 4), id="the surplus knows priority"),
        pytest.param(6, _two(6, (100, 1), priority=9), (2, 4), id="priority before weight"),
        pytest.param(100, [Queue("a", 10, 3, 100), Queue("b", 10, 1, 100)], (70, 30), id="the README's"),
        pytest.param(9, [Queue("a", 0, 0, 9), Queue("b", 0, 0, 9)], (0, 0), id="no weights, no surplus"),
        pytest.param(9, [], (), id="no queues"),
    ],
)
def test_kai_shares_without_history(capacity: int, queues: list[Queue], expected: tuple[int, ...]) -> None:
    assert whole_shares(capacity, queues, Fraction(0)) == expected


def _used(weights: Sequence[int], used_tenths: Sequence[int], asked: int) -> list[Queue]:
    return [
        Queue(f"q{at}", 0, weight, asked, Fraction(used, 10))
        for at, (weight, used) in enumerate(zip(weights, used_tenths, strict=True))
    ]


@pytest.mark.parametrize(
    ("k", "hundredths"),
    [
        pytest.param(Fraction(0), [800, 800], id="0"),
        pytest.param(HALF, [655, 945], id="a half"),
        pytest.param(ONE, [533, 1067], id="1"),
        pytest.param(Fraction(10), [0, 1600], id="10"),
        pytest.param(Fraction(-3), [800, 800], id="below 0 is none"),
    ],
)
def test_kai_shares_of_16_gpus_by_k(k: Fraction, hundredths: list[int]) -> None:
    assert [round(share * 100) for share in exact_shares(16, _used((1, 1), (6, 2), 16), k)] == hundredths


def test_kai_makes_shares_whole() -> None:
    assert whole_shares(16, _used((1, 1), (6, 2), 16), ONE) == (5, 11)


def test_kai_shares_of_three_queues_of_which_one_used_nothing() -> None:
    found = exact_shares(100, _used((3, 1, 1), (5, 3, 0), 100), ONE)
    assert [round(share * 10) for share in found] == [583, 83, 333]


@pytest.mark.parametrize(
    ("k", "hundredths"), [(HALF, 150), (ONE, 100), (Fraction(2), 75), (Fraction(10), 55), (Fraction(0), None)]
)
def test_kai_turns_to_the_sibling_where_the_holders_part_is_0(k: Fraction, hundredths: int | None) -> None:
    found = turning_point(HALF, k)
    assert (None if found is None else found * 100) == hundredths
    if found is not None and found < 1:
        assert exact_shares(8, [Queue("holder", 0, 1, 8, found), Queue("sibling", 0, 1, 8)], k) == (0, 8)


def test_kai_counts_24_gpu_hours_of_100_as_used_in_part() -> None:
    assert used_part(24 * HOUR_MS, 10, 10 * HOUR_MS) == Fraction(24, 100)
    assert used_part(24 * HOUR_MS, 0, HOUR_MS) == 0


def _positions(*changes: dict[str, Any]) -> list[str]:
    base = Position("base", HALF, HALF, Fraction(1, 10), Fraction(2, 10), 0, 8, 5)
    rows = [base._replace(**change) for change in changes]
    return [row.name for row in sorted(rows, key=queue_order)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"priority": 0}, {"share": Fraction(6, 10), "priority": 9}, id="not over its fair share"),
        pytest.param({"priority": 0}, {"with_job": Fraction(7, 10), "priority": 9}, id="within its quota"),
        pytest.param({"priority": 1, "with_job": HALF}, {"priority": 0}, id="priority"),
        pytest.param({"with_job": Fraction(2, 10)}, {"with_job": Fraction(3, 10)}, id="smaller share with the job"),
        pytest.param({"share": Fraction(0)}, {"share": Fraction(1, 10)}, id="smaller share without it"),
        pytest.param({"allocatable": 7}, {"allocatable": 8, "created_ms": 0}, id="smaller allocatable"),
        pytest.param({"created_ms": 4}, {"created_ms": 5}, id="older"),
        pytest.param({}, {}, id="name"),
    ],
)
def test_kai_serves_queues_in_its_order(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert _positions({"name": "b", **second}, {"name": "a", **first}) == ["a", "b"]


def test_kai_serves_a_queue_that_uses_without_a_share_after_others() -> None:
    using = {"name": "a", "fair": Fraction(0), "share": Fraction(1, 10)}
    assert _positions(using, {"name": "b", "share": Fraction(1, 2)}) == ["b", "a"]


def test_five_minutes_of_168_hours_take_over_so_much() -> None:
    assert round(step(300_000, 168 * HOUR_MS) * 10**8) == 34_376


@pytest.mark.parametrize(("half_lives", "milli"), [(1, 1_000), (2, 1_500), (3, 1_750)])
def test_two_units_held_steadily_are_seen_so_after_half_lives(half_lives: int, milli: int) -> None:
    usage = 0
    for _ in range(2_016 * half_lives):
        usage = sampled(usage, 2_000_000_000, 300_000, 168 * HOUR_MS)
    assert round(usage / 1_000_000) == milli


def test_usage_is_weighed_by_resource_and_divided_by_the_queues_weight() -> None:
    assert weighted(((1, 4), (5, 2)), ONE) == 14
    assert weighted(((4, 2 + 1),), Fraction(2)) == 6
    assert weighted(((1, 4),), Fraction(0)) is None


def test_an_entry_is_not_free_between_two_samples() -> None:
    assert entry_penalty(8, DAY_MS, DAY_MS) == 4
    rows = [Consumer("burst", 0, ONE, 4), Consumer("steady", 3, ONE), Consumer("outside", 0, Fraction(0))]
    assert [row.name for row in sorted(rows, key=consumer_order)] == ["steady", "burst", "outside"]


def test_an_idle_users_priority_halves_each_day() -> None:
    after = [10_000]
    for _ in range(2):
        after.append(sampled(after[-1], 0, DAY_MS, DAY_MS))
    assert after == [10_000, 5_000, 2_500]


def test_a_hundred_cores_for_two_days_are_about_75_and_a_newcomer_then_deserves_150_to_1() -> None:
    usage = 500
    for _ in range(48 * 60):
        usage = sampled(usage, 100_000, 60_000, DAY_MS)
    assert round(usage / 1000) == 75
    newcomer, user = pie_weights((HALF, Fraction(75)))
    assert newcomer / user == 150


def test_without_a_half_life_only_now_counts() -> None:
    assert sampled(9, 4, 1, 0) == 4
