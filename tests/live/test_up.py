"""`fairlease up`: stopped in order or killed, it comes back to the same cell, and jobs never notice."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.live import process
from tests.live.cell import GPUS, HOSTS, Up, up_at
from tests.live.court import eventually
from tests.live.desk import Job

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up_at(tmp_path_factory.mktemp("up") / "cell") as up:
        yield up


@pytest_asyncio.fixture(loop_scope="module")
async def up(standing: Up) -> Up:
    """The module's cell, started again where the last test failed and left it stopped."""
    if standing.process is None:
        await standing.start()
    return standing


async def _with_running_jobs(up: Up, label: str) -> Path:
    """A gang and two single jobs that run until the returned file appears, and then end with 0, 5 and 6."""
    gate = up.home / f"gate-{label}"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    for job in (
        Job(f"{label}-gang", wait, hosts=HOSTS - 1, gpus=GPUS),
        Job(f"{label}-5", f"{wait}; exit 5", gpus=3, end="job-failed", code=5),
        Job(f"{label}-6", f"{wait}; exit 6", gpus=3, account="ci", end="job-failed", code=6),
    ):
        await up.submit(job)
        await up.event(job.id, "attempt-started", count=job.hosts)
    return gate


def _are_all_of_jobs(up: Up) -> bool:
    return all(process.is_of_a_job(pid) for pid in process.belonging(up.home))


async def test_jobs_run_on_through_an_orderly_stop_and_a_new_start(up: Up) -> None:
    gate = await _with_running_jobs(up, "stop")
    assert up.process is not None
    up.process.send_signal(signal.SIGTERM)
    assert await up.wait_left() == 0
    assert process.jobs_of(up.home), "the jobs went too"
    await eventually(lambda: _are_all_of_jobs(up), "nothing but jobs and their keepers is left")
    assert list((up.home / "lab").glob("*/*.fold")), "the services left no snapshots to start from"
    await up.start()
    gate.touch()
    await up.over()
    await up.judge()


@pytest.fixture
def hang_up(request: pytest.FixtureRequest) -> Iterator[None]:
    """What `up` is started with: the signal of a terminal that closes as it comes, or ignored as `nohup` does."""
    before = signal.signal(signal.SIGHUP, request.param)
    yield
    signal.signal(signal.SIGHUP, before)


async def _restarted(up: Up) -> None:
    if up.process is not None:
        up.process.send_signal(signal.SIGTERM)
        assert await up.wait_left() == 0
    await up.start()


@pytest.mark.parametrize("hang_up", [signal.SIG_DFL], indirect=True)
@pytest.mark.usefixtures("hang_up")
async def test_a_terminal_that_closes_stops_the_cell_in_order(up: Up) -> None:
    """Not as a crash, in which every service folds the log anew at the next start."""
    await _restarted(up)
    assert up.process is not None
    for old in (up.home / "lab").glob("*/*.fold"):
        old.unlink()
    await up.run("budget", "set", "hung-up", "--weight", "1")
    up.process.send_signal(signal.SIGHUP)
    assert await up.wait_left() == 0
    assert list((up.home / "lab").glob("*/*.fold")), "the services left no snapshots to start from"


@pytest.mark.parametrize("hang_up", [signal.SIG_IGN], indirect=True)
@pytest.mark.usefixtures("hang_up")
async def test_a_cell_that_shall_outlive_its_terminal_does(up: Up) -> None:
    await _restarted(up)
    assert up.process is not None
    parts = up.parts()
    up.process.send_signal(signal.SIGHUP)
    code, _, said = await up.run("queue")
    assert (code, up.parts()) == (0, parts), said


async def test_jobs_that_end_while_nothing_else_is_there_are_told_of_later(up: Up) -> None:
    gate = await _with_running_jobs(up, "alone")
    assert up.process is not None
    up.process.send_signal(signal.SIGTERM)
    assert await up.wait_left() == 0
    gate.touch()
    await eventually(lambda: not process.belonging(up.home), "the jobs and their keepers are gone")
    await up.start()
    await up.over()
    await up.judge()


async def _killed(up: Up, label: str) -> None:
    gate = await _with_running_jobs(up, label)
    parts = up.parts()
    process.kill(parts[0])
    await up.wait_left()
    await eventually(lambda: not set(parts) & set(process.belonging(up.home)), "bus, services and agent are gone")
    assert process.jobs_of(up.home), "the jobs went too"
    await up.start()
    gate.touch()
    await up.over()
    await up.judge()


@pytest.mark.parametrize("time", [1, 2])
async def test_when_up_is_killed_the_cell_goes_with_it_and_the_next_one_starts_cleanly(up: Up, time: int) -> None:
    await _killed(up, f"killed-{time}")


@pytest.mark.long
@pytest.mark.parametrize("time", range(3, 23))
async def test_up_is_killed_twenty_times_more(up: Up, time: int) -> None:
    await _killed(up, f"killed-{time}")


async def test_a_second_up_on_the_same_directory_leaves_the_first_alone(up: Up) -> None:
    before = up.parts()
    code, _, said = await up.run("up")
    assert code == 7, said
    assert "already runs" in said
    assert up.parts() == before


async def _waiting(up: Up, *script: str) -> asyncio.subprocess.Process:
    """`submit --wait` in a process of its own, once its job runs."""
    before = await up.journal.read()
    child = await up.spawn(
        *("submit", "--budget", "team-a", "--min-runtime", "1s", "--timeout", "1h", "--wait", "--", "sh", "-c", *script)
    )

    async def runs() -> bool:
        await up.journal.read()
        return bool(up.journal.events("attempt-started", after=before))

    await eventually(runs, "the submitted job runs")
    return child


@pytest.mark.parametrize("victim", ["bus", "explainer", "everything"])
async def test_a_waiting_submission_outlives_what_it_waits_on_and_returns_the_jobs_own_code(
    up: Up, victim: str
) -> None:
    gate = up.home / f"gate-wait-{victim}"
    child = await _waiting(up, f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 37")
    if victim == "everything":
        await up.kill_everything()
        gate.touch()
        await up.start()
    else:
        (pid,) = [pid for pid in up.parts()[1:] if process.is_part(pid, victim)]
        process.kill(pid)
        gate.touch()
    _, said = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode == 37, said.decode()
    await up.judge()


async def test_a_submission_that_finds_no_explainer_is_answered_once_there_is_one(up: Up) -> None:
    (pid,) = [pid for pid in up.parts()[1:] if process.is_part(pid, "explainer")]
    process.kill(pid)
    code, out, said = await up.run(
        *("submit", "--budget", "team-a", "--min-runtime", "1s", "--timeout", "1h", "--json", "--", "true")
    )
    assert code == 0, said
    assert json.loads(out)["outcome"] == "accepted"
    await up.judge()


async def test_an_account_and_replicas_that_are_added_later_are_served_and_serve(up: Up) -> None:
    assert up.process is not None
    up.process.send_signal(signal.SIGTERM)
    assert await up.wait_left() == 0
    await up.start("--account", "night", "--replicas", "2")
    await up.submit(Job("by-night", account="night"))
    await up.over()
    await up.judge()
