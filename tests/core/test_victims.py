"""Which set of victims: the least GPU-time lost, then fewest jobs, idle first, ids; on hosts that fit (5.1, 5.4)."""

import random
from itertools import combinations

import pytest

from fairlease.core.departures import Departure
from fairlease.core.placement.fit import Room
from fairlease.core.preemption.occupancy import Tenant, tenant_order
from fairlease.core.preemption.victims import cheapest_on
from tests.core.bench import LONG, cell, evicted, evictions, hosts_of, idle, names, saved, victims, whole
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell


def tenant(name: str, gpus: int, lost: int, *, is_idle: bool = True) -> Tenant:
    return Tenant(
        attempt=name,
        job=name,
        leaf="a",
        gpus_on={"h": gpus},
        sizes=(0, 0, 0),
        lost_gpu_ms=lost,
        grace_ms=0,
        is_idle=is_idle,
        is_lane=False,
        is_past=True,
        is_exempt=False,
        is_stopping=False,
        leaves=Departure(0, 0),
        checkpoint_due_ms=0,
        start_up_ms=0,
    )


def cheapest(missing: int, *tenants: Tenant) -> list[str]:
    found = cheapest_on(Room(cell(1).world, "h100", 0), tenants, "h", (missing,), lambda _: True)
    return [] if found is None else [t.attempt for t in found[1]]


@pytest.mark.parametrize(
    ("tenants", "missing", "leave"),
    [
        pytest.param([("a", 4, 9), ("b", 4, 8)], 4, "b", id="the one that loses less"),
        pytest.param([("a", 8, 10), ("b", 4, 6), ("c", 4, 5)], 8, "a", id="one that loses less than two together"),
        pytest.param([("a", 8, 12), ("b", 4, 6), ("c", 4, 5)], 8, "bc", id="two that lose less than one"),
        pytest.param([("a", 6, 3), ("b", 1, 1), ("c", 1, 1)], 6, "a", id="nobody beside who suffices alone"),
        pytest.param([("a", 2, 4), ("b", 2, 4), ("c", 4, 8)], 4, "c", id="equal losses: the fewest jobs"),
        pytest.param([("a", 4, 5, False), ("b", 4, 5)], 4, "b", id="then idle work before budgeted"),
        pytest.param([("a", 4, 4, False), ("b", 4, 5)], 4, "a", id="but not at a greater loss"),
        pytest.param([("b", 4, 5), ("a", 4, 5)], 4, "a", id="then the ids"),
        pytest.param([("a", 1, 0), ("b", 1, 0), ("c", 1, 0)], 2, "ab", id="the least ids of several"),
        pytest.param([("a", 2, 0), ("b", 2, 0)], 5, "", id="not enough in all"),
        pytest.param([("a", 2, 0)], 0, "", id="nothing is missing"),
        pytest.param([], 1, "", id="nobody there"),
    ],
)
def test_on_one_host_the_cheapest_set_leaves(tenants: list[tuple], missing: int, leave: str) -> None:  # type: ignore[type-arg] # name, GPUs, loss, idle or not
    # rule: 5.4
    found = [tenant(name, gpus, lost, is_idle=not rest) for name, gpus, lost, *rest in tenants]
    assert cheapest(missing, *found) == list(leave)


@pytest.mark.parametrize("seed", range(40))
def test_the_table_finds_what_trying_every_set_finds(seed: int) -> None:
    # rule: 5.4
    chance = random.Random(seed)
    there = [
        tenant(f"t{n}", chance.randint(1, 4), chance.choice((0, 1, 2, 5, 9)), is_idle=chance.random() < 0.7)
        for n in range(chance.randint(1, 8))
    ]
    missing = chance.randint(1, 10)
    sets = [s for n in range(1, len(there) + 1) for s in combinations(there, n)]
    able = [s for s in sets if sum(t.gpus for t in s) >= missing]
    best = min(
        ((sum(t.lost_gpu_ms for t in s), len(s), sum(not t.is_idle for t in s), [t.attempt for t in s]) for s in able),
        default=(0, 0, 0, []),
    )
    assert cheapest(missing, *there) == best[3]


def test_the_order_in_which_they_are_asked_ends_in_the_id() -> None:
    # rule: 5.4
    asked = sorted(
        [tenant("c", 1, 5), tenant("b", 1, 5), tenant("a", 1, 5, is_idle=False), tenant("d", 1, 4)], key=tenant_order
    )
    assert [t.attempt for t in asked] == ["d", "b", "c", "a"]


# what losing costs ------------------------------------------------------------------------------------


def test_only_what_was_not_saved_is_lost() -> None:
    # rule: 5.4
    here = cell()
    spare = idle(here, "spare")
    saved(here.start(spare).at(20 * MINUTE), spare)
    here.at(21 * MINUTE)
    claim = whole(here, "claim", "b")
    assert evictions(here) == [evicted(spare, claim, 8 * MINUTE)]


