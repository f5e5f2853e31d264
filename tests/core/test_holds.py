"""Jobs that somebody holds: they do not compete until they are released, whatever crosses the hold."""

import pytest

from fairlease.core.world import World
from fairlease_schemas.commands import CancelJob, ChangeBudget, ChangeMember, HoldJob, ReleaseJob
from fairlease_schemas.envelope import Event
from fairlease_schemas.ids import attempt_id, job_id
from fairlease_schemas.job import (
    AttemptEnded,
    AttemptEnding,
    CommandRefused,
    End,
    JobCancelled,
    JobHeld,
    JobHoldCleared,
    Problem,
)
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan
from tests.core.test_contracts_waiting import ARRAY, array, began, cell, ended, names, ok
from tests.dsl.cell import MINUTE, SECOND, Cell, charged, granted, on

# held jobs ------------------------------------------------------------------------------------------


def held(job: str, who: str = "ann", reason: str = "") -> tuple[Event, Event]:
    return JobHeld(job=job, account=who, reason=reason), began(job, code=Reason.JOB_HELD)


def cleared(job: str, who: str = "ann") -> tuple[Event, Event]:
    return ended(job, Reason.JOB_HELD), JobHoldCleared(job=job, account=who)


def waiting(here: Cell) -> str:
    """A job behind one that has the whole host."""
    here.submit("first", gpus_per_host=8)
    return here.submit("r1", gpus_per_host=8)


def test_a_held_job_does_not_compete_until_it_is_released() -> None:
    # rule: 9.1
    here = cell()
    job = waiting(here)
    here.when(HoldJob(job=job, reason="wait for data")).then(*held(job, reason="wait for data"))
    here.gone(job_id("ann", "a", "first"))
    assert here.phase(job) == "held"
    here.when(ReleaseJob(job=job)).then(*cleared(job)).follows(granted(job, on(1, *range(8))))


def test_a_hold_or_release_that_is_so_already_is_no_event() -> None:
    # rule: 9.1
    here = cell()
    job = waiting(here)
    here.when(ReleaseJob(job=job)).then()
    here.say(HoldJob(job=job))
    here.when(HoldJob(job=job)).then().follows()


@pytest.mark.parametrize("state", ["granted", "succeeded"])
def test_what_has_its_gpus_or_is_over_cannot_be_held(state: str) -> None:
    # rule: 9.1
    here = cell()
    job = here.submit("r1")
    if state == "succeeded":
        here.gone(job)
    way_out = "cancel it, or hold it when it waits again" if state == "granted" else "it is over: submit it anew"
    problem = Problem(field="job", rule="9.1", value=state, limit="a job that waits", way_out=way_out)
    here.when(HoldJob(job=job)).then(CommandRefused(account="ann", verb="hold-job", seq=2, problems=(problem,)))


def test_a_held_job_can_be_cancelled() -> None:
    # rule: 9.1
    here = cell()
    job = waiting(here)
    here.say(HoldJob(job=job))
    here.when(CancelJob(job=job)).then(ended(job, Reason.JOB_HELD), JobCancelled(job=job, account="ann")).follows()


def test_a_lead_may_hold_and_then_the_owner_may_not_release() -> None:
    # rule: 1.1
    here = cell()
    job = waiting(here)
    here.when(HoldJob(job=job), who="lead").then(*held(job, "lead"))
    problem = Problem(
        field="job", rule="1.1", value=job, limit="who held it, or a lead of its budget", way_out="ask lead"
    )
    here.when(ReleaseJob(job=job)).then(CommandRefused(account="ann", verb="release-job", seq=3, problems=(problem,)))
    here.when(ReleaseJob(job=job), who="lead").then(*cleared(job, "lead"))


def test_a_lead_may_release_what_its_owner_held_and_a_stranger_nothing() -> None:
    # rule: 1.1
    here = cell()
    job = waiting(here)
    (event,) = here.when(HoldJob(job=job), who="eve").events()
    assert isinstance(event, CommandRefused)
    here.say(HoldJob(job=job))
    (event,) = here.when(ReleaseJob(job=job), who="eve").events()
    assert isinstance(event, CommandRefused)
    here.when(ReleaseJob(job=job), who="lead").then(*cleared(job, "lead"))


