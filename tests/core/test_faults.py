"""Hosts that go silent, and what becomes of who ran there (7.6, 7.7)."""

import pytest

from fairlease.core.line import class_key
from fairlease.core.order import host_order
from fairlease.core.placement.fit import Room
from fairlease.core.view import hosts_view
from fairlease_schemas.commands import CancelJob, CordonHost, ReleaseJob, ReturnHost
from fairlease_schemas.cycle import EvictionOrdered
from fairlease_schemas.envelope import LeasesRead
from fairlease_schemas.host import BreakerTripped, HostHeld, HostHoldCleared, LeaseLost
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import AttemptEnded, AttemptEnding, End, JobRequeued, PartGone
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan
from fairlease_schemas.reports import HostUp
from tests.core.bench import cell, change, grants, hosts_of, idle, names, promises, victims, whole
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell, charged, inventory

SILENCE = MINUTE + 15 * SECOND
LOSS = SILENCE + 30 * SECOND + 30 * SECOND
"""Of the default policy, and of jobs with the grace of `request`."""
LOST = "its host's lease was lost"


def read(here: Cell, **renewed_ms: int) -> list[object]:
    """Health reads these renewals (by host number, in time of the cell), now; what it decides."""
    said = LeasesRead(due_ms=here.now_ms, renewed={names(int(k[1:]))[0]: T0 + at for k, at in renewed_ms.items()})
    return here.step("health", (here.answer(said, "health", "FL_LAB_TIMERS"),))


def held(host: int) -> HostHeld:
    return HostHeld(host=names(host)[0], owner="health", kind="lease", reason="its agent has gone silent")


def cleared(host: int) -> HostHoldCleared:
    return HostHoldCleared(host=names(host)[0], owner="health", kind="lease")


def lost(here: Cell, *hosts: int) -> Cell:
    """These hosts go silent now, and their leases are lost as soon as can be."""
    start_ms = here.now_ms - T0
    here.now_ms += LOSS + HOUR
    read(here, **{f"h{host}": start_ms for host in hosts})
    here.settle()
    return here


# leases ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silent", "events"),
    [
        pytest.param(SILENCE - 1, [], id="in time"),
        pytest.param(SILENCE, [held(1)], id="silent: nothing new is placed there"),
        pytest.param(LOSS - 1, [held(1)], id="what runs there may still be stopping"),
    ],
)
def test_a_silent_host_takes_no_new_work(silent: int, events: list[object]) -> None:
    # rule: 7.6
    here = cell(2)
    whole(here, "run")
    here.at(silent)
    assert read(here, h1=0) == events


def test_what_a_silent_host_ran_is_over_only_after_lease_grace_and_both_margins() -> None:
    # rule: 7.6
    here = cell(2)
    job = whole(here, "run", grace_ms=2 * MINUTE)
    attempt, after = attempt_id(job, 1), SILENCE + 2 * MINUTE + 30 * SECOND
    here.at(after - 1)
    assert read(here, h1=0) == [held(1)]
    here.now_ms += 1
    assert read(here, h1=0) == [LeaseLost(host="host-001", silent_ms=after, attempts=(attempt,))]
    assert here.step("admission") == [
        PartGone(attempt=attempt, host="host-001", end=End.FAULT, detail=LOST),
        AttemptEnded(attempt=attempt, end=End.FAULT),
        JobRequeued(job=job, end=End.FAULT, rest_ms=30 * MINUTE - after),
    ]
    here.settle()
    assert hosts_of(here, job) == names(2)
    assert here.world.jobs[job].retries == 0


def test_a_host_that_is_heard_again_takes_work_again() -> None:
    # rule: 7.6
    here = cell(1)
    here.at(SILENCE)
    read(here, h1=0)
    job = here.submit("r1")
    assert here.phase(job) == "waiting"
    here.now_ms += SECOND
    assert read(here, h1=SILENCE + SECOND) == [cleared(1)]
    here.settle()
    assert here.phase(job) == "granted"


