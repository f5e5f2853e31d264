"""Jobs that wait for other jobs, arrays (1.11), and jobs that are held."""

import pytest

from fairlease.core.feed import answers_of, steps_of
from fairlease.core.world import World
from fairlease.replay.verify import verify
from fairlease_schemas.commands import CancelJob, HoldJob, ReleaseJob
from fairlease_schemas.envelope import Event
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import (
    After,
    Array,
    End,
    JobAdmitted,
    JobCancelled,
    JobRefused,
    JobUnblocked,
    Problem,
)
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan, ReasonEnded
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell, admitted, granted, on, submitted


def cell(hosts: int = 1) -> Cell:
    return Cell().hosts(hosts).budgets(a=1)


def ok(*jobs: str) -> tuple[After, ...]:
    return tuple(After(job=job) for job in jobs)


def anyhow(*jobs: str) -> tuple[After, ...]:
    return tuple(After(job=job, when="any") for job in jobs)


def waits(event: JobAdmitted) -> JobAdmitted:
    """The same admission of a job that waits for others first."""
    return type(event)(**{name: getattr(event, name) for name in event.__struct_fields__} | {"is_blocked": True})


def began(job: str, claim: str = "", code: Reason = Reason.DEPENDENCY) -> ReasonBegan:
    return ReasonBegan(subject=job, code=code, evidence=Evidence(claim=claim))


def ended(job: str, code: Reason = Reason.DEPENDENCY) -> ReasonEnded:
    return ReasonEnded(subject=job, code=code)


def doomed(job: str, cause: str, account: str = "ann") -> tuple[Event, Event]:
    return ended(job), JobCancelled(job=job, account=account, reason=Reason.DEPENDENCY, cause=cause)


def by_admission(here: Cell, since: int) -> list[Event]:
    """What admission recorded after that record."""
    records = [here.record(position) for position in range(since + 1, len(here.records) + 1)]
    return [event for record in records if record.by == "admission" for event in record.events]


# after ----------------------------------------------------------------------------------------------


def test_a_job_waits_for_another_and_competes_when_that_succeeded() -> None:
    # rule: 1.11
    here = cell()
    first = here.submit("first")
    event = admitted("next", after=ok(first))
    here.when(submitted("next", after=ok(first))).then(waits(event), began(event.job, first)).follows()
    assert here.phase(event.job) == "dependent"
    assert here.world.line.total == 0
    here.say(here.run_gone(first), "host-001", settle=False)
    seen = len(here.records)
    here.settle()
    assert by_admission(here, seen) == [ended(event.job), JobUnblocked(job=event.job)]
    assert granted(event.job, on(1, 0)) in here.events()


def test_it_is_cancelled_when_that_failed_and_it_is_said_for_whom() -> None:
    # rule: 1.11
    here = cell()
    first = here.submit("first")
    job = here.submit("next", after=ok(first))
    here.say(here.run_gone(first, End.FAILED, 1), "host-001", settle=False)
    seen = len(here.records)
    here.settle()
    assert by_admission(here, seen) == list(doomed(job, first))
    assert (here.phase(job), here.world.jobs[job].cancelled_for) == ("cancelled", first)


@pytest.mark.parametrize("end", [End.SUCCEEDED, End.FAILED])
def test_any_end_will_do_where_the_contract_says_so(end: End) -> None:
    # rule: 1.11
    here = cell()
    first = here.submit("first")
    job = here.submit("next", after=anyhow(first))
    here.gone(first, end, 0 if end is End.SUCCEEDED else 1)
    assert here.phase(job) == "granted"


def test_it_waits_for_all_of_them() -> None:
    # rule: 1.11
    here = cell()
    one, two = here.submit("one"), here.submit("two")
    job = here.submit("next", after=ok(one, two))
    here.gone(one)
    assert here.phase(job) == "dependent"
    here.gone(two)
    assert here.phase(job) == "granted"


