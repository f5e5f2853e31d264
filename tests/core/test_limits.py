"""What keeps a pick from being tried: caps (2.9, 2.10), the lane (3.1), a side that saves (3.4)."""

import pytest

from fairlease_schemas.commands import CancelJob, CordonHost
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan
from tests.core.bench import (
    DEBUG,
    LONG,
    cell,
    change,
    evictions,
    grants,
    idle,
    left,
    reasons,
    victims,
    whole,
)
from tests.dsl.cell import HOUR, MINUTE, Cell
from tests.dsl.scenario import ANY_WINDOW


def began(here: Cell, code: Reason) -> list[Evidence]:
    return [e.evidence for e in here.events(ReasonBegan) if isinstance(e, ReasonBegan) and e.code is code]


def capped(hosts: int = 2, **caps: int) -> Cell:
    """Two leaves, of which `a` has these caps."""
    return change(cell(hosts, promises_per_pool=0), "a", **caps)


# the cap of protected GPUs -----------------------------------------------------------------------------


def test_a_claim_above_the_cap_of_protected_gpus_waits_with_the_numbers() -> None:
    # rule: 2.9 9.1
    here = capped(4, max_protected_permille=500)
    whole(here, "one")
    second = whole(here, "two")
    evidence = Evidence(pool="h100", needed_gpus=8, held_gpus=16, limit_gpus=8, level="a")
    assert (here.phase(second), began(here, Reason.PROTECTED_CAP)) == ("waiting", [evidence])


@pytest.mark.parametrize(
    ("permille", "hosts", "fit"),
    [
        pytest.param(1, 2, 8, id="at least one host"),
        pytest.param(1000, 2, 8, id="all that it is entitled to"),
        pytest.param(2000, 2, 16, id="twice that"),
        pytest.param(625, 4, 10, id="rounded down to whole GPUs"),
        pytest.param(0, 2, 16, id="no cap"),
    ],
)
def test_the_cap_is_a_part_of_the_entitled_gpus_now(permille: int, hosts: int, fit: int) -> None:
    # rule: 2.9
    here = capped(hosts, max_protected_permille=permille)
    for n in range(16):
        here.submit(f"r{n}", settle=False)
    here.settle()
    assert len(grants(here)) == fit


def test_what_is_past_its_window_is_not_protected_any_more() -> None:
    # rule: 2.9
    here = capped(max_protected_permille=1)
    whole(here, "one", min_runtime_ms=15 * MINUTE)
    second = whole(here, "two")
    here.at(15 * MINUTE - 1)
    assert here.phase(second) == "waiting"
    here.at(15 * MINUTE)
    assert here.phase(second) == "granted"


def test_idle_work_is_under_no_cap() -> None:
    # rule: 2.9
    here = capped(max_protected_permille=1, burst_permille=1)
    for name in ("one", "two"):
        assert here.phase(idle(here, name)) == "granted"


def test_debug_work_is_under_the_caps_too() -> None:
    # rule: 2.9 3.1
    here = capped(max_protected_permille=1)
    whole(here, "one")
    job = here.submit("debug", **DEBUG)
    assert (here.phase(job), list(reasons(here).values())) == ("waiting", [Reason.PROTECTED_CAP])


def test_the_cap_of_an_organisation_binds_all_its_leaves_together() -> None:
    # rule: 2.9
    here = Cell().hosts(2).budgets(org=1, lab=1, org__a=1, org__b=1)
    change(here, "org", max_protected_permille=1000)
    whole(here, "one", "a")
    second = whole(here, "two", "b")
    assert here.phase(second) == "waiting"
    assert began(here, Reason.PROTECTED_CAP)[0].level == "org"


def test_claims_that_are_owed_hosts_count_as_protected() -> None:
    # rule: 2.9 2.5
    here = capped(2, max_protected_permille=1)
    idle(here, "i1")
    idle(here, "i2", gpus=4)
    whole(here, "claim")
    assert len(evictions(here)) == 1
    small = here.submit("small", gpus_per_host=4, min_runtime_ms=HOUR)
    assert (here.phase(small), reasons(here)["a/h100/1x4/3600000ms"]) == ("waiting", Reason.PROTECTED_CAP)


