"""Drains: hosts are emptied in time, no window is broken but at the deadline, and the owner is told when (7.2, 7.3)."""

import pytest

from fairlease.core.view import drain_view
from fairlease_schemas.commands import CancelJob, CordonHost, RequestDrain, ReturnHost, UndrainHost
from fairlease_schemas.cycle import EvictionOrdered, GangGranted, Licence, PromiseEnd, PromiseEnded, ReservationEnded
from fairlease_schemas.envelope import Event
from fairlease_schemas.host import (
    DrainCancelled,
    DrainCompleted,
    DrainPlanned,
    DrainProgress,
    HostHeld,
    HostHoldCleared,
)
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import CommandRefused, End
from fairlease_schemas.reasons import Reason
from tests.core.bench import GRACE, MARGIN, cell, hosts_of, idle, left, names, promises, reasons, victims, whole
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell, charged

STOP = GRACE + MARGIN


def drain(host: int = 1, at: int = 0, deadline: int = 0, **fields: str) -> RequestDrain:
    """Asked for in time of the cell; 0 is now, and no deadline."""
    return RequestDrain(
        host=names(host)[0],
        not_before_ms=T0 + at if at else 0,
        deadline_ms=T0 + deadline if deadline else 0,
        **fields,
    )


def asked(here: Cell, said: RequestDrain, who: str = "bot") -> DrainPlanned:
    event = here.when(said, who=who).events()[0]
    assert isinstance(event, DrainPlanned)
    here.settle()
    return event


def of(here: Cell, *kinds: type) -> list[Event]:
    return here.events(*kinds)


def ordered(here: Cell) -> list[EvictionOrdered]:
    return [event for event in of(here, EvictionOrdered) if isinstance(event, EvictionOrdered)]


# planned --------------------------------------------------------------------------------------------


def test_an_empty_host_is_held_and_handed_over_at_once() -> None:
    # rule: 7.2 7.4
    here = cell(2)
    here.when(drain(reason="new fan"), who="bot").follows(
        DrainPlanned(host="host-001", owner="bot", reason="new fan"),
        HostHeld(host="host-001", owner="bot", kind="drain", reason="new fan"),
        DrainCompleted(host="host-001"),
    )
    records = [here.record(position).events for position in range(1, len(here.records) + 1)]
    (handed,) = [events for events in records if DrainCompleted(host="host-001") in events]
    assert handed[0] == DrainPlanned(host="host-001", owner="bot", reason="new fan"), (
        "the promise is kept as it is made"
    )
    job = whole(here, "r1")
    assert hosts_of(here, job) == names(2)


def test_of_two_who_ask_in_one_record_the_first_has_the_host() -> None:
    # rule: 7.2 7.3
    here = cell(5)
    both = tuple(here.answer(drain(host), who) for host, who in ((1, "bot"), (1, "other"), (2, "other")))
    events = here.step("health", both)
    kinds = [type(event) for event in events]
    assert kinds == [DrainPlanned, HostHeld, DrainCompleted, CommandRefused, DrainPlanned]
    refused, queued = events[3:]
    assert isinstance(refused, CommandRefused)
    assert refused.account == "other"
    assert isinstance(queued, DrainPlanned)
    assert queued.is_queued, "two of five hosts are more than a quarter of the pool"


def test_an_empty_host_with_a_later_start_is_promised_within_the_margin_for_the_bus_is_a_little_late() -> None:
    # rule: 7.2
    here = cell(1)
    planned = asked(here, drain(at=HOUR))
    assert planned.empty_in_ms == HOUR + MARGIN
    here.at(HOUR)
    assert of(here, DrainCompleted) == [DrainCompleted(host="host-001")]


