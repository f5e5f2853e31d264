"""How attempts end, and what becomes of the job (8.3, 8.4)."""

from fairlease.core import explain
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import AttemptEnded, End, JobFailed, Mismatch, PartGone
from fairlease_schemas.reports import RunGone
from tests.core.bench import cell, whole

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
