"""What a fault leaves of a window, and who has a whole one (7.7)."""

import pytest

from fairlease.core.explain import why
from fairlease.core.fairshare.standing import standings
from fairlease.core.faults import rest_ms
from fairlease.core.line import class_key
from fairlease.core.view import job_view
from fairlease_schemas.commands import CordonHost, HoldJob, ReleaseJob, ReturnHost
from fairlease_schemas.cycle import Licence
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import AttemptEnded, End, JobRequeued, PartGone
from tests.core.bench import cell, change, evictions, grants, hosts_of, saved, victims, whole
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell, charged, granted, on

WINDOW = {"min_runtime_ms": HOUR}


def faulted(here: Cell, job: str) -> Cell:
    """Its host says that a fault ended the job's only part."""
    return here.gone(job, End.FAULT, None)


def window(here: Cell, job: str) -> tuple[int, int]:
    """The number of the job's last attempt, and its window."""
    attempt = here.world.jobs[job].attempts[-1]
    return attempt.number, attempt.window_ms


def test_the_next_attempt_has_what_the_fault_left_of_the_window() -> None:
    # rule: 7.7
    here = cell()
    job = whole(here, "run", **WINDOW)
    here.at(20 * MINUTE)
    here.when(here.run_gone(job, End.FAULT, None), who="host-001").then(
        PartGone(attempt=attempt_id(job, 1), host="host-001", end=End.FAULT),
        AttemptEnded(attempt=attempt_id(job, 1), end=End.FAULT),
        JobRequeued(job=job, end=End.FAULT, rest_ms=40 * MINUTE),
    )
    assert job_view(here.world, here.world.jobs[job]).rest_ms == 40 * MINUTE
    here.settle()
    assert granted(job, on(1, *range(8)), number=2, window_ms=40 * MINUTE) in here.events()
    assert job_view(here.world, here.world.jobs[job]).rest_ms is None


def test_over_several_faults_every_attempt_has_what_is_left() -> None:
    # rule: 7.7
    here = cell()
    job = whole(here, "run", **WINDOW)
    found = []
    for after in (15, 25, 55):  # 15, 10 and 30 minutes of an hour
        faulted(here.at(after * MINUTE), job)
        found.append(window(here, job))
    assert found == [(2, 45 * MINUTE), (3, 35 * MINUTE), (4, 5 * MINUTE)]


def test_a_fault_in_the_instant_of_the_grant_leaves_a_whole_window() -> None:
    # rule: 7.7
    here = cell()
    job = whole(here, "run", **WINDOW)
    key = class_key(here.world.jobs[job])
    here.when(here.run_gone(job, End.FAULT, None), who="host-001")
    assert class_key(here.world.jobs[job]) == key
    here.settle()
    assert window(here, job) == (2, HOUR)


@pytest.mark.parametrize(
    ("end", "exit_code", "is_saved"),
    [
        pytest.param(End.FAILED, 1, False, id="its own failure"),
        pytest.param(End.FAILED, 85, True, id="its own wish to go on later"),
    ],
)
def test_after_an_end_of_its_own_the_window_is_whole_again(end: End, exit_code: int, is_saved: bool) -> None:
    # rule: 7.7 1.8
    here = cell()
    job = whole(here, "run", max_retries=1, **WINDOW)
    faulted(here.at(20 * MINUTE), job)
    if is_saved:
        saved(here, job, step=1)
    here.gone(job, end, exit_code).at(HOUR)
    assert window(here, job) == (3, HOUR)
    assert here.world.jobs[job].retries == (not is_saved)


def test_after_a_preemption_the_window_is_whole_again() -> None:
    # rule: 7.7
    here = cell()
    job = whole(here, "run", **WINDOW)
    claim = whole(here, "claim", "b", min_runtime_ms=30 * MINUTE)
    here.at(2 * HOUR)
    assert victims(here) == [job]
    here.gone(job, End.CANCELLED, 143)
    here.at(3 * HOUR).gone(claim)
    assert window(here, job) == (2, HOUR)


def test_a_fault_while_it_leaves_for_somebody_leaves_a_whole_window() -> None:
    # rule: 7.7
    here = cell()
    job = whole(here, "run", **WINDOW)
    whole(here, "claim", "b", min_runtime_ms=30 * MINUTE)
    here.at(2 * HOUR)
    assert victims(here) == [job]
    faulted(here, job)
    assert here.world.jobs[job].rest_ms is None


def test_what_cannot_go_on_begins_anew_with_a_whole_window() -> None:
    # rule: 7.7 1.6
    here = cell()
    job = whole(here, "run", is_resumable=False, timeout_ms=HOUR)
    faulted(here.at(20 * MINUTE), job)
    assert window(here, job) == (2, HOUR)


def test_idle_work_has_no_window_that_could_be_left() -> None:
    # rule: 7.7 1.4
    here = cell()
    job = whole(here, "idle", min_runtime_ms=0)
    faulted(here.at(20 * MINUTE), job)
    assert (window(here, job), here.world.jobs[job].rest_ms) == ((2, 0), None)


# a rest of 0 ------------------------------------------------------------------------------------------


def past(here: Cell, budget: str = "a", **fields: object) -> str:
    """A job that a fault ended past its window, and that runs again, since now; its id."""
    job = whole(here, "past", budget, **(WINDOW | fields))
    faulted(saved(here.at(2 * HOUR), job), job)  # what is saved is not credited, and so counts as used
    assert window(here, job) == (2, 0)
    return job