@pytest.mark.parametrize(
    ("fields", "told", "empty"),
    [
        pytest.param({"min_runtime_ms": 0}, 0, STOP, id="idle work: at once"),
        pytest.param({"min_runtime_ms": HOUR}, HOUR, HOUR + STOP, id="at the end of its window"),
        pytest.param({"min_runtime_ms": HOUR, "grace_ms": 0}, HOUR, HOUR + MARGIN, id="by its own grace"),
    ],
)
def test_the_owner_is_told_when_the_host_will_be_empty(fields: dict[str, int], told: int, empty: int) -> None:
    # rule: 7.2
    here = cell(1)
    job = whole(here, "run", **fields)
    planned = asked(here, drain())
    assert (planned.empty_in_ms, planned.attempts) == (empty, (attempt_id(job, 1),))
    here.at(told)
    assert victims(here) == [job]
    left(here, job)
    assert of(here, DrainCompleted) == [DrainCompleted(host="host-001")]
    assert here.now_ms - T0 <= empty


def test_until_the_start_it_takes_what_is_gone_by_then_and_nothing_else() -> None:
    # rule: 7.2
    here = cell(1)
    asked(here, drain(at=HOUR))
    here.at(MINUTE)
    short = here.submit("short", min_runtime_ms=HOUR - MINUTE - STOP)
    long = here.submit("long", min_runtime_ms=HOUR - MINUTE - STOP + SECOND)
    assert here.phase(short) == "granted"
    assert here.phase(long) == "waiting"
    assert list(reasons(here).values()) == [Reason.HOST_MAINTENANCE]


def test_work_past_its_window_runs_on_until_its_grace_before_the_start() -> None:
    # rule: 7.2
    here = cell(1)
    job = whole(here, "run", min_runtime_ms=15 * MINUTE, grace_ms=2 * MINUTE)
    planned = asked(here, drain(at=2 * HOUR))
    assert planned.empty_in_ms == 2 * HOUR + MARGIN
    here.at(2 * HOUR - 2 * MINUTE - 1)
    assert victims(here) == []
    here.at(2 * HOUR - 2 * MINUTE)
    assert victims(here) == [job]
    (order,) = ordered(here)
    assert (order.claim, order.drain, order.licence, order.is_deadline) == ("", "host-001", Licence.DRAIN, False)


def test_a_window_that_ends_after_the_start_is_kept() -> None:
    # rule: 7.2
    here = cell(1)
    job = whole(here, "run", min_runtime_ms=3 * HOUR)
    planned = asked(here, drain(at=HOUR))
    assert planned.empty_in_ms == 3 * HOUR + STOP
    here.at(HOUR)
    assert here.world.fleet.hosts["host-001"].holds[0].kind == "drain"
    here.at(3 * HOUR - 1)
    assert victims(here) == []
    here.at(3 * HOUR)
    assert victims(here) == [job]


def test_at_the_deadline_everybody_leaves_and_is_credited_and_it_is_no_retry() -> None:
    # rule: 7.2 2.6 1.8
    here = cell(2)
    job = whole(here, "run", min_runtime_ms=4 * HOUR)
    here.start(job)
    planned = asked(here, drain(deadline=HOUR))
    assert planned.empty_in_ms == HOUR + STOP
    here.at(HOUR)
    (order,) = ordered(here)
    assert order.is_deadline
    left(here, job)
    assert hosts_of(here, job) == names(2)
    assert here.world.jobs[job].retries == 0
    (charge,) = (e for e in here.events() if type(e) is type(charged(job, 0)))
    assert (charge.credit_gpu_ms, charge.charged_gpu_ms) == (8 * HOUR, 0)


def test_who_leaves_for_a_drain_is_not_counted_as_thrashed() -> None:
    # rule: 7.2 5.7
    here = cell(1)
    job = whole(here, "run", min_runtime_ms=15 * MINUTE)
    here.at(HOUR)
    asked(here, drain())
    assert victims(here) == [job]
    assert here.world.jobs[job].preemptions_ms == ()


