"""Who must leave for whom: the cheapest that suffices, and the freed hosts are kept (5.1, 5.4, 5.6).

What a licence reaches beyond idle work: test_licence; how sets of victims compare: test_victims.
"""

from fairlease.core import explain, view
from fairlease_schemas.commands import CancelJob, CordonHost, ReturnHost
from fairlease_schemas.cycle import (
    CycleClosed,
    CyclePlaced,
    EvictionOrdered,
    Licence,
    ReservationEnded,
    ReservationMade,
)
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import AttemptEnding, End, JobCancelled
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan, ReasonEnded
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell, granted, on

WHOLE = tuple(range(8))
KEPT_MS = 30 * SECOND + 30 * SECOND + 60 * SECOND


def cell(hosts: int = 1) -> Cell:
    return Cell().hosts(hosts).budgets(a=1, b=1)


def idle(here: Cell, name: str, gpus: int = 8, **fields: object) -> str:
    return here.submit(name, gpus_per_host=gpus, min_runtime_ms=0, **fields)


def evicted(job: str, claim: str, lost_gpu_ms: int = 0, licence: Licence = Licence.UNDER_SHARE) -> EvictionOrdered:
    return EvictionOrdered(
        attempt=attempt_id(job, 1), claim=claim, licence=licence, grace_ms=30 * SECOND, lost_gpu_ms=lost_gpu_ms
    )


def kept(claim: str, *hosts: int, for_ms: int = KEPT_MS) -> ReservationMade:
    return ReservationMade(job=claim, pool="h100", hosts=tuple(f"host-{n:03d}" for n in hosts), for_ms=for_ms)


def evictions(here: Cell) -> list[EvictionOrdered | ReservationMade | ReservationEnded]:
    return here.events(EvictionOrdered, ReservationMade, ReservationEnded)  # type: ignore[return-value] # these kinds


def left(here: Cell, job: str, *hosts: str) -> Cell:
    """The evicted attempt is gone."""
    return here.gone(job, End.CANCELLED, 143, hosts=hosts)


# the choice of victims ------------------------------------------------------------------------------


def test_a_claim_evicts_idle_work_and_gets_its_host_when_that_is_gone() -> None:
    # rule: 5.1 5.6
    here = cell()
    victim = idle(here, "i")
    here.start(victim).at(MINUTE)
    claim = here.submit("r1", gpus_per_host=8)
    assert evictions(here) == [evicted(victim, claim, 8 * MINUTE), kept(claim, 1)]
    here.at(MINUTE + 10 * SECOND)
    why, told_ms = explain.why(here.world, here.world.jobs[claim]), here.now_ms - 10 * SECOND
    assert why.start_by_ms == told_ms + 30 * SECOND + 30 * SECOND, "its grace and the stop margin after the telling"
    assert "those on the hosts kept for it are told to leave and gone within 50s" in why.text.en
    (row,) = [row for row in view.queue(here.world, 10, with_start=True).rows if row.job == claim]
    assert (row.start_by_ms, row.is_promised) == (why.start_by_ms, False)
    assert here.phase(victim) == "stopping"
    left(here, victim)
    assert granted(claim, on(1, *WHOLE)) in here.events()
    assert (here.phase(victim), here.world.reservations) == ("waiting", {})


def test_the_attempt_that_loses_least_leaves() -> None:
    # rule: 5.4
    here = cell(2)
    old = idle(here, "old")
    here.at(MINUTE)
    young = idle(here, "young")
    here.at(2 * MINUTE)
    claim = here.submit("r1", gpus_per_host=4)
    assert evictions(here) == [evicted(young, claim, 8 * MINUTE), kept(claim, 2)]
    assert here.phase(old) == "granted"


