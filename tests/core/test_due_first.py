"""Leaves that are due more come first, and get back what others hold beyond their due (3.2, 3.6)."""

import pytest

from fairlease.core.fairshare.next_pick import Picker
from fairlease.core.fairshare.scales import Scales
from fairlease.core.preemption.licence import Permit
from fairlease.core.view import rank_view
from fairlease_schemas.cycle import Licence, NodeStanding, PoolRank, RequestClass
from fairlease_schemas.envelope import Address
from fairlease_schemas.reasons import Reason
from tests.core.bench import evictions, idle, victims, whole
from tests.dsl.cell import HOUR, MINUTE, Cell

UNDER = Licence.UNDER_SHARE


def node(budget: str, spent: int, parent: str = "", entitled: int = 1_000) -> NodeStanding:
    return NodeStanding(budget=budget, weight=1, parent=parent, entitled_gpu_ms=entitled, used_gpu_ms=spent)


def tree(a: int, b: int, *, org: int, lab: int) -> tuple[NodeStanding, ...]:
    """Leaf a below org, leaf b below lab, with these standings in permille."""
    return node("org", org), node("a", a, "org"), node("lab", lab), node("b", b, "lab")


# who is next ----------------------------------------------------------------------------------------


def order(nodes: tuple[NodeStanding, ...], due_first_permille: int, line: str = "xy", window_ms: int = 1) -> str:
    """The jobs in the order in which they are granted; x are of leaf a, y of leaf b."""
    members = {key: [(Address(1, n, 0), f"{key}{n}") for n, name in enumerate(line, 1) if name == key] for key in "xy"}
    leaves = tuple(
        RequestClass(key=key, budget=leaf, hosts=1, gpus_per_host=1, min_runtime_ms=window_ms, count=9)
        for key, leaf in (("x", "a"), ("y", "b"))
    )
    rank = PoolRank(pool="h100", schedulable_gpus=8, nodes=nodes, leaves=leaves)
    picker = Picker(rank, lambda key: members[key], due_first_permille=due_first_permille)
    names: list[str] = []
    while (pick := picker.next()) is not None:
        names.append(pick.job)
        picker.granted()
    return " ".join(names)


@pytest.mark.parametrize(
    ("a", "b", "due", "first"),
    [
        pytest.param(900, 1_100, 0, "y2 x1", id="without: the organisation that stands lower"),
        pytest.param(900, 1_100, 1_000, "x1 y2", id="the leaf that is due more, though its organisation stands higher"),
        pytest.param(999, 1_000, 1_000, "x1 y2", id="by a thousandth"),
        pytest.param(900, 950, 1_000, "y2 x1", id="both are due more: the organisation that stands lower"),
        pytest.param(1_000, 1_100, 1_000, "y2 x1", id="neither is: the organisation that stands lower"),
        pytest.param(1_000, 1_100, 1_001, "x1 y2", id="what is due is the policy's to say"),
        pytest.param(1_100, 900, 1_000, "y2 x1", id="and its organisation stands lower too"),
    ],
)
def test_who_is_due_more_comes_first_whatever_stands_above(a: int, b: int, due: int, first: str) -> None:
    # rule: 3.2
    assert order(tree(a, b, org=990, lab=980), due) == first


def test_who_reaches_its_due_by_a_grant_comes_first_no_more() -> None:
    # rule: 3.2
    nodes = tree(900, 1_100, org=990, lab=980)
    assert order(nodes, 1_000, "xxxyy", window_ms=50) == "x1 x2 y4 y5 x3"


def test_a_leaf_without_candidates_holds_nobody_up() -> None:
    # rule: 3.2
    assert order(tree(100, 1_100, org=990, lab=980), 1_000, "yy") == "y1 y2"


def test_who_is_entitled_to_nothing_is_due_nothing() -> None:
    # rule: 3.2
    nodes = (node("a", 0, entitled=0), node("b", 5_000))
    assert order(nodes, 1_000) == "y2 x1"


