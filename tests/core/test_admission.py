"""A job's life: what reports, cancels and time make of it."""

import pytest

from fairlease_schemas.commands import CancelJob
from fairlease_schemas.cycle import CycleRanked, Licence
from fairlease_schemas.envelope import TimerFired, Unreadable
from fairlease_schemas.ids import attempt_id, job_id
from fairlease_schemas.job import (
    AttemptEnded,
    AttemptEnding,
    AttemptStarted,
    CommandRefused,
    End,
    JobCancelled,
    JobFailed,
    JobReleased,
    JobRequeued,
    JobSucceeded,
    JobTimedOut,
    MessageRefused,
    PartGone,
    Problem,
)
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan, ReasonEnded
from fairlease_schemas.reports import RunGone, RunStarted
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell, admitted, charged, granted, on, submitted


def cell(hosts: int = 1) -> Cell:
    return Cell().hosts(hosts).budgets(a=1)


def gang(here: Cell, **fields: object) -> tuple[str, str]:
    """A gang over host-001 and host-002 that runs on both; its job and attempt."""
    job = here.submit("r1", hosts=2, gpus_per_host=8, **fields)
    here.start(job)
    return job, attempt_id(job, 1)


def gone(attempt: str, host: int, end: End = End.SUCCEEDED, exit_code: int | None = 0) -> PartGone:
    return PartGone(attempt=attempt, host=f"host-{host:03d}", end=end, exit_code=exit_code)


# starting ----------------------------------------------------------------------------------------------


def test_a_job_runs_when_its_host_says_so() -> None:
    here = cell()
    job = here.submit("r1")
    assert here.phase(job) == "granted"
    started = AttemptStarted(attempt=attempt_id(job, 1), host="host-001")
    here.when(here.run_started(job), who="host-001").then(started).follows()
    assert here.phase(job) == "running"


def test_a_gang_runs_when_its_last_part_does() -> None:
    here = cell(2)
    job = here.submit("r1", hosts=2, gpus_per_host=8)
    said = here.run_started(job)
    here.when(said, who="host-002").then(AttemptStarted(attempt=said.attempt, host="host-002"))
    assert here.phase(job) == "granted"
    here.when(said, who="host-001").then(AttemptStarted(attempt=said.attempt, host="host-001"))
    assert here.phase(job) == "running"


def test_a_start_by_a_host_that_has_no_part_is_answered_and_changes_nothing() -> None:
    here = cell(2)
    job = here.submit("r1")
    here.when(here.run_started(job), who="host-002").then().follows()
    assert here.phase(job) == "granted"


def test_a_report_with_another_token_changes_nothing() -> None:
    here = cell()
    job = here.submit("r1")
    said = here.run_started(job)
    here.when(RunStarted(attempt=said.attempt, token="1-1-0"), who="host-001").then()
    here.when(RunGone(attempt=said.attempt, token="", end=End.FAILED), who="host-001").then().follows()
    assert here.phase(job) == "granted"


def test_a_repeated_report_changes_nothing() -> None:
    here = cell(2)
    job, attempt = gang(here)
    here.when(here.run_started(job), who="host-001").then()
    here.when(here.run_gone(job), who="host-001").then(gone(attempt, 1))
    here.when(here.run_gone(job), who="host-001").then().follows()
    assert here.phase(job) == "running"


def test_a_start_that_comes_after_the_end_of_its_part_changes_nothing() -> None:
    here = cell(2)
    job = here.submit("r1", hosts=2, gpus_per_host=8)
    here.when(here.run_gone(job), who="host-001").then(gone(attempt_id(job, 1), 1))
    here.when(here.run_started(job), who="host-001").then().follows()
    assert here.phase(job) == "granted"


@pytest.mark.parametrize("attempt", ["", "-a1", "job-nobody-a1", "junk", "job-a", "-a"])
def test_a_report_about_an_attempt_that_never_was_changes_nothing(attempt: str) -> None:
    here = cell()
    here.submit("r1")
    here.when(RunStarted(attempt=attempt, token="1-1-0"), who="host-001").then()
    here.when(RunGone(attempt=attempt, token="1-1-0", end=End.LOST), who="host-001").then().follows()


# ending by itself -----------------------------------------------------------------------------------


def test_success_ends_the_job_and_is_charged_once() -> None:
    here = cell()
    job = here.submit("r1", gpus_per_host=2)
    here.start(job).at(10 * MINUTE)
    attempt = attempt_id(job, 1)
    here.when(here.run_gone(job), who="host-001").then(
        gone(attempt, 1),
        AttemptEnded(attempt=attempt, end=End.SUCCEEDED, exit_code=0),
        JobSucceeded(job=job),
    ).follows(charged(job, 2 * 10 * MINUTE))


