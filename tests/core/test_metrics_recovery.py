"""Evictions and what they cost, turns and loops, retries and resumes; numbers are GPU-minutes of two GPUs."""

import pytest

from fairlease.core.job import Attempt, Job, replace
from fairlease.core.metrics.cost import lost_gpu_ms
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.progress import Progress, cut_of
from fairlease.core.metrics.recovery import Cost, Evictions, Recovery
from fairlease.core.metrics.scope import EVERYBODY
from fairlease_schemas.cycle import EvictionOrdered, Licence
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import End, Mismatch
from fairlease_schemas.policy import Policy
from fairlease_schemas.reports import RunGone
from tests.core.bench import cell, idle, left, saved, whole
from tests.core.told import figures, past, run
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0
from tests.naive.figures import History

ALWAYS = Period(T0 - 1, T0 + 1_000 * MINUTE)
POLICY = Policy()


def at(minute: int) -> int:
    return minute * MINUTE


def leaving(name: str, leaf: str, *attempts: Attempt, **fields: object) -> Job:
    """The job right after its last attempt was told to leave."""
    named = [replace(attempt, id=attempt_id(name, attempt.number)) for attempt in attempts]
    return past(*named, name=name, budget=leaf, **fields)


def told(number: int, granted: int, now: int, **fields: object) -> Attempt:
    return run(number, granted, ending=End.PREEMPTED, ending_ms=T0 + now, **fields)


def evict(evictions: Evictions, job: Job, claim: Job | None, now: int, **fields: object) -> None:
    attempt = job.attempts[-1].id
    name = claim.id if claim is not None else ""
    event = EvictionOrdered(
        attempt=attempt,
        claim=name,
        licence=Licence.UNDER_SHARE if claim else Licence.DRAIN,
        grace_ms=0,
        lost_gpu_ms=0,
        **fields,  # type: ignore[arg-type] # fields by name
    )
    evictions.evicted(event, job, claim, POLICY, T0 + now, is_promised=False)


def back_after(minutes: int, leaf: str = "b") -> Recovery:
    """`y` of leaf b leaves for `x`, which is granted at minute 1 with a window of 30 and leaves again for `leaf`."""
    evictions = Evictions(ALWAYS)
    x = past(name="job-x", budget="a")
    evict(evictions, leaving("job-y", "b", told(1, at(-60), at(0))), x, at(0))
    again = past(name="job-z", budget=leaf)
    evict(evictions, leaving("job-x", "a", told(1, at(1), at(minutes))), again, at(minutes))
    return evictions.result(0)


@pytest.mark.parametrize(
    ("minutes", "leaf", "expected"),
    [
        pytest.param(31, "b", (1, 0, 0), id="after its whole window it is a turn"),
        pytest.param(30, "b", (0, 1, 1), id="a minute before it is a loop, and a broken window"),
        pytest.param(31, "c", (0, 0, 0), id="for somebody else's leaf it is neither"),
        pytest.param(30, "c", (0, 0, 1), id="and its window is broken all the same"),
    ],
)
def test_an_eviction_back_is_a_turn_or_a_loop(minutes: int, leaf: str, expected: tuple[int, int, int]) -> None:
    # rule: 5.3
    found = back_after(minutes, leaf)
    assert (found.turns, found.loops, found.window_breaks) == expected
    assert found.evicted == {"claim": {"under-share": 2}}


def test_a_turn_is_counted_once_however_often_the_job_leaves_afterwards() -> None:
    # rule: 5.3
    evictions = Evictions(ALWAYS)
    evict(evictions, leaving("job-y", "b", told(1, at(-60), at(0))), past(name="job-x"), at(0))
    first = run(1, at(1), at(40), End.PREEMPTED)
    for now, attempts in ((40, [told(1, at(1), at(40))]), (90, [first, told(2, at(50), at(90))])):
        evict(evictions, leaving("job-x", "a", *attempts), past(name="job-z", budget="b"), at(now))
    assert (evictions.result(0).turns, evictions.result(0).loops) == (1, 0)


def test_the_deadline_of_a_drain_breaks_no_window_and_a_drain_before_it_does() -> None:
    for is_deadline, breaks in ((True, 0), (False, 1)):
        evictions = Evictions(ALWAYS)
        job = leaving("job-x", "a", told(1, at(0), at(10)))
        evict(evictions, job, None, at(10), drain="host-001", is_deadline=is_deadline)
        found = evictions.result(0)
        reason = "deadline" if is_deadline else "drain"
        assert (found.window_breaks, found.evicted) == (breaks, {reason: {"drain": 1}})


def test_an_exemption_counts_as_a_window_but_not_one_that_the_eviction_itself_gives() -> None:
    for times, breaks in (((60, 70, 80, 90), 0), ((50, 60, 70, 80, 90), 1)):
        evictions = Evictions(ALWAYS)
        stamps = tuple(T0 + at(minute) for minute in times)  # the last is this eviction
        evict(
            evictions, leaving("job-x", "a", told(5, at(20), at(90)), preemptions_ms=stamps), past(name="job-z"), at(90)
        )
        assert evictions.result(0).window_breaks == breaks


def test_idle_work_has_no_window_to_break() -> None:
    evictions = Evictions(ALWAYS)
    evict(evictions, leaving("job-x", "a", told(1, at(0), at(1)), min_runtime_ms=0), past(name="job-z"), at(1))
    assert evictions.result(0).window_breaks == 0


def ended(*attempts: Attempt, retried: bool = False) -> Recovery:
    evictions = Evictions(ALWAYS)
    for count, attempt in enumerate(attempts, start=1):
        job = past(*attempts[:count])
        if attempt.started_ms is not None:
            evictions.runs(job, attempt, attempt.started_ms)
        if attempt.is_over:
            evictions.ended(job, attempt, cut_of(job))
        if retried and attempt.end is End.FAILED:
            evictions.retried(job, attempt.ended_ms)
    return evictions.result(0)