def test_a_hold_stops_a_backoff_and_the_release_gives_the_rest_of_it() -> None:
    # rule: 9.1
    here = cell()
    job = here.submit("r1", max_retries=1)
    here.gone(job, End.FAILED, 1)
    here.at(10 * SECOND)
    here.when(HoldJob(job=job)).then(ended(job, Reason.RETRY_BACKOFF), *held(job))
    here.at(25 * SECOND)
    here.when(ReleaseJob(job=job)).then(
        ended(job, Reason.JOB_HELD),
        JobHoldCleared(job=job, account="ann", backoff_ms=5 * SECOND),
        ReasonBegan(subject=job, code=Reason.RETRY_BACKOFF, evidence=Evidence(for_ms=5 * SECOND)),
    )
    here.at(30 * SECOND)
    assert here.phase(job) == "granted"


def test_a_hold_outlasts_a_backoff() -> None:
    # rule: 9.1
    here = cell()
    job = here.submit("r1", max_retries=1)
    here.gone(job, End.FAILED, 1)
    here.say(HoldJob(job=job))
    here.passes(2 * MINUTE).then()
    here.when(ReleaseJob(job=job)).then(*cleared(job))


def test_a_job_released_before_the_others_are_over_waits_for_them_again() -> None:
    # rule: 1.11
    here = cell()
    first = here.submit("first")
    job = here.submit("next", after=ok(first))
    here.when(HoldJob(job=job)).then(ended(job), *held(job))
    here.when(ReleaseJob(job=job)).then(
        ended(job, Reason.JOB_HELD),
        JobHoldCleared(job=job, account="ann", is_blocked=True),
        began(job, first),
    )
    here.say(HoldJob(job=job))
    here.gone(first, End.FAILED, 1)
    assert here.phase(job) == "held"
    here.when(ReleaseJob(job=job)).then(
        ended(job, Reason.JOB_HELD),
        JobCancelled(job=job, account="ann", reason=Reason.DEPENDENCY, cause=first),
    )


def test_a_held_job_gives_its_place_in_the_array_away_and_waits_for_one_when_released() -> None:
    # rule: 1.11
    here = cell()
    blocker = here.submit("whole", gpus_per_host=8)
    jobs = names(3)
    here.submit("r1", array=array(3, 1), gpus_per_host=8)
    here.say(HoldJob(job=jobs[0]))
    assert [here.phase(job) for job in jobs] == ["held", "waiting", "dependent"]
    here.when(ReleaseJob(job=jobs[0])).then(
        ended(jobs[0], Reason.JOB_HELD),
        JobHoldCleared(job=jobs[0], account="ann", is_blocked=True),
        began(jobs[0], jobs[1]),
    )
    here.gone(blocker).gone(jobs[1])
    assert [here.phase(job) for job in jobs] == ["granted", "succeeded", "dependent"]


def test_an_array_is_held_and_released_by_its_name() -> None:
    # rule: 1.11
    here = cell()
    here.submit("whole", gpus_per_host=8)
    here.submit("r1", array=array(2), gpus_per_host=8)
    here.say(HoldJob(job=ARRAY))
    assert [here.phase(job) for job in names(2)] == ["held", "held"]
    here.say(ReleaseJob(job=ARRAY))
    assert [here.phase(job) for job in names(2)] == ["waiting", "waiting"]


def test_a_job_held_while_its_grant_was_on_its_way_never_starts_and_stays_held() -> None:
    # rule: 9.1
    here = cell()
    job = here.submit("r1", settle=False)
    here.step("ranker")
    placed = here.draft("placement")
    here.say(HoldJob(job=job), settle=False)
    here.append(placed)
    attempt = attempt_id(job, 1)
    assert here.world.jobs[job].attempts[0].is_stillborn
    assert here.step("admission") == [AttemptEnded(attempt=attempt, end=End.CANCELLED)]
    here.settle()
    assert here.phase(job) == "held"
    assert charged(job, 0) in here.events()
    here.when(ReleaseJob(job=job)).then(*cleared(job)).follows(granted(job, on(1, 0), number=2))