def test_a_job_that_never_said_it_started_can_succeed() -> None:
    here = cell()
    job = here.submit("r1")
    here.gone(job)
    assert here.phase(job) == "succeeded"


def test_failure_without_retries_ends_the_job_with_its_exit_code() -> None:
    here = cell()
    job = here.submit("r1")
    attempt = attempt_id(job, 1)
    here.when(here.run_gone(job, End.FAILED, 3), who="host-001").then(
        gone(attempt, 1, End.FAILED, 3),
        AttemptEnded(attempt=attempt, end=End.FAILED, exit_code=3),
        JobFailed(job=job, end=End.FAILED, exit_code=3),
    ).follows(charged(job, 0))


def test_a_gang_is_released_when_its_last_part_is_gone() -> None:
    here = cell(2)
    job, attempt = gang(here)
    here.when(here.run_gone(job), who="host-002").then(gone(attempt, 2)).follows()
    assert here.world.fleet.attempts_on("host-002") == [attempt]
    here.when(here.run_gone(job), who="host-001").then(
        gone(attempt, 1), AttemptEnded(attempt=attempt, end=End.SUCCEEDED, exit_code=0), JobSucceeded(job=job)
    ).follows(charged(job, 0))
    assert here.world.fleet.attempts_on("host-002") == []


def test_one_failed_part_stops_the_rest_of_its_gang_and_speaks_for_it() -> None:
    here = cell(2)
    job, attempt = gang(here)
    here.when(here.run_gone(job, End.FAILED, 7), who="host-002").then(
        gone(attempt, 2, End.FAILED, 7), AttemptEnding(attempt=attempt, end=End.FAILED, grace_ms=30 * SECOND)
    ).follows()
    assert here.phase(job) == "stopping"
    here.when(here.run_gone(job, End.CANCELLED, 143), who="host-001").then(
        gone(attempt, 1, End.CANCELLED, 143),
        AttemptEnded(attempt=attempt, end=End.FAILED, exit_code=7),
        JobFailed(job=job, end=End.FAILED, exit_code=7),
    )


def test_of_two_failed_parts_the_first_report_speaks() -> None:
    here = cell(2)
    job, attempt = gang(here)
    here.when(here.run_gone(job, End.LOST, None), who="host-002")
    here.when(here.run_gone(job, End.FAILED, 9), who="host-001").then(
        gone(attempt, 1, End.FAILED, 9),
        AttemptEnded(attempt=attempt, end=End.LOST),
        JobFailed(job=job, end=End.LOST),
    )


def test_a_start_that_failed_is_not_tried_again() -> None:
    here = cell()
    job = here.submit("r1", max_retries=5)
    attempt = attempt_id(job, 1)
    here.when(here.run_gone(job, End.START_FAILED, None), who="host-001").then(
        gone(attempt, 1, End.START_FAILED, None),
        AttemptEnded(attempt=attempt, end=End.START_FAILED),
        JobFailed(job=job, end=End.START_FAILED),
    )


def test_all_parts_of_a_gang_gone_in_one_record_see_each_other() -> None:
    here = cell(2)
    job, attempt = gang(here)
    said = here.run_gone(job, End.FAILED, 1)
    answers = (here.answer(said, "host-001"), here.answer(said, "host-002"))
    assert here.step("admission", answers) == [
        gone(attempt, 1, End.FAILED, 1),
        AttemptEnding(attempt=attempt, end=End.FAILED, grace_ms=30 * SECOND),
        gone(attempt, 2, End.FAILED, 1),
        AttemptEnded(attempt=attempt, end=End.FAILED, exit_code=1),
        JobFailed(job=job, end=End.FAILED, exit_code=1),
    ]


# retries --------------------------------------------------------------------------------------------


def fail(here: Cell, job: str, number: int, backoff_ms: int) -> None:
    """Attempt `number` fails, and the job waits for that long."""
    attempt = attempt_id(job, number)
    here.when(here.run_gone(job, End.FAILED, 1), who="host-001").then(
        gone(attempt, 1, End.FAILED, 1),
        AttemptEnded(attempt=attempt, end=End.FAILED, exit_code=1),
        JobRequeued(job=job, end=End.FAILED, backoff_ms=backoff_ms, counts_as_retry=True),
        ReasonBegan(subject=job, code=Reason.RETRY_BACKOFF, evidence=Evidence(for_ms=backoff_ms)),
    )
    here.settle()