def test_one_that_never_renewed_counts_from_its_registration() -> None:
    # rule: 7.6
    here = cell(1)
    here.at(SILENCE)
    said = LeasesRead(due_ms=here.now_ms, renewed={"host-001": 0, "host-009": 0})
    assert here.step("health", (here.answer(said, "health", "FL_LAB_TIMERS"),)) == [held(1)]


def test_what_was_said_twice_is_written_once() -> None:
    # rule: 7.6
    here = cell(2)
    whole(here, "run")
    here.at(LOSS)
    assert len(read(here, h1=0)) == 2
    assert read(here, h1=0) == []


def test_a_gang_that_lost_a_host_stops_on_the_others_and_ends_once() -> None:
    # rule: 7.6 8.4
    here = cell(3)
    gang = here.submit("gang", hosts=2, gpus_per_host=8)
    attempt = attempt_id(gang, 1)
    here.at(LOSS)
    read(here, h1=0)
    assert here.step("admission") == [
        PartGone(attempt=attempt, host="host-001", end=End.FAULT, detail=LOST),
        AttemptEnding(attempt=attempt, end=End.FAULT, grace_ms=30_000),
    ]
    here.settle()
    here.say(here.run_gone(gang, End.CANCELLED, 143), "host-002")
    assert [attempt.end for attempt in here.world.jobs[gang].attempts] == [End.FAULT, None]
    assert here.world.lost == {}


def test_a_report_of_a_host_that_was_given_up_changes_nothing() -> None:
    # rule: 7.6
    here = cell(2)
    job = whole(here, "run")
    late = here.run_gone(job, End.SUCCEEDED)
    lost(here, 1)
    assert hosts_of(here, job) == names(2)
    assert here.when(late, who="host-001").events() == []


def test_who_was_cancelled_on_a_lost_host_is_cancelled() -> None:
    # rule: 7.6 8.4

    here = cell(1)
    job = whole(here, "run")
    here.say(CancelJob(job=job))
    lost(here, 1)
    assert here.phase(job) == "cancelled"


def test_a_fault_is_credited_since_the_last_checkpoint_and_is_no_retry() -> None:
    # rule: 2.6 1.8 7.6
    here = cell(1)
    job = whole(here, "run")
    here.start(job)
    lost(here, 1)
    (event,) = (e for e in here.events() if type(e) is type(charged(job, 0)))
    assert event.credit_gpu_ms == event.held_gpu_ms > 0
    assert event.charged_gpu_ms == 0


def test_when_much_of_a_pool_falls_silent_at_once_a_person_is_asked() -> None:
    # rule: 7.3
    here = cell(20)
    here.at(SILENCE)
    silent = {f"h{number}": 0 for number in range(1, 6)}
    tripped = BreakerTripped(pool="h100", host="host-003", held_gpus=16, limit_gpus=16)
    assert read(here, **silent) == [held(1), held(2), tripped]
    here.now_ms += MINUTE
    assert read(here, **silent) == []
    here.now_ms += HOUR
    assert read(here, **silent)[0] == held(3)


def test_one_host_of_a_pool_is_always_held() -> None:
    # rule: 7.3 7.6
    here = cell(2)
    here.at(SILENCE)
    assert read(here, h1=0, h2=0) == [held(1), BreakerTripped(pool="h100", host="host-002", held_gpus=8, limit_gpus=1)]
    assert hosts_view(here.world).tripped == {"h100": here.now_ms}, "whoever looks at the hosts is told"


def test_what_ran_on_a_silent_host_is_over_also_when_the_breaker_tripped() -> None:
    # rule: 7.3 7.6
    here = cell(2)
    jobs = [whole(here, "one"), whole(here, "two")]
    here.at(LOSS)
    lost_now = [event for event in read(here, h1=0, h2=0) if isinstance(event, LeaseLost)]
    assert [event.attempts for event in lost_now] == [(attempt_id(job, 1),) for job in jobs]


