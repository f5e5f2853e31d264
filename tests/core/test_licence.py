"""What a claim may evict: the licence of its partition over the numbers, by table and by story (3.5-3.8, 5.1-5.3)."""

from itertools import pairwise

import pytest

from fairlease.core.fairshare.scales import Scales
from fairlease.core.preemption.licence import Permit
from fairlease_schemas.cycle import EvictionOrdered, Licence, NodeStanding, ReservationMade
from tests.core.bench import (
    DEBUG,
    cell,
    evicted,
    evictions,
    grants,
    idle,
    kept,
    left,
    saved,
    victims,
    whole,
)
from tests.dsl.cell import HOUR, MINUTE, Cell

MARGIN = 20
UNDER, OVER = Licence.UNDER_SHARE, Licence.OVER_SHARE


def node(budget: str, spent: int, entitled: int = 1_000, parent: str = "") -> NodeStanding:
    return NodeStanding(budget=budget, weight=1, parent=parent, entitled_gpu_ms=entitled, used_gpu_ms=spent)


def permit(
    *nodes: NodeStanding, window: int, leaf: str = "a", licence: Licence = UNDER, margin: int = MARGIN, part: int = 0
) -> Permit:
    return Permit(Scales(nodes), leaf, licence, window_gpu_ms=window, margin_permille=margin, window_permille=part)


# the comparison -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "window", "may_evict"),
    [
        pytest.param((100, 1_000), (221, 1_000), 100, True, id="with its window and the margin it stays below"),
        pytest.param((100, 1_000), (220, 1_000), 100, False, id="exactly at the margin is not below"),
        pytest.param((0, 1_000), (21, 1_000), 0, True, id="who counts already brings no new window"),
        pytest.param((999, 1_000), (1_020, 1_000), 0, True, id="just below its share"),
        pytest.param((1_000, 1_000), (9_000, 1_000), 0, False, id="exactly its share: idle work only"),
        pytest.param((1_001, 1_000), (9_000, 1_000), 0, False, id="above its share"),
        pytest.param((1, 3), (7, 14), 0, True, id="a third and the margin is less than a half"),
        pytest.param((1, 3), (5, 14), 0, True, id="by four permille more than the margin"),
        pytest.param((1, 3), (7, 20), 0, False, id="by three permille less than the margin"),
        pytest.param((0, 10**18), (2 * 10**16 + 1, 10**18), 0, True, id="exactly, however large"),
        pytest.param((0, 10**18), (2 * 10**16, 10**18), 0, False, id="exactly equal, however large"),
        pytest.param((0, 0), (9_000, 1_000), 0, False, id="who is entitled to nothing outweighs nobody"),
        pytest.param((0, 1_000), (1, 0), 900, True, id="who holds without entitlement is outweighed by all"),
    ],
)
def test_past_window_work_yields_to_a_side_that_stays_more_than_the_margin_below(
    ours: tuple[int, int], theirs: tuple[int, int], window: int, may_evict: bool
) -> None:
    # rule: 5.2 3.6 3.7
    assert permit(node("a", *ours), node("b", *theirs), window=window).over("b") is may_evict


@pytest.mark.parametrize(
    ("licence", "victim", "may_evict"),
    [
        pytest.param(UNDER, "a", False, id="nobody evicts his own leaf's work"),
        pytest.param(Licence.DEBUG, "a", True, id="but debug does"),
        pytest.param(UNDER, "b", True, id="below the sibling"),
        pytest.param(OVER, "b", True, id="a leaf above its share may stand below at the level that counts"),
        pytest.param(Licence.IDLE, "b", False, id="idle work evicts nothing"),
        pytest.param(Licence.IDLE, "a", False, id="not even its own"),
        pytest.param(UNDER, "nowhere", False, id="a budget that the rank did not know"),
    ],
)
def test_whose_work_a_licence_reaches(licence: Licence, victim: str, may_evict: bool) -> None:
    # rule: 3.5 3.6 3.8
    assert permit(node("a", 0), node("b", 100), window=10, licence=licence).over(victim) is may_evict


