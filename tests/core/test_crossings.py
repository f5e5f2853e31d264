"""Records that cross, ranks that are cut, numbers at their edge: faults that whole lives brought to light."""

import pytest

from fairlease.core.deciders import RULES
from fairlease.core.fairshare.standing import standings
from fairlease.core.world import World
from fairlease_schemas.commands import CancelJob, CordonHost, HoldJob, ReleaseJob, ReturnHost
from fairlease_schemas.cycle import PromiseMade, ReservationEnded
from fairlease_schemas.host import Inventory
from fairlease_schemas.job import Constraints, End
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Reason, ReasonBegan
from fairlease_schemas.reports import HostUp
from tests.core.bench import GRACE, LONG, MARGIN, cell, hosts_of, idle, left, promises, saved, victims, whole
from tests.core.test_place_needs import kinds
from tests.dsl.cell import DAY, HOUR, MINUTE, SECOND, T0, Cell


def test_a_job_released_while_its_stillborn_grant_lands_competes_again() -> None:
    # rule: 1.1 4.1
    here = cell()
    job = here.submit("one", settle=False)
    here.step("ranker")
    grant = here.draft("placement")
    here.say(HoldJob(job=job), settle=False)
    release = here.draft("admission", (here.answer(ReleaseJob(job=job)),))
    here.append(grant)
    here.append(release)
    here.settle()
    assert here.phase(job) == "granted"


def test_a_hold_and_its_release_in_one_record_that_cross_a_grant_leave_it_alone_or_stop_it() -> None:
    # rule: 1.1 8.4
    here = cell()
    job = here.submit("one", settle=False)
    here.step("ranker")
    both = here.draft("admission", (here.answer(HoldJob(job=job)), here.answer(ReleaseJob(job=job))))
    here.step("placement")
    here.append(both)
    here.settle()
    attempt = here.world.jobs[job].live
    assert attempt is not None

    assert (here.phase(job) == "stopping") == (attempt.ending is not None)


def test_a_snapshot_stops_overtaken_attempts_in_the_same_order() -> None:
    # rule: 8.4
    here = cell()
    first, second = here.submit("one", settle=False), here.submit("two", settle=False)
    here.step("ranker")
    cancels = here.draft("admission", tuple(here.answer(CancelJob(job=job)) for job in (second, first)))
    here.step("placement")
    here.append(cancels)
    again = World.load(here.world.dump())
    decide = RULES["admission"].decide
    assert decide(again, ()) == decide(here.world, ())


def test_a_promise_is_not_replaced_by_itself_where_the_policy_asks_for_no_gain() -> None:
    # rule: 6.4
    here = cell(promise_gain_ms=0, promise_permille=1000)
    whole(here, "first", min_runtime_ms=2 * HOUR)
    here.at(MINUTE)
    whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    here.at(3 * MINUTE)
    assert len(here.events(PromiseMade)) == 1


def test_patience_is_had_once_also_where_a_rank_is_cut() -> None:
    # rule: 5.5
    here = cell(max_classes_per_pool=1)
    victim = idle(here, "victim", checkpoint_interval_ms=4 * MINUTE)
    here.start(victim)
    here.at(MINUTE)
    whole(here, "claim", "b")
    here.submit("another class", hosts=1, gpus_per_host=8, min_runtime_ms=0, **LONG)
    for round_ in range(1, 12):
        here.at(round_ * 4 * MINUTE - 30 * SECOND)
        if not victims(here):
            saved(here, victim)
    waits = [e for e in here.events(ReasonBegan) if e.code is Reason.AWAITING_CHECKPOINT]
    assert (victims(here), len(waits)) == ([victim], 1)


def test_a_gang_of_one_block_is_not_placed_on_hosts_whose_block_has_no_name() -> None:
    # rule: 1.3
    here = kinds({"block": "/r1"}, {"block": "/r1"}, {"block": "b1"}, {"block": "b1"})
    gang = here.submit("gang", hosts=2, gpus_per_host=8, constraints=Constraints(is_same_block=True), **LONG)
    assert hosts_of(here, gang) == ("host-003", "host-004")


def test_a_filler_granted_a_moment_late_does_not_break_a_promise() -> None:
    # rule: 6.3 6.4
    here = cell(2, promise_permille=1000, rank_period_ms=5 * MINUTE)
    first = whole(here, "first", min_runtime_ms=2 * HOUR)
    second = whole(here, "second", min_runtime_ms=HOUR)
    here.start(first).start(second)
    here.at(MINUTE)
    claim = here.submit("claim", "b", hosts=2, gpus_per_host=8, min_runtime_ms=15 * MINUTE, **LONG)
    start_ms = promises(here)[claim][1]
    here.at(start_ms - 20 * MINUTE - GRACE - MARGIN)
    filler = whole(here, "filler", min_runtime_ms=20 * MINUTE, settle=False)
    here.say(here.run_gone(second), hosts_of(here, second)[0], settle=False)
    here.step("ranker")
    grant = here.draft("placement")
    here.now_ms += 1
    here.submit("late", gpus_per_host=8, min_runtime_ms=0, settle=False)
    here.append(grant)
    here.settle()
    assert here.phase(filler) == "granted"
    while here.now_ms < T0 + start_ms + 10 * MINUTE and here.phase(claim) == "waiting":
        here.at(here.now_ms - T0 + SECOND)
        for job in [job for job in here.world.jobs.values() if job.live and job.live.ending is End.PREEMPTED]:
            if here.now_ms >= job.live.ending_ms + job.live.grace_ms:
                left(here, job.id)
    assert (here.world.promise_book.broken, here.world.promise_book.kept) == (0, 1)