# what follows a fault -------------------------------------------------------------------------------


def gang_of(here: Cell, hosts: int = 2) -> str:
    return here.submit("gang", hosts=hosts, gpus_per_host=8, timeout_ms=24 * HOUR)


def broken(here: Cell, job: str, host: str) -> None:
    """The agent of that host says that a fault ended its part; the others stop."""
    attempt = here.world.jobs[job].live
    assert attempt is not None
    here.say(here.run_gone(job, End.FAULT, None), host)
    for other in attempt.hosts:
        if other != host:
            here.say(here.run_gone(job, End.CANCELLED, 143), other)


def test_the_sound_hosts_of_a_gang_are_kept_for_it() -> None:
    # rule: 7.7
    here = cell(2)
    gang = gang_of(here)
    other = whole(here, "other", "b", min_runtime_ms=0)

    here.say(CordonHost(host="host-001", reason="broken"), "ops", settle=False)
    broken(here, gang, "host-001")
    assert here.phase(gang) == "waiting"
    assert here.phase(other) == "waiting", "host-002 is kept"
    here.say(ReturnHost(host="host-001"), "ops")
    assert hosts_of(here, gang) == names(1, 2)


def test_a_gang_that_leaves_for_a_claim_does_not_keep_what_is_kept_for_the_claim() -> None:
    # rule: 7.7 5.6
    here = cell(2)
    gang = here.submit("gang", hosts=2, gpus_per_host=8, min_runtime_ms=0, timeout_ms=24 * HOUR)
    claim = whole(here, "claim", "b")
    assert victims(here) == [gang]
    (kept_for_claim,) = here.world.reservations[claim].hosts
    broken(here, gang, next(host for host in names(1, 2) if host != kept_for_claim))
    assert hosts_of(here, claim) == (kept_for_claim,)


def test_a_gang_does_not_keep_what_is_promised_to_another() -> None:
    # rule: 7.7 6.3
    here = cell(2, promise_permille=1000)
    gang = gang_of(here)
    claim = here.submit("claim", "b", hosts=2, gpus_per_host=8, timeout_ms=24 * HOUR, min_runtime_ms=15 * MINUTE)
    assert here.world.promises[claim].hosts == names(1, 2)
    here.say(here.run_gone(gang, End.FAULT, None), "host-001", settle=False)
    here.step("admission")
    here.say(here.run_gone(gang, End.CANCELLED, 143), "host-002", settle=False)
    assert gang not in here.world.reservations


def test_the_reservation_ends_after_its_time() -> None:
    # rule: 7.7

    here = cell(2)
    gang = gang_of(here)
    other = whole(here, "other", "b", min_runtime_ms=0)
    here.say(CordonHost(host="host-001", reason="broken"), "ops", settle=False)
    broken(here, gang, "host-001")
    here.at(9 * MINUTE)
    assert here.phase(other) == "waiting"
    here.at(11 * MINUTE)
    assert hosts_of(here, other) == names(2)


def test_a_gang_takes_its_sound_hosts_with_one_that_is_open() -> None:
    # rule: 7.7

    here = cell(3)
    gang = gang_of(here)
    here.say(CordonHost(host="host-001", reason="broken"), "ops", settle=False)
    broken(here, gang, "host-001")
    assert hosts_of(here, gang) == names(2, 3)


def test_a_gang_may_evict_for_the_host_that_it_lost() -> None:
    # rule: 7.7 5.1

    here = cell(3)
    gang = gang_of(here)
    filler = idle(here, "filler")
    assert hosts_of(here, filler) == names(3)
    here.say(CordonHost(host="host-001", reason="broken"), "ops", settle=False)
    broken(here, gang, "host-001")
    assert victims(here) == [filler]
    (order,) = here.events(EvictionOrdered)
    assert isinstance(order, EvictionOrdered)
    assert order.claim == gang
    here.gone(filler, End.CANCELLED, 143)
    assert hosts_of(here, gang) == names(2, 3)