def test_two_claims_of_one_cycle_do_not_get_beyond_the_cap_together() -> None:
    # rule: 2.9
    here = capped(max_protected_permille=1)
    for n in range(2):
        idle(here, f"i{n}")
    first = whole(here, "first", settle=False)
    second = whole(here, "second", min_runtime_ms=HOUR, settle=False)
    here.settle()
    assert [order.claim for order in evictions(here)] == [first]
    left(here, victims(here)[0])
    assert (here.phase(first), here.phase(second)) == ("granted", "waiting")


def test_a_cap_that_is_set_after_the_evictions_binds_them() -> None:
    # rule: 2.9
    here = cell(2, promises_per_pool=0)
    whole(here, "one")
    spare = idle(here, "spare")
    claim = whole(here, "claim", min_runtime_ms=HOUR)
    change(here, "a", max_protected_permille=1)
    left(here, spare)
    assert (here.phase(claim), here.phase(spare)) == ("waiting", "waiting")


# the cap of bursts -----------------------------------------------------------------------------------


def test_while_another_budget_waits_nobody_gets_beyond_his_burst() -> None:
    # rule: 2.9 9.1
    here = capped(4, burst_permille=500)
    for n in range(3):
        whole(here, f"b{n}", "b")
    half = here.submit("half", gpus_per_host=4, **LONG)
    here.submit("gang", "b", hosts=2, gpus_per_host=8)
    quarter = here.submit("quarter", gpus_per_host=2, **LONG)
    assert (here.phase(half), here.phase(quarter)) == ("granted", "granted")
    last = here.submit("last", gpus_per_host=2, min_runtime_ms=HOUR, **LONG)
    assert here.phase(last) == "granted"
    here.gone(last)
    here.submit("more", gpus_per_host=1, min_runtime_ms=HOUR, **LONG)
    whole(here, "two", min_runtime_ms=HOUR)
    evidence = Evidence(pool="h100", needed_gpus=8, held_gpus=15, limit_gpus=8, level="a")
    assert began(here, Reason.BUDGET_CAP) == [evidence]


def test_where_nobody_else_waits_a_burst_has_no_end() -> None:
    # rule: 2.9
    here = capped(burst_permille=1)
    jobs = [whole(here, f"r{n}") for n in range(2)]
    assert [here.phase(job) for job in jobs] == ["granted", "granted"]


def test_other_leaves_of_an_organisation_are_nobody_else_to_it() -> None:
    # rule: 2.9
    here = Cell().hosts(3).budgets(org=1, lab=1, org__a=1, org__b=1)
    change(here, "org", burst_permille=1)
    here.submit("gang", "a", hosts=4, gpus_per_host=8)
    for n in range(2):
        assert here.phase(whole(here, f"b{n}", "b")) == "granted"


def test_what_is_past_its_window_still_counts_as_held() -> None:
    # rule: 2.9
    here = capped(burst_permille=1, max_protected_permille=0)
    whole(here, "one", min_runtime_ms=15 * MINUTE)
    whole(here, "theirs", "b", min_runtime_ms=HOUR)
    second = whole(here, "two")
    here.submit("waits", "b", hosts=2, gpus_per_host=8)
    here.at(20 * MINUTE)
    assert (here.phase(second), reasons(here)["a/h100/1x8/1800000ms"]) == ("waiting", Reason.BUDGET_CAP)


@pytest.mark.parametrize("is_held", [False, True], ids=["the host is there", "the host is out"])
def test_demand_that_the_pool_could_not_take_even_when_empty_moves_nobodys_share(is_held: bool) -> None:
    """The wait of `b` for two hosts, one of them held, is no reason to stop the burst of `a`."""
    # rule: 2.10
    here = Cell().hosts(2).hosts(1, gpus=4, first=3).budgets(a=1, b=1)
    change(here, "a", burst_permille=1)
    whole(here, "one")
    if is_held:
        here.say(CordonHost(host="host-002"), "lead")
    else:
        whole(here, "theirs", "b")
    here.submit("gang", "b", hosts=2, gpus_per_host=8)
    job = here.submit("more", gpus_per_host=4, min_runtime_ms=HOUR)
    assert here.phase(job) == ("granted" if is_held else "waiting")


def test_demand_that_does_not_fit_charges_nobody_and_evicts_nobody() -> None:
    # rule: 2.10
    here = cell(2, promises_per_pool=1)
    idle(here, "spare")
    here.say(CordonHost(host="host-002"), "lead")
    here.submit("gang", "a", hosts=2, gpus_per_host=8, settle=False)
    jobs = [here.submit(f"r{n}", name, gpus_per_host=4, settle=False) for n, name in enumerate("ab")]
    here.settle()
    assert [order.claim for order in evictions(here)] == jobs[:1]
    assert here.world.promises == {}


