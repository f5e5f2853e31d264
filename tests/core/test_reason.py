"""Why a class of requests waits: written when it begins, when it changes and when it ends, never between."""

import pytest

from fairlease_schemas.commands import CancelJob, CordonHost, ReturnHost
from fairlease_schemas.cycle import CycleRanked
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import AttemptEnded, End, JobCancelled, JobSucceeded, PartGone
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan, ReasonEnded
from fairlease_schemas.reports import HostUp
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell, admitted, charged, granted, inventory, on, submitted

KEY = "a/h100/1x8/1800000ms"
WHOLE = tuple(range(8))


def cell(hosts: int = 1) -> Cell:
    return Cell().hosts(hosts).budgets(a=1)


def began(code: Reason, key: str = KEY, **evidence: object) -> ReasonBegan:
    numbers = {"pool": "h100", "needed_gpus": 8, "needed_hosts": 1} | evidence
    return ReasonBegan(subject=key, code=code, evidence=Evidence(**numbers))  # type: ignore[arg-type] # by name


def ended(code: Reason, key: str = KEY) -> ReasonEnded:
    return ReasonEnded(subject=key, code=code)


def open_reasons(here: Cell) -> dict[str, Reason]:
    return {subject: reason.code for subject, reason in here.world.reasons_of("placement").items()}


# beginning, changing, ending ------------------------------------------------------------------------


def test_a_reason_begins_with_the_first_block_and_ends_with_the_grant() -> None:
    # rule: 9.1 9.3
    here = cell()
    full = here.submit("full", gpus_per_host=8)
    waits = admitted("r1", gpus_per_host=8)
    here.when(submitted("r1", gpus_per_host=8)).then(waits).follows(began(Reason.CAPACITY))
    attempt = attempt_id(full, 1)
    here.when(here.run_gone(full), who="host-001").then(
        PartGone(attempt=attempt, host="host-001", end=End.SUCCEEDED, exit_code=0),
        AttemptEnded(attempt=attempt, end=End.SUCCEEDED, exit_code=0),
        JobSucceeded(job=full),
    ).follows(charged(full, 0), granted(waits.job, on(1, *WHOLE)), ended(Reason.CAPACITY))


def test_what_still_is_so_is_not_written_again() -> None:
    here = cell()
    here.submit("full", gpus_per_host=8)
    here.submit("r1", gpus_per_host=8)
    here.when(submitted("r2", gpus_per_host=8)).then(admitted("r2", gpus_per_host=8)).follows()
    here.passes(HOUR).then()


def test_a_reason_that_changes_begins_anew() -> None:
    # rule: 9.3
    here = cell(2)
    here.submit("half", gpus_per_host=4)
    here.submit("full", gpus_per_host=8)
    here.submit("r1", gpus_per_host=8)
    assert open_reasons(here) == {KEY: Reason.CAPACITY}
    here.say(CordonHost(host="host-001"), settle=False)
    here.say(CordonHost(host="host-002"))
    assert here.events(ReasonBegan)[-1] == began(Reason.HOST_MAINTENANCE, held_gpus=16)
    here.say(ReturnHost(host="host-001"))
    assert here.events(ReasonBegan)[-1] == began(Reason.CAPACITY, held_gpus=8, free_gpus=4, largest_hole_gpus=4)
    assert open_reasons(here) == {KEY: Reason.CAPACITY}


def test_a_class_emptied_by_a_cancel_has_no_reason_left() -> None:
    # rule: 9.3
    here = cell()
    here.submit("full", gpus_per_host=8)
    job = here.submit("r1", gpus_per_host=8)
    here.when(CancelJob(job=job)).then(JobCancelled(job=job, account="ann")).follows(ended(Reason.CAPACITY))


def test_a_class_of_which_one_still_waits_keeps_its_reason() -> None:
    # rule: 9.3
    here = cell()
    here.submit("full", gpus_per_host=8)
    first, second = here.submit("r1", gpus_per_host=8), here.submit("r2", gpus_per_host=8)
    here.when(CancelJob(job=first)).then(JobCancelled(job=first, account="ann")).follows()
    here.when(CancelJob(job=second)).then(JobCancelled(job=second, account="ann")).follows(ended(Reason.CAPACITY))


def test_a_job_admitted_while_its_class_loses_its_reason_gets_one() -> None:
    here = cell()
    full = here.submit("full", gpus_per_host=8)
    here.submit("r1", gpus_per_host=8)
    here.say(here.run_gone(full), "host-001", settle=False)
    here.step("ranker")
    placed = here.draft("placement")
    here.submit("r2", gpus_per_host=8, settle=False)
    here.append(placed)
    assert open_reasons(here) == {}
    here.settle()
    assert open_reasons(here) == {KEY: Reason.CAPACITY}


def test_a_class_that_a_cut_rank_did_not_reach_keeps_its_reason() -> None:
    here = cell().policy(max_classes_per_pool=1)
    here.submit("full", gpus_per_host=8)
    for n in range(3):
        here.submit(f"r{n}", gpus_per_host=8, min_runtime_ms=HOUR + n)
    assert len(open_reasons(here)) == 3
    before = len(here.events(ReasonBegan, ReasonEnded))
    here.at(HOUR)
    assert len(here.events(ReasonBegan, ReasonEnded)) == before


# which reason ---------------------------------------------------------------------------------------


def test_capacity_is_fewer_free_gpus_than_needed() -> None:
    # rule: 9.1
    here = cell()
    here.submit("half", gpus_per_host=4)
    here.submit("r1", gpus_per_host=8)
    assert here.events(ReasonBegan) == [began(Reason.CAPACITY, free_gpus=4, largest_hole_gpus=4)]