def test_the_start_up_that_must_be_paid_again_is_lost_too() -> None:
    # rule: 5.4
    here = cell()
    spare = idle(here, "spare")
    here.at(5 * MINUTE).start(spare)
    saved(here.at(20 * MINUTE), spare)
    claim = whole(here, "claim", "b")
    assert evictions(here) == [evicted(spare, claim, 8 * 5 * MINUTE)]


def test_past_window_work_that_has_just_saved_leaves_before_idle_work_that_has_not() -> None:
    # rule: 5.4
    here = cell(2, margin_permille=0)
    spare = idle(here, "spare")
    running = whole(here, "run", min_runtime_ms=HOUR)
    saved(here.at(HOUR), running)
    claim = whole(here, "claim", "b")
    assert evictions(here) == [evicted(running, claim, 0)]
    assert here.phase(spare) == "granted"


def test_at_equal_loss_the_idle_one_of_two_leaves() -> None:
    # rule: 5.4
    here = cell(2, margin_permille=0)
    running = whole(here, "run", min_runtime_ms=HOUR)
    spare = idle(here, "spare")
    saved(saved(here.at(HOUR), running), spare)
    claim = whole(here, "claim", "b")
    assert evictions(here) == [evicted(spare, claim, 0)]


# gangs ------------------------------------------------------------------------------------------------


def test_a_gang_that_leaves_whole_is_cheaper_than_two_jobs_that_lose_more_together() -> None:
    # rule: 5.4
    here = cell(4)
    singles = [idle(here, f"i{n}") for n in range(2)]
    here.at(2 * MINUTE)
    gang = idle(here, "gang", hosts=2)
    here.at(8 * MINUTE)
    claim = here.submit("claim", "b", hosts=2, gpus_per_host=8)
    assert evictions(here) == [evicted(gang, claim, 16 * 6 * MINUTE)]
    assert [here.phase(job) for job in singles] == ["granted", "granted"]


def test_a_gang_is_not_broken_up_for_one_host_where_a_single_job_loses_less() -> None:
    # rule: 5.4
    here = cell(3)
    single = idle(here, "single")
    here.at(2 * MINUTE)
    idle(here, "gang", hosts=2)
    here.at(8 * MINUTE)
    claim = whole(here, "claim", "b")
    assert evictions(here) == [evicted(single, claim, 8 * 8 * MINUTE)]


def two_blocks() -> tuple[Cell, list[str], list[str]]:
    """A block of two hosts filled first and one of three filled ten minutes later; who is idle in each."""
    here = Cell().hosts(2, block=4).hosts(3, first=5, block=4).budgets(a=1, b=1)
    old = [idle(here, f"old{n}") for n in range(2)]
    for job in old:
        here.start(job)
    here.at(10 * MINUTE)
    young = [idle(here, f"young{n}") for n in range(3)]
    for job in young:
        here.start(job)
    assert [hosts_of(here, job)[0] for job in (*old, *young)] == list(names(1, 2, 5, 6, 7))
    return here, old, young


def test_a_gang_evicts_within_the_block_where_least_is_lost() -> None:
    # rule: 5.4 4.1
    here, _, young = two_blocks()
    here.at(11 * MINUTE)
    here.submit("claim", "b", hosts=2, gpus_per_host=8)
    assert len(victims(here)) == 2
    assert set(victims(here)) < set(young)


def test_of_blocks_that_lose_the_same_the_smaller_is_cleared() -> None:
    # rule: 5.4 4.1
    here, old, young = two_blocks()
    for job in (*old, *young):
        saved(here, job)
    here.submit("claim", "b", hosts=2, gpus_per_host=8)
    assert sorted(victims(here)) == sorted(old)


def test_a_gang_that_no_block_could_hold_evicts_across_blocks() -> None:
    # rule: 5.1 4.1
    here, old, young = two_blocks()
    here.submit("claim", "b", hosts=4, gpus_per_host=8)
    assert len(victims(here)) == 4
    assert set(young) <= set(victims(here))
    assert len(set(victims(here)) & set(old)) == 1


def test_hosts_of_another_size_are_not_cleared_for_a_gang() -> None:
    # rule: 5.1 1.2
    here = Cell().hosts(2, gpus=16).hosts(1, first=3).budgets(a=1, b=1).policy(promises_per_pool=0)
    for n in range(2):
        idle(here, f"big{n}", gpus=16)
    spare = idle(here, "spare")
    here.at(MINUTE)
    assert here.phase(spare) == "granted"
    here.hosts(1, first=4)
    here.submit("claim", "b", hosts=2, gpus_per_host=8)
    assert victims(here) == [spare]


def test_victims_of_one_set_are_asked_in_the_order_of_their_loss() -> None:
    # rule: 5.4
    here = cell(2)
    first = idle(here, "first")
    here.at(30 * SECOND)
    second = idle(here, "second")
    here.at(MINUTE)
    here.submit("claim", "b", hosts=2, gpus_per_host=8, **LONG)
    assert victims(here) == [second, first]