def test_of_equal_losses_the_host_and_then_the_attempt_decide() -> None:
    # rule: 5.4
    here = cell(2)
    jobs = sorted(idle(here, f"i{n}", gpus=4) for n in range(4))
    claim = here.submit("r1", gpus_per_host=4)
    on_first = [job for job in jobs if here.world.jobs[job].attempts[0].hosts == ("host-001",)]
    assert evictions(here) == [evicted(min(on_first), claim), kept(claim, 1)]


def test_who_turns_out_not_to_be_needed_stays() -> None:
    # rule: 5.1
    here = cell()
    big = idle(here, "big", gpus=6)
    here.at(MINUTE)
    small = idle(here, "small", gpus=1)
    here.at(2 * MINUTE)
    claim = here.submit("r1", gpus_per_host=7)
    assert evictions(here) == [evicted(big, claim, 12 * MINUTE), kept(claim, 1)]
    assert here.phase(small) == "granted"


def test_several_leave_the_cheapest_first() -> None:
    # rule: 5.4 5.6
    here = cell()
    dear = idle(here, "dear", gpus=4)
    here.at(MINUTE)
    cheap = idle(here, "cheap", gpus=4, grace_ms=5 * MINUTE)
    here.at(2 * MINUTE)
    claim = here.submit("r1", gpus_per_host=8)
    assert evictions(here) == [
        EvictionOrdered(
            attempt=attempt_id(cheap, 1),
            claim=claim,
            licence=Licence.UNDER_SHARE,
            grace_ms=5 * MINUTE,
            lost_gpu_ms=4 * MINUTE,
        ),
        evicted(dear, claim, 8 * MINUTE),
        kept(claim, 1, for_ms=5 * MINUTE + 90 * SECOND),
    ]


def test_an_idle_gang_leaves_as_one_and_only_what_is_claimed_is_kept() -> None:
    # rule: 5.1 5.6
    here = cell(2)
    victim = idle(here, "gang", hosts=2)
    claim = here.submit("r1", gpus_per_host=8)
    assert evictions(here) == [evicted(victim, claim), kept(claim, 1)]
    other = here.submit("r2", "b", gpus_per_host=8)
    left(here, victim)
    assert (here.phase(claim), here.phase(other)) == ("granted", "granted")
    assert here.world.jobs[other].attempts[0].hosts == ("host-002",)


def test_a_gang_claims_whole_hosts_free_ones_first() -> None:
    # rule: 5.1
    here = cell(3)
    first = idle(here, "i1")
    here.at(MINUTE)
    second = idle(here, "i2")
    claim = here.submit("r1", hosts=2, gpus_per_host=8)
    assert evictions(here) == [evicted(second, claim), kept(claim, 2, 3)]
    assert here.phase(first) == "granted"


def test_budgeted_work_is_never_evicted_inside_its_window() -> None:
    # rule: 5.1
    here = cell()
    full = here.submit("full", gpus_per_host=8, min_runtime_ms=HOUR)
    here.at(HOUR - 1)
    claim = here.submit("r1", "b", gpus_per_host=8)
    assert evictions(here) == []
    here.at(HOUR)
    assert evictions(here) == [evicted(full, claim, 8 * HOUR)]


def test_a_claim_above_its_share_may_evict_idle_work_too() -> None:
    # rule: 3.7
    here = cell(2).policy(entitlement_floor_ms=0)
    victim = idle(here, "i")
    claim = here.submit("r1", gpus_per_host=8)
    second = here.submit("r2", hosts=1, gpus_per_host=8)
    assert here.phase(claim) == "granted"
    assert evictions(here) == [evicted(victim, second, 0, Licence.OVER_SHARE), kept(second, 1)]


def test_debug_work_evicts_idle_work() -> None:
    # rule: 3.5
    here = cell()
    victim = idle(here, "i")
    claim = here.submit("d", lane="debug", min_runtime_ms=10 * MINUTE, timeout_ms=HOUR)
    assert evictions(here) == [evicted(victim, claim, 0, Licence.DEBUG), kept(claim, 1)]