def test_the_first_failure_decides_though_others_still_run() -> None:
    # rule: 1.11
    here = cell()
    one, two = here.submit("one"), here.submit("two")
    job = here.submit("next", after=(*anyhow(one), *ok(two)))
    here.gone(two, End.FAILED, 1)
    assert here.phase(job) == "cancelled"
    assert here.world.jobs[job].cancelled_for == two


def test_a_chain_ends_link_by_link() -> None:
    # rule: 1.11
    here = cell()
    first = here.submit("first")
    second = here.submit("second", after=ok(first))
    third = here.submit("third", after=ok(second))
    here.say(CancelJob(job=first))
    seen = len(here.records)
    here.gone(first, End.CANCELLED, 143)
    assert by_admission(here, seen + 1) == [*doomed(second, first), *doomed(third, second)]


def test_a_job_that_is_over_already_is_not_waited_for() -> None:
    # rule: 1.11
    here = cell()
    first = here.submit("first")
    here.gone(first)
    here.when(submitted("next", after=ok(first))).then(admitted("next", after=ok(first)))


def refused(request_id: str, seq: int, *problems: Problem) -> JobRefused:
    return JobRefused(job=job_id("ann", "a", request_id), account="ann", seq=seq, problems=problems)


def test_what_nobody_submitted_cannot_be_waited_for() -> None:
    # rule: 1.11
    nobody = "job-" + "a" * 20
    problem = Problem(
        field="spec.after.0.job",
        rule="1.11",
        value=nobody,
        limit="a job or array that was admitted",
        way_out="submit it first",
    )
    cell().when(submitted("r1", after=anyhow(nobody))).then(refused("r1", 1, problem)).follows()


def test_a_job_cannot_wait_for_itself() -> None:
    # rule: 1.11
    here = cell()
    (event,) = here.when(submitted("r1", after=ok(job_id("ann", "a", "r1")))).events()
    assert isinstance(event, JobRefused)


def test_what_failed_already_cannot_be_waited_for_to_succeed() -> None:
    # rule: 1.11
    here = cell()
    first = here.submit("first")
    here.gone(first, End.FAILED, 1)
    problem = Problem(
        field="spec.after.0.job",
        rule="1.11",
        value=first,
        limit=f"{first} has failed already",
        way_out="write when: any, or leave it out",
    )
    here.when(submitted("next", after=ok(first))).then(refused("next", 2, problem))


def test_a_job_and_what_follows_it_may_be_submitted_in_one_record() -> None:
    # rule: 1.11
    here = cell()
    first = admitted("first")
    event = admitted("next", after=ok(first.job))
    here.when(submitted("first"), submitted("next", after=ok(first.job))).then(
        first, waits(event), began(event.job, first.job)
    )


def test_a_waiting_follower_can_be_cancelled() -> None:
    # rule: 1.11
    here = cell()
    job = here.submit("next", after=ok(here.submit("first")))
    here.when(CancelJob(job=job)).then(ended(job), JobCancelled(job=job, account="ann")).follows()


def test_more_followers_than_a_record_holds_go_in_the_next() -> None:
    # rule: 1.11
    here = cell()
    first = here.submit("first", gpus_per_host=8)
    jobs = [here.submit(f"n{number}", after=ok(first), settle=False) for number in range(201)]
    here.say(here.run_gone(first), "host-001", settle=False)
    freed = [len(here.step("admission")) for _ in range(3)]
    assert freed == [400, 2, 0]
    assert {here.phase(job) for job in jobs} == {"waiting"}


# arrays ---------------------------------------------------------------------------------------------


def of(index: int, count: int = 3, parallel: int = 0, **fields: object) -> JobAdmitted:
    """The admission of one job of the array `r1`."""
    plain = admitted(f"r1/{index}", array=Array(count=count, parallel=parallel, index=index), **fields)
    changed = {"digest": submitted("r1").digest}
    return type(plain)(**{name: getattr(plain, name) for name in plain.__struct_fields__} | changed)


def array(count: int = 3, parallel: int = 0) -> Array:
    return Array(count=count, parallel=parallel)


def names(count: int) -> list[str]:
    return [job_id("ann", "a", f"r1/{index}") for index in range(count)]