def test_one_of_the_same_class_with_a_later_promise_does_not_keep_another_from_its_reservation() -> None:
    # rule: 5.6 6.3
    here = cell(2, promise_permille=1000, patience_ms=0)
    scrap = idle(here, "scrap")
    long = whole(here, "long", min_runtime_ms=2 * HOUR)
    here.say(CordonHost(host=hosts_of(here, scrap)[0]), "lead")
    here.at(MINUTE)
    first = whole(here, "first", "b", min_runtime_ms=15 * MINUTE)
    second = whole(here, "second", "b", min_runtime_ms=15 * MINUTE)
    assert list(promises(here)) == [first]
    here.say(HoldJob(job=first), settle=False)
    here.say(ReturnHost(host=hosts_of(here, scrap)[0]), "lead", settle=False)
    here.step("ranker")
    here.step("placement")
    here.say(ReleaseJob(job=first), settle=False)
    here.settle()
    assert victims(here) == [scrap]
    left(here, scrap)
    assert here.phase(second) == "granted"
    here.at(5 * MINUTE)
    assert not here.events(ReservationEnded)
    assert here.phase(long) == "granted"


def test_two_large_reservations_are_two_records() -> None:
    # rule: 5.6
    here = Cell()

    def up(first: int, behind: int) -> None:
        for number in range(first, behind):
            devices = Inventory(
                pool="p",
                gpus=("g0",),
                model="H",
                memory_mib=1,
                cpu_cores=1,
                host_memory_mib=1,
                block="",
                is_simulated=True,
            )
            here.say(HostUp(incarnation="b", inventory=devices), f"{number:05d}".ljust(63, "x"), settle=False)

    up(0, 2048)
    here.budgets(a=1, b=1, c=1).policy(rank_period_ms=MINUTE, patience_ms=0)
    here.submit("v1", hosts=2048, min_runtime_ms=0, **LONG)
    up(2048, 2049)
    here.submit("v2", min_runtime_ms=0, **LONG)
    up(2049, 4096)
    here.at(MINUTE)
    for leaf in "bc":
        here.submit(f"gang-{leaf}", leaf, hosts=2048, min_runtime_ms=HOUR, settle=False, **LONG)
    here.settle()
    here.at(3 * MINUTE)
    assert len(victims(here)) == 2
    assert max(map(len, here.records)) <= 256 * 1024


# promises beside each other -------------------------------------------------------------------------


def test_a_promise_that_moves_to_another_pool_counts_there() -> None:
    # rule: 6.5
    here = Cell().hosts(1).hosts(1, pool="l40s", first=9).budgets(a=1, b=1)
    here.policy(rank_period_ms=MINUTE, promise_permille=1000)
    here.submit("x", gpus_per_host=8, min_runtime_ms=2 * HOUR, pools=("h100",), **LONG)
    here.submit("y", gpus_per_host=8, min_runtime_ms=4 * HOUR, pools=("l40s",), **LONG)
    here.at(MINUTE)
    first = here.submit("one", "b", gpus_per_host=8, min_runtime_ms=15 * MINUTE, pools=("h100",), **LONG)
    second = here.submit("two", "b", gpus_per_host=8, min_runtime_ms=15 * MINUTE, pools=("l40s", "h100"), **LONG)
    here.at(10 * MINUTE)
    by_pool = [promise.pool for promise in here.world.promises.values()]
    assert sorted(by_pool) == sorted(set(by_pool))
    assert first in here.world.promises
    assert second in here.world.jobs


# a claim that waits for its turn ---------------------------------------------------------------------


def test_hosts_that_a_claim_could_clear_are_closed_although_its_leaf_may_not_claim_again() -> None:
    # rule: 4.2 5.6
    here = cell(3)
    for number in range(3):
        idle(here, f"i{number}", 6)
    here.at(MINUTE)
    claims = [
        whole(here, f"c{number}", "b", min_runtime_ms=(15 + number) * MINUTE, settle=False) for number in range(3)
    ]
    small = here.submit("small", "b", gpus_per_host=2, min_runtime_ms=4 * HOUR, **LONG)
    assert here.phase(small) == "waiting", "the third host is the third claim's"
    assert len(victims(here)) == 2
    for job in victims(here):
        left(here, job)
    for job in victims(here)[2:]:
        left(here, job)
    assert [here.phase(job) for job in claims] == ["granted"] * 3


# an eviction that comes too late ---------------------------------------------------------------------


def test_an_eviction_of_one_that_was_stopping_counts_for_nobody() -> None:
    # rule: 5.7 2.6
    here = cell(1)
    job = whole(here, "run", min_runtime_ms=15 * MINUTE)
    here.start(job).at(4 * HOUR)
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE, settle=False)
    here.step("ranker")
    here.step("placement")
    eviction = here.draft("preemption")
    here.say(CancelJob(job=job), settle=False)
    here.append(eviction)
    assert here.world.jobs[job].preemptions_ms == ()
    assert here.world.jobs[claim].caused_gpu_ms == 0


# the floor ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "floor_ms"),
    [
        pytest.param({}, DAY, id="a day, by default"),
        pytest.param({"lookback_ms": HOUR}, HOUR, id="never above the lookback"),
        pytest.param({"half_life_ms": 2 * HOUR}, 2 * HOUR * 1443 // 1000, id="nor above what fades to it"),
    ],
)
def test_the_floor_is_never_above_what_a_steady_share_is_entitled_to(numbers: dict[str, int], floor_ms: int) -> None:
    # rule: 2.3 2.8
    here = Cell().hosts(1).budgets(a=1).policy(**numbers)
    (node,) = standings(here.world, "h100", here.now_ms)
    assert node.entitled_gpu_ms == 8 * floor_ms
    assert Policy().entitlement_floor_ms == DAY