@pytest.mark.parametrize(
    ("theirs", "licence", "may_evict"),
    [
        pytest.param(101, Licence.DEBUG, True, id="debug needs no margin"),
        pytest.param(100, Licence.DEBUG, False, id="but must stand below"),
        pytest.param(120, UNDER, False, id="others need it"),
        pytest.param(121, UNDER, True, id="and may with it"),
    ],
)
def test_the_margin_is_not_asked_of_debug_claims(theirs: int, licence: Licence, may_evict: bool) -> None:
    # rule: 3.5 5.2
    assert permit(node("a", 0), node("b", theirs), window=100, licence=licence).over("b") is may_evict


def test_a_debug_claim_above_its_share_is_still_compared() -> None:
    # rule: 3.5
    over = permit(node("a", 1_500), node("b", 1_700), window=100, licence=Licence.DEBUG)
    assert over.over("b")


@pytest.mark.parametrize(
    ("part", "theirs", "may_evict"),
    [
        pytest.param(0, 150_000, False, id="without a part the whole window counts"),
        pytest.param(0, 150_001, True, id="and is outweighed by more"),
        pytest.param(100, 10_001, True, id="a tenth of what the side is entitled to"),
        pytest.param(100, 10_000, False, id="one GPU-millisecond less outweighs nobody"),
        pytest.param(2_000, 150_000, False, id="a part that is larger than the window leaves it whole"),
        pytest.param(2_000, 150_001, True, id="and it is outweighed as without"),
        pytest.param(1, 101, True, id="a thousandth"),
        pytest.param(1, 100, False, id="a thousandth, one less"),
    ],
)
def test_a_new_window_counts_at_most_a_part_of_the_entitlement(part: int, theirs: int, may_evict: bool) -> None:
    # rule: 5.2
    ours, victim = node("a", 0, 100_000), node("b", theirs, 100_000)
    found = permit(ours, victim, window=150_000, margin=0, part=part)
    assert found.over("b") is may_evict
    assert bool(found.signature(("b",))[2]) is may_evict, "asked of all leaves at once it is the same"


def test_the_part_is_of_the_side_that_is_compared_not_of_the_leaf() -> None:
    """At the level where both sides part, `org` is entitled to twice what its leaf is."""
    # rule: 5.2
    tree = (node("org", 0, 200_000), node("a", 0, 100_000, "org"), node("b", 20_001, 200_000), node("c", 0, 0, "org"))
    assert permit(*tree, window=150_000, margin=0, part=100).over("b")
    tree = (node("org", 0, 200_000), node("a", 0, 100_000, "org"), node("b", 20_000, 200_000), node("c", 0, 0, "org"))
    assert not permit(*tree, window=150_000, margin=0, part=100).over("b")


TREE = (
    node("org", 300),
    node("a", 290, 500, "org"),
    node("b", 10, 500, "org"),
    node("lab", 700),
    node("c", 350, 500, "lab"),
    node("d", 350, 500, "lab"),
)


@pytest.mark.parametrize(
    ("claimant", "victim", "sides", "may_evict"),
    [
        pytest.param("b", "a", ("b", "a"), True, id="siblings by themselves"),
        pytest.param("a", "b", ("a", "b"), False, id="and not the other way"),
        pytest.param("a", "c", ("org", "lab"), True, id="cousins by their organisations"),
        pytest.param("c", "a", ("lab", "org"), False, id="whatever the leaves are"),
        pytest.param("c", "d", ("c", "d"), False, id="equals not at all"),
    ],
)
def test_two_sides_are_the_children_of_the_lowest_common_ancestor(
    claimant: str, victim: str, sides: tuple[str, str], may_evict: bool
) -> None:
    # rule: 5.2 3.6
    found = permit(*TREE, leaf=claimant, window=20, margin=20)
    assert found.comparison(victim) is not None
    assert tuple(node.name for node in found.comparison(victim) or ()) == sides
    assert found.over(victim) is may_evict


def test_a_leaf_beside_an_organisation_is_compared_with_it() -> None:
    # rule: 5.2
    found = permit(node("z", 0), *TREE, leaf="z", window=0)
    assert tuple(n.name for n in found.comparison("c") or ()) == ("z", "lab")