ARRAY = job_id("ann", "a", "r1")


def test_an_array_is_so_many_jobs_of_their_own_in_one_record() -> None:
    # rule: 1.11
    here = cell()
    here.when(submitted("r1", array=array())).then(of(0), of(1), of(2))
    here.settle()
    assert [here.phase(job) for job in names(3)] == ["granted"] * 3
    here.gone(names(3)[1], End.FAILED, 1)
    assert [here.phase(job) for job in names(3)] == ["granted", "failed", "granted"]


def test_the_same_array_again_is_the_same_jobs() -> None:
    # rule: 1.11
    here = cell()
    here.submit("r1", array=array())
    here.when(submitted("r1", array=array())).then().follows()


def test_a_request_id_names_one_job_or_one_array() -> None:
    # rule: 1.14
    def other(name: str, **fields: object) -> list[Event]:
        said = submitted(name, **fields)
        return here.when(type(said)(budget="a", request_id=name, digest="f" * 64, request=said.request)).events()

    here = cell()
    here.submit("r1", array=array())
    assert isinstance(other("r1")[0], JobRefused)
    assert isinstance(other("r1", array=array(count=2))[0], JobRefused)
    here.submit("plain")
    here.submit("taken/1")
    assert isinstance(other("plain", array=array())[0], JobRefused)
    assert isinstance(other("taken", array=array())[0], JobRefused)


def test_a_limited_array_lets_so_many_go_at_a_time_in_their_order() -> None:
    # rule: 1.11
    here = cell()
    jobs = names(4)
    here.when(submitted("r1", array=array(4, 2))).then(
        of(0, 4, 2),
        of(1, 4, 2),
        waits(of(2, 4, 2)),
        began(jobs[2], jobs[0]),
        waits(of(3, 4, 2)),
        began(jobs[3], jobs[0]),
    )
    here.settle()
    here.gone(jobs[1])
    assert [here.phase(job) for job in jobs] == ["granted", "succeeded", "granted", "dependent"]
    here.gone(jobs[0]).gone(jobs[2])
    assert [here.phase(job) for job in jobs] == ["succeeded", "succeeded", "succeeded", "granted"]


def test_a_failed_job_of_an_array_gives_its_place_to_the_next_and_a_backoff_keeps_it() -> None:
    # rule: 1.11
    here = cell()
    jobs = names(3)
    here.submit("r1", array=array(3, 1), max_retries=1)
    here.gone(jobs[0], End.FAILED, 1)
    assert [here.phase(job) for job in jobs] == ["backoff", "dependent", "dependent"]
    here.at(MINUTE).gone(jobs[0], End.FAILED, 1)
    assert [here.phase(job) for job in jobs] == ["failed", "granted", "dependent"]


def test_an_array_waits_for_others_and_then_for_its_places() -> None:
    # rule: 1.11
    here = cell()
    first = here.submit("first")
    jobs = names(3)
    here.submit("r1", array=array(3, 1), after=ok(first))
    assert [here.phase(job) for job in jobs] == ["dependent"] * 3
    here.gone(first)
    assert [here.phase(job) for job in jobs] == ["granted", "dependent", "dependent"]


def test_a_whole_array_can_be_waited_for() -> None:
    # rule: 1.11
    here = cell()
    jobs = names(2)
    here.submit("r1", array=array(2))
    job = here.submit("next", after=ok(ARRAY))
    here.gone(jobs[0])
    assert here.phase(job) == "dependent"
    here.gone(jobs[1])
    assert here.phase(job) == "granted"


def test_and_its_first_failure_ends_what_needs_all_of_it() -> None:
    # rule: 1.11
    here = cell()
    here.submit("r1", array=array(2))
    strict, lax = here.submit("strict", after=ok(ARRAY)), here.submit("lax", after=anyhow(ARRAY))
    here.gone(names(2)[1], End.FAILED, 1)
    assert (here.phase(strict), here.phase(lax)) == ("cancelled", "dependent")
    assert here.world.jobs[strict].cancelled_for == names(2)[1]
    here.gone(names(2)[0])
    assert here.phase(lax) == "granted"


