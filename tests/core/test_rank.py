"""When a cycle starts, what it names, and how it ends."""

from fairlease_schemas.commands import CancelJob, CordonHost
from fairlease_schemas.cycle import (
    CycleAbandoned,
    CycleClosed,
    CyclePlaced,
    CycleRanked,
    NodeStanding,
    PoolRank,
    RequestClass,
)
from fairlease_schemas.envelope import TimerFired
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell, granted, on

A_DAY_OF_8 = 8 * 24 * HOUR


def cell() -> Cell:
    return Cell().hosts(1).budgets(a=1)


def ranks(here: Cell) -> list[CycleRanked]:
    return [event for event in here.events(CycleRanked) if isinstance(event, CycleRanked)]


def looked_at(here: Cell, since: int = 0) -> list[tuple[int, int, bool]]:
    """(first class, classes, is_cut) of every rank after the first `since`."""
    return [(rank.first_class, rank.classes, rank.is_cut) for rank in ranks(here)[since:]]


def crowd(here: Cell, classes: int) -> list[str]:
    """The host is full, and as many classes wait as asked for, one job each, all for the whole host."""
    here.submit("full", gpus_per_host=8, timeout_ms=24 * HOUR)
    return [here.submit(f"r{n}", gpus_per_host=8, min_runtime_ms=HOUR + n, settle=False) for n in range(classes)]


# one cycle ------------------------------------------------------------------------------------------


