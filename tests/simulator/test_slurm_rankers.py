"""Slurm's rules on the numbers of policies.md, section 1."""

from fractions import Fraction

import pytest

from fairlease.simulator.rankers.classic import classic, standings
from fairlease.simulator.rankers.fair_tree import Ranked, fair_tree, level_fairness
from fairlease.simulator.rankers.half_life import faded, half_to_the
from fairlease.simulator.rankers.tree import Share, account, user

WEEK_MS = 7 * 24 * 3_600_000
B = account("B", 30, user("u1", 1, 20))
C = account("C", 10, user("u2", 1, 25), user("u3", 1, 0))
A = account("A", 40, B, C)
E = account("E", 25, user("u4", 1, 25))
F = account("F", 35, user("u5", 1, 0))
D = account("D", 60, E, F)
WORKED = account("root", 1, A, D)


def _ranks(*children: Share) -> list[tuple[str, int]]:
    return [(one.name, one.rank) for one in fair_tree(account("root", 1, *children))]


def test_the_worked_tree_gives_its_order_and_factors() -> None:
    assert fair_tree(WORKED) == (
        Ranked("u5", 5, Fraction(1)),
        Ranked("u4", 4, Fraction(4, 5)),
        Ranked("u1", 3, Fraction(3, 5)),
        Ranked("u3", 2, Fraction(2, 5)),
        Ranked("u2", 1, Fraction(1, 5)),
    )


@pytest.mark.parametrize(
    ("parent", "expected_per_10000"),
    [
        pytest.param(WORKED, {"A": 6222, "D": 16800}, id="the root's accounts"),
        pytest.param(D, {"E": 4167, "F": None}, id="who used nothing is infinitely under-served"),
        pytest.param(A, {"B": 16875, "C": 4500}, id="A's accounts"),
        pytest.param(C, {"u2": 5000, "u3": None}, id="C's users"),
    ],
)
def test_level_fairness_of_the_worked_tree(parent: Share, expected_per_10000: dict[str, int | None]) -> None:
    found = {level.node.name: level.fairness for level in level_fairness(parent)}
    assert {name: None if f is None else round(f * 10_000) for name, f in found.items()} == expected_per_10000


def test_without_shares_fairness_is_0_also_when_nothing_is_used() -> None:
    levels = level_fairness(account("root", 1, user("a", 0, 0), user("b", 1, 5)))
    assert [level.fairness for level in levels] == [Fraction(0), Fraction(1)]


def test_a_leaf_with_its_parents_share_is_infinite_and_stands_outside_the_division() -> None:
    own = user("own", 7, 5)._replace(has_parent_share=True)
    levels = level_fairness(account("root", 1, own, user("b", 1, 5)))
    assert [level.fairness for level in levels] == [None, Fraction(2)]


def test_equal_sibling_users_share_a_rank_and_the_next_falls_by_their_number() -> None:
    assert _ranks(user("c", 1, 90), user("b", 1, 10), user("a", 1, 10)) == [("a", 3), ("b", 3), ("c", 1)]


def test_a_user_tied_with_an_account_takes_the_rank_of_its_best_user() -> None:
    tied = account("acc", 1, user("best", 1, 4), user("rest", 1, 6))
    assert _ranks(tied, user("lone", 1, 10)) == [("lone", 3), ("best", 3), ("rest", 1)]


LEFT = account("left", 1, user("l1", 1, 2), user("l2", 1, 8))
RIGHT = account("right", 1, user("r1", 1, 4), user("r2", 1, 6))


def test_tied_accounts_have_their_children_merged_before_sorting_as_it_is_documented() -> None:
    merged = fair_tree(account("root", 1, LEFT, RIGHT), merges=True)
    assert [(one.name, one.rank) for one in merged] == [("l1", 4), ("r1", 3), ("r2", 2), ("l2", 1)]


def test_tied_accounts_share_a_rank_where_one_ends_and_the_next_begins_as_sshare_has_it() -> None:
    assert _ranks(LEFT, RIGHT) == [("l1", 4), ("l2", 3), ("r1", 3), ("r2", 1)]
    assert _ranks(RIGHT, LEFT) == [("r1", 4), ("r2", 3), ("l1", 3), ("l2", 1)]


def test_a_whole_sub_tree_outranks_a_sibling_whatever_a_cousin_does() -> None:
    calm = account("calm", 1, user("greedy", 1, 10), user("idle", 1, 0))
    busy = account("busy", 1, user("modest", 1, 1), user("heavy", 1, 80))
    assert [name for name, _ in _ranks(busy, calm)] == ["idle", "greedy", "modest", "heavy"]


def test_an_empty_tree_ranks_nobody() -> None:
    assert fair_tree(account("root", 1)) == ()


def test_classic_factors_are_those_that_are_printed() -> None:
    printed = {"u1": 408_479, "u2": 22_097, "u3": 125_000, "u4": 500_000, "u5": 749_154}
    assert {one.name: one.factor_ppm() for one in classic(WORKED, 100)} == printed


def test_classic_orders_by_the_factor_without_making_it() -> None:
    assert [one.name for one in classic(WORKED, 100)] == ["u5", "u4", "u1", "u3", "u2"]


def test_effective_usage_of_the_accounts() -> None:
    found = {one.name: one.effective_usage for one in standings(WORKED, 100)}
    assert {name: found[name] for name in "BCE"} == {
        "B": Fraction(3875, 10_000),
        "C": Fraction(3, 10),
        "E": Fraction(1, 4),
    }
    assert round(found["F"] * 10_000) == 1458


def test_a_total_below_what_the_tree_used_is_refused() -> None:
    with pytest.raises(ValueError, match="total_usage 69 is less than the 70"):
        classic(WORKED, 69)


def test_a_user_without_a_share_comes_last_with_factor_0() -> None:
    found = classic(account("root", 1, user("none", 0, 0), user("some", 1, 9)), 9)
    assert [(one.name, one.factor_ppm()) for one in found] == [("some", 500_000), ("none", 0)]


def test_a_half_life_leaves_exactly_a_half_and_not_what_a_first_order_constant_leaves() -> None:
    assert faded(10_000_000, WEEK_MS, WEEK_MS) == 5_000_000
    scale = 1 << 64
    per_second = scale - scale * 693 // (1000 * 7 * 86_400)
    left = scale
    for _ in range(7 * 86_400):
        left = left * per_second >> 64
    assert round(left * 100_000 / scale) == 50_007  # what Slurm's constant leaves


@pytest.mark.parametrize("halvings", range(6))
def test_whole_half_lives_are_exact(halvings: int) -> None:
    assert faded(1 << 20, halvings * WEEK_MS, WEEK_MS) == 1 << (20 - halvings)


def test_without_a_half_life_nothing_fades_and_after_very_many_nothing_is_left() -> None:
    assert faded(7, WEEK_MS, 0) == 7
    assert faded(7, 10**15, 1) == 0


@pytest.mark.parametrize("sixteenth", range(1, 64))
def test_parts_of_a_half_life_agree_with_floats_to_twelve_places(sixteenth: int) -> None:
    assert half_to_the(Fraction(sixteenth, 16), 10**12) == pytest.approx(2 ** (-sixteenth / 16) * 10**12, abs=1)


def test_nothing_grows_by_getting_older() -> None:
    with pytest.raises(ValueError, match="exponent -1 is negative"):
        half_to_the(Fraction(-1), 10)