# stories --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early_ms", [1, 0], ids=["a millisecond before its end", "at its end"])
def test_a_window_is_never_broken_and_yields_when_it_is_over(early_ms: int) -> None:
    # rule: 5.1 3.6
    here = cell(promises_per_pool=0)
    running = whole(here, "run", min_runtime_ms=HOUR)
    here.at(HOUR - early_ms)
    claim = whole(here, "claim", "b")
    order = [evicted(running, claim, 8 * HOUR)]
    assert evictions(here) == ([] if early_ms else order)


def test_the_freed_host_is_the_claimants_and_the_victim_waits_at_its_old_place() -> None:
    # rule: 3.2 5.1 5.6
    here = cell(promises_per_pool=0)
    running = whole(here, "run", min_runtime_ms=HOUR)
    here.at(HOUR)
    later = whole(here, "later", min_runtime_ms=20 * MINUTE)
    claim = whole(here, "claim", "b")
    assert here.events(EvictionOrdered, ReservationMade) == [evicted(running, claim, 8 * HOUR), kept(claim, 1)]
    left(here.at(HOUR + MINUTE), running)
    assert (here.phase(claim), here.phase(running)) == ("granted", "waiting")
    here.gone(claim)
    assert (here.phase(running), here.phase(later)) == ("granted", "waiting")


def test_who_stands_at_its_share_evicts_idle_work_only() -> None:
    # rule: 3.7
    here = cell(2, entitlement_floor_ms=0, promises_per_pool=0)
    whole(here, "run", "b", min_runtime_ms=15 * MINUTE)
    here.at(15 * MINUTE)
    spare = idle(here, "spare")
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    assert evictions(here) == [evicted(spare, claim, 0, OVER)]


def test_who_stands_at_its_share_evicts_no_budgeted_work_though_the_other_stands_higher() -> None:
    # rule: 3.7
    here = Cell().hosts(3).budgets(a=1, b=2).policy(entitlement_floor_ms=0, promises_per_pool=0)
    for name, budget in (("r1", "a"), ("r2", "a"), ("r3", "b")):
        whole(here, name, budget, min_runtime_ms=15 * MINUTE)
    here.at(15 * MINUTE)
    whole(here, "more", "b", min_runtime_ms=4 * HOUR)
    assert evictions(here) == []


def test_debug_work_evicts_its_own_leafs_past_window_work() -> None:
    # rule: 3.5
    here = cell(promises_per_pool=0)
    running = whole(here, "run", min_runtime_ms=15 * MINUTE)
    here.at(15 * MINUTE - 1)
    claim = here.submit("debug", **DEBUG)
    assert evictions(here) == []
    here.at(17 * MINUTE)
    (order,) = evictions(here)
    assert (victims(here), order.claim, order.licence) == ([running], claim, Licence.DEBUG)


def test_debug_work_never_evicts_other_work_of_the_lane_but_ordinary_claims_do() -> None:
    # rule: 3.5
    here = cell(promises_per_pool=0, margin_permille=1000)
    lane = here.submit("lane", gpus_per_host=4, **(DEBUG | {"min_runtime_ms": MINUTE}))
    plain = here.submit("plain", gpus_per_host=4, min_runtime_ms=HOUR)
    here.at(10 * MINUTE)
    for name, budget in (("own", "a"), ("other", "b")):
        here.submit(name, budget, who="bob", **(DEBUG | {"min_runtime_ms": MINUTE}))
    assert evictions(here) == []
    here.policy(margin_permille=0, promises_per_pool=0)
    claim = here.submit("claim", "b", min_runtime_ms=15 * MINUTE)
    assert victims(here) == [lane]
    assert evictions(here)[0].claim in here.world.reservations
    assert (here.phase(plain), here.phase(claim)) == ("granted", "waiting")


def test_debug_work_inside_its_window_is_protected_like_any_other() -> None:
    # rule: 3.1 5.1
    here = cell(promises_per_pool=0, margin_permille=0)
    lane = here.submit("lane", **(DEBUG | {"gpus_per_host": 8}))
    here.submit("claim", "b", min_runtime_ms=15 * MINUTE)
    here.at(9 * MINUTE)
    assert evictions(here) == []
    here.at(10 * MINUTE)
    assert victims(here) == [lane]


