"""The tree as arithmetic: shares by prefix rounding sum exactly (decisions.md 2.2)."""

import random

import pytest

from fairlease.core.budget import Node, Tree


def tree(**weights: int) -> Tree:
    """`org__team=3` hangs `team` below `org`."""
    result = Tree()
    for name, weight in weights.items():
        parent, _, leaf = name.rpartition("__")
        result = result.with_node(leaf, Node(parent, weight))
    return result


@pytest.mark.parametrize(
    ("weights", "amount", "parts"),
    [
        pytest.param({"a": 1}, 7, {"a": 7}, id="an only child gets all"),
        pytest.param({"a": 1, "b": 1}, 7, {"a": 3, "b": 4}, id="what is left over goes to the later"),
        pytest.param({"a": 1, "b": 1, "c": 1}, 10, {"a": 3, "b": 3, "c": 4}, id="three thirds of ten"),
        pytest.param({"a": 1, "b": 1, "c": 1}, 1, {"a": 0, "b": 0, "c": 1}, id="less than there are children"),
        pytest.param({"a": 2, "b": 3}, 0, {"a": 0, "b": 0}, id="nothing"),
        pytest.param({"a": 999_999, "b": 1}, 10**15, {"a": 999_999 * 10**9, "b": 10**9}, id="very unlike weights"),
        pytest.param({}, 5, {}, id="no children"),
    ],
)
def test_an_amount_is_divided_by_weight(weights: dict[str, int], amount: int, parts: dict[str, int]) -> None:
    # rule: 2.1 2.2
    assert tree(**weights).split("", amount) == parts


@pytest.mark.parametrize("seed", range(30))
def test_children_sum_to_their_parent_at_every_level(seed: int) -> None:
    # rule: 2.1 2.2
    chance = random.Random(seed)
    whole = Tree()
    for n in range(chance.randint(1, 25)):
        parent = chance.choice(["", *whole.nodes])
        whole = whole.with_node(f"n{n}", Node(parent, chance.randint(1, 1_000_000)))
    amount = chance.randint(0, 10**18)
    parts = whole.split_all(amount)
    assert set(parts) == set(whole.nodes)
    for parent in ["", *whole.nodes]:
        children = whole.children(parent)
        if children:
            assert sum(parts[child] for child in children) == (parts[parent] if parent else amount)


def test_no_part_is_more_than_one_off_its_exact_share() -> None:
    # rule: 2.1
    parts = tree(a=3, b=7, c=11, d=13).split("", 1_000_003)
    for name, weight in {"a": 3, "b": 7, "c": 11, "d": 13}.items():
        assert abs(parts[name] * 34 - 1_000_003 * weight) < 34


def test_siblings_stand_in_the_order_of_their_ids_however_they_came() -> None:
    # rule: 2.2
    one, other = tree(b=1, a=2, c=3), tree(c=3, a=2, b=1)
    assert one == other
    assert list(one.nodes) == ["a", "b", "c"]


def test_a_walk_goes_depth_first_with_siblings_by_id() -> None:
    whole = tree(org=1, org__b=1, org__a=1, lab=1, b__x=1)
    assert list(whole.walk()) == [("lab", 0), ("org", 0), ("a", 1), ("b", 1), ("x", 2)]


@pytest.mark.parametrize(
    ("name", "path", "is_leaf"),
    [("x", ["x", "b", "org"], True), ("org", ["org"], False), ("lab", ["lab"], True), ("nowhere", [], False)],
)
def test_a_path_leads_to_a_child_of_the_root(name: str, path: list[str], is_leaf: bool) -> None:
    whole = tree(org=1, org__b=1, lab=1, b__x=1)
    assert (whole.path(name), whole.is_leaf(name)) == (path, is_leaf)