def test_past_its_window_nothing_is_left_and_it_is_budgeted_work_all_the_same() -> None:
    # rule: 7.7 2.4
    here = cell()
    job = past(here)
    (again,) = (e for e in here.events() if e == granted(job, on(1, *range(8)), number=2, window_ms=0))
    assert again.licence is Licence.UNDER_SHARE  # type: ignore[union-attr] # a grant
    here.at(3 * HOUR).gone(job)
    assert charged(job, 8 * HOUR, number=2) in here.events()


def test_with_nothing_left_it_may_be_asked_to_leave_at_once_by_standing() -> None:
    # rule: 7.7 5.2
    here = cell()
    job = past(here)
    claim = whole(here, "claim", "b")
    assert victims(here) == [job]
    here.now_ms += SECOND
    here.gone(job, End.CANCELLED, 143)
    assert grants(here)[-1] == claim
    assert here.world.jobs[job].rest_ms is None, "after a preemption it has a whole window again"


def test_idle_work_cannot_ask_it_to_leave() -> None:
    # rule: 7.7 3.8
    here = cell()
    past(here)
    whole(here, "idle", "b", min_runtime_ms=0)
    here.at(3 * HOUR)
    assert evictions(here) == []


def test_what_is_left_of_the_window_protects_it_to_its_end_and_no_longer() -> None:
    # rule: 7.7 6.1
    here = cell()
    job = whole(here, "run", **WINDOW)
    faulted(saved(here.at(20 * MINUTE), job), job)
    whole(here, "claim", "b")
    here.at(HOUR - MINUTE)
    assert evictions(here) == []
    here.at(HOUR)
    assert victims(here) == [job]


# while it waits -----------------------------------------------------------------------------------------


def waiting(here: Cell) -> str:
    """A job with 40 minutes left of its hour that waits, because its host is held; its id."""
    job = whole(here, "run", **WINDOW)
    here.at(20 * MINUTE).say(CordonHost(host="host-001"), "ops", settle=False)
    return faulted(here, job) and job


def test_what_is_promised_to_it_is_what_is_left_of_its_window() -> None:
    # rule: 7.7 2.5
    here = cell(2)
    gang = here.submit("gang", hosts=2, gpus_per_host=8, timeout_ms=24 * HOUR, **WINDOW)
    here.at(20 * MINUTE).say(CordonHost(host="host-001"), "ops", settle=False)
    here.say(here.run_gone(gang, End.FAULT, None), "host-001", settle=False)
    here.say(here.run_gone(gang, End.CANCELLED, 143), "host-002")
    assert here.world.reservations[gang].hosts == ("host-002",)
    row = next(row for row in standings(here.world, "h100", here.now_ms) if row.budget == "a")
    assert row.promised_gpu_ms == 16 * 40 * MINUTE


def test_it_is_no_more_of_its_class_and_keeps_its_place() -> None:
    # rule: 7.7 4.4
    here = cell()
    job = waiting(here)
    other = whole(here, "other", **WINDOW)
    keys = [class_key(here.world.jobs[name]) for name in (job, other)]
    assert keys == ["a/h100/1x8/3600000ms/rest-2400000ms", "a/h100/1x8/3600000ms"]
    here.say(ReturnHost(host="host-001"), "ops")
    assert (grants(here)[-1], hosts_of(here, job)) == (job, ("host-001",))


def test_a_hold_in_between_does_not_give_it_a_whole_window() -> None:
    # rule: 7.7
    here = cell()
    job = waiting(here)
    here.say(HoldJob(job=job), "ann")
    here.say(ReturnHost(host="host-001"), "ops")
    here.say(ReleaseJob(job=job), "ann")
    assert window(here, job) == (2, 40 * MINUTE)


def test_it_is_not_told_that_a_smaller_window_would_help() -> None:
    # rule: 7.7 9.2
    here = cell()
    job = whole(here, "run", min_runtime_ms=4 * HOUR)
    here.at(20 * MINUTE).say(CordonHost(host="host-001"), "ops", settle=False)
    faulted(here, job)
    told = why(here.world, here.world.jobs[job])
    assert [one for one in told.counterfactuals if "min_runtime_ms" in one.change] == []


def test_with_nothing_left_it_is_under_no_cap_of_protected_work() -> None:
    # rule: 7.7 2.9
    here = change(cell(2), "a", max_protected_permille=500)
    other = whole(here, "other", **WINDOW)
    assert hosts_of(here, other) == ("host-001",)
    blocked = whole(here, "more", **WINDOW)
    assert here.phase(blocked) == "waiting"
    here.gone(other)
    assert hosts_of(here, blocked) == ("host-001",)
    faulted(here.at(2 * HOUR), blocked)
    assert window(here, blocked) == (2, 0)
    more = whole(here, "third", **WINDOW)
    assert here.phase(more) == "granted", "what is past its window counts under no such cap"


def test_the_rest_is_reckoned_from_the_last_whole_window_alone() -> None:
    # rule: 7.7
    here = cell()
    job = whole(here, "run", **WINDOW)
    attempt = here.world.jobs[job].attempts[-1]
    assert rest_ms(here.world.jobs[job], attempt) is None, "it has not ended by a fault"