def test_idle_work_yields_to_every_claim_without_a_comparison() -> None:
    # rule: 5.2 3.7
    here = cell(margin_permille=1000)
    spare = idle(here, "spare")
    claim = whole(here, "claim", "b", min_runtime_ms=4 * HOUR)
    assert evictions(here) == [evicted(spare, claim)]


def test_an_organisation_below_its_share_lends_its_licence_to_a_leaf_above_its_own() -> None:
    """The record says under-share, because it was not idle work alone that the licence reached."""
    # rule: 3.6
    here = Cell().hosts(3).budgets(org=1, lab=1, org__a=1, org__b=9, lab__c=1).policy(entitlement_floor_ms=HOUR)
    own = whole(here, "own", "a", min_runtime_ms=15 * MINUTE)
    others = [whole(here, f"c{n}", "c", min_runtime_ms=15 * MINUTE) for n in range(2)]
    here.at(2 * HOUR)
    claim = whole(here, "claim", "a", min_runtime_ms=15 * MINUTE)
    (order,) = evictions(here)
    assert (order.claim, order.licence) == (claim, UNDER)
    assert victims(here)[0] in others
    assert here.phase(own) == "granted"


def test_the_second_claim_of_a_cycle_is_compared_with_the_window_of_the_first() -> None:
    # rule: 5.2
    here = cell(2, promises_per_pool=0, margin_permille=0)
    for n in range(2):
        whole(here, f"r{n}", min_runtime_ms=15 * MINUTE)
    here.at(15 * MINUTE)
    first = whole(here, "first", "b", min_runtime_ms=15 * MINUTE, settle=False)
    whole(here, "second", "b", min_runtime_ms=16 * MINUTE, settle=False)
    here.settle()
    assert [order.claim for order in evictions(here)] == [first]


def test_a_grant_that_was_promised_before_is_not_weighed_twice_against_its_side() -> None:
    """In one cycle b's reserved claim is granted and a's claim looks for victims: b's old work is out of its reach."""
    # rule: 5.2 2.5
    here = cell(3, margin_permille=0)
    old = whole(here, "old", "b", min_runtime_ms=15 * MINUTE)
    first, second = idle(here, "i1"), idle(here, "i2")
    here.at(59 * MINUTE)
    reserved = whole(here, "reserved", "b")
    assert victims(here) == [first]
    saved(here.at(HOUR), old)
    claim = whole(here, "claim", "a", min_runtime_ms=105 * MINUTE, settle=False)
    left(here, first)
    assert here.phase(reserved) == "granted"
    assert evictions(here)[1:] == [evicted(second, claim, 8 * HOUR)]


# no ping-pong ---------------------------------------------------------------------------------------


def test_whoever_was_evicted_cannot_evict_back_before_the_window_is_over_and_then_it_is_a_turn() -> None:
    # rule: 5.3
    here = cell(promises_per_pool=0, margin_permille=0)
    first = whole(here, "first", "a", min_runtime_ms=15 * MINUTE)
    here.at(15 * MINUTE)
    second = whole(here, "second", "b", min_runtime_ms=15 * MINUTE)
    for n in range(1, 7):
        here.at((15 + n) * MINUTE)
        if n == 1:
            left(here, first)
    assert (here.phase(second), victims(here)) == ("granted", [first])
    here.at(31 * MINUTE - 1)
    assert victims(here) == [first]
    here.at(2 * HOUR)
    assert victims(here) == [first, second]


def test_at_one_log_time_every_chain_of_evictions_ends() -> None:
    """Three leaves want one host, all the time: each grant is protected, so the cell comes to rest."""
    # rule: 5.3
    here = Cell().hosts(1).budgets(a=1, b=1, c=1).policy(margin_permille=0, rank_period_ms=MINUTE)
    jobs = [whole(here, name, name, min_runtime_ms=15 * MINUTE) for name in "abc"]
    for minute in range(5, 180, 5):
        here.at(minute * MINUTE)
        for job in jobs:
            if here.phase(job) == "stopping":
                left(here, job)
    turns = grants(here)
    assert all(one != next_one for one, next_one in pairwise(turns))
    assert set(turns) == set(jobs)
    starts = [attempt.granted_ms for job in jobs for attempt in here.world.jobs[job].attempts]
    assert min(b - a for a, b in pairwise(sorted(starts))) >= 15 * MINUTE