def test_a_cycle_is_three_records_the_first_of_which_says_where_all_stand() -> None:
    here = Cell().hosts(1).budgets(org=2, org__a=1, b=1)
    job = here.submit("r1", settle=False)
    key = "a/h100/1x1/1800000ms"
    assert here.step("ranker") == [
        CycleRanked(
            cycle=1,
            pools=(
                PoolRank(
                    pool="h100",
                    schedulable_gpus=8,
                    nodes=(
                        NodeStanding(budget="b", weight=1, entitled_gpu_ms=A_DAY_OF_8 // 3),
                        NodeStanding(budget="org", weight=2, entitled_gpu_ms=A_DAY_OF_8 * 2 // 3),
                        NodeStanding(budget="a", parent="org", weight=1, entitled_gpu_ms=A_DAY_OF_8 * 2 // 3),
                    ),
                    leaves=(
                        RequestClass(
                            key=key, budget="a", hosts=1, gpus_per_host=1, min_runtime_ms=30 * MINUTE, count=1
                        ),
                    ),
                ),
            ),
            classes=1,
        )
    ]
    assert here.step("placement") == [granted(job, on(1, 0)), CyclePlaced(cycle=1)]
    assert here.step("preemption") == [CycleClosed(cycle=1)]
    assert here.step("ranker") == []


def test_a_rank_names_each_partition_and_only_pools_that_somebody_waits_for() -> None:
    here = cell().hosts(1, gpus=4, pool="l40s", first=2)
    here.submit("i", min_runtime_ms=0, pools=("h100",), settle=False)
    here.submit("d", lane="debug", min_runtime_ms=MINUTE, timeout_ms=HOUR, pools=("h100",), settle=False)
    here.submit("x", pools=("h100",), settle=False)
    here.step("ranker")
    (rank,) = ranks(here)
    (pool,) = rank.pools
    assert pool.pool == "h100"
    assert [of.key for of in pool.lane] == ["a/h100/1x1/60000ms/debug:ann"]
    assert [of.key for of in pool.leaves] == ["a/h100/1x1/60000ms/debug:ann", "a/h100/1x1/1800000ms"]
    assert [of.key for of in pool.idle] == ["a/h100/1x1/0ms"]


def test_like_requests_are_one_class_and_other_people_in_the_lane_another() -> None:
    here = cell()
    debug = {"lane": "debug", "min_runtime_ms": MINUTE, "timeout_ms": HOUR}
    for n, who in enumerate(("ann", "ann", "bob")):
        here.submit(f"x{n}", who=who, settle=False)
        here.submit(f"d{n}", who=who, settle=False, **debug)
    here.step("ranker")
    counts = {of.key: of.count for of in ranks(here)[0].pools[0].leaves}
    assert counts == {
        "a/h100/1x1/1800000ms": 3,
        "a/h100/1x1/60000ms/debug:ann": 2,
        "a/h100/1x1/60000ms/debug:bob": 1,
    }


# when it starts -------------------------------------------------------------------------------------


def test_nobody_waits_so_nothing_is_ranked() -> None:
    here = cell()
    here.passes(24 * HOUR).then()
    assert ranks(here) == []


def test_a_cell_at_rest_with_waiting_jobs_writes_one_cycle_a_period_and_no_more() -> None:
    here = cell()
    crowd(here, 2)
    here.settle()
    before = len(here.records)
    here.passes(MINUTE).then()
    assert len(here.records) == before + 6 * 3
    assert [r.at_ms - T0 for r in map(here.record, range(before + 1, len(here.records) + 1, 3))] == [
        10 * SECOND * n for n in range(1, 7)
    ]


def test_news_starts_a_cycle_at_once() -> None:
    here = cell()
    jobs = crowd(here, 1)
    here.settle()
    before = len(ranks(here))
    here.at(3 * SECOND).submit("r9", gpus_per_host=8)
    assert len(ranks(here)) == before + 1
    here.say(CordonHost(host="host-001"))
    assert len(ranks(here)) == before + 2
    here.budgets(b=1)
    assert len(ranks(here)) == before + 3
    here.policy(debug_per_person=3)
    assert len(ranks(here)) == before + 4
    here.say(CancelJob(job=jobs[0]))
    assert len(ranks(here)) == before + 5


def test_news_while_a_cycle_is_open_is_seen_by_the_next() -> None:
    here = cell()
    first = here.submit("r1", settle=False)
    here.step("ranker")
    late = here.submit("r2", settle=False)
    assert here.step("placement") == [granted(first, on(1, 0)), CyclePlaced(cycle=1)]
    here.settle()
    assert here.phase(late) == "granted"
    assert len(ranks(here)) == 2


def test_news_that_crosses_a_rank_is_not_lost() -> None:
    here = cell()
    here.submit("r1", settle=False)
    rank = here.draft("ranker")
    late = here.submit("r2", settle=False)
    here.append(rank)
    here.settle()
    assert here.phase(late) == "granted"


def test_a_due_period_is_answered_by_its_timer() -> None:
    here = cell()
    crowd(here, 1)
    here.settle()
    here.now_ms += 10 * SECOND
    timer = here.answer(TimerFired(due_ms=here.now_ms), "ranker", "FL_LAB_TIMERS")
    here.step("ranker", (timer,))
    assert here.record(len(here.records)).answers == (timer,)
    assert here.record(len(here.records)).at_ms == here.now_ms


# a step that does not come --------------------------------------------------------------------------


def test_a_cycle_without_placement_is_abandoned_and_another_begins() -> None:
    here = cell()
    here.away.add("placement")
    job = here.submit("r1")
    here.passes(5 * SECOND - 1).then()
    here.passes(5 * SECOND).then(CycleAbandoned(cycle=1, missing="cycle-placed"))
    assert [rank.cycle for rank in ranks(here)] == [1, 2]
    here.away.clear()
    here.settle()
    assert here.phase(job) == "granted"


def test_a_cycle_without_preemption_is_abandoned_and_its_grants_stand() -> None:
    here = cell()
    here.away.add("preemption")
    job = here.submit("r1")
    here.passes(5 * SECOND).then(CycleAbandoned(cycle=1, missing="cycle-closed"))
    assert here.phase(job) == "granted"
    here.away.clear()
    here.passes(HOUR).then()


def test_a_step_that_comes_after_its_cycle_was_abandoned_has_nothing_to_do() -> None:
    here = cell()
    here.away.update(("placement", "preemption"))
    here.submit("r1")
    here.away.add("ranker")
    here.now_ms += 5 * SECOND
    here.step("ranker", (here.answer(TimerFired(due_ms=here.now_ms), "ranker", "FL_LAB_TIMERS"),))
    assert here.step("placement") == []
    assert here.step("preemption") == []


def test_while_placement_is_away_the_ranker_writes_twice_a_step_limit() -> None:
    here = cell()
    here.away.add("placement")
    here.submit("r1")
    before = len(here.records)
    here.at(MINUTE)
    assert len(here.records) - before == 2 * 12


# a rank that is cut ---------------------------------------------------------------------------------


def test_a_cut_rank_goes_on_behind_the_last_class_and_then_rests() -> None:
    here = cell().policy(max_classes_per_pool=2)
    crowd(here, 5)
    before = len(ranks(here))
    here.settle()
    assert looked_at(here, before) == [(0, 2, True), (2, 2, True), (4, 1, False)]
    here.at(10 * SECOND)
    assert looked_at(here, before + 3) == [(0, 2, True), (2, 2, True), (4, 1, False)]


def test_news_sends_a_cut_rank_back_to_the_top() -> None:
    here = cell().policy(max_classes_per_pool=2)
    crowd(here, 5)
    before = len(ranks(here))
    for _ in range(2):
        for service in ("ranker", "placement", "preemption"):
            here.step(service)
    here.submit("news", gpus_per_host=8, min_runtime_ms=2 * HOUR)
    assert looked_at(here, before) == [(0, 2, True), (2, 2, True), (0, 2, True), (2, 2, True), (4, 2, False)]


def test_every_class_is_looked_at_also_when_grants_shorten_the_line() -> None:
    here = Cell().hosts(3).budgets(a=1).policy(max_classes_per_pool=2)
    jobs = [here.submit(f"r{n}", gpus_per_host=4, min_runtime_ms=HOUR + n, settle=False) for n in range(6)]
    here.settle()
    assert [here.phase(job) for job in jobs] == ["granted"] * 6


def test_more_grants_than_a_record_holds_go_on_in_the_next_cycle() -> None:
    here = Cell().hosts(1).budgets(a=1).policy(max_grants_per_cycle=3)
    jobs = [here.submit(f"r{n}", settle=False) for n in range(8)]
    before = len(ranks(here))
    here.settle()
    assert [here.phase(job) for job in jobs] == ["granted"] * 8
    assert [len(p.events) - 1 for p in map(here.record, range(1, len(here.records) + 1)) if p.by == "placement"] == [
        3,
        3,
        2,
    ]
    assert len(ranks(here)) - before == 3


def test_grants_that_exactly_fill_the_record_are_not_cut() -> None:
    here = Cell().hosts(1).budgets(a=1).policy(max_grants_per_cycle=3)
    for n in range(3):
        here.submit(f"r{n}", settle=False)
    here.settle()
    assert [event for event in here.events(CyclePlaced) if isinstance(event, CyclePlaced) and event.is_cut] == []