FIRST = run(1, at(0), at(60), End.PREEMPTED, saved=at(40))


@pytest.mark.parametrize(
    ("attempts", "preempted", "resumes"),
    [
        pytest.param([FIRST], Cost(0, at(40), 0), (0, 0), id="lost since its checkpoint"),
        pytest.param(
            [FIRST, run(2, at(70), started=at(73))], Cost(0, at(40), at(6)), (1, 1), id="then three minutes on two GPUs"
        ),
        pytest.param(
            [FIRST, run(2, at(70), at(75), End.RESUME_REFUSED, started=None)],
            Cost(0, at(40), at(10)),
            (1, 0),
            id="a resume that failed",
        ),
        pytest.param(
            [FIRST, run(2, at(70), at(75), End.PREEMPTED, started=None)],
            Cost(0, at(40), at(10)),
            (0, 0),
            id="told to leave before it ran: it failed at nothing, and nothing is lost twice",
        ),
        pytest.param([run(1, at(0), at(9), End.SUCCEEDED)], Cost(), (0, 0), id="a success costs nobody"),
    ],
)
def test_an_eviction_costs_what_was_not_saved_and_the_restart(
    attempts: list[Attempt], preempted: Cost, resumes: tuple[int, int]
) -> None:
    found = ended(*attempts)
    assert (found.preempted, (found.resumes, found.resumed)) == (preempted, resumes)


def test_faults_and_retries_are_told_apart_from_evictions() -> None:
    fault = ended(run(1, at(0), at(30), End.FAULT, saved=at(20)), run(2, at(31), started=at(32)))
    assert (fault.faults, fault.preempted, fault.retries) == (Cost(1, at(20), at(2)), Cost(), Cost())
    retry = ended(run(1, at(0), at(30), End.FAILED), run(2, at(31), started=at(32)), retried=True)
    assert (retry.retries, retry.preempted, retry.faults) == (Cost(1, at(60), at(2)), Cost(), Cost())


def test_a_story_of_idle_work_that_gives_way_and_comes_back() -> None:
    here = cell(1)
    job = idle(here, "i")
    here.start(job).at(10 * MINUTE)
    saved(here, job).at(15 * MINUTE)
    claim = whole(here, "x", min_runtime_ms=30 * MINUTE)
    left(here.at(15 * MINUTE + 30 * SECOND), job)
    here.start(claim).at(HOUR).gone(claim)
    here.at(HOUR + 20 * SECOND).start(job).at(2 * HOUR).gone(job)
    found = figures(here, 2 * HOUR)
    # 8 GPUs: 5.5 min from the checkpoint to the release, 20 s until it ran again.
    assert found.recovery.evicted == {"claim": {"under-share": 1}}
    assert found.recovery.preempted == Cost(1, 8 * 330 * SECOND, 8 * 20 * SECOND)
    assert (found.recovery.held_gpu_ms, found.recovery.resumes, found.recovery.resumed) == (8 * 2 * HOUR, 1, 1)
    assert (found.recovery.checkpoints, found.recovery.window_breaks, found.recovery.turns) == (1, 0, 0)
    counts = found.counts
    assert (counts.submitted, counts.started, counts.finished, counts.hosts, counts.gpus) == (2, 2, 2, 1, 8)
    assert found.completion.makespan_ms == 2 * HOUR


def test_who_was_stopping_already_is_not_evicted_again() -> None:
    evictions = Evictions(ALWAYS)
    job = leaving("job-x", "a", told(1, at(0), at(40)))
    for now in (40, 41):
        evict(evictions, job, past(name="job-z", budget="b"), at(now))
    cancelled = leaving("job-w", "a", run(1, at(0), ending=End.CANCELLED, ending_ms=T0))
    evict(evictions, cancelled, past(name="job-z", budget="b"), at(42))
    assert evictions.result(0).evictions == 1


def test_what_a_clean_restart_sets_aside_is_lost_and_is_no_resume() -> None:
    # rule: 8.3
    here = cell(on_resume_refused="restart")
    job = whole(here, "run", max_retries=3)
    here.start(job)
    saved(here.at(at(50)), job, step=9)
    here.gone(job, End.FAILED, 85)
    here.at(at(51))
    refusing = here.world.jobs[job].attempts[-1]
    mismatch = Mismatch(field="commit", wanted="x", found="y")
    begun = (refusing.granted_ms - T0) // SECOND
    here.say(
        RunGone(attempt=refusing.id, token=str(refusing.token), mismatches=(mismatch,), end=End.START_FAILED),
        "host-001",
    )
    clean = here.world.jobs[job].attempts[-1]
    assert (clean.number, clean.is_clean) == (3, True)
    here.start(job).at(at(100))
    here.gone(job)
    found = figures(here, at(100))
    kept, aside, waited = 49 * 60 * 8 * SECOND, 50 * 60 * 8 * SECOND, (51 * 60 - begun) * 8 * SECOND
    assert found.progress == Progress(kept_gpu_ms=kept, abandoned_gpu_ms=aside, restart_gpu_ms=waited)
    assert (found.recovery.resumes, found.recovery.resumed) == (1, 0), "the refused one"
    period = Period(T0 - 1, T0 + at(100))
    slow = History(here.records, period, EVERYBODY).progress()
    assert Progress(**{f"{fate}_gpu_ms": amount for fate, amount in slow.items()}) == found.progress
    done = here.world.jobs[job]
    assert [lost_gpu_ms(done, place, period) for place in range(3)] == [aside, waited, 0]