def test_where_evictions_would_not_suffice_nobody_is_evicted() -> None:
    # rule: 5.1
    here = cell()
    here.submit("window", gpus_per_host=2)
    idle(here, "i", gpus=6)
    here.submit("r1", gpus_per_host=8)
    assert evictions(here) == []


def test_who_is_stopping_is_not_asked_twice() -> None:
    here = cell()
    victim = idle(here, "i")
    here.say(CancelJob(job=victim))
    here.submit("r1", gpus_per_host=8)
    here.at(HOUR)
    assert evictions(here) == []


def test_idle_work_on_a_held_host_is_left_alone() -> None:
    here = cell()
    idle(here, "i")
    here.say(CordonHost(host="host-001"))
    here.submit("r1", gpus_per_host=8)
    assert evictions(here) == []


# the reservation ------------------------------------------------------------------------------------


def test_freed_hosts_are_kept_for_the_claim_and_not_for_who_came_in_between() -> None:
    # rule: 5.6
    here = cell()
    first, second = idle(here, "i1", gpus=4), idle(here, "i2", gpus=4)
    claim = here.submit("r1", gpus_per_host=8)
    left(here, first)
    late = here.submit("r2", "b", gpus_per_host=1, min_runtime_ms=HOUR)
    assert here.phase(late) == "waiting"
    reason = here.world.reason("placement", "b/h100/1x1/3600000ms")
    assert reason is not None
    assert (reason.code, reason.evidence.claim) == (Reason.RESERVATION, claim)
    left(here, second)
    assert (here.phase(claim), here.phase(late)) == ("granted", "waiting")


def test_a_reservation_ends_when_its_time_is_over_and_the_claim_goes_on_waiting() -> None:
    # rule: 5.6
    here = cell()
    idle(here, "i")
    claim = here.submit("r1", gpus_per_host=8)
    here.at(KEPT_MS - 1)
    assert claim in here.world.reservations
    here.at(KEPT_MS + 10 * SECOND)
    assert evictions(here)[-1] == ReservationEnded(job=claim, why="expired")
    assert (here.phase(claim), here.world.reservations) == ("waiting", {})


def test_an_expired_reservation_opens_its_hosts_before_it_is_ended() -> None:
    # rule: 5.6
    here = cell()
    first, _ = idle(here, "i1", gpus=4), idle(here, "i2", gpus=4)
    here.submit("r1", gpus_per_host=8)
    late = here.submit("r2", "b", gpus_per_host=4, min_runtime_ms=HOUR)
    left(here, first)
    assert here.phase(late) == "waiting"
    here.at(KEPT_MS + 10 * SECOND)
    assert here.phase(late) == "granted"


def test_a_reservation_ends_with_its_claim() -> None:
    # rule: 5.6 9.3
    here = cell()
    victim = idle(here, "i")
    claim = here.submit("r1", gpus_per_host=8)
    here.when(CancelJob(job=claim)).then(JobCancelled(job=claim, account="ann")).follows(
        ReasonEnded(subject="a/h100/1x8/1800000ms", code=Reason.RESERVATION),
        ReservationEnded(job=claim, why="not-waiting"),
    )
    left(here, victim)
    assert here.phase(victim) == "granted"


def test_a_claim_that_finds_room_elsewhere_takes_it_and_lets_its_hosts_go() -> None:
    here = cell(2)
    full = here.submit("full", gpus_per_host=8)
    victim = idle(here, "i")
    claim = here.submit("r1", gpus_per_host=8)
    late = here.submit("r2", gpus_per_host=8, min_runtime_ms=HOUR)
    assert evictions(here) == [evicted(victim, claim), kept(claim, 2)]
    here.gone(full)
    assert here.world.jobs[claim].attempts[0].hosts == ("host-001",)
    assert here.world.reservations == {}
    assert here.phase(late) == "waiting"
    left(here, victim)
    assert here.phase(late) == "granted"


