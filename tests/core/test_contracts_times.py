"""Windows, wall limits, resuming, retries and lanes of a contract (1.4, 1.5, 1.6, 1.8, 1.10, 1.14, 1.15)."""

import pytest

from fairlease_schemas.cycle import EvictionOrdered, Licence
from fairlease_schemas.envelope import Record
from fairlease_schemas.ids import attempt_id, job_id
from fairlease_schemas.job import (
    AttemptEnded,
    AttemptEnding,
    End,
    JobFailed,
    JobRefused,
    JobRequeued,
    JobTimedOut,
    PartGone,
    Problem,
)
from fairlease_schemas.policy import Policy
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell, admitted, granted, on, submitted


def cell(hosts: int = 10) -> Cell:
    return Cell().hosts(hosts).budgets(a=1)


def found(here: Cell, **fields: object) -> list[tuple[str, str]]:
    """(field, rule) of all that is wrong with a request; empty when it is admitted."""
    event = here.when(submitted("r1", **fields)).events()[0]
    return [(p.field, p.rule) for p in event.problems] if isinstance(event, JobRefused) else []


# 1.4: the window ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "gpus", "longest_ms"),
    [
        pytest.param(1, 1, 4 * HOUR, id="one GPU"),
        pytest.param(1, 8, 4 * HOUR, id="8 GPUs"),
        pytest.param(2, 8, 8 * HOUR, id="16 GPUs"),
        pytest.param(8, 8, 8 * HOUR, id="64 GPUs"),
        pytest.param(9, 8, 12 * HOUR, id="72 GPUs"),
    ],
)
def test_the_window_lies_within_the_bounds_of_the_gangs_size(hosts: int, gpus: int, longest_ms: int) -> None:
    # rule: 1.4
    wrong = [("spec.min_runtime", "1.4")]
    for window_ms, problems in (
        (15 * MINUTE - 1, wrong),
        (15 * MINUTE, []),
        (longest_ms, []),
        (longest_ms + 1, wrong),
        (1, wrong),
        (0, []),
    ):
        fields = {"hosts": hosts, "gpus_per_host": gpus, "min_runtime_ms": window_ms, "timeout_ms": 24 * HOUR}
        assert found(cell(), **fields) == problems, window_ms


def test_no_window_is_idle_work_with_its_own_licence() -> None:
    # rule: 1.4
    here = cell()
    event = admitted("r1", min_runtime_ms=0)
    here.when(submitted("r1", min_runtime_ms=0)).then(event).follows(
        granted(event.job, on(1, 0), window_ms=0, licence=Licence.IDLE)
    )


def test_the_bounds_are_those_of_the_policy_in_force() -> None:
    # rule: 1.4
    here = cell().policy(window_bounds=Policy().window_bounds[:1])
    assert found(here, hosts=2, gpus_per_host=8, min_runtime_ms=4 * HOUR + 1, timeout_ms=8 * HOUR) == [
        ("spec.min_runtime", "1.4")
    ]


# 1.5: the wall limit --------------------------------------------------------------------------------


@pytest.mark.parametrize("window_ms", [30 * MINUTE, 0], ids=["budgeted", "idle"])
def test_at_the_wall_limit_an_attempt_is_asked_to_stop_and_the_job_is_over(window_ms: int) -> None:
    # rule: 1.5
    here = cell()
    job = here.submit("r1", min_runtime_ms=window_ms, timeout_ms=HOUR)
    attempt = attempt_id(job, 1)
    here.passes(HOUR - 1).then()
    here.passes(HOUR).then(AttemptEnding(attempt=attempt, end=End.TIMED_OUT, grace_ms=30 * SECOND))
    assert here.when(here.run_gone(job, End.CANCELLED, 143), who="host-001").events()[1:] == [
        AttemptEnded(attempt=attempt, end=End.TIMED_OUT),
        JobTimedOut(job=job),
    ]


def test_or_the_job_waits_again_and_each_attempt_has_the_whole_limit() -> None:
    # rule: 1.5
    here = cell()
    job = here.submit("r1", timeout_ms=HOUR, on_timeout="requeue")
    here.at(HOUR).gone(job, End.CANCELLED, 143)
    assert JobRequeued(job=job, end=End.TIMED_OUT) in here.events()
    here.passes(2 * HOUR - 1).then()
    here.passes(2 * HOUR).then(AttemptEnding(attempt=attempt_id(job, 2), end=End.TIMED_OUT, grace_ms=30 * SECOND))