def test_a_failed_job_comes_back_when_its_backoff_is_over() -> None:
    here = cell()
    job = here.submit("r1", max_retries=1)
    fail(here, job, 1, 30 * SECOND)
    assert here.phase(job) == "backoff"
    here.passes(30 * SECOND - 1).then()
    here.passes(30 * SECOND).then(
        ReasonEnded(subject=job, code=Reason.RETRY_BACKOFF),
        JobReleased(job=job),
        granted(job, on(1, 0), number=2),
    )


def test_the_backoff_doubles_from_half_a_minute_to_ten() -> None:
    here = cell()
    job = here.submit("r1", max_retries=7)
    for number, backoff_s in enumerate((30, 60, 120, 240, 480, 600, 600), 1):
        fail(here, job, number, backoff_s * SECOND)
        here.at(here.world.jobs[job].backoff_until_ms - 1_700_000_000_000)
    here.gone(job, End.FAILED, 1)
    assert here.phase(job) == "failed"
    assert here.world.jobs[job].retries == 7


def test_a_cancel_ends_a_backoff() -> None:
    here = cell()
    job = here.submit("r1", max_retries=1)
    fail(here, job, 1, 30 * SECOND)
    here.when(CancelJob(job=job)).then(
        ReasonEnded(subject=job, code=Reason.RETRY_BACKOFF), JobCancelled(job=job, account="ann")
    ).follows()
    here.passes(HOUR).then()


def test_a_failure_reported_when_the_time_limit_is_due_still_has_its_whole_backoff() -> None:
    here = cell()
    job = here.submit("r1", max_retries=1)
    here.now_ms += 2 * HOUR
    fail(here, job, 1, 30 * SECOND)
    assert here.phase(job) == "backoff"


# cancel ---------------------------------------------------------------------------------------------


def no_such_job(job: str, seq: int, who: str = "ann") -> CommandRefused:
    limit = "a job of this account, or of a budget it leads"
    problem = Problem(field="job", rule="1.1", value=job, limit=limit, way_out="see `fairlease queue`")
    return CommandRefused(account=who, verb="cancel-job", seq=seq, problems=(problem,))


def test_a_waiting_job_is_cancelled_at_once() -> None:
    here = cell()
    here.submit("r1", gpus_per_host=8)
    job = here.submit("r2", gpus_per_host=8)
    assert here.phase(job) == "waiting"
    here.when(CancelJob(job=job)).then(JobCancelled(job=job, account="ann"))


def test_a_running_job_is_cancelled_by_its_grace() -> None:
    here = cell()
    job = here.submit("r1", grace_ms=5 * SECOND)
    attempt = attempt_id(job, 1)
    here.start(job)
    here.when(CancelJob(job=job)).then(AttemptEnding(attempt=attempt, end=End.CANCELLED, grace_ms=5 * SECOND))
    assert here.phase(job) == "stopping"
    here.when(here.run_gone(job, End.CANCELLED, 143), who="host-001").then(
        gone(attempt, 1, End.CANCELLED, 143),
        AttemptEnded(attempt=attempt, end=End.CANCELLED),
        JobCancelled(job=job, account="ann"),
    ).follows(charged(job, 0))


def test_a_second_cancel_changes_nothing() -> None:
    here = cell()
    job = here.submit("r1")
    here.say(CancelJob(job=job))
    here.when(CancelJob(job=job)).then().follows()


def test_a_job_that_is_over_cannot_be_cancelled_and_that_is_no_error() -> None:
    here = cell()
    job = here.submit("r1")
    here.gone(job)
    here.when(CancelJob(job=job)).then().follows()


def test_a_job_of_another_account_cannot_be_cancelled() -> None:
    here = cell()
    job = here.submit("r1")
    here.when(CancelJob(job=job), who="eve").then(no_such_job(job, 1, "eve")).follows()
    here.when(CancelJob(job="job-nobody")).then(no_such_job("job-nobody", 2)).follows()


def test_a_submission_and_its_cancel_in_one_record_see_each_other() -> None:
    here = cell()
    event = admitted("r1")
    here.when(submitted("r1"), CancelJob(job=event.job)).then(
        event, JobCancelled(job=event.job, account="ann")
    ).follows()
    assert here.world.line.total == 0


def test_a_cancelled_job_whose_process_succeeded_in_time_has_succeeded() -> None:
    here = cell()
    job = here.submit("r1")
    here.say(CancelJob(job=job))
    here.gone(job)
    assert here.phase(job) == "succeeded"


def test_a_cancelled_job_whose_process_failed_is_cancelled() -> None:
    here = cell()
    job = here.submit("r1", max_retries=3)
    here.say(CancelJob(job=job))
    here.gone(job, End.FAILED, 1)
    assert here.phase(job) == "cancelled"


