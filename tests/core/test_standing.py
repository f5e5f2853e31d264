"""Where everyone stands: entitled, used and promised within the lookback, to the GPU-millisecond."""

import pytest

from fairlease.core.fairshare.fade import Lookback
from fairlease.core.fairshare.standing import entitled_gpu_ms, permille, standings
from fairlease_schemas.commands import CordonHost, ReturnHost
from fairlease_schemas.cycle import NodeStanding
from fairlease_schemas.job import End
from tests.dsl.cell import DAY, HOUR, MINUTE, T0, Cell


def cell(**weights: int) -> Cell:
    """One host of eight GPUs."""
    return Cell().hosts(1).budgets(**(weights or {"a": 1, "b": 3}))


def row(here: Cell, budget: str, at_ms: int, pool: str = "h100") -> NodeStanding:
    return next(n for n in standings(here.world, pool, T0 + at_ms) if n.budget == budget)


def node(budget: str, weight: int, entitled_gpu_ms: int, **fields: object) -> NodeStanding:
    return NodeStanding(budget=budget, weight=weight, entitled_gpu_ms=entitled_gpu_ms, **fields)  # type: ignore[arg-type] # by name


# entitled -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_ms", "entitled"),
    [
        pytest.param(0, 2 * 24 * HOUR, id="a new cell: a day of its share"),
        pytest.param(24 * HOUR, 2 * 24 * HOUR, id="after the floor's length: the same"),
        pytest.param(24 * HOUR + 1, 2 * (24 * HOUR + 1), id="a millisecond later: what was there"),
        pytest.param(7 * DAY, 2 * 7 * DAY, id="exactly the lookback"),
        pytest.param(30 * DAY, 2 * 7 * DAY, id="never more than the lookback"),
    ],
)
def test_entitled_grows_from_the_floor_to_the_lookback(at_ms: int, entitled: int) -> None:
    # rule: 2.2 2.3
    assert row(cell(), "a", at_ms) == node("a", 1, entitled)


def test_a_change_of_weights_starts_a_new_piece() -> None:
    # rule: 2.2
    here = cell(a=1, b=1)
    here.at(2 * DAY).budgets(b=3)
    assert row(here, "a", 2 * DAY).entitled_gpu_ms == 4 * 2 * DAY
    assert row(here, "a", 3 * DAY).entitled_gpu_ms == 4 * 2 * DAY + 2 * DAY
    assert row(here, "b", 3 * DAY).entitled_gpu_ms == 4 * 2 * DAY + 6 * DAY


def test_changes_at_one_instant_are_one_piece() -> None:
    # rule: 2.2
    here = cell(a=1, b=1, c=1, d=5)
    assert [piece.from_ms for piece in here.world.pieces] == [T0]


def test_a_new_budget_has_its_floor_at_once() -> None:
    # rule: 2.3
    here = cell(a=1)
    here.at(6 * DAY).budgets(b=1)
    assert row(here, "b", 6 * DAY) == node("b", 1, 4 * 24 * HOUR)
    assert row(here, "a", 6 * DAY) == node("a", 1, 8 * 6 * DAY)


def test_a_moved_budget_keeps_what_it_was_entitled_to_before() -> None:
    # rule: 2.2
    here = cell(org=1, org__team=1, lab=1)
    here.at(2 * DAY).budgets(lab__team=1)
    assert row(here, "team", 4 * DAY).entitled_gpu_ms == 4 * 2 * DAY + 4 * 2 * DAY
    assert row(here, "team", 4 * DAY).parent == "lab"


def test_children_sum_to_their_parent_between_changes() -> None:
    # rule: 2.2
    here = cell(org=7, lab=3, org__a=1, org__b=1, org__c=1, b__x=2, b__y=5)
    here.at(3 * DAY)
    assert here.world.policy is not None
    parts = entitled_gpu_ms(here.world, "h100", Lookback(here.world.policy, T0 + 3 * DAY + 1))
    assert parts["org"] + parts["lab"] == 8 * (3 * DAY + 1)
    assert parts["a"] + parts["b"] + parts["c"] == parts["org"]
    assert parts["x"] + parts["y"] == parts["b"]