def test_an_array_is_cancelled_by_its_name() -> None:
    # rule: 1.11
    here = cell()
    here.submit("r1", array=array(3, 1))
    first, *rest = names(3)
    here.when(CancelJob(job=ARRAY)).events()
    assert [here.phase(job) for job in names(3)] == ["stopping", "cancelled", "cancelled"]
    here.gone(first, End.CANCELLED, 143)
    assert {here.phase(job) for job in (first, *rest)} == {"cancelled"}


def test_an_array_of_two_hundred_is_one_record_and_a_larger_one_is_refused() -> None:
    # rule: 1.11
    here = cell()
    events = here.when(submitted("r1", array=array(200, 1))).events()
    assert [type(event) for event in events].count(JobAdmitted) == 200
    problem = Problem(
        field="spec.array.count",
        rule="1.11",
        value="201",
        limit="200",
        way_out="write several arrays, or ask for less in each job",
    )
    here.when(submitted("r2", array=array(201))).then(refused("r2", 2, problem))


def test_jobs_too_large_for_one_record_are_fewer() -> None:
    # rule: 1.11
    here = cell()
    first = [here.submit(f"f{number}") for number in range(32)]
    (event,) = here.when(submitted("r1", array=array(200), after=anyhow(*first))).events()
    assert isinstance(event, JobRefused)
    (problem,) = event.problems
    assert (problem.field, problem.rule) == ("spec.array.count", "1.11")
    assert 50 < int(problem.limit) < 200
    events = here.when(submitted("r1", array=array(int(problem.limit)), after=anyhow(*first))).events()
    assert len(events) == 2 * int(problem.limit)
    assert len(here.records[-1]) < 256 * 1024


def test_what_comes_after_a_full_record_is_answered_by_the_next() -> None:
    # rule: 1.11
    here = cell()
    answers = []
    for name in ("r1", "r2", "r3"):
        here.now_ms += SECOND
        answers.append(here.answer(submitted(name, array=array(150))))
    assert len(here.step("admission", tuple(answers))) == 300
    assert here.world.cursor("admission", "FL_LAB_INBOX_ann") == 2
    assert here.record(len(here.records)).at_ms == answers[1].time_ms
    assert len(here.step("admission", tuple(answers[2:]))) == 150
    assert verify(enumerate(here.records, 1)).first is None


def test_an_array_in_a_snapshot_goes_on_as_if_nothing_was() -> None:
    # rule: 1.11
    here = cell()
    first = here.submit("first")
    here.submit("r1", array=array(3, 1), after=ok(first))
    here.say(here.run_gone(first), "host-001", settle=False)
    loaded = World.load(here.world.dump())
    assert loaded.dependents.ready == here.world.dependents.ready == {names(3)[0]}


def test_the_answer_to_an_array_speaks_of_all_of_it() -> None:
    # rule: 1.11
    here = cell()
    for outcome in ("accepted", "repeated"):
        here.step("admission", (here.answer(submitted("r1", array=array(2, 1), min_runtime_ms=2 * HOUR)),))
        (answer,) = answers_of(here.world, here.record(len(here.records)))
        assert (answer.job, answer.outcome, answer.state) == (ARRAY, outcome, "waiting")
        assert len(answer.advice) == (outcome == "accepted")


def test_every_step_of_waiting_is_on_the_feed() -> None:
    # rule: 1.11
    here = cell()
    job = here.submit("next", after=ok(here.submit("first")))
    here.say(HoldJob(job=job))
    here.say(ReleaseJob(job=job))
    here.gone(job_id("ann", "a", "first"))
    replayed, told = World(), []
    for position in range(1, len(here.records) + 1):
        replayed.apply(here.record(position), position)
        told += [(e.event, e.state) for _, _, e in steps_of(replayed, here.record(position)) if e.job == job]
    assert told == [
        ("job-admitted", "dependent"),
        ("job-held", "held"),
        ("job-hold-cleared", "dependent"),
        ("job-unblocked", "waiting"),
        ("gang-granted", "granted"),
    ]
