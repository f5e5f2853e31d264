"""Who is next: three partitions, standings that move with every grant, classes that block as one."""

import pytest

from fairlease.core.fairshare.next_pick import Picker
from fairlease.core.fairshare.scales import Node as _Node
from fairlease.core.fairshare.scales import compare_standing
from fairlease_schemas.cycle import Licence, NodeStanding, PoolRank, RequestClass
from fairlease_schemas.envelope import Address

GPU_MS = 1_000


def node(budget: str, spent: int = 0, entitled: int = 1_000, weight: int = 1, parent: str = "") -> NodeStanding:
    return NodeStanding(
        budget=budget, weight=weight, entitled_gpu_ms=entitled, used_gpu_ms=spent, parent=parent, promised_gpu_ms=0
    )


def of(key: str, budget: str = "a", *, gpus: int = 1, window_ms: int = GPU_MS, count: int = 9) -> RequestClass:
    return RequestClass(key=key, budget=budget, hosts=1, gpus_per_host=gpus, min_runtime_ms=window_ms, count=count)


def picker(*nodes: NodeStanding, line: str, **partitions: tuple[RequestClass, ...]) -> Picker:
    """`line` is the order of submission, one letter a job: `xyx` are x1, y2, x3 of the classes x and y."""
    members: dict[str, list[tuple[Address, str]]] = {}
    for place, key in enumerate(line, 1):
        members.setdefault(key, []).append((Address(1, place, 0), f"{key}{place}"))
    rank = PoolRank(pool="h100", schedulable_gpus=8, nodes=nodes, **partitions)
    return Picker(rank, lambda key: members.get(key, []))


def order(picks: Picker, block: str = "") -> str:
    """Jobs in the order in which they are tried; classes in `block` cannot be placed, granted jobs are passed over."""
    names: list[str] = []
    granted: set[str] = set()
    while (pick := picks.next()) is not None:
        if pick.job in granted:
            picks.skip()
            continue
        names.append(pick.job)
        if pick.of.key in block:
            picks.blocked()
        else:
            granted.add(pick.job)
            picks.granted()
    return " ".join(names)


# standings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(node("b", 1, 3), node("a", 2, 3), id="the smaller ratio"),
        pytest.param(node("b", 1, 3), node("a", 334, 1_000), id="by the last permille"),
        pytest.param(node("b", 10**30, 3 * 10**30 + 1), node("a", 1, 3), id="exactly, however large"),
        pytest.param(node("b", 5, 1), node("a", 0, 0), id="who is entitled to nothing comes last"),
        pytest.param(node("b", 0, 0, weight=2), node("a", 0, 0), id="of two such the heavier"),
        pytest.param(node("a", 7, 0), node("b", 0, 0), id="their use does not matter"),
        pytest.param(node("b", 1, 2, weight=2), node("a", 2, 4), id="a tie: the heavier"),
        pytest.param(node("a", 1, 2), node("b", 2, 4), id="a tie of weights: the id"),
    ],
)
def test_the_least_standing_goes_first(first: NodeStanding, second: NodeStanding) -> None:
    # rule: 3.2
    assert compare_standing(_Node(first), _Node(second)) < 0
    assert compare_standing(_Node(second), _Node(first)) > 0


# budgeted work --------------------------------------------------------------------------------------


def test_a_leaf_is_served_by_first_submission_across_its_classes() -> None:
    # rule: 3.2
    assert order(picker(node("a"), line="xyxy", leaves=(of("x"), of("y")))) == "x1 y2 x3 y4"


def test_each_grant_charges_its_path_so_that_leaves_take_turns() -> None:
    # rule: 3.2
    both = (of("x", "a"), of("y", "b"))
    assert order(picker(node("a"), node("b"), line="xxxyyy", leaves=both)) == "x1 y4 x2 y5 x3 y6"


def test_a_heavier_leaf_gets_more_turns() -> None:
    # rule: 3.2 2.1
    both = (of("x", "a"), of("y", "b"))
    picks = picker(node("a", entitled=1_000), node("b", entitled=2_000, weight=2), line="xxxyyy", leaves=both)
    assert order(picks) == "y4 x1 y5 y6 x2 x3"


