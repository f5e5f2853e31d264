"""What becomes of a job whose checkpoint does not fit, and where one goes that can be read at one place only (8.3)."""

import pytest

from fairlease.core.line import class_key
from fairlease.core.order import host_order
from fairlease.core.policy_rules import policy_problems
from fairlease.core.view import job_view
from fairlease_schemas.commands import CordonHost, ReturnHost
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import AttemptEnded, CheckpointConfirmed, End, JobFailed, JobRequeued, Mismatch, PartGone
from fairlease_schemas.policy import Policy
from fairlease_schemas.reports import CheckpointDone, RunGone
from tests.core.bench import cell, hosts_of, left, names, victims, whole
from tests.dsl.cell import HOUR, MINUTE, Cell

COMMIT = Mismatch(field="commit", wanted="1f3a", found="9c0d")
RESTART = {"on_resume_refused": "restart"}


def refused(here: Cell, job: str, *, host: str = "host-001", settle: bool = True) -> None:
    """The host of the job's last attempt says that its checkpoint does not fit."""
    attempt = here.world.jobs[job].attempts[-1]
    said = RunGone(attempt=attempt.id, token=str(attempt.token), end=End.START_FAILED, mismatches=(COMMIT,))
    here.say(said, host, settle=settle)


def saved(here: Cell, job: str, *, is_bound: bool) -> None:
    """The job's last attempt reports a checkpoint, in a format that can be read elsewhere or not."""
    attempt = here.world.jobs[job].attempts[-1]
    here.say(CheckpointDone(attempt=attempt.id, token=str(attempt.token), step=7, is_bound=is_bound), attempt.hosts[0])


def is_clean(here: Cell, job: str) -> bool:
    """Whether the order of the job's live attempt says to begin anew."""
    (run,) = (run for run in host_order(here.world, hosts_of(here, job)[0]).runs if run.job == job)
    return run.is_clean


# beginning anew -------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["", "fail"])
def test_where_the_policy_says_nothing_a_refused_resume_is_the_end(choice: str) -> None:
    # rule: 8.3
    here = cell(on_resume_refused=choice)
    job = whole(here, "run", max_retries=3)
    refused(here, job)
    assert (here.phase(job), here.world.jobs[job].end) == ("failed", End.RESUME_REFUSED)


def test_where_the_policy_says_so_the_next_attempt_begins_anew_and_that_is_no_retry() -> None:
    # rule: 8.3 1.8
    here = cell(**RESTART)
    job = whole(here, "run")
    assert not is_clean(here, job)
    attempt = here.world.jobs[job].attempts[-1]
    said = RunGone(attempt=attempt.id, token=str(attempt.token), end=End.START_FAILED, mismatches=(COMMIT,))
    here.when(said, who="host-001").then(
        PartGone(attempt=attempt.id, host="host-001", end=End.RESUME_REFUSED, mismatches=(COMMIT,)),
        AttemptEnded(attempt=attempt.id, end=End.RESUME_REFUSED),
        JobRequeued(job=job, end=End.RESUME_REFUSED),
    )
    assert job_view(here.world, here.world.jobs[job]).is_clean
    here.settle()
    assert (here.phase(job), here.world.jobs[job].retries, is_clean(here, job)) == ("granted", 0, True)


def test_what_is_refused_although_it_began_anew_is_the_end() -> None:
    # rule: 8.3
    here = cell(**RESTART)
    job = whole(here, "run")
    refused(here, job)
    attempt = here.world.jobs[job].attempts[-1]
    said = RunGone(attempt=attempt.id, token=str(attempt.token), end=End.START_FAILED, mismatches=(COMMIT,))
    here.when(said, who="host-001").then(
        PartGone(attempt=attempt.id, host="host-001", end=End.RESUME_REFUSED, mismatches=(COMMIT,)),
        AttemptEnded(attempt=attempt.id, end=End.RESUME_REFUSED),
        JobFailed(job=job, end=End.RESUME_REFUSED),
    )


@pytest.mark.parametrize("has_saved", [True, False], ids=["it has saved since", "it has saved nothing yet"])
def test_it_begins_anew_until_it_has_saved_something_that_fits(has_saved: bool) -> None:
    # rule: 8.3
    here = cell(**RESTART)
    job = whole(here, "run", max_retries=1)
    refused(here, job)
    if has_saved:
        saved(here, job, is_bound=True)
    here.gone(job, End.FAILED, 1).at(MINUTE)
    assert here.world.jobs[job].attempts[-1].number == 3
    assert is_clean(here, job) == (not has_saved)


def test_once_it_has_saved_again_another_refusal_begins_anew_again() -> None:
    # rule: 8.3
    here = cell(**RESTART)
    job = whole(here, "run", max_retries=1)
    refused(here, job)
    saved(here, job, is_bound=True)
    here.gone(job, End.FAILED, 1).at(MINUTE)
    refused(here, job)
    assert (here.world.jobs[job].attempts[-1].number, is_clean(here, job)) == (4, True)


def test_a_gang_of_which_one_host_refuses_begins_anew_as_one() -> None:
    # rule: 8.3 8.4
    here = cell(2, **RESTART)
    gang = here.submit("gang", hosts=2, gpus_per_host=8)
    here.say(here.run_started(gang), "host-001")
    refused(here, gang, host="host-002", settle=False)
    here.say(here.run_gone(gang, End.CANCELLED, 143), "host-001")
    assert [attempt.end for attempt in here.world.jobs[gang].attempts] == [End.RESUME_REFUSED, None]
    runs = [host_order(here.world, host).runs[0].is_clean for host in hosts_of(here, gang)]
    assert runs == [True, True]