def held_over_a_grant(here: Cell, **fields: object) -> str:
    """A job whose grant stands in the log before the hold that did not know of it."""
    job = here.submit("r1", settle=False, **fields)
    here.step("ranker")
    hold = here.draft("admission", (here.answer(HoldJob(job=job)),))
    here.step("placement")
    here.append(hold)
    return job


def test_a_job_held_in_the_moment_of_its_grant_is_told_to_leave_and_stays_held() -> None:
    # rule: 9.1
    here = cell()
    job = held_over_a_grant(here)
    attempt = attempt_id(job, 1)
    assert here.step("admission") == [AttemptEnding(attempt=attempt, end=End.PREEMPTED, grace_ms=30_000)]
    here.settle()
    assert here.phase(job) == "held"
    here.say(here.run_started(job), "host-001")
    here.gone(job, End.CANCELLED, 143)
    assert here.phase(job) == "held"
    assert here.world.live == {}
    here.when(ReleaseJob(job=job)).then(*cleared(job)).follows(granted(job, on(1, 0), number=2))


def test_a_release_before_it_left_lets_it_compete_when_it_is_gone() -> None:
    # rule: 9.1
    here = cell()
    job = held_over_a_grant(here)
    here.settle()
    here.when(ReleaseJob(job=job)).then(*cleared(job)).follows()
    assert here.phase(job) == "stopping"
    assert here.world.line.total == 0
    here.gone(job, End.CANCELLED, 143)
    assert [attempt.number for attempt in here.world.jobs[job].attempts] == [1, 2]
    assert World.load(here.world.dump()).digest() == here.world.digest()


@pytest.mark.parametrize(("end", "phase"), [(End.SUCCEEDED, "succeeded"), (End.FAILED, "held")])
def test_what_ended_by_itself_before_it_was_told_counts(end: End, phase: str) -> None:
    # rule: 8.4 9.1
    here = cell()
    job = held_over_a_grant(here, max_retries=1)
    here.gone(job, end, 0 if end is End.SUCCEEDED else 1)
    assert here.phase(job) == phase
    open_reasons = here.world.reasons_of("admission")
    assert (job in open_reasons) is (phase == "held")


def test_one_held_in_the_moment_of_its_grant_that_fails_waits_out_its_backoff_when_it_is_released() -> None:
    # rule: 1.8 9.1
    here = cell()
    job = held_over_a_grant(here, max_retries=1)
    here.gone(job, End.FAILED, 1)
    assert here.phase(job) == "held"
    here.at(10 * SECOND)
    here.when(ReleaseJob(job=job)).then(
        ended(job, Reason.JOB_HELD),
        JobHoldCleared(job=job, account="ann", backoff_ms=20 * SECOND),
        ReasonBegan(subject=job, code=Reason.RETRY_BACKOFF, evidence=Evidence(for_ms=20 * SECOND)),
    )
    here.at(30 * SECOND)
    assert here.phase(job) == "granted"


def test_a_cancel_of_one_that_is_held_and_still_stopping_ends_it_once() -> None:
    # rule: 8.4 9.1
    here = cell()
    job = held_over_a_grant(here)
    here.settle()
    here.say(CancelJob(job=job))
    here.gone(job, End.CANCELLED, 143)
    assert here.phase(job) == "cancelled"
    assert len(here.events(JobCancelled)) == 1
    assert here.world.reasons_of("admission") == {}


def test_a_release_in_the_same_moment_ends_what_never_ran() -> None:
    # rule: 9.1
    here = cell()
    job = here.submit("r1", settle=False)
    here.step("ranker")
    placed = here.draft("placement")
    here.say(HoldJob(job=job), settle=False)
    here.append(placed)
    here.when(ReleaseJob(job=job)).then(AttemptEnded(attempt=attempt_id(job, 1), end=End.CANCELLED), *cleared(job))
    assert World.load(here.world.dump()).line.total == here.world.line.total == 1


def test_who_leads_everybody_is_lead() -> None:
    # rule: 1.1
    here = Cell().hosts(1)
    here.say(ChangeBudget(budget="a", weight=1), "lead")
    here.say(ChangeMember(budget="a", account="*", role="lead"), "lead")
    job = waiting(here)
    here.when(HoldJob(job=job), who="eve").then(*held(job, "eve"))