# whose work leaves ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "org", "lab", "due", "may_evict"),
    [
        pytest.param(900, 1_100, 990, 980, 0, False, id="without: the organisations are compared"),
        pytest.param(900, 1_100, 990, 980, 1_000, True, id="what b holds beyond its due leaves for a"),
        pytest.param(980, 1_000, 990, 980, 1_000, False, id="the leaves are compared with the margin"),
        pytest.param(979, 1_000, 990, 980, 1_000, True, id="and by one permille more than it"),
        pytest.param(900, 999, 990, 980, 1_000, False, id="b is due more itself"),
        pytest.param(1_000, 1_100, 990, 980, 1_000, False, id="a has its due"),
        pytest.param(1_000, 1_100, 900, 980, 1_000, True, id="both have: the organisations are compared"),
        pytest.param(900, 950, 900, 980, 1_000, True, id="neither has: the organisations are compared"),
        pytest.param(1_000, 950, 900, 980, 1_000, False, id="who has its due takes nothing from who has not"),
        pytest.param(1_000, 950, 900, 980, 0, True, id="as it does without"),
        pytest.param(995, 1_000, 900, 980, 1_000, True, id="what the organisations allow stays allowed"),
        pytest.param(1_050, 1_200, 990, 980, 1_100, False, id="a leaf at its share evicts nobody, whatever it is due"),
    ],
)
def test_what_a_leaf_holds_beyond_its_due_leaves_for_one_that_is_due_more(
    a: int, b: int, org: int, lab: int, due: int, may_evict: bool
) -> None:
    # rule: 3.6 5.2
    scales = Scales(tree(a, b, org=org, lab=lab))
    asked = {"window_gpu_ms": 0, "margin_permille": 20, "due_first_permille": due}
    assert Permit(scales, "a", UNDER, **asked).over("b") is may_evict
    at_once = Permit(scales, "a", UNDER, **asked).signature(("b", "nowhere", "a"))
    assert bool(at_once[2]) is may_evict, "asked of all leaves at once it is the same"


def test_an_ancestor_is_nobody_to_be_compared_with() -> None:
    """Jobs are in leaves alone (1.1); were there some above them, both ways to ask would say the same."""
    # rule: 3.6
    nodes = (node("x", 1_500), node("y", 0, "x"), node("z", 0, "y"))
    for claimant in ("z", "x"):
        permit = Permit(Scales(nodes), claimant, UNDER, window_gpu_ms=0, margin_permille=20, due_first_permille=1_000)
        asked = [permit.over(victim) for victim in ("x", "y", "z")]
        again = Permit(Scales(nodes), claimant, UNDER, window_gpu_ms=0, margin_permille=20, due_first_permille=1_000)
        assert (asked, again.signature(("x", "y", "z"))[2]) == ([False] * 3, 0)


def test_the_new_window_counts_in_the_comparison_of_leaves() -> None:
    # rule: 3.6 5.2
    scales = Scales(tree(900, 1_100, org=990, lab=980))
    for window, may_evict in ((179, True), (180, False)):
        permit = Permit(scales, "a", UNDER, window_gpu_ms=window, margin_permille=20, due_first_permille=1_000)
        assert permit.over("b") is may_evict


@pytest.mark.parametrize(
    ("a", "b", "sides"),
    [
        pytest.param(1_000, 950, ("a", "b"), id="who has its due is told of the leaf that has not"),
        pytest.param(900, 950, ("org", "lab"), id="both are due more"),
        pytest.param(1_000, 1_000, ("org", "lab"), id="neither is"),
        pytest.param(900, 1_000, ("org", "lab"), id="the victim has its due"),
    ],
)
def test_a_refusal_names_what_was_compared(a: int, b: int, sides: tuple[str, str]) -> None:
    # rule: 3.6
    scales = Scales(tree(a, b, org=900, lab=980))
    found = Permit(scales, "a", UNDER, window_gpu_ms=0, margin_permille=20, due_first_permille=1_000).comparison("b")
    assert found is not None
    assert tuple(node.name for node in found) == sides