# the lane ----------------------------------------------------------------------------------------------


def lane(here: Cell, name: str, who: str = "ann", **fields: object) -> str:
    return here.submit(name, who=who, **(DEBUG | fields))


def test_a_full_lane_is_the_reason_of_a_debug_job_that_finds_no_other_room() -> None:
    # rule: 3.1 9.1
    here = cell(promises_per_pool=0)
    lane(here, "d1", gpus_per_host=4)
    here.submit("plain", gpus_per_host=4)
    job = lane(here, "d2", "bob", gpus_per_host=5)
    assert here.phase(job) == "waiting"
    evidence = Evidence(pool="h100", needed_gpus=5, held_gpus=4, limit_gpus=8)
    assert began(here, Reason.LANE_FULL) == [evidence]


def test_a_third_job_of_a_person_waits_for_the_lane_though_it_is_not_full() -> None:
    # rule: 3.1 9.1
    here = cell(promises_per_pool=0)
    for n in range(2):
        lane(here, f"d{n}")
    here.submit("plain", gpus_per_host=6)
    lane(here, "d2")
    evidence = Evidence(pool="h100", needed_gpus=1, held_gpus=2, limit_gpus=8)
    assert began(here, Reason.LANE_FULL) == [evidence]


def test_a_debug_claim_is_told_that_hosts_are_kept_for_it() -> None:
    # rule: 9.1 3.5
    here = cell()
    idle(here, "spare")
    job = lane(here, "d1")
    evidence = Evidence(pool="h100", needed_gpus=1, needed_hosts=1, reserved_hosts=1, claim=job, for_ms=2 * MINUTE)
    assert began(here, Reason.RESERVATION) == [evidence]


def test_two_at_a_time_are_two_in_all_pools_together() -> None:
    # rule: 3.1
    here = Cell().hosts(1).hosts(1, pool="l40s", first=9).budgets(a=1)
    jobs = [lane(here, f"d{n}", pools=(pool,)) for n, pool in enumerate(("h100", "l40s", "l40s"))]
    licences = [str(here.world.jobs[job].attempts[-1].licence) for job in jobs]
    assert licences == ["debug", "debug", "under-share"]


# saving ------------------------------------------------------------------------------------------------


def saver(*, pass_gpu_ms: int = 0, **numbers: object) -> tuple[Cell, str]:
    """Two hosts with b's work past its window; a gang of `a` that only its standing keeps from them, since 0:00."""
    here = cell(2, promises_per_pool=0, saving_pass_gpu_ms=pass_gpu_ms, **numbers)
    for n in range(2):
        whole(here, f"b{n}", "b", min_runtime_ms=15 * MINUTE)
    gang = here.submit("gang", hosts=2, gpus_per_host=8, min_runtime_ms=8 * HOUR, **LONG)
    assert reasons(here) == {"a/h100/2x8/28800000ms": Reason.WINDOW_OVERSHARE}
    return here, gang


def freed(here: Cell) -> Cell:
    """One of b's two jobs ends."""
    return here.gone(next(iter(here.world.jobs)))


@pytest.mark.parametrize("early_ms", [1, 0], ids=["a millisecond before", "after four hours"])
def test_after_four_hours_later_claims_of_its_side_wait_behind_it(early_ms: int) -> None:
    # rule: 3.4 9.1
    here, gang = saver()
    freed(here.at(4 * HOUR - early_ms))
    late = whole(here, "late")
    assert here.phase(late) == ("granted" if early_ms else "waiting")
    evidence = Evidence(pool="h100", claim=gang, level="a")
    assert began(here, Reason.SAVING) == ([] if early_ms else [evidence])


@pytest.mark.parametrize("over", [0, 1], ids=["exactly that large", "a millisecond of window more"])
def test_small_later_claims_pass(over: int) -> None:
    # rule: 3.4
    here, _ = saver(pass_gpu_ms=8 * HOUR)
    freed(here.at(4 * HOUR))
    late = whole(here, "late", min_runtime_ms=HOUR + over)
    assert here.phase(late) == ("waiting" if over else "granted")