# 1.6: not resumable ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout_ms", "problems"),
    [
        pytest.param(SECOND, [], id="no lower bound"),
        pytest.param(4 * HOUR, [], id="the cap"),
        pytest.param(4 * HOUR + 1, [("spec.timeout", "1.6")], id="a millisecond above the cap"),
    ],
)
def test_what_cannot_be_resumed_is_protected_to_its_wall_limit(
    timeout_ms: int, problems: list[tuple[str, str]]
) -> None:
    # rule: 1.6
    here = cell()
    assert found(here, is_resumable=False, min_runtime_ms=MINUTE, timeout_ms=timeout_ms) == problems
    if not problems:
        assert here.world.jobs[job_id("ann", "a", "r1")].request.min_runtime_ms == timeout_ms


def test_idle_work_cannot_be_what_cannot_be_resumed() -> None:
    # rule: 1.6
    assert found(cell(), is_resumable=False, min_runtime_ms=0) == [("spec.resumable", "1.6")]


# 1.10: the debug lane -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        pytest.param({}, [], id="the most it takes"),
        pytest.param({"min_runtime_ms": 1}, [], id="a window without lower bound"),
        pytest.param({"min_runtime_ms": 15 * MINUTE + 1}, ["spec.min_runtime"], id="a longer window"),
        pytest.param({"min_runtime_ms": 0}, ["spec.min_runtime"], id="idle work"),
        pytest.param({"timeout_ms": HOUR + 1}, ["spec.timeout"], id="a longer wall limit"),
        pytest.param({"hosts": 2}, ["spec.hosts"], id="more GPUs"),
        pytest.param({"is_resumable": False}, ["spec.timeout"], id="protected for an hour"),
        pytest.param({"is_resumable": False, "timeout_ms": 15 * MINUTE}, [], id="protected for a quarter"),
    ],
)
def test_the_lane_takes_short_and_small_work(fields: dict[str, object], problems: list[str]) -> None:
    # rule: 1.10
    least = {"lane": "debug", "gpus_per_host": 8, "min_runtime_ms": 15 * MINUTE, "timeout_ms": HOUR}
    assert [field for field, rule in found(cell(), **(least | fields)) if rule == "3.1"] == problems


# 1.8: what counts as a retry ------------------------------------------------------------------------


def gone(attempt: str, end: End, exit_code: int | None) -> PartGone:
    return PartGone(attempt=attempt, host="host-001", end=end, exit_code=exit_code)


def ends(here: Cell, job: str, end: End, exit_code: int | None) -> list[object]:
    """What the report of its only host leads to, in the same record, without the report itself."""
    return list(here.when(here.run_gone(job, end, exit_code), who="host-001").events()[1:])


def test_only_the_jobs_own_failures_count() -> None:
    # rule: 1.8
    here = cell(1)
    job = here.submit("r1", max_retries=1)
    requeued, *_ = [e for e in ends(here, job, End.FAILED, 1) if isinstance(e, JobRequeued)]
    assert (requeued.counts_as_retry, requeued.backoff_ms) == (True, 30 * SECOND)
    here.at(MINUTE)
    assert ends(here, job, End.FAILED, 1)[1:] == [JobFailed(job=job, end=End.FAILED, exit_code=1)]


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [pytest.param(End.CANCELLED, 143, id="stopped in time"), pytest.param(End.FAILED, 1, id="failing while it stops")],
)
def test_a_preemption_never_counts(end: End, exit_code: int) -> None:
    # rule: 1.8
    here = cell(1)
    idle = here.submit("idle", min_runtime_ms=0, gpus_per_host=8)
    here.start(idle)
    here.submit("r1", gpus_per_host=8)
    assert here.phase(idle) == "stopping"
    assert ends(here, idle, end, exit_code)[1:] == [JobRequeued(job=idle, end=End.PREEMPTED)]
    assert here.world.jobs[idle].retries == 0


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [pytest.param(End.CANCELLED, 143, id="stopped in time"), pytest.param(End.FAILED, 1, id="failing while it stops")],
)
def test_a_drain_never_counts(end: End, exit_code: int) -> None:
    # rule: 1.8
    here = cell(1)
    job = here.submit("r1")
    here.start(job)
    drained = EvictionOrdered(
        attempt=attempt_id(job, 1), claim="", licence=Licence.IDLE, grace_ms=30 * SECOND, lost_gpu_ms=0
    )
    here.world.apply(_record(here, "preemption", drained), len(here.records) + 1)
    here.records.append(b"")
    assert ends(here, job, end, exit_code)[1:] == [JobRequeued(job=job, end=End.PREEMPTED)]
    assert here.world.jobs[job].retries == 0