def test_room_that_a_claim_lets_go_is_given_at_once() -> None:
    here = cell(2)
    full = here.submit("full", gpus_per_host=8)
    half, other = idle(here, "i1", gpus=4), idle(here, "i2", gpus=4)
    claim = here.submit("r1", gpus_per_host=8)
    left(here, half)
    late = here.submit("r2", gpus_per_host=4, min_runtime_ms=HOUR)
    assert here.phase(late) == "waiting"
    here.gone(full)
    assert (here.phase(claim), here.phase(other)) == ("granted", "stopping")
    assert here.phase(late) == "granted"


def test_what_a_claim_leaves_of_its_host_is_given_at_once() -> None:
    here = cell()
    victim = idle(here, "i")
    claim = here.submit("r1", gpus_per_host=2)
    late = here.submit("r2", "b", gpus_per_host=6, min_runtime_ms=HOUR)
    assert here.phase(late) == "waiting"
    left(here, victim)
    assert (here.phase(claim), here.phase(late)) == ("granted", "granted")
    assert list(here.world.reasons_of("placement")) == ["a/h100/1x8/0ms"]


def test_a_kept_host_that_is_held_is_no_room_and_open_room_is_as_good() -> None:
    here = cell(2)
    full = here.submit("full", gpus_per_host=8)
    victim = idle(here, "i")
    claim = here.submit("r1", gpus_per_host=8)
    here.say(CordonHost(host="host-002"))
    left(here, victim)
    assert here.phase(claim) == "waiting"
    here.gone(full)
    assert here.world.jobs[claim].attempts[0].hosts == ("host-001",)


def test_who_comes_back_into_the_same_class_does_not_stand_before_a_kept_host() -> None:
    here = cell(2)
    early = here.submit("early", gpus_per_host=8, max_retries=1)
    full = here.submit("full", gpus_per_host=8, min_runtime_ms=HOUR)
    here.gone(early, End.FAILED, 1)
    victim = idle(here, "i")
    claim = here.submit("claim", gpus_per_host=8)
    assert here.world.jobs[full].live is not None
    assert evictions(here) == [evicted(victim, claim), kept(claim, 1)]
    here.at(30 * SECOND)
    assert here.phase(early) == "waiting"
    left(here, victim)
    assert here.phase(claim) == "granted"


# how many claims ------------------------------------------------------------------------------------


def crowd_of_claims(here: Cell, *claims: tuple[str, str, int]) -> dict[str, str]:
    """(name, budget, window in minutes) of claims for a whole host each, all in one cycle."""
    jobs = {
        name: here.submit(name, budget, gpus_per_host=8, min_runtime_ms=minutes * MINUTE, settle=False)
        for name, budget, minutes in claims
    }
    for service in ("ranker", "placement", "preemption"):
        here.step(service)
    return jobs


def test_after_the_first_claim_at_most_one_more_per_leaf_evicts_in_a_cycle() -> None:
    # rule: 5.6
    here = cell(6)
    for n in range(6):
        idle(here, f"i{n}")
    jobs = crowd_of_claims(
        here, ("a1", "a", 30), ("a2", "a", 31), ("a3", "a", 32), ("b1", "b", 33), ("b2", "b", 34), ("b3", "b", 35)
    )
    claims = [event.claim for event in evictions(here) if isinstance(event, EvictionOrdered)]
    assert claims == [jobs["a1"], jobs["b1"], jobs["a2"]]


def test_claims_of_one_cycle_do_not_share_victims() -> None:
    # rule: 5.6
    here = cell(2)
    first, second = idle(here, "i1"), idle(here, "i2")
    jobs = crowd_of_claims(here, ("a1", "a", 30), ("b1", "b", 31))
    assert evictions(here) == [
        evicted(first, jobs["a1"]),
        kept(jobs["a1"], 1),
        evicted(second, jobs["b1"]),
        kept(jobs["b1"], 2),
    ]


