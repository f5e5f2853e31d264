"""How attempts end, and what becomes of the job (8.3, 8.4)."""

import pytest
from msgspec.structs import replace

from fairlease.cli.exits import exit_code as code_of
from fairlease.core import explain
from fairlease.core.view import job_view
from fairlease_schemas.commands import CancelJob, RequestDrain
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import AttemptEnded, AttemptEnding, End, JobFailed, JobRequeued, Mismatch, PartGone
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan
from fairlease_schemas.reports import RunGone
from tests.core.bench import cell, names, saved, whole
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell

COMMIT = Mismatch(field="state.commit", wanted="1f3a", found="9c0d")


def refused(here: object, job: str, *mismatches: Mismatch) -> RunGone:
    attempt = here.world.jobs[job].attempts[-1]  # type: ignore[attr-defined] # a Cell
    return RunGone(
        attempt=attempt.id,
        token=str(attempt.token),
        end=End.START_FAILED,
        detail="its checkpoint does not fit",
        mismatches=mismatches,
    )


def test_a_checkpoint_that_does_not_fit_ends_the_job_with_both_values() -> None:
    # rule: 8.3 8.4
    here = cell()
    job = whole(here, "run", max_retries=3)
    attempt = attempt_id(job, 1)
    here.when(refused(here, job, COMMIT), who="host-001").then(
        PartGone(
            attempt=attempt,
            host="host-001",
            end=End.RESUME_REFUSED,
            detail="its checkpoint does not fit",
            mismatches=(COMMIT,),
        ),
        AttemptEnded(attempt=attempt, end=End.RESUME_REFUSED),
        JobFailed(job=job, end=End.RESUME_REFUSED),
    )
    told = explain.why(here.world, here.world.jobs[job]).text
    assert "state.commit is 9c0d in the checkpoint, and 1f3a here" in told.en


def test_a_report_with_endless_mismatches_is_cut_to_what_a_record_holds() -> None:
    # rule: 8.3
    here = cell()
    job = whole(here, "run")
    long = Mismatch(field="f" * 300, wanted="w" * 300, found="x" * 300)
    here.say(refused(here, job, *[long] * 99), "host-001")
    (part,) = here.world.jobs[job].attempts[-1].gone
    assert len(part.mismatches) == 8
    assert {len(value) for m in part.mismatches for value in (m.field, m.wanted, m.found)} == {120}


# whose doing an end is (1.8) ------------------------------------------------------------------------


def test_who_saved_itself_and_asks_to_go_on_is_requeued_and_that_is_no_retry() -> None:
    # rule: 1.8
    here = cell()
    job = whole(here, "run")
    saved(here, job, step=1)
    attempt = attempt_id(job, 1)
    here.when(here.run_gone(job, End.FAILED, 85), who="host-001").then(
        PartGone(attempt=attempt, host="host-001", end=End.FAILED, exit_code=85),
        AttemptEnded(attempt=attempt, end=End.FAILED, exit_code=85),
        JobRequeued(job=job, end=End.FAILED, backoff_ms=30 * SECOND),
        ReasonBegan(subject=job, code=Reason.RETRY_BACKOFF, evidence=Evidence(for_ms=30 * SECOND)),
    )
    here.at(30 * SECOND)
    assert (here.phase(job), here.world.jobs[job].retries) == ("granted", 0)


@pytest.mark.parametrize(
    ("steps", "held_ms", "phase", "retries"),
    [
        pytest.param((7, 8), SECOND, "backoff", 0, id="a step further than all before"),
        pytest.param((7, 7), MINUTE - 1, "failed", 0, id="the same step, at once"),
        pytest.param((7, 3), SECOND, "failed", 0, id="an earlier step, at once"),
        pytest.param((0, 0), SECOND, "failed", 0, id="no step is told, at once"),
        pytest.param((7, 7), MINUTE, "backoff", 0, id="the same step after a minute"),
        pytest.param((0, 0), MINUTE, "backoff", 0, id="no step is told after a minute"),
    ],
)
def test_who_asks_to_go_on_must_have_come_on(steps: tuple[int, int], held_ms: int, phase: str, retries: int) -> None:
    # rule: 1.8
    here = cell()
    job = whole(here, "run")
    here.at(2 * MINUTE)
    saved(here, job, step=steps[0])
    here.gone(job, End.FAILED, 85)
    here.at(3 * MINUTE)
    granted_ms = here.world.jobs[job].attempts[-1].granted_ms
    here.at(granted_ms - T0 + held_ms)
    saved(here, job, step=steps[1])
    here.gone(job, End.FAILED, 85)
    assert (here.phase(job), here.world.jobs[job].retries) == (phase, retries)