def test_the_lane_idle_work_and_other_sides_pass() -> None:
    # rule: 3.4
    here, _ = saver()
    freed(here.at(4 * HOUR))
    debug = here.submit("debug", **DEBUG)
    spare = idle(here, "spare", gpus=1)
    theirs = here.submit("theirs", "b")
    assert [here.phase(job) for job in (debug, spare, theirs)] == ["granted"] * 3


def test_who_was_there_before_does_not_wait_behind_it() -> None:
    # rule: 3.4
    here = cell(2, promises_per_pool=0, saving_pass_gpu_ms=0)
    for n in range(2):
        whole(here, f"b{n}", "b", min_runtime_ms=4 * HOUR)
    early = whole(here, "early", min_runtime_ms=4 * HOUR)
    here.submit("gang", hosts=2, gpus_per_host=8, min_runtime_ms=8 * HOUR, **LONG)
    freed(here.at(3 * HOUR + 59 * MINUTE))
    assert here.phase(early) == "granted"


def test_the_whole_subtree_of_the_level_that_blocks_it_saves() -> None:
    # rule: 3.4
    here = Cell().hosts(2).budgets(org=1, lab=1, org__a=1, org__c=1, lab__b=1)
    here.policy(promises_per_pool=0, saving_pass_gpu_ms=0, rank_period_ms=MINUTE)
    for n in range(2):
        whole(here, f"b{n}", "b", min_runtime_ms=15 * MINUTE)
    gang = here.submit("gang", hosts=2, gpus_per_host=8, min_runtime_ms=8 * HOUR, **LONG)
    freed(here.at(4 * HOUR))
    cousin = whole(here, "cousin", "c")
    assert here.phase(cousin) == "waiting"
    assert began(here, Reason.SAVING) == [Evidence(pool="h100", claim=gang, level="org")]


def test_who_comes_into_the_class_later_has_not_waited_so_long() -> None:
    # rule: 3.4
    here, gang = saver()
    here.at(3 * HOUR)
    here.submit("second", hosts=2, gpus_per_host=8, min_runtime_ms=8 * HOUR, **LONG)
    here.say(CancelJob(job=gang))
    freed(here.at(4 * HOUR))
    late = whole(here, "late")
    assert here.phase(late) == "granted"


@pytest.mark.parametrize("is_in_one_cycle", [False, True])
def test_of_two_savers_the_one_first_in_line_is_named(is_in_one_cycle: bool) -> None:
    # rule: 3.4 9.1
    here = Cell().policy(
        saving_after_ms=30 * MINUTE,
        saving_pass_gpu_ms=30 * MINUTE,
        promises_per_pool=0,
        window_bounds=ANY_WINDOW,
        entitlement_floor_ms=HOUR,
    )
    here.hosts(2, gpus=4).budgets(a=1, b=1)
    here.submit("b0", "b", gpus_per_host=4, min_runtime_ms=6 * HOUR, timeout_ms=8 * HOUR)
    here.submit("a0", "a", gpus_per_host=4, min_runtime_ms=MINUTE, timeout_ms=8 * HOUR)
    here.at(5 * MINUTE)
    first = here.submit("x", "b", gpus_per_host=3, settle=not is_in_one_cycle)
    here.submit("y", "b", gpus_per_host=1, settle=not is_in_one_cycle)
    here.settle()
    here.at(45 * MINUTE).submit("z", "b", gpus_per_host=2)
    (saving,) = (r for r in here.world.reasons_of("placement").values() if r.code is Reason.SAVING)
    assert saving.evidence.claim == first


def test_saving_ends_with_the_saver() -> None:
    # rule: 3.4 9.3
    here, gang = saver()
    freed(here.at(4 * HOUR))
    late = whole(here, "late")
    here.say(CancelJob(job=gang))
    assert (here.phase(late), reasons(here)) == ("granted", {})


def test_a_claim_that_is_owed_hosts_takes_them_though_its_side_saves_by_now() -> None:
    # rule: 3.4 5.6
    here = cell(2, promises_per_pool=0, saving_pass_gpu_ms=0)
    whole(here, "theirs", "b", min_runtime_ms=15 * MINUTE)
    spare = idle(here, "spare", grace_ms=10 * MINUTE)
    here.submit("gang", hosts=2, gpus_per_host=8, min_runtime_ms=8 * HOUR, **LONG)
    here.at(4 * HOUR - MINUTE)
    claim = whole(here, "claim")
    assert victims(here) == [spare]
    left(here.at(4 * HOUR + 5 * MINUTE), spare)
    assert here.phase(claim) == "granted"