def test_a_gang_takes_what_it_is_promised_though_a_part_is_kept_for_it_elsewhere() -> None:
    # rule: 7.7 6.4
    here = change(cell(5, promise_permille=1000), "a", weight=9)
    leaving = here.submit("leaving", "b", hosts=3, gpus_per_host=8, min_runtime_ms=30 * MINUTE, timeout_ms=24 * HOUR)
    gang = gang_of(here)
    assert hosts_of(here, gang) == names(4, 5)
    here.at(31 * MINUTE)
    claim = whole(here, "claim")
    assert victims(here) == [leaving]
    here.say(CordonHost(host="host-004", reason="broken"), "ops", settle=False)
    broken(here, gang, "host-004")
    here.at(here.now_ms - T0 + MINUTE)
    assert here.world.reservations[gang].hosts == names(5)
    assert promises(here)[gang][0] == names(2, 3)
    here.gone(leaving, End.CANCELLED, 143)
    assert hosts_of(here, claim) == names(1)
    assert here.world.jobs[gang].live is not None, "the promise is kept"
    assert hosts_of(here, gang) == names(2, 3)


def test_after_faults_on_three_hosts_a_person_is_asked() -> None:
    # rule: 7.7
    here = cell(3)
    job = whole(here, "run")
    for number in (1, 2, 3):
        here.at(number * 10 * MINUTE)
        assert here.world.jobs[job].attempts[-1].number == number
        (host,) = hosts_of(here, job)
        here.say(CordonHost(host=host, reason="broken"), "ops", settle=False)
        broken(here, job, host)
    assert here.phase(job) == "held"
    reason = here.world.reason("admission", job)
    assert reason is not None
    assert reason.code is Reason.JOB_HELD
    assert ReasonBegan(subject=job, code=Reason.JOB_HELD, evidence=Evidence()) in here.events()
    assert here.world.reservations == {}
    here.when(ReleaseJob(job=job))
    assert here.phase(job) == "waiting"


def test_faults_on_one_host_again_and_again_do_not_hold_the_job() -> None:
    # rule: 7.7
    here = cell(1)
    job = whole(here, "run")
    for _ in range(4):
        here.now_ms += MINUTE
        here.start(job)
        broken(here, job, "host-001")
    assert here.phase(job) == "granted"
    assert grants(here) == [job] * 5


def test_what_a_fault_ends_before_it_began_comes_at_once_only_once() -> None:
    # rule: 7.7
    here = cell(1)
    job = whole(here, "run")
    broken(here, job, "host-001")
    assert here.phase(job) == "granted"
    attempt = attempt_id(job, 2)
    here.when(here.run_gone(job, End.FAULT, None), who="host-001").then(
        PartGone(attempt=attempt, host="host-001", end=End.FAULT),
        AttemptEnded(attempt=attempt, end=End.FAULT),
        JobRequeued(job=job, end=End.FAULT, backoff_ms=30 * SECOND),
        ReasonBegan(subject=job, code=Reason.RETRY_BACKOFF, evidence=Evidence(for_ms=30 * SECOND)),
    )
    assert here.world.jobs[job].retries == 0