def test_steps_that_were_set_aside_are_no_measure_of_what_came_after() -> None:
    # rule: 1.8 8.3
    here = cell(on_resume_refused="restart")
    job = whole(here, "run")
    here.at(2 * MINUTE)
    saved(here, job, step=100)
    here.gone(job, End.FAILED, 85)
    here.at(3 * MINUTE)
    here.say(refused(here, job, COMMIT), "host-001")
    saved(here, job, step=1)
    here.gone(job, End.FAILED, 85)
    assert here.phase(job) == "backoff"


@pytest.mark.parametrize(
    ("is_saved", "fields", "exit_code"),
    [
        pytest.param(False, {}, 85, id="nothing is known to be saved"),
        pytest.param(True, {}, 84, id="another code"),
        pytest.param(True, {"is_resumable": False}, 85, id="a job that cannot go on from a checkpoint"),
    ],
)
def test_any_other_end_by_itself_is_a_failure_of_the_job(
    is_saved: bool, fields: dict[str, object], exit_code: int
) -> None:
    # rule: 1.8
    here = cell()
    job = whole(here, "run", **({"timeout_ms": HOUR, "max_retries": 1} | fields))
    if is_saved:
        saved(here, job, step=1)
    here.gone(job, End.FAILED, exit_code)
    assert (here.phase(job), here.world.jobs[job].retries) == ("backoff", 1)
    here.at(HOUR).gone(job, End.FAILED, exit_code)
    assert (here.phase(job), here.world.jobs[job].exit_code) == ("failed", exit_code)


def test_what_an_earlier_attempt_saved_does_not_let_this_one_ask_to_go_on() -> None:
    # rule: 1.8
    here = cell()
    job = whole(here, "run", max_retries=1)
    saved(here, job, step=1)
    here.gone(job, End.FAILED, 85)
    here.at(5 * MINUTE).gone(job, End.FAILED, 85)
    assert (here.phase(job), here.world.jobs[job].retries) == ("backoff", 1)


def test_a_gang_of_which_one_part_asks_to_go_on_stops_and_is_requeued() -> None:
    # rule: 1.8 8.4
    here = cell(2)
    job = here.submit("gang", hosts=2, gpus_per_host=8)
    saved(here, job, step=1)
    here.when(here.run_gone(job, End.FAILED, 85), who="host-002").then(
        PartGone(attempt=attempt_id(job, 1), host="host-002", end=End.FAILED, exit_code=85),
        AttemptEnding(attempt=attempt_id(job, 1), end=End.FAILED, grace_ms=30_000),
    )
    here.say(here.run_gone(job, End.CANCELLED, 143), "host-001")
    assert (here.phase(job), here.world.jobs[job].retries) == ("backoff", 0)


@pytest.mark.parametrize(
    ("end", "phase", "retries"),
    [
        pytest.param(End.FAULT, "granted", 0, id="its machine was restarted: the host's fault"),
        pytest.param(End.LOST, "backoff", 1, id="its keeper was killed: nobody can say whose doing it was"),
    ],
)
def test_a_fault_of_the_host_never_counts_and_a_lost_run_does(end: End, phase: str, retries: int) -> None:
    # rule: 1.8 8.4
    here = cell()
    job = whole(here, "run", max_retries=1)
    here.gone(job, end, None)
    assert (here.phase(job), here.world.jobs[job].retries) == (phase, retries)


def test_a_job_that_was_lost_once_too_often_is_over_as_lost() -> None:
    # rule: 1.8 8.4
    here = cell()
    job = whole(here, "run")
    here.gone(job, End.LOST, None)
    assert code_of(here.phase(job), str(here.world.jobs[job].end), here.world.jobs[job].exit_code) == 204


# what is kept of an end (8.4) --------------------------------------------------------------------------

DIGEST = "0123456789abcdef" * 4


def test_the_log_holds_the_digest_of_what_is_kept_and_the_job_names_it() -> None:
    # rule: 8.4
    here = cell()
    job = whole(here, "run")
    said = replace(here.run_gone(job, End.FAILED, 3), evidence=DIGEST)
    here.when(said, who="host-001").then(
        PartGone(attempt=attempt_id(job, 1), host="host-001", end=End.FAILED, exit_code=3, evidence=DIGEST),
        AttemptEnded(attempt=attempt_id(job, 1), end=End.FAILED, exit_code=3),
        JobFailed(job=job, end=End.FAILED, exit_code=3),
    )
    (attempt,) = job_view(here.world, here.world.jobs[job]).attempts
    assert attempt.evidence == {"host-001": DIGEST}