# the world moves ------------------------------------------------------------------------------------


def placed_claim(here: Cell, **fields: object) -> str:
    """A claim that placement has handed on and preemption has not yet seen."""
    claim = here.submit("claim", **({"gpus_per_host": 8} | fields), settle=False)
    here.step("ranker")
    assert any(e.claims for e in here.step("placement") if isinstance(e, CyclePlaced))
    return claim


def test_a_claim_that_fits_by_now_evicts_nobody() -> None:
    # rule: 5.1
    here = cell(2)
    idle(here, "i1")
    second = idle(here, "i2")
    claim = placed_claim(here)
    here.say(here.run_gone(second), "host-002", settle=False)
    assert here.step("preemption") == [CycleClosed(cycle=here.world.cycle.number)]
    here.settle()
    assert here.phase(claim) == "granted"


def test_a_claim_that_is_cancelled_by_now_evicts_nobody() -> None:
    here = cell()
    idle(here, "i1")
    claim = placed_claim(here)
    here.say(CancelJob(job=claim), settle=False)
    assert here.step("preemption") == [CycleClosed(cycle=here.world.cycle.number)]


def test_a_claim_whose_host_is_held_by_now_evicts_nobody() -> None:
    here = cell()
    idle(here, "i1")
    placed_claim(here)
    here.say(CordonHost(host="host-001"), settle=False)
    assert here.step("preemption") == [CycleClosed(cycle=here.world.cycle.number)]


def test_a_claim_is_planned_again_on_the_world_as_it_is() -> None:
    # rule: 5.1
    here = cell(2)
    first = idle(here, "i1")
    here.at(MINUTE)
    idle(here, "i2")
    claim = placed_claim(here)
    here.say(CordonHost(host="host-002"), settle=False)
    assert here.step("preemption") == [
        evicted(first, claim, 8 * MINUTE),
        kept(claim, 1),
        CycleClosed(cycle=here.world.cycle.number),
    ]


def test_an_evicted_job_that_was_ending_anyway_ends_that_way() -> None:
    here = cell()
    victim = idle(here, "i")
    here.submit("r1", gpus_per_host=8)
    here.when(CancelJob(job=victim)).then(
        AttemptEnding(attempt=attempt_id(victim, 1), end=End.CANCELLED, grace_ms=30 * SECOND)
    )
    left(here, victim)
    assert here.phase(victim) == "cancelled"


def test_a_claim_in_two_pools_evicts_in_one() -> None:
    here = Cell().hosts(1).hosts(1, pool="l40s", first=2).budgets(a=1)
    first, second = idle(here, "i1"), idle(here, "i2")
    claim = here.submit("r1", gpus_per_host=8)
    assert evictions(here) == [evicted(first, claim), kept(claim, 1)]
    here.gone(second)
    assert here.world.jobs[claim].attempts[0].hosts == ("host-002",)


def test_a_returned_host_ends_no_eviction_but_serves_the_claim() -> None:
    here = cell(2)
    here.say(CordonHost(host="host-002"))
    victim = idle(here, "i")
    claim = here.submit("r1", gpus_per_host=8)
    here.say(ReturnHost(host="host-002"))
    assert here.world.jobs[claim].attempts[0].hosts == ("host-002",)
    assert here.phase(victim) == "stopping"


def test_the_reason_of_a_claim_with_a_reservation_names_it() -> None:
    # rule: 9.1
    here = cell()
    idle(here, "i")
    claim = here.submit("r1", gpus_per_host=8)
    here.at(10 * SECOND)
    evidence = Evidence(pool="h100", needed_gpus=8, needed_hosts=1, reserved_hosts=1, claim=claim, for_ms=KEPT_MS)
    assert here.events(ReasonBegan)[-1] == ReasonBegan(
        subject="a/h100/1x8/1800000ms", code=Reason.RESERVATION, evidence=evidence
    )