def test_a_policy_knows_two_answers_to_a_refused_resume() -> None:
    # rule: 8.3 10.1
    (problem,) = policy_problems(Policy(on_resume_refused="retry"))
    assert (problem.field, problem.rule, problem.value) == ("policy.on_resume_refused", "8.3", "retry")
    assert (problem.limit, problem.way_out) == ("fail or restart", "write fail or restart, or leave it out")
    assert policy_problems(Policy(on_resume_refused="restart")) == ()


# one place only --------------------------------------------------------------------------------------


def pools(here: Cell, **fields: object) -> str:
    """A job that accepts two pools and runs in the first; its id."""
    here.hosts(1, pool="l40s", first=9)
    job = whole(here, "run", pools=("h100", "l40s"), max_retries=3, **fields)
    assert hosts_of(here, job) == names(1)
    return job


def test_what_a_checkpoint_is_bound_to_is_in_the_log() -> None:
    # rule: 8.3
    here = cell()
    job = pools(here)
    attempt = here.world.jobs[job].attempts[-1]
    said = CheckpointDone(attempt=attempt.id, token=str(attempt.token), step=7, is_bound=True)
    here.when(said, who="host-001").then(CheckpointConfirmed(attempt=attempt.id, step=7, is_bound=True))
    assert here.world.jobs[job].pools == ("h100",)
    assert job_view(here.world, here.world.jobs[job]).bound_to == "h100"


@pytest.mark.parametrize(
    ("saves", "fields", "phase"),
    [
        pytest.param([True], {}, "waiting", id="one that can be read nowhere else"),
        pytest.param([False], {}, "granted", id="one that can be read elsewhere"),
        pytest.param([], {}, "granted", id="none at all"),
        pytest.param([True, False], {}, "granted", id="the last one counts, and frees it"),
        pytest.param([False, True], {}, "waiting", id="the last one counts, and binds it"),
        pytest.param([True], {"is_resumable": False, "timeout_ms": HOUR}, "granted", id="a job that never resumes"),
    ],
)
def test_a_resumed_job_keeps_to_the_pool_of_its_checkpoint(
    saves: list[bool], fields: dict[str, object], phase: str
) -> None:
    # rule: 8.3
    here = cell()
    job = pools(here, **fields)
    for is_bound in saves:
        saved(here, job, is_bound=is_bound)
    here.say(CordonHost(host="host-001"), "ops", settle=False)
    here.gone(job, End.FAILED, 1).at(2 * MINUTE)
    assert here.phase(job) == phase
    here.say(ReturnHost(host="host-001"), "ops")
    assert hosts_of(here, job) == (names(1) if phase == "waiting" else names(9))


def test_it_is_of_the_class_of_those_who_ask_for_that_pool_alone() -> None:
    # rule: 8.3 4.4
    here = cell()
    job = pools(here)
    saved(here, job, is_bound=True)
    here.say(CordonHost(host="host-001"), "ops", settle=False)
    here.gone(job, End.FAILED, 1).at(2 * MINUTE)
    assert class_key(here.world.jobs[job]) == "a/h100/1x8/1800000ms"
    reason = here.world.reason("placement", class_key(here.world.jobs[job]))
    assert reason is not None
    assert reason.evidence.pool == "h100"


def test_it_evicts_in_its_pool_and_in_no_other() -> None:
    # rule: 8.3 5.1
    here = cell()
    here.hosts(1, pool="l40s", first=9)
    job = whole(here, "run", pools=("h100", "l40s"), max_retries=3)
    saved(here, job, is_bound=True)
    here.say(CordonHost(host="host-001"), "ops", settle=False)
    here.gone(job, End.FAILED, 1)
    fillers = [whole(here, f"idle-{pool}", "b", min_runtime_ms=0, pools=(pool,)) for pool in ("l40s", "h100")]
    here.say(ReturnHost(host="host-001"), "ops", settle=False)
    here.at(MINUTE)
    assert hosts_of(here, fillers[0]) == names(9)
    assert fillers[0] not in victims(here)
    assert here.world.jobs[job].pools == ("h100",)


def test_where_its_pool_has_lost_its_hosts_it_waits_for_one() -> None:
    # rule: 8.3 1.3
    here = cell(2)
    job = pools(here)
    saved(here, job, is_bound=True)
    here.say(CordonHost(host="host-001"), "ops", settle=False)
    here.say(CordonHost(host="host-002"), "ops", settle=False)
    here.gone(job, End.FAILED, 1).at(2 * MINUTE)
    assert here.phase(job) == "waiting"
    here.say(ReturnHost(host="host-002"), "ops")
    assert hosts_of(here, job) == names(2)


def test_who_begins_anew_is_bound_to_no_pool_any_more() -> None:
    # rule: 8.3
    here = cell(**RESTART)
    job = pools(here)
    saved(here, job, is_bound=True)
    here.gone(job, End.FAILED, 1).at(MINUTE)
    here.say(CordonHost(host="host-001"), "ops", settle=False)
    refused(here, job)
    assert (here.world.jobs[job].bound_to, hosts_of(here, job)) == ("", names(9))


def test_an_eviction_leaves_it_in_its_pool_too() -> None:
    # rule: 8.3
    here = cell()
    job = pools(here, min_runtime_ms=15 * MINUTE)
    saved(here, job, is_bound=True)
    here.at(2 * HOUR)
    claim = whole(here, "claim", "b", pools=("h100",), min_runtime_ms=15 * MINUTE)
    assert victims(here) == [job]
    left(here, job)
    assert (hosts_of(here, claim), here.phase(job)) == (names(1), "waiting")
    assert attempt_id(job, 2) not in here.world.live