@pytest.mark.parametrize("said", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "../" + "a" * 61, "a" * 63 + "\n"])
def test_what_is_no_digest_does_not_come_into_the_log(said: str) -> None:
    # rule: 8.4
    here = cell()
    job = whole(here, "run")
    here.say(replace(here.run_gone(job, End.FAILED, 3), evidence=said), "host-001")
    (part,) = here.world.jobs[job].attempts[-1].gone
    assert part.evidence == ""


def test_of_a_large_gang_the_first_few_are_named() -> None:
    # rule: 8.4
    here = cell(12)
    job = here.submit("gang", hosts=12, gpus_per_host=8)
    for host in reversed(here.world.jobs[job].attempts[-1].hosts):
        here.say(replace(here.run_gone(job, End.FAILED, 3), evidence=DIGEST), host)
    (attempt,) = job_view(here.world, here.world.jobs[job]).attempts
    assert tuple(attempt.evidence) == names(12, 11, 10, 9, 8, 7, 6, 5)


# what was asked for, and how it ended ------------------------------------------------------------------

AGAIN, RETRY, ENDS = "again", "retry", tuple(End)
BECOMES: dict[End | None, dict[End, str]] = {
    # Nobody asked: the end speaks.
    None: {
        End.SUCCEEDED: "succeeded",
        End.FAILED: RETRY,
        End.CANCELLED: RETRY,
        End.TIMED_OUT: "timed-out",
        End.START_FAILED: "failed",
        End.PREEMPTED: AGAIN,
        End.FAULT: AGAIN,
        End.LOST: RETRY,
        End.RESUME_REFUSED: "failed",
    },
    # A cancel and a time-out stand.
    End.CANCELLED: dict.fromkeys(ENDS, "cancelled") | {End.SUCCEEDED: "succeeded"},
    End.TIMED_OUT: dict.fromkeys(ENDS, "timed-out") | {End.SUCCEEDED: "succeeded"},
    # What was told to leave is not to blame, unless its own time was over.
    End.PREEMPTED: dict.fromkeys(ENDS, AGAIN) | {End.SUCCEEDED: "succeeded", End.TIMED_OUT: "timed-out"},
    # A start that took too long has failed, but where a host is to blame.
    End.START_FAILED: {
        End.SUCCEEDED: "succeeded",
        End.FAILED: "failed",
        End.CANCELLED: "failed",
        End.TIMED_OUT: "timed-out",
        End.START_FAILED: "failed",
        End.PREEMPTED: AGAIN,
        End.FAULT: AGAIN,
        End.LOST: RETRY,
        End.RESUME_REFUSED: "failed",
    },
}
"""By what was asked for, then by what the host says of the end: what becomes of the job."""


def asked_to_stop(end: End | None) -> tuple[Cell, str]:
    """A job with a retry and an hour that was told to stop for that reason, if for any."""
    here = cell()
    job = whole(here, "run", timeout_ms=HOUR, start_limit_ms=10 * MINUTE, max_retries=1)
    if end is not End.START_FAILED:
        here.start(job)
    match end:
        case End.CANCELLED:
            here.say(CancelJob(job=job))
        case End.TIMED_OUT:
            here.at(HOUR)
        case End.PREEMPTED:
            here.say(RequestDrain(host="host-001", deadline_ms=T0 + MINUTE), "bot")
            here.at(MINUTE)
        case End.START_FAILED:
            here.at(10 * MINUTE)
        case _:
            assert end is None
    assert here.world.jobs[job].attempts[0].ending is end
    return here, job


@pytest.mark.parametrize("ending", list(BECOMES), ids=[f"asked for {ending or 'nothing'}" for ending in BECOMES])
@pytest.mark.parametrize("end", ENDS)
def test_what_was_asked_for_and_how_it_ended_say_what_becomes_of_the_job(ending: End | None, end: End) -> None:
    # rule: 1.5 1.8 1.15 8.4
    here, job = asked_to_stop(ending)
    here.gone(job, end, 1)
    found = here.world.jobs[job]
    became = str(found.phase) if found.is_terminal else RETRY if found.retries else AGAIN
    assert became == BECOMES[ending][end]


def test_a_fault_in_the_grace_of_a_time_out_brings_the_job_back_only_where_the_time_out_does() -> None:
    # rule: 1.5
    here = cell()
    job = whole(here, "run", timeout_ms=HOUR, min_runtime_ms=30 * MINUTE, on_timeout="requeue")
    here.start(job).at(HOUR)
    here.gone(job, End.FAULT, None)
    assert JobRequeued(job=job, end=End.TIMED_OUT) in here.events()
    assert here.world.reservations == {}