def test_a_cancel_overrules_a_stop_that_was_asked_for_before() -> None:
    here = cell()
    job = here.submit("r1", on_timeout="requeue")
    here.at(2 * HOUR)
    attempt = attempt_id(job, 1)
    here.when(CancelJob(job=job)).then(AttemptEnding(attempt=attempt, end=End.CANCELLED, grace_ms=30 * SECOND))
    here.gone(job, End.CANCELLED, 143)
    assert here.phase(job) == "cancelled"


# time limit -----------------------------------------------------------------------------------------


def test_the_time_limit_counts_from_the_grant_and_ends_the_job() -> None:
    here = cell()
    here.at(MINUTE)
    job = here.submit("r1", timeout_ms=HOUR)
    attempt = attempt_id(job, 1)
    here.passes(HOUR + MINUTE - 1).then()
    here.passes(HOUR + MINUTE).then(AttemptEnding(attempt=attempt, end=End.TIMED_OUT, grace_ms=30 * SECOND))
    here.when(here.run_gone(job, End.CANCELLED, 143), who="host-001").then(
        gone(attempt, 1, End.CANCELLED, 143),
        AttemptEnded(attempt=attempt, end=End.TIMED_OUT),
        JobTimedOut(job=job),
    ).follows(charged(job, HOUR))


def test_the_time_limit_may_send_the_job_back_into_the_line() -> None:
    here = cell()
    job = here.submit("r1", on_timeout="requeue")
    here.at(2 * HOUR)
    attempt = attempt_id(job, 1)
    here.when(here.run_gone(job, End.CANCELLED, 143), who="host-001").then(
        gone(attempt, 1, End.CANCELLED, 143),
        AttemptEnded(attempt=attempt, end=End.TIMED_OUT),
        JobRequeued(job=job, end=End.TIMED_OUT),
    ).follows(charged(job, 2 * HOUR), granted(job, on(1, 0), number=2))
    assert here.world.jobs[job].retries == 0


def test_a_timer_that_fires_early_or_again_changes_nothing() -> None:
    here = cell()
    here.submit("r1")
    here.now_ms += HOUR
    timer = here.answer(TimerFired(due_ms=here.now_ms), "admission", "FL_LAB_TIMERS")
    assert here.step("admission", (timer,)) == []


def test_a_run_that_exits_while_it_is_stopping_is_taken_by_what_it_says() -> None:
    here = cell()
    job = here.submit("r1")
    here.at(2 * HOUR)
    here.gone(job)
    assert here.phase(job) == "succeeded"


# records that cross ---------------------------------------------------------------------------------


def cancelled_under_a_grant(here: Cell, *requests: str) -> list[str]:
    """Jobs cancelled in `intake` while their grants were on their way in `alloc`."""
    jobs = [here.submit(name, settle=False) for name in requests]
    here.step("ranker")
    placed = here.draft("placement")
    for job in jobs:
        here.say(CancelJob(job=job), settle=False)
    here.append(placed)
    return jobs


def test_a_grant_crossed_by_a_cancel_is_released_unstarted_and_charged_to_nobody() -> None:
    here = cell()
    (job,) = cancelled_under_a_grant(here, "r1")
    assert here.world.jobs[job].attempts[0].is_stillborn
    assert here.phase(job) == "cancelled"
    assert here.step("admission") == [AttemptEnded(attempt=attempt_id(job, 1), end=End.CANCELLED)]
    here.settle()
    assert here.phase(job) == "cancelled"
    assert here.events()[-1] != charged(job, 0)
    assert charged(job, 0) in here.events()
    assert here.world.live == {}


def test_a_cancel_that_did_not_know_of_the_grant_before_it_ends_the_job_once() -> None:
    # rule: 8.4
    here = cell()
    job = here.submit("r1", settle=False)
    here.step("ranker")
    cancel = here.draft("admission", (here.answer(CancelJob(job=job)),))
    here.step("placement")
    here.append(cancel)
    assert here.step("admission") == [AttemptEnding(attempt=attempt_id(job, 1), end=End.CANCELLED, grace_ms=30_000)]
    here.settle()
    assert here.phase(job) == "cancelled"
    here.gone(job, End.CANCELLED, 143)
    assert here.phase(job) == "cancelled"
    assert here.events(JobCancelled) == [JobCancelled(job=job, account="ann")]