def test_a_fault_of_the_host_never_counts() -> None:
    # rule: 1.8
    here = cell(1)
    job = here.submit("r1")
    assert ends(here, job, End.FAULT, None) == [
        AttemptEnded(attempt=attempt_id(job, 1), end=End.FAULT),
        JobRequeued(job=job, end=End.FAULT),
    ]
    assert here.world.jobs[job].retries == 0


def test_nor_does_a_process_that_fails_while_its_gang_is_stopped_for_a_fault() -> None:
    # rule: 1.8
    here = cell(2)
    job = here.submit("r1", hosts=2, gpus_per_host=8)
    here.start(job)
    attempt = attempt_id(job, 1)
    here.when(here.run_gone(job, End.FAULT, None), who="host-002").then(
        PartGone(attempt=attempt, host="host-002", end=End.FAULT),
        AttemptEnding(attempt=attempt, end=End.FAULT, grace_ms=30 * SECOND),
    )
    assert ends(here, job, End.FAILED, 1)[1:] == [JobRequeued(job=job, end=End.FAULT)]


def _record(here: Cell, by: str, *events: object) -> Record:
    return Record(
        v=1,
        at_ms=here.now_ms,
        by=by,
        epoch=here.world.epoch,
        basis=here.world.position,
        policy=here.world.policy_name,
        causes=(),
        answers=(),
        events=events,  # type: ignore[arg-type]  # any event
    )


# 1.14, 1.15 -----------------------------------------------------------------------------------------


def test_the_same_request_id_means_the_same_job_or_none() -> None:
    # rule: 1.14
    here = cell()
    job = here.submit("r1")
    here.when(submitted("r1")).then()
    said = submitted("r1")
    other = type(said)(budget="a", request_id="r1", digest="f" * 64, request=said.request)
    problem = Problem(
        field="request_id",
        rule="1.14",
        value=f"body {'f' * 12}",
        limit=f"body {'0' * 12}, as first submitted",
        way_out="use a new request id, or submit the first body again",
    )
    here.when(other).then(JobRefused(job=job, account="ann", seq=3, problems=(problem,)))


def test_the_start_limit_is_carried_and_else_the_policys() -> None:
    # rule: 1.15
    here = cell()
    here.when(submitted("r1", start_limit_ms=5 * MINUTE)).then(admitted("r1", start_limit_ms=5 * MINUTE))
    here.when(submitted("r2", start_limit_ms=0)).then(admitted("r2", start_limit_ms=0))
    assert Policy().start_limit_ms == 10 * MINUTE


@pytest.mark.parametrize(
    ("asked", "limit"),
    [pytest.param(0, 10 * MINUTE, id="the policy's"), pytest.param(2 * MINUTE, 2 * MINUTE, id="the contract's")],
)
def test_a_gang_that_has_not_all_started_by_its_limit_has_failed_to_start(asked: int, limit: int) -> None:
    # rule: 1.15 8.4
    here = Cell().hosts(2).budgets(a=1)
    gang = here.submit("g", hosts=2, gpus_per_host=8, start_limit_ms=asked)
    here.say(here.run_started(gang), "host-001")
    here.at(limit - 1)
    assert here.phase(gang) == "granted"
    detail = "host-002 never became ready"
    ending = AttemptEnding(attempt=attempt_id(gang, 1), end=End.START_FAILED, grace_ms=30_000, detail=detail)
    here.passes(limit).then(ending)
    here.gone(gang, End.CANCELLED, 143)
    assert here.phase(gang) == "failed"
    assert str(here.world.jobs[gang].end) == "start-failed"


def test_a_gang_that_has_started_has_its_whole_time() -> None:
    # rule: 1.15 1.5
    here = Cell().hosts(2).budgets(a=1)
    gang = here.submit("g", hosts=2, gpus_per_host=8, timeout_ms=HOUR)
    here.start(gang)
    here.at(HOUR - 1)
    assert here.phase(gang) == "running"
    here.passes(HOUR).then(AttemptEnding(attempt=attempt_id(gang, 1), end=End.TIMED_OUT, grace_ms=30_000))