def test_a_gang_on_two_draining_hosts_is_told_once_and_by_the_first_of_them() -> None:
    # rule: 7.2
    here = cell(4)
    gang = here.submit("gang", hosts=2, gpus_per_host=8, min_runtime_ms=15 * MINUTE, timeout_ms=24 * HOUR)
    here.policy(rank_period_ms=MINUTE, max_draining_permille=1000)
    asked(here, drain(1, at=2 * HOUR))
    asked(here, drain(2, at=HOUR))
    here.at(HOUR - GRACE)
    assert [(order.attempt, order.drain) for order in ordered(here)] == [(attempt_id(gang, 1), "host-002")]
    here.at(2 * HOUR)
    assert len(ordered(here)) == 1


def test_nobody_need_wait_for_a_drain_to_be_carried_out() -> None:
    # rule: 7.2
    here = cell(1)
    job = whole(here, "run", min_runtime_ms=HOUR)
    asked(here, drain())
    assert here.world.line.total == 0
    here.at(HOUR)
    assert victims(here) == [job]


# seen and ended -------------------------------------------------------------------------------------


def test_progress_is_told_with_what_is_left_and_until_when() -> None:
    # rule: 7.4
    here = cell(1)
    jobs = [here.submit(f"r{n}", gpus_per_host=4, min_runtime_ms=(n + 1) * HOUR) for n in range(2)]
    asked(here, drain())
    here.at(30 * MINUTE).start(jobs[0]).gone(jobs[0])
    assert of(here, DrainProgress) == [DrainProgress(host="host-001", left=1, empty_in_ms=90 * MINUTE + STOP)]
    here.gone(jobs[1])
    assert of(here, DrainCompleted) == [DrainCompleted(host="host-001")]


def test_the_owner_returns_the_host_and_it_takes_work_again() -> None:
    # rule: 7.4 7.1
    here = cell(1)
    asked(here, drain())
    job = here.submit("r1")
    assert here.phase(job) == "waiting"
    refused = here.when(ReturnHost(host="host-001"), who="eve").events()[0]
    assert isinstance(refused, CommandRefused)
    here.when(ReturnHost(host="host-001"), who="bot").then(HostHoldCleared(host="host-001", owner="bot", kind="drain"))
    here.settle()
    assert here.phase(job) == "granted"
    assert here.world.fleet.draining() == []


def test_undrain_calls_off_all_that_is_pending() -> None:
    # rule: 7.2
    here = cell(1)
    job = whole(here, "run", min_runtime_ms=HOUR)
    asked(here, drain())
    here.when(UndrainHost(host="host-001"), who="bot").then(
        DrainCancelled(host="host-001", account="bot"),
        HostHoldCleared(host="host-001", owner="bot", kind="drain"),
    )
    here.at(2 * HOUR)
    assert victims(here) == []
    assert here.phase(job) == "granted"
    assert here.when(UndrainHost(host="host-001"), who="bot").events() == []


def test_a_drain_voids_the_promise_there_by_name() -> None:
    # rule: 7.2 6.4
    here = cell(1)
    whole(here, "run", min_runtime_ms=2 * HOUR)
    here.at(MINUTE)
    claim = whole(here, "claim", "b")
    assert list(promises(here)) == [claim]
    asked(here, drain(at=5 * HOUR))
    assert of(here, PromiseEnded) == [PromiseEnded(job=claim, why=PromiseEnd.DRAIN, cause="host-001")]
    assert promises(here) == {}


def test_a_host_kept_for_a_claim_is_given_up_by_name_when_a_drain_comes_too_soon_for_it() -> None:
    # rule: 7.2 5.6
    here = cell(1)
    victim = idle(here, "filler")
    here.at(MINUTE)
    claim = whole(here, "claim", "b", min_runtime_ms=HOUR)
    assert here.world.reservations[claim].hosts == names(1)
    here.say(drain(at=HOUR), "bot")
    here.say(CancelJob(job=victim))
    left(here, victim)
    here.at(2 * MINUTE)
    assert of(here, ReservationEnded) == [ReservationEnded(job=claim, why="drain", cause="host-001")]
    assert here.phase(claim) == "waiting"
    assert set(reasons(here).values()) == {Reason.HOST_MAINTENANCE}
    here.say(UndrainHost(host="host-001"), "bot")
    here.at(3 * MINUTE)
    assert here.phase(claim) == "granted"


