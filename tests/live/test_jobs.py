"""Lives of jobs, on real processes: cancelled in every state, stubborn, killed, late, retried, evicted."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from tests.live import process
from tests.live.cell import GPUS, HOSTS, Cell, cell_at
from tests.live.court import eventually
from tests.live.desk import Ears, Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOREVER = "exec sleep 600"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path_factory.mktemp("jobs") / "cell") as cell:
        yield cell


async def test_a_waiting_job_is_cancelled_and_never_granted(cell: Cell) -> None:
    whole = await cell.submit(Job("whole", FOREVER, hosts=HOSTS, gpus=GPUS, end="job-cancelled"))
    await cell.event(whole, "attempt-started", count=HOSTS)
    waiting = await cell.submit(Job("waiting", FOREVER, gpus=2, end="job-cancelled"))
    await cell.event(waiting, "job-admitted")
    await cell.cancel(waiting)
    await cell.over(waiting)
    await cell.cancel(whole)
    await cell.over(whole)
    assert cell.journal.of_job(waiting, "gang-granted") == []
    await cell.judge()


async def test_a_granted_job_that_is_cancelled_before_its_agent_hears_of_it_never_begins(cell: Cell) -> None:
    process.send(signal.SIGSTOP, cell.pid("agent"))
    job = await cell.submit(Job("granted", FOREVER, hosts=2, gpus=GPUS, end="job-cancelled"))
    await cell.event(job, "gang-granted")
    await cell.cancel(job)
    await cell.event(job, "attempt-ending")
    process.send(signal.SIGCONT, cell.pid("agent"))
    await cell.over(job)
    assert cell.journal.of_job(job, "attempt-started") == []
    assert [attempt for attempt, _ in cell.started() if attempt == f"{job}-a1"] == []
    await cell.judge()


@pytest.mark.parametrize("seed", [1])
async def test_a_job_cancelled_at_the_moment_of_its_grant_does_not_run_on(cell: Cell, seed: int) -> None:
    """Grant and cancel are written in two scopes, in either order, neither knowing of the other."""
    chance = Random(seed)
    jobs = [Job(f"overtaken-{seed}-{n}", FOREVER, end="job-cancelled") for n in range(20)]
    for job in jobs:
        ears = await Ears.at(cell, cell.subjects.log("ranker", "cycle-ranked"))
        await cell.submit(job)
        await ears.next()
        await asyncio.sleep(chance.uniform(0, 0.004))
        await cell.cancel(job.id)
    await cell.over()
    await eventually(lambda: process.jobs_of(cell.home) == [], "nothing of them runs")
    await cell.judge()


async def test_a_running_job_is_cancelled_by_its_grace_and_nothing_of_it_is_left(cell: Cell) -> None:
    script = 'trap "exit 0" TERM; setsid sleep 600 & sleep 600 & wait'
    job = await cell.submit(Job("running", script, hosts=2, gpus=GPUS, end="job-cancelled"))
    await cell.event(job, "attempt-started", count=2)
    await eventually(lambda: len(process.jobs_of(cell.home)) >= 6, "both parts have their three processes")
    await cell.cancel(job)
    await cell.cancel(job)
    await cell.over(job)
    assert process.jobs_of(cell.home) == []
    await cell.judge()


async def test_a_job_that_ignores_the_request_is_killed_with_all_it_started(cell: Cell) -> None:
    script = "trap '' TERM INT HUP; (trap '' TERM; setsid sh -c \"trap '' TERM; while :; do sleep 1; done\") & "
    script += "while :; do sleep 1; done"
    job = await cell.submit(Job("stubborn", script, grace="1s", end="job-cancelled"))
    await cell.event(job, "attempt-started")
    await cell.cancel(job)
    await cell.over(job)
    assert process.jobs_of(cell.home) == []
    await cell.judge()


@pytest.mark.parametrize(
    ("name", "script", "code"),
    [
        ("killed", "kill -9 $$", 137),
        ("terminated", "kill -TERM $$; sleep 600", 143),
        ("missing", "exec /no/such/program", 127),
        ("left-behind", "sleep 600 & exit 6", 6),
        ("most", "exit 255", 255),
    ],
)
async def test_a_job_that_ends_itself_keeps_its_exit_code(cell: Cell, name: str, script: str, code: int) -> None:
    job = await cell.submit(Job(name, script, end="job-failed", code=code))
    await cell.over(job)
    assert process.jobs_of(cell.home) == []


async def test_a_command_that_does_not_exist_could_not_be_started(cell: Cell) -> None:
    job = Job("not-started", max_retries=3, end="job-failed")
    body = cell.body(job)
    body["contract"]["spec"]["command"] = ["/no/such/program"]
    cell.jobs[job.id] = job
    await cell.answered("submit-job", body)
    await cell.over(job.id)
    (end,) = cell.journal.of_job(job.id, "attempt-ended")
    assert (end["end"], end.get("exit_code")) == ("start-failed", None)


async def test_a_gang_of_which_one_part_fails_ends_whole_with_that_parts_code(cell: Cell) -> None:
    script = f'[ "$FAIRLEASE_RANK" = 1 ] && exit 9; {FOREVER}'
    job = await cell.submit(Job("one-part", script, hosts=3, gpus=GPUS, end="job-failed", code=9))
    await cell.over(job)
    assert process.jobs_of(cell.home) == []


async def test_a_job_that_takes_too_long_is_timed_out(cell: Cell) -> None:
    job = await cell.submit(Job("late", FOREVER, timeout="1s", end="job-timed-out"))
    await cell.over(job)
    ending = await cell.event(job, "attempt-ending")
    assert ending["end"] == "timed-out"


async def test_a_job_that_shall_go_on_after_its_time_runs_again(cell: Cell) -> None:
    script = f'[ "$FAIRLEASE_ATTEMPT_NUMBER" = 2 ] && exit 0; {FOREVER}'
    job = await cell.submit(Job("again", script, timeout="1s", on_timeout="requeue"))
    await cell.over(job)
    assert [event["end"] for event in cell.journal.of_job(job, "attempt-ended")] == ["timed-out", "succeeded"]


async def test_a_failing_job_is_retried_after_growing_backoffs_and_then_succeeds(cell: Cell) -> None:
    job = await cell.submit(Job("retried", '[ "$FAIRLEASE_ATTEMPT_NUMBER" = 3 ] || exit 2', max_retries=2))
    await cell.over(job)
    assert [event["backoff_ms"] for event in cell.journal.of_job(job, "job-requeued")] == [300, 500]
    assert len(cell.journal.of_job(job, "job-released")) == 2


async def test_a_job_is_cancelled_in_the_middle_of_its_backoff(cell: Cell) -> None:
    job = await cell.submit(Job("backing-off", "exit 2", max_retries=5, end="job-cancelled"))
    await cell.event(job, "job-requeued")
    await cell.cancel(job)
    await cell.over(job)
    await cell.judge()


async def test_idle_work_leaves_for_a_gang_and_runs_again_after_it(cell: Cell) -> None:
    script = f'[ "$FAIRLEASE_ATTEMPT_NUMBER" -gt 1 ] && exit 0; {FOREVER}'
    idle = [
        await cell.submit(Job(f"idle-{n}", script, gpus=GPUS, min_runtime="0s", budget="team-b")) for n in range(HOSTS)
    ]
    for job in idle:
        await cell.event(job, "attempt-started")
    gang = await cell.submit(Job("gang", "sleep 0.3", hosts=HOSTS, gpus=GPUS))
    await cell.over(gang, *idle)
    for job in idle:
        assert [event["end"] for event in cell.journal.of_job(job, "attempt-ended")] == ["preempted", "succeeded"]
        assert [event["claim"] for event in cell.journal.of_job(job, "eviction-ordered")] == [gang]
    oracle = await cell.judge()
    granted = oracle.attempts[f"{gang}-a1"].token
    assert all(oracle.attempts[f"{job}-a1"].over_at < granted[0] for job in idle)
    assert all(oracle.attempts[f"{job}-a2"].token > granted for job in idle)


async def test_a_budgeted_job_is_not_evicted_for_a_gang(cell: Cell) -> None:
    held = await cell.submit(Job("held", "sleep 1.5", min_runtime="1m"))
    await cell.event(held, "attempt-started")
    gang = await cell.submit(Job("patient", hosts=HOSTS, gpus=GPUS, account="ci"))
    await cell.over(held, gang)
    assert cell.journal.of_job(held, "eviction-ordered") == []
    await cell.judge()


async def test_what_a_job_printed_and_saw_is_its_own(cell: Cell) -> None:
    script = 'echo "$FAIRLEASE_JOB $FAIRLEASE_RANK/$FAIRLEASE_WORLD_SIZE $CUDA_VISIBLE_DEVICES"; env | grep -c NATS'
    job = await cell.submit(Job("own", f"{script}; true", hosts=2, gpus=GPUS))
    await cell.over(job)
    grant = await cell.event(job, "gang-granted")
    for rank, part in enumerate(grant["parts"]):
        question = {"attempt": f"{job}-a1", "offset": 0, "limit": 4096}
        page = await cell.ask(f"agent-{part['host']}", "logs", question)
        gpus = ",".join(f"GPU-sim-{part['host']}-{gpu}" for gpu in part["gpus"])
        assert page["data"] == f"{job} {rank}/2 {gpus}\n0\n", json.dumps(page)