@pytest.mark.parametrize(
    ("for_ms", "parts"),
    [
        pytest.param(1, (0, 0, 1), id="a millisecond of one GPU goes to the last"),
        pytest.param(2, (0, 1, 1), id="of two the first gets none"),
        pytest.param(3, (1, 1, 1), id="three are a third each"),
        pytest.param(100, (33, 33, 34), id="a hundred"),
    ],
)
def test_what_cannot_be_divided_goes_by_prefix(for_ms: int, parts: tuple[int, ...]) -> None:
    # rule: 2.1 2.2
    here = Cell().hosts(1, gpus=1).budgets(a=1, b=1, c=1).policy(entitlement_floor_ms=0)
    assert tuple(row(here, name, for_ms).entitled_gpu_ms for name in "abc") == parts


def test_a_tree_change_begins_a_new_piece_and_carries_no_remainder() -> None:
    """A millisecond of (0, 0, 1) twice, where two in one piece would be (0, 1, 1)."""
    # rule: 2.2
    here = Cell().hosts(1, gpus=1).budgets(a=1, b=1, c=1).policy(entitlement_floor_ms=0)
    here.at(1).budgets(b=2)
    assert [row(here, name, 2).entitled_gpu_ms for name in "abc"] == [0, 0, 2]


def test_a_change_of_capacity_begins_none() -> None:
    """Three GPU-milliseconds of one piece, though the second host came in between."""
    # rule: 2.2
    here = Cell().hosts(1, gpus=1).budgets(a=1, b=1, c=1).policy(entitlement_floor_ms=0)
    here.at(1).hosts(1, gpus=1, first=2)
    assert [row(here, name, 2).entitled_gpu_ms for name in "abc"] == [1, 1, 1]
    assert len({piece.from_ms for piece in here.world.pieces}) == 1


def test_only_schedulable_time_is_divided() -> None:
    # rule: 2.2
    here = cell(a=1)
    here.at(2 * DAY).say(CordonHost(host="host-001"))
    here.at(3 * DAY).say(ReturnHost(host="host-001"))
    assert row(here, "a", 4 * DAY).entitled_gpu_ms == 8 * 3 * DAY


def test_the_floor_follows_present_capacity() -> None:
    # rule: 2.3
    here = cell(a=1)
    here.say(CordonHost(host="host-001"))
    assert row(here, "a", HOUR).entitled_gpu_ms == 0
    here.hosts(1, gpus=4, first=2)
    assert row(here, "a", HOUR).entitled_gpu_ms == 4 * 24 * HOUR


def test_time_before_the_first_budget_is_nobodys() -> None:
    # rule: 2.2
    here = Cell().hosts(1).at(5 * DAY).budgets(a=1)
    assert row(here, "a", 7 * DAY).entitled_gpu_ms == 8 * 2 * DAY


def test_a_pool_without_hosts_entitles_nobody() -> None:
    # rule: 2.7
    assert row(cell(), "b", DAY, "l40s") == node("b", 3, 0)


# used and promised ----------------------------------------------------------------------------------


def test_held_time_is_used_and_the_rest_of_the_window_promised() -> None:
    # rule: 2.4 2.5
    here = cell(a=1)
    here.submit("r1", gpus_per_host=2, min_runtime_ms=HOUR)
    for minute, used, promised in ((0, 0, 60), (20, 20, 40), (60, 60, 0), (90, 90, 0)):
        found = row(here, "a", minute * MINUTE)
        assert (found.used_gpu_ms, found.promised_gpu_ms) == (2 * used * MINUTE, 2 * promised * MINUTE)


def test_a_claim_with_ordered_evictions_is_promised_its_window_until_the_grant() -> None:
    # rule: 2.5
    here = cell(a=1, b=1)
    victim = here.submit("idle", gpus_per_host=8, min_runtime_ms=0)
    claim = here.submit("claim", "b", gpus_per_host=8, min_runtime_ms=HOUR)
    assert here.world.reservations.keys() == {claim}
    assert row(here, "b", 0).promised_gpu_ms == 8 * HOUR
    here.gone(victim, End.CANCELLED, 143)
    assert here.phase(claim) == "granted"
    assert row(here, "b", 0).promised_gpu_ms == 8 * HOUR


def test_a_victim_counts_as_held_until_it_is_gone() -> None:
    # rule: 2.5 2.4
    here = cell(a=1, b=1).policy(margin_permille=0, promises_per_pool=0)
    running = here.submit("run", gpus_per_host=8, min_runtime_ms=HOUR, timeout_ms=DAY)
    here.at(HOUR).submit("claim", "b", gpus_per_host=8)
    assert here.phase(running) == "stopping"
    assert row(here, "a", HOUR + 20 * 1_000).used_gpu_ms == 8 * (HOUR + 20 * 1_000)