def test_a_host_kept_for_a_claim_is_used_where_the_claim_is_gone_before_the_drain() -> None:
    # rule: 7.2 5.6
    here = cell(1)
    victim = idle(here, "filler")
    here.at(MINUTE)
    claim = whole(here, "claim", "b", min_runtime_ms=HOUR)
    here.say(drain(at=3 * HOUR), "bot")
    left(here, victim)
    assert (here.phase(claim), of(here, ReservationEnded)) == ("granted", [])


def test_what_a_fault_left_of_a_gang_is_not_used_where_a_drain_comes_too_soon() -> None:
    # rule: 7.2 7.7
    here = cell(4, max_draining_permille=1000)
    here.say(CordonHost(host="host-004"), "lead")
    gang = here.submit("gang", hosts=3, gpus_per_host=8, min_runtime_ms=2 * HOUR, timeout_ms=24 * HOUR)
    here.start(gang)
    here.say(CordonHost(host="host-001"), "lead")
    here.gone(gang, End.FAULT, None, hosts=names(1))
    here.gone(gang, End.CANCELLED, 143, hosts=names(2, 3))
    assert here.world.reservations[gang].hosts == names(2, 3)
    asked(here, drain(2, at=HOUR))
    here.say(ReturnHost(host="host-004"), "lead")
    here.at(MINUTE)
    assert (here.phase(gang), of(here, ReservationEnded)) == ("waiting", []), "host-003 is still of use"
    asked(here, drain(3, at=HOUR))
    here.at(2 * MINUTE)
    assert of(here, ReservationEnded) == [ReservationEnded(job=gang, why="drain", cause="host-002")]
    assert here.phase(gang) == "waiting"


def test_a_second_ask_for_the_same_changes_nothing_and_another_time_plans_anew() -> None:
    # rule: 7.2
    here = cell(1)
    whole(here, "run", min_runtime_ms=HOUR)
    asked(here, drain(at=2 * HOUR))
    assert here.when(drain(at=2 * HOUR), who="bot").events() == []
    assert asked(here, drain(at=3 * HOUR)).start_in_ms == 3 * HOUR


@pytest.mark.parametrize(
    ("said", "who", "field", "limit"),
    [
        pytest.param(RequestDrain(host="host-009"), "bot", "host", "a registered host", id="no such host"),
        pytest.param(drain(), "eve", "host", "one drain of a host at a time", id="another's"),
        pytest.param(drain(at=2 * HOUR, deadline=HOUR), "bot", "deadline_ms", "from the start on", id="too soon"),
        pytest.param(
            RequestDrain(host="host-001", not_before_ms=-1), "bot", "not_before_ms", "0, or ms since", id="no time"
        ),
    ],
)
def test_a_drain_that_cannot_be_is_refused_with_field_limit_and_way_out(
    said: RequestDrain, who: str, field: str, limit: str
) -> None:
    # rule: 7.2
    here = cell(1)
    whole(here, "run")
    asked(here, drain(at=HOUR))
    (event,) = here.when(said, who=who).events()
    assert isinstance(event, CommandRefused)
    (problem,) = event.problems
    assert problem.field == field
    assert problem.rule == "7.2"
    assert problem.limit.startswith(limit)
    assert problem.way_out


# many at once ---------------------------------------------------------------------------------------


def _told(here: Cell, host: int) -> tuple[str, int | None, tuple[str, ...]]:
    """What people are shown of the host's drain: its state, by when it is empty, and what it waits for."""
    shown = drain_view(here.world, names(host)[-1])
    assert shown is not None
    return shown.state, shown.empty_ms, shown.behind