def test_a_host_that_begins_nothing_is_asked_less_and_less_often() -> None:
    # rule: 7.7
    here = cell(1)
    job = whole(here, "run")
    begun_s = []
    for _ in range(9):
        begun_s.append((here.now_ms - T0) // SECOND)
        broken(here, job, "host-001")
        while here.phase(job) == "backoff":
            here.at(here.now_ms - T0 + SECOND)
    assert begun_s == [0, 0, 30, 90, 210, 450, 930, 1530, 2130]


def test_what_had_started_once_is_in_line_at_once_again() -> None:
    # rule: 7.7
    here = cell(1)
    job = whole(here, "run")
    for _ in range(2):
        broken(here, job, "host-001")
    here.at(MINUTE).start(job)
    for _ in range(2):
        broken(here, job, "host-001")
    assert (here.phase(job), len(grants(here))) == ("granted", 5)


def test_a_fault_that_took_its_time_costs_no_backoff() -> None:
    # rule: 7.7
    here = cell(1)
    job = whole(here, "run")
    broken(here, job, "host-001")
    here.at(30 * SECOND)
    broken(here, job, "host-001")
    assert here.phase(job) == "granted"


def test_a_job_in_a_backoff_is_held_after_faults_on_three_hosts() -> None:
    # rule: 7.7
    here = cell(3)
    job = whole(here, "run")
    for host in names(1, 2, 3):
        here.say(CordonHost(host=host, reason="broken"), "ops", settle=False)
        broken(here, job, host)
        here.at(here.now_ms - T0 + MINUTE)
    assert here.phase(job) == "held"
    assert {name: why.code for name, why in here.world.reasons_of("admission").items()} == {job: Reason.JOB_HELD}


def test_a_host_that_is_refused_after_its_boot_gets_nothing_until_it_is_taken() -> None:
    # rule: 7.1 7.7
    """Its agent begins nothing: its orders say for which boot they are, and that is not its own."""
    here = cell(1)
    job = whole(here, "run")
    here.start(job)
    nothing, devices = inventory(1, gpus=0), inventory(1)
    here.say(HostUp(incarnation="boot-2", inventory=nothing), "host-001", settle=False)
    broken(here, job, "host-001")
    assert (here.phase(job), len(grants(here))) == ("waiting", 1)
    why = here.world.reason("placement", class_key(here.world.jobs[job]))
    assert why is not None
    assert why.code is Reason.HOST_FAULT
    here.say(HostUp(incarnation="boot-2", inventory=devices), "host-001")
    assert (here.phase(job), len(grants(here))) == ("granted", 2)


def test_a_room_knows_whose_part_is_kept() -> None:
    # rule: 7.7

    here = cell(2)
    gang = gang_of(here)
    here.say(CordonHost(host="host-001", reason="broken"), "ops", settle=False)
    broken(here, gang, "host-001")
    room = Room(here.world, "h100", here.now_ms)
    assert room.has_part(gang)
    assert room.is_open("host-002", gang)
    assert not room.is_open("host-002")


def test_an_agent_that_keeps_to_a_longer_lease_of_an_earlier_policy_is_waited_for() -> None:
    # rule: 7.6
    here = cell(2)
    job = whole(here, "run")
    here.policy(rank_period_ms=MINUTE, lease_ms=5 * SECOND)
    here.at(LOSS - 1)
    said = LeasesRead(due_ms=here.now_ms, renewed={"host-001": T0}, leases_ms={"host-001": MINUTE})
    assert [
        e for e in here.step("health", (here.answer(said, "health", "FL_LAB_TIMERS"),)) if isinstance(e, LeaseLost)
    ] == []
    here.now_ms += 1
    said = LeasesRead(due_ms=here.now_ms, renewed={"host-001": T0}, leases_ms={"host-001": 1 << 39})
    (lost_now,) = here.step("health", (here.answer(said, "health", "FL_LAB_TIMERS"),))
    assert lost_now == LeaseLost(host="host-001", silent_ms=LOSS, attempts=(attempt_id(job, 1),))


def test_a_change_of_the_lease_is_told_to_every_host() -> None:
    # rule: 7.6
    here = cell(2)
    before = dict(here.world.ordered)
    here.policy(rank_period_ms=MINUTE, lease_ms=5 * SECOND)
    assert all(here.world.ordered[host] > position for host, position in before.items())
    assert host_order(here.world, "host-002").lease_ms == 5 * SECOND