def test_fragmentation_is_enough_free_gpus_in_no_hole_of_that_shape() -> None:
    # rule: 9.1
    here = cell(2)
    here.submit("r1", gpus_per_host=5)
    here.submit("r2", gpus_per_host=5)
    here.submit("r3", gpus_per_host=6)
    assert here.events(ReasonBegan) == [
        began(Reason.FRAGMENTATION, "a/h100/1x6/1800000ms", needed_gpus=6, free_gpus=6, largest_hole_gpus=3)
    ]


def test_maintenance_is_too_few_hosts_without_a_hold() -> None:
    # rule: 9.1
    here = cell(2)
    here.say(CordonHost(host="host-002"))
    here.submit("r1", hosts=2, gpus_per_host=8)
    assert here.events(ReasonBegan) == [
        began(
            Reason.HOST_MAINTENANCE,
            "a/h100/2x8/1800000ms",
            needed_gpus=16,
            needed_hosts=2,
            free_gpus=8,
            whole_free_hosts=1,
            largest_hole_gpus=8,
            held_gpus=8,
        )
    ]


def test_a_conflict_is_a_fleet_that_has_lost_the_shape() -> None:
    # rule: 9.1
    here = cell()
    here.submit("full", gpus_per_host=7)
    job = here.submit("r1", gpus_per_host=8)
    here.gone(here.submit("r0"))
    here.gone(next(iter(here.world.jobs)))
    assert here.phase(job) == "granted"
    here.gone(job)
    here.submit("r2", gpus_per_host=8, settle=False)
    here.say(HostUp(incarnation="boot-2", inventory=inventory(1, gpus=4)), "host-001")
    assert open_reasons(here) == {KEY: Reason.CONSTRAINT_CONFLICT}


def test_a_job_whose_pool_has_gone_waits_with_a_reason() -> None:
    here = cell()
    here.submit("r1", gpus_per_host=8, settle=False)
    here.say(HostUp(incarnation="boot-2", inventory=inventory(1, pool="l40s")), "host-001")
    assert open_reasons(here) == {KEY: Reason.CONSTRAINT_CONFLICT}
    here.hosts(1, first=2)
    assert open_reasons(here) == {}


def test_a_reservation_is_named_with_whom_it_is_for() -> None:
    # rule: 9.1
    here = cell()
    first, _ = (here.submit(f"i{n}", min_runtime_ms=0, gpus_per_host=4) for n in range(2))
    claim = here.submit("claim", gpus_per_host=8)
    here.gone(first, End.CANCELLED, 143)
    here.submit("late", gpus_per_host=4, min_runtime_ms=HOUR)
    assert here.events(ReasonBegan)[-1] == began(
        Reason.RESERVATION, "a/h100/1x4/3600000ms", needed_gpus=4, reserved_hosts=1, claim=claim, for_ms=2 * MINUTE
    )


def test_a_debug_job_that_fits_nowhere_waits_for_the_windows_of_its_own_leaf_too() -> None:
    here = cell()
    here.submit("full", gpus_per_host=8)
    here.submit("d", lane="debug", min_runtime_ms=MINUTE, timeout_ms=HOUR)
    assert open_reasons(here) == {"a/h100/1x1/60000ms/debug:ann": Reason.PROTECTED_WINDOWS}


@pytest.mark.parametrize("minutes", [0, 1, 59])
def test_no_reason_is_stale_whenever_the_cell_rests(minutes: int) -> None:
    # rule: 9.3
    here = cell(2)
    jobs = [here.submit(f"r{n}", gpus_per_host=3 + n % 3, min_runtime_ms=(15 + n) * MINUTE) for n in range(12)]
    here.at(minutes * MINUTE)
    for job in jobs[::2]:
        here.say(CancelJob(job=job))
        if here.world.jobs[job].live:
            here.gone(job, End.CANCELLED, 143)
    waiting = set(here.world.line.classes)
    assert set(open_reasons(here)) == waiting
    assert waiting


def test_reasons_cost_no_cycle_of_their_own() -> None:
    here = cell()
    here.submit("full", gpus_per_host=8)
    before = len(here.events(CycleRanked))
    here.submit("r1", gpus_per_host=8)
    assert len(here.events(CycleRanked)) == before + 1
    here.passes(9 * SECOND).then()
    assert len(here.events(CycleRanked)) == before + 1


def test_two_leaves_of_one_licence_are_told_each_its_own_reason() -> None:
    """The host is the work of `a`: nothing that `a` could evict; and `b` would need the standing."""
    # rule: 9.1 5.2
    here = Cell().hosts(1).budgets(a=1, b=1)
    here.submit("run", gpus_per_host=8)
    here.submit("own", gpus_per_host=8, settle=False)
    here.submit("other", "b", gpus_per_host=8, min_runtime_ms=4 * HOUR)
    assert open_reasons(here) == {KEY: Reason.CAPACITY, "b/h100/1x8/14400000ms": Reason.WINDOW_OVERSHARE}


def test_a_claim_that_only_waits_for_its_turn_is_not_told_of_the_brake() -> None:
    # rule: 9.1 5.6
    here = cell(3)
    for n in range(3):
        here.submit(f"i{n}", gpus_per_host=8, min_runtime_ms=0)
    for n in range(3):
        here.submit(f"r{n}", gpus_per_host=8, min_runtime_ms=(30 + n) * MINUTE, settle=False)
    for service in ("ranker", "placement", "preemption"):
        here.step(service)
    assert list(open_reasons(here).values()) == [Reason.RESERVATION, Reason.RESERVATION, Reason.CAPACITY]