def test_drains_beyond_their_part_of_the_pool_queue_and_follow_by_age() -> None:
    # rule: 7.3
    here = cell(4)
    first = asked(here, drain(1))
    third = asked(here, drain(3))
    here.at(MINUTE)
    second = asked(here, drain(2))
    assert [event.is_queued for event in (first, third, second)] == [False, True, True]
    assert here.world.fleet.hosts["host-003"].holds == ()
    job = whole(here, "r1")
    assert here.phase(job) == "granted"
    assert [_told(here, host) for host in (1, 3, 2)] == [
        ("drained", T0, ()),
        ("queued", None, ("host-001",)),
        ("queued", None, ("host-001",)),
    ], "a queued drain has no time before it begins, but hosts it waits for"
    here.say(ReturnHost(host="host-001"), "bot")
    begun = [event for event in of(here, DrainPlanned) if isinstance(event, DrainPlanned) and not event.is_queued]
    assert [event.host for event in begun] == ["host-001", "host-003"]
    assert [_told(here, host) for host in (3, 2)] == [
        ("drained", here.now_ms, ()),
        ("queued", None, ("host-003",)),
    ]


def test_no_younger_drain_passes_an_older_one_that_waits() -> None:
    # rule: 7.3
    here = Cell().hosts(2, gpus=4).hosts(1, gpus=8, first=3).hosts(6, gpus=4, first=4).budgets(a=1)

    def ask(host: int, at: int) -> bool:
        here.at(at * SECOND)
        return asked(here, drain(host)).is_queued

    assert [ask(1, 1), ask(3, 2), ask(2, 3)] == [False, True, True], "ten of forty GPUs may drain"
    here.at(4 * SECOND).say(ReturnHost(host="host-001"), "bot")
    assert here.world.fleet.hosts["host-003"].is_held_as("drain"), "the oldest, though it needs most of it"
    assert ask(4, 5)
    assert [host.id for host in here.world.fleet.draining() if host.drain and host.drain.is_queued] == [
        "host-002",
        "host-004",
    ]
    here.at(6 * SECOND).say(ReturnHost(host="host-003"), "bot")
    begun = [event.host for event in of(here, DrainPlanned) if isinstance(event, DrainPlanned) and not event.is_queued]
    assert begun == ["host-001", "host-003", "host-002", "host-004"]


def test_an_older_drain_of_another_pool_holds_up_nobody() -> None:
    # rule: 7.3
    here = cell(4).hosts(4, pool="l40s", first=5)
    assert [asked(here, drain(host)).is_queued for host in (1, 2, 5)] == [False, True, False]


def test_a_drain_that_is_called_off_holds_up_nobody_any_more() -> None:
    # rule: 7.3
    here = Cell().hosts(4, gpus=4).hosts(1, gpus=8, first=5).budgets(a=1).policy(max_draining_permille=400)
    assert [asked(here, drain(host)).is_queued for host in (1, 5)] == [False, True]
    here.at(MINUTE)
    assert asked(here, drain(2)).is_queued
    here.say(UndrainHost(host="host-005"), "bot")
    assert here.world.fleet.hosts["host-002"].is_held_as("drain")


def test_one_host_of_a_pool_may_always_drain() -> None:
    # rule: 7.3
    here = cell(1)
    assert not asked(here, drain()).is_queued


def test_a_grant_before_the_start_that_is_cancelled_in_time_leaves_the_plan_as_it_was() -> None:
    # rule: 7.2
    here = cell(1)
    asked(here, drain(at=2 * HOUR))
    job = here.submit("short", min_runtime_ms=HOUR)
    assert len(of(here, GangGranted)) == 1
    here.say(CancelJob(job=job))
    here.gone(job, End.CANCELLED, 143)
    here.at(2 * HOUR)
    assert of(here, DrainCompleted) == [DrainCompleted(host="host-001")]


def test_idle_work_fills_a_host_until_its_drain_begins() -> None:
    # rule: 7.2 6.3
    here = cell(1)
    asked(here, drain(at=HOUR))
    here.at(MINUTE)
    filler = idle(here, "filler")
    assert here.phase(filler) == "granted"
    here.at(HOUR - GRACE)
    assert victims(here) == [filler]
    left(here, filler)
    assert here.phase(filler) == "waiting"