def test_what_a_stillborn_attempt_held_counts_for_nobody() -> None:
    here = cell()
    cancelled_under_a_grant(here, "r1")
    here.now_ms += HOUR
    here.submit("r2", settle=False)
    here.settle()
    ranked = here.events(CycleRanked)[-1]
    assert isinstance(ranked, CycleRanked)
    assert [(n.used_gpu_ms, n.promised_gpu_ms) for n in ranked.pools[0].nodes] == [(0, 0)]


def test_stillborn_attempts_are_released_in_the_order_of_their_grants_also_after_a_restart() -> None:
    from fairlease.core import admission
    from fairlease.core.world import World

    here = Cell().hosts(1).budgets(a=1, b=9)
    here.submit("r0")  # so that b stands below a, and its later job is granted first
    late = [here.submit("r1", settle=False), here.submit("r1", "b", settle=False)]
    here.step("ranker")
    placed = here.draft("placement")
    for job in late:
        here.say(CancelJob(job=job), settle=False)
    here.append(placed)
    assert list(here.world.stillborn.values()) == late[::-1]
    restarted = World.load(here.world.dump())
    assert admission.decide(restarted, ()) == admission.decide(here.world, ())


def evicted(here: Cell) -> tuple[str, bytes]:
    """An idle job, and a record, not yet appended, that evicts it for a claim."""
    idle = here.submit("idle", min_runtime_ms=0, gpus_per_host=8, hosts=2)
    here.start(idle)
    here.submit("claim", gpus_per_host=8, settle=False)
    here.step("ranker")
    here.step("placement")
    return idle, here.draft("preemption")


def test_a_cancel_that_crosses_an_eviction_is_not_lost() -> None:
    here = cell(2)
    idle, eviction = evicted(here)
    here.say(CancelJob(job=idle), settle=False)
    here.append(eviction)
    assert here.world.jobs[idle].attempts[-1].ending is End.CANCELLED
    here.gone(idle, End.CANCELLED, 143)
    assert here.phase(idle) == "cancelled"


def test_a_failure_that_crosses_an_eviction_stays_a_failure() -> None:
    here = cell(2)
    idle, eviction = evicted(here)
    here.say(here.run_gone(idle, End.FAILED, 5), "host-002", settle=False)
    here.append(eviction)
    here.gone(idle, End.CANCELLED, 143, hosts=("host-001",))
    assert here.phase(idle) == "failed"


def test_a_preempted_job_waits_again_at_its_old_place_and_counts_no_retry() -> None:
    here = cell(2)
    idle, eviction = evicted(here)
    attempt = attempt_id(idle, 1)
    here.append(eviction)
    here.when(here.run_gone(idle, End.CANCELLED, 143), who="host-001").then(gone(attempt, 1, End.CANCELLED, 143))
    here.when(here.run_gone(idle, End.CANCELLED, 143), who="host-002").then(
        gone(attempt, 2, End.CANCELLED, 143),
        AttemptEnded(attempt=attempt, end=End.PREEMPTED),
        JobRequeued(job=idle, end=End.PREEMPTED),
    )
    job = here.world.jobs[idle]
    assert (job.retries, str(job.phase)) == (0, "waiting")
    assert here.world.line.in_order()[0].head == (job.admitted, idle)


def test_a_preempted_job_that_fails_while_stopping_is_preempted() -> None:
    here = cell(2)
    idle, eviction = evicted(here)
    here.append(eviction)
    here.say(here.run_gone(idle, End.FAILED, 1), "host-001", settle=False)
    here.say(here.run_gone(idle, End.FAILED, 1), "host-002", settle=False)
    assert here.phase(idle) == "waiting"
    assert here.world.jobs[idle].retries == 0


# unreadable and hostile -----------------------------------------------------------------------------


def test_a_message_nobody_can_read_is_refused_by_its_size_and_hash() -> None:
    here = cell()
    answer = here.answer(Unreadable(size=12, sha256="ab" * 32, error="Expected `object`" * 30))
    assert here.step("admission", (answer,)) == [
        MessageRefused(
            stream="FL_LAB_INBOX_ann", seq=1, size=12, sha256="ab" * 32, error=("Expected `object`" * 30)[:200]
        )
    ]


def test_an_exit_code_that_no_process_has_does_not_break_the_fold() -> None:
    here = cell()
    job = here.submit("r1")
    here.gone(job, End.FAILED, 10**30)
    assert here.phase(job) == "failed"
    assert here.world.jobs[job].exit_code is None
    assert here.world.digest()


def test_job_ids_are_known_to_the_sender_beforehand() -> None:
    here = cell()
    assert here.submit("r1") == job_id("ann", "a", "r1")
    assert here.world.jobs[job_id("ann", "a", "r1")].attempts[0].licence is Licence.UNDER_SHARE