def test_the_charge_is_gpus_times_window() -> None:
    # rule: 3.2
    big = of("x", "a", gpus=4, window_ms=GPU_MS)
    picks = picker(node("a"), node("b"), line="xxyyyyy", leaves=(big, of("y", "b")))
    assert order(picks) == "x1 y3 y4 y5 y6 x2 y7"


def test_a_block_charges_nobody_and_takes_the_whole_class_out() -> None:
    # rule: 3.2 4.4
    both = (of("x", "a"), of("y", "a"), of("z", "b"))
    assert order(picker(node("a"), node("b"), line="xyxyzz", leaves=both), block="x") == "x1 y2 z5 y4 z6"


def test_a_job_taken_elsewhere_is_passed_over_and_charges_nobody() -> None:
    picks = picker(node("a"), node("b"), line="xxy", leaves=(of("x", "a"), of("y", "b")))
    assert picks.next() is not None
    picks.skip()
    assert order(picks) == "x2 y3"


def test_from_the_root_down_the_organisation_that_stands_lower_goes_first() -> None:
    # rule: 3.2
    nodes = (
        node("org", 500),
        node("a", 0, parent="org"),
        node("lab", 100),
        node("b", 900, parent="lab"),
        node("c", 800, parent="lab"),
    )
    leaves = (of("x", "a"), of("y", "b"), of("z", "c"))
    assert order(picker(*nodes, line="xyz", leaves=leaves), block="xyz") == "z3 y2 x1"


def test_members_that_came_after_the_rank_wait_for_the_next() -> None:
    assert order(picker(node("a"), line="xxxx", leaves=(of("x", count=2),))) == "x1 x2"


def test_a_class_that_has_emptied_since_is_passed_over() -> None:
    assert order(picker(node("a"), line="y", leaves=(of("x"), of("y")))) == "y1"


def test_a_class_of_an_unknown_budget_is_passed_over() -> None:
    assert order(picker(node("a"), line="xy", leaves=(of("x", "gone"), of("y")))) == "y2"


def test_nobody_waits() -> None:
    assert picker(line="").next() is None


# licences -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spent", "entitled", "licence"),
    [
        pytest.param(0, 1, Licence.UNDER_SHARE, id="nothing used"),
        pytest.param(999, 1_000, Licence.UNDER_SHARE, id="just below"),
        pytest.param(1_000, 1_000, Licence.OVER_SHARE, id="exactly its share"),
        pytest.param(0, 0, Licence.OVER_SHARE, id="entitled to nothing"),
    ],
)
def test_the_licence_says_on_which_side_of_its_share_the_leaf_stands(
    spent: int, entitled: int, licence: Licence
) -> None:
    # rule: 3.6 3.7
    pick = picker(node("a", spent, entitled), line="x", leaves=(of("x"),)).next()
    assert pick is not None
    assert pick.licence is licence


def test_the_same_pick_is_told_until_it_is_dealt_with() -> None:
    picks = picker(node("a"), line="xx", leaves=(of("x"),))
    assert picks.next() == picks.next()


# partitions -----------------------------------------------------------------------------------------


def test_the_lane_goes_first_then_budgets_then_idle_work() -> None:
    # rule: 3.1 3.2 3.3
    lane, plain, idle = of("d"), of("x"), of("i", window_ms=0)
    picks = picker(node("a"), line="ixd", lane=(lane,), leaves=(lane, plain), idle=(idle,))
    assert order(picks) == "d3 x2 i1"


def test_the_lane_is_in_order_of_submission_and_charges_like_everything_else() -> None:
    # rule: 3.1
    d, e = of("d", "a"), of("e", "b")
    leaves = (d, of("x", "a"), e, of("y", "b"))
    assert order(picker(node("a"), node("b"), line="eddxy", lane=(d, e), leaves=leaves)) == "e1 d2 d3 y5 x4"


def test_what_the_lane_does_not_take_ranks_as_ordinary_work() -> None:
    # rule: 3.1
    d = of("d")
    picks = picker(node("a"), line="xd", lane=(d,), leaves=(of("x"), d))
    assert picks.next() is not None
    picks.blocked()
    assert order(picks) == "x1 d2"


def test_idle_work_is_by_submission_whoever_stands_where() -> None:
    # rule: 3.3
    idle = (of("i", "a", window_ms=0), of("j", "b", window_ms=0))
    picks = picker(node("a", 10**6), node("b"), line="ijij", idle=idle)
    assert order(picks) == "i1 j2 i3 j4"