def test_the_lane_is_compared_as_ever() -> None:
    # rule: 3.5
    scales = Scales(tree(1_000, 950, org=900, lab=980))
    permit = Permit(scales, "a", Licence.DEBUG, window_gpu_ms=0, margin_permille=20, due_first_permille=1_000)
    assert permit.over("b")


# the story ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("due", [0, 1_000], ids=["by organisations alone", "due first"])
def test_siblings_of_a_gang_that_cannot_start_give_back_what_is_not_theirs(due: int) -> None:
    """`org` is due three hosts; `big` of it waits for eight, and `small`, which is due one, runs on three.

    So `org` has its due, and `lab`, which began its third host late, has less, but not by the margin. `c` asks for one.
    """
    # rule: 3.6
    here = Cell().hosts(8).budgets(org=3, lab=3, other=2, org__big=2, org__small=1, lab__c=1, other__d=1)
    here.policy(
        entitlement_floor_ms=HOUR,
        promises_per_pool=0,
        margin_permille=100,
        licence_window_permille=1,
        due_first_permille=due,
    )
    theirs = [whole(here, f"s{n}", "small", min_runtime_ms=15 * MINUTE) for n in range(3)]
    for name, leaf, window in (("d1", "d", 4 * HOUR), ("d2", "d", 4 * HOUR), ("c1", "c", HOUR), ("c2", "c", HOUR)):
        whole(here, name, leaf, min_runtime_ms=window)
    here.submit("giant", "big", hosts=8, gpus_per_host=8, min_runtime_ms=HOUR, timeout_ms=24 * HOUR)
    here.at(30 * MINUTE)
    whole(here, "c3", "c", min_runtime_ms=15 * MINUTE)
    here.at(3 * HOUR)
    claim = whole(here, "c4", "c", min_runtime_ms=15 * MINUTE)
    assert [order.claim for order in evictions(here)] == ([claim] if due else [])
    assert set(victims(here)) <= set(theirs)


@pytest.mark.parametrize("due", [0, 1_000], ids=["by organisations alone", "due first"])
def test_who_has_its_due_takes_from_others_that_have_it_alone(due: int) -> None:
    """`org` stands lower than `lab`, because nobody in `big` asks; `small` holds twice its due and asks for more.

    Of `lab`, c has less than its due and would lose least; d holds three times its own.
    """
    # rule: 3.6
    here = Cell().hosts(6).budgets(org=3, lab=3, org__big=2, org__small=1, lab__c=2, lab__d=1)
    here.policy(entitlement_floor_ms=HOUR, promises_per_pool=0, licence_window_permille=1, due_first_permille=due)
    for name, leaf in (("s1", "small"), ("s2", "small"), ("d1", "d"), ("d2", "d"), ("d3", "d")):
        whole(here, name, leaf, min_runtime_ms=15 * MINUTE)
    here.at(HOUR)
    late = whole(here, "c1", "c", min_runtime_ms=15 * MINUTE)
    here.at(5 * HOUR)
    whole(here, "s3", "small", min_runtime_ms=15 * MINUTE)
    (victim,) = victims(here)
    assert (victim == late) is (not due)
    assert here.world.jobs[victim].budget == ("d" if due else "c")


def uneven(hosts: int, **numbers: object) -> Cell:
    """Two hours: `small`, due one host of six, has had two; `c`, due three, has had two, and since an hour three.

    So `org`, of which nobody else ran, stands lower than `lab`, but `c` is due more, and `small` is not.
    """
    here = Cell().hosts(hosts).budgets(org=3, lab=3, org__big=2, org__small=1, lab__c=1)
    here.policy(**({"entitlement_floor_ms": HOUR, "promises_per_pool": 0, "due_first_permille": 1_000} | numbers))
    for name, leaf in (("s1", "small"), ("s2", "small"), ("c1", "c"), ("c2", "c")):
        whole(here, name, leaf, min_runtime_ms=15 * MINUTE)
    here.at(HOUR)
    whole(here, "c3", "c", min_runtime_ms=15 * MINUTE)
    return here.at(2 * HOUR)