def test_a_reservation_that_expires_promises_nothing_any_more() -> None:
    # rule: 2.5 5.6
    here = cell(a=1, b=1)
    here.submit("idle", gpus_per_host=8, min_runtime_ms=0)
    here.submit("claim", "b", gpus_per_host=8, min_runtime_ms=HOUR)
    here.at(3 * MINUTE)
    assert here.world.reservations == {}
    assert row(here, "b", 3 * MINUTE).promised_gpu_ms == 0


def test_start_and_stop_are_held_time() -> None:
    # rule: 2.4
    here = cell(a=1)
    job = here.submit("r1")
    here.at(2 * HOUR)
    assert here.phase(job) == "stopping"
    assert row(here, "a", 2 * HOUR + MINUTE).used_gpu_ms == 2 * HOUR + MINUTE


def test_use_leaves_the_lookback_millisecond_by_millisecond() -> None:
    # rule: 2.4
    here = cell(a=1)
    job = here.submit("r1")
    here.at(HOUR).gone(job)
    for over_ms, used in ((0, HOUR), (1, HOUR - 1), (HOUR - 1, 1), (HOUR, 0)):
        assert row(here, "a", 7 * DAY + over_ms).used_gpu_ms == used


def test_parents_are_the_sum_of_their_children_in_each_pool_apart() -> None:
    # rule: 2.4 2.7
    here = cell(org=1, org__a=1, org__b=1).hosts(1, gpus=4, pool="l40s", first=9)
    here.submit("r1", "a", gpus_per_host=2)
    here.submit("r2", "b", gpus_per_host=3)
    here.submit("r3", "b", gpus_per_host=1, pools=("l40s",))
    used = {
        pool: {n.budget: n.used_gpu_ms for n in standings(here.world, pool, T0 + MINUTE)} for pool in ("h100", "l40s")
    }
    assert used == {
        "h100": {"org": 5 * MINUTE, "a": 2 * MINUTE, "b": 3 * MINUTE},
        "l40s": {"org": MINUTE, "a": 0, "b": MINUTE},
    }


def test_use_is_counted_at_every_level_above_a_leaf() -> None:
    here = cell(org=1, org__dep=1, dep__team=1, team__a=1)
    here.submit("r1", gpus_per_host=2, min_runtime_ms=HOUR)
    rows = {n.budget: (n.used_gpu_ms, n.promised_gpu_ms) for n in standings(here.world, "h100", T0 + 15 * MINUTE)}
    assert rows == dict.fromkeys(("org", "dep", "team", "a"), (2 * 15 * MINUTE, 2 * 45 * MINUTE))


def test_idle_work_is_neither_used_nor_promised() -> None:
    # rule: 2.4 2.5
    here = cell(a=1)
    here.submit("r1", min_runtime_ms=0, gpus_per_host=8)
    assert row(here, "a", HOUR) == node("a", 1, 8 * 24 * HOUR)


def test_a_longer_lookback_sees_what_the_shorter_one_still_remembers() -> None:
    here = cell(a=1).policy(lookback_ms=DAY)
    job = here.submit("r1")
    here.at(HOUR).gone(job)
    here.at(DAY + 30 * MINUTE)
    assert row(here, "a", DAY + 30 * MINUTE).used_gpu_ms == 30 * MINUTE
    here.policy(lookback_ms=2 * DAY)
    assert row(here, "a", DAY + 30 * MINUTE).used_gpu_ms == HOUR
    assert row(here, "a", DAY + 30 * MINUTE).entitled_gpu_ms == 8 * (DAY + 30 * MINUTE)


def test_nodes_stand_depth_first_with_siblings_by_id() -> None:
    here = cell(org=1, org__b=1, org__a=1, lab=1)
    assert [n.budget for n in standings(here.world, "h100", T0)] == ["lab", "org", "a", "b"]


@pytest.mark.parametrize(
    ("used", "entitled", "shown"), [(0, 0, None), (5, 0, None), (1, 3, 333), (2, 3, 666), (3, 3, 1000), (7, 2, 3500)]
)
def test_a_standing_for_people_is_rounded_down(used: int, entitled: int, shown: int | None) -> None:
    assert permille(used, entitled) == shown