@pytest.mark.parametrize("due", [0, 1_000], ids=["by the tree", "due first"])
def test_a_free_host_goes_to_the_leaf_that_is_due_more(due: int) -> None:
    # rule: 3.2
    here = uneven(6, due_first_permille=due)
    theirs = whole(here, "s3", "small", min_runtime_ms=HOUR, settle=False)
    ours = whole(here, "c4", "c", min_runtime_ms=HOUR, settle=False)
    assert [row.job for row in rank_view(here.world, 9).rows] == ([ours, theirs] if due else [theirs, ours])
    here.settle()
    assert (here.phase(ours), here.phase(theirs)) == (("granted", "waiting") if due else ("waiting", "granted"))


def test_who_has_claimed_its_due_comes_first_no_more() -> None:
    """The window of c's first claim is more than c is due: the next turn is by the tree, and its other claim waits."""
    # rule: 3.2 5.2
    here = uneven(7)
    idle(here, "i1", budget="c")
    idle(here, "i2", budget="c")
    first = whole(here, "c4", "c", min_runtime_ms=4 * HOUR, settle=False)
    whole(here, "c5", "c", min_runtime_ms=3 * HOUR, settle=False)
    theirs = whole(here, "s3", "small", min_runtime_ms=HOUR, settle=False)
    here.settle()
    assert [order.claim for order in evictions(here)] == [first, theirs]


def test_who_has_its_due_saves_for_itself_alone() -> None:
    """s3 is refused because of c, which is due more: its side is `small`, and not `org`, of which `big` is due more."""
    # rule: 3.4 3.6
    here = uneven(6)
    whole(here, "c4", "c", min_runtime_ms=15 * MINUTE)
    here.at(2 * HOUR + 15 * MINUTE)
    whole(here, "s3", "small", min_runtime_ms=15 * MINUTE)
    (reason,) = here.world.reasons_of("placement").values()
    assert (reason.code, reason.evidence.level, reason.evidence.other) == (Reason.WINDOW_OVERSHARE, "small", "c")


@pytest.mark.parametrize("due", [0, 1_000], ids=["saving goes first", "due first"])
def test_who_is_due_more_does_not_wait_behind_a_saver_that_is_not(due: int) -> None:
    """A gang of `small`, which has four times its due, waits for the standing of `org`, and so `org` saves for it.

    `big` of `org` has nothing, and waits behind it, unless what is due comes first.
    """
    # rule: 3.4
    here = Cell().hosts(8).budgets(org=4, lab=4, org__big=3, org__small=1, lab__c=4)
    here.policy(entitlement_floor_ms=HOUR, promises_per_pool=0, saving_after_ms=HOUR, due_first_permille=due)
    for n in range(4):
        whole(here, f"s{n}", "small", min_runtime_ms=15 * MINUTE)
        whole(here, f"c{n}", "c", min_runtime_ms=15 * MINUTE)
    here.at(2 * HOUR)
    gang = {"gpus_per_host": 8, "timeout_ms": 24 * HOUR}
    here.submit("gang", "small", hosts=4, min_runtime_ms=HOUR, **gang)
    here.at(4 * HOUR)
    (reason,) = here.world.reasons_of("placement").values()
    assert (reason.code, reason.evidence.level) == (Reason.WINDOW_OVERSHARE, "org")
    late = here.submit("late", "big", hosts=3, min_runtime_ms=3 * HOUR, **gang)
    codes = {reason.code for reason in here.world.reasons_of("placement").values()}
    assert (Reason.SAVING in codes) is (not due)
    assert [order.claim for order in evictions(here)] == ([late] * 3 if due else [])
