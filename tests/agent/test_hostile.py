"""A job of the agent's own user that wants to be rid of its keeper: its GPUs are held while it lives, and it ends.

Also what the agent must not do to others meanwhile.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlease.agent import layout, runs
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import RunGone, RunStarted
from tests.agent.bench import Bench, alive, keeper_of, marked, shell, until

pytestmark = pytest.mark.asyncio
FORGED = """echo '{"end":"succeeded","exit_code":0}' > ../gone.json.x; mv ../gone.json.x ../gone.json; """
LIVES_ON = "echo ready; exec sleep 1000"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at living runs often: none of these stories is told sooner than by such a look."""
    monkeypatch.setattr(runs, "_SWEEP_S", 0.05)


async def up(bench: Bench, script: str, name: str = "a") -> RunOrder:
    part = bench.part(name, shell(script))
    bench.order(part)
    await bench.started(part)
    return part


# the end that a job wrote --------------------------------------------------------------------------
async def test_an_end_that_a_job_wrote_frees_no_gpu_while_its_keeper_lives(bench: Bench) -> None:
    part = await up(bench, FORGED + LIVES_ON)
    await bench.printed(part, "ready")
    other = bench.part("b")
    bench.order(part, other)
    for name in ("c", "d"):  # what starts and ends later has been seen, so would be the forged end
        later = bench.part(name, gpus=(1,))
        bench.order(part, other, later)
        await bench.gone(later)
        bench.restart()
        bench.order(part, other)
    assert [bench.of(part, RunGone), bench.of(other, RunStarted)] == [[], []]
    bench.order(bench.stop(part), other)
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.CANCELLED, 143)
    assert (await bench.gone(other)).end is End.SUCCEEDED


@pytest.mark.parametrize("is_agent_there", [True, False], ids=["with an agent", "without one"])
async def test_who_forges_his_end_and_kills_his_keeper_is_ended(bench: Bench, is_agent_there: bool) -> None:
    part = await up(bench, FORGED + LIVES_ON)
    await bench.printed(part, "ready")
    leader = bench.directory(part).leader()
    assert leader is not None
    keeper = keeper_of(bench.directory(part))
    if not is_agent_there:
        bench.close()
    os.kill(keeper.pid, signal.SIGKILL)
    if not is_agent_there:
        await until(lambda: not alive(keeper.pid), "it is dead")
        bench.restart()
    bench.order(part)
    await bench.gone(part)
    assert not alive(leader.pid)


# the directory that is gone or spoiled --------------------------------------------------------------
ROOT = '"$(dirname "$FAIRLEASE_SAID_DIR")"'


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(f"rm -rf {ROOT}; exec sleep 1000", id="removed"),
        pytest.param(f"mv {ROOT} {ROOT}.x; exec sleep 1000", id="renamed"),
        pytest.param(f"cd /; rm -rf {ROOT}; mkdir -p {ROOT}/said; exec sleep 1000", id="replaced"),
        pytest.param(f"rm -rf {ROOT}; ln -s /tmp {ROOT}; exec sleep 1000", id="a link"),
        pytest.param(f"rm -rf {ROOT}; echo x > {ROOT}; exec sleep 1000", id="a file"),
        pytest.param(f"rm -rf {ROOT}; setsid sleep 1000 & exit 0", id="removed by one who leaves"),
    ],
)
@pytest.mark.parametrize("is_agent_there", [True, False], ids=["with an agent", "without one"])
async def test_a_run_whose_directory_is_gone_is_lost_and_nothing_of_it_is_left(
    bench: Bench, script: str, is_agent_there: bool
) -> None:
    go = bench.home / "go"
    part = await up(bench, f"while [ ! -e {go} ]; do sleep 0.01; done; {script}")
    path = bench.directory(part).path
    inode = path.stat().st_ino
    if not is_agent_there:
        bench.close()
    go.touch()
    await until(lambda: not path.is_dir() or path.is_symlink() or path.stat().st_ino != inode, "it is gone")
    if not is_agent_there:
        bench.restart()
    bench.order(part)
    gone = await bench.gone(part)
    assert (gone.end, gone.detail) == (End.LOST, runs.SPOILED)
    assert marked(bench.home) == []
    bench.restart()
    other = bench.part("b")
    bench.order(part, other)
    assert (await bench.gone(other)).end is End.SUCCEEDED
    assert len(bench.of(part, RunStarted)) == 1, "what was ever begun is never begun again"


async def test_a_run_whose_record_and_note_are_spoiled_is_stopped_by_its_order(bench: Bench) -> None:
    part = await up(bench, "echo x > ../run.json; " + LIVES_ON)
    await bench.printed(part, "ready")
    (bench.home / "begun" / part.attempt).write_text("x")
    bench.restart()
    bench.order(bench.stop(part))
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.CANCELLED, 143)


async def test_who_sheds_its_mark_and_loses_its_keeper_and_directory_is_known_by_its_session(bench: Bench) -> None:
    part = await up(bench, "exec env -i sleep 1000")
    directory = bench.directory(part)
    keeper, leader = keeper_of(directory), directory.leader()
    assert leader is not None
    shutil.rmtree(directory.path)
    os.kill(keeper.pid, signal.SIGKILL)
    gone = await bench.gone(part)
    assert (gone.end, gone.detail) == (End.LOST, runs.SPOILED)
    assert not alive(leader.pid)


async def test_what_was_begun_is_not_begun_again_where_its_note_and_directory_are_gone_bad(bench: Bench) -> None:
    part = await up(bench, "exit 0")
    await bench.gone(part)
    bench.close()
    shutil.rmtree(bench.directory(part).path)
    (bench.home / "begun" / part.attempt).write_text("x")
    bench.reports.clear()
    bench.restart()
    bench.order(part)
    gone = await bench.gone(part)
    assert (gone.end, gone.detail) == (End.LOST, runs.SPOILED)
    assert bench.of(part, RunStarted) == []


async def test_a_note_whose_directory_never_got_its_name_is_none(bench: Bench) -> None:
    part = await up(bench, LIVES_ON)
    note = (bench.home / "begun" / part.attempt).read_bytes()
    (bench.home / "begun" / "job-b-a1.stop").touch()
    (bench.home / "begun" / ".making-job-b-a1").write_bytes(note.replace(b"job-a", b"job-b"))
    (bench.home / "begun" / part.attempt).rename(bench.home / "begun" / f".making-{part.attempt}")
    bench.restart()
    assert [run.attempt for run in bench.host._runs.all()] == [part.attempt]
    assert sorted(path.name for path in (bench.home / "begun").iterdir()) == [part.attempt, f"{part.attempt}.stop"]


# the order to stop -----------------------------------------------------------------------------------
async def test_a_job_that_removes_all_that_is_reserved_is_stopped(bench: Bench) -> None:
    # rule: 8.1
    part = await up(bench, "rm -f ../*.reserved; mkdir -p ../preempt/x; " + LIVES_ON)
    await bench.printed(part, "ready")
    bench.order(bench.stop(part))
    gone = await bench.gone(part)
    assert (gone.end, gone.exit_code) == (End.CANCELLED, 143)


# strangers -------------------------------------------------------------------------------------------
@pytest.fixture
def strangers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two sessions that are nobody's of ours; the second one's leader has left it."""
    leads = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={})
    left = subprocess.Popen(["/bin/sh", "-c", "sleep 1000 & echo $!"], start_new_session=True, stdout=subprocess.PIPE)
    yield [leads, left]
    leads.kill()
    leads.wait()
    assert left.stdout is not None
    left.stdout.close()
    left.wait()


@pytest.mark.parametrize("has_left", [False, True], ids=["its leader lives", "its leader has left"])
async def test_a_session_that_has_the_number_of_ours_is_not_killed(
    bench: Bench, strangers: list[subprocess.Popen[bytes]], has_left: bool
) -> None:
    part = await up(bench, LIVES_ON)
    directory = bench.directory(part)
    keeper, leader = keeper_of(directory), directory.leader()
    assert leader is not None
    bench.close()
    for pid in (keeper.pid, leader.pid):
        os.kill(pid, signal.SIGKILL)
    stranger = strangers[has_left]
    pid = stranger.pid
    if has_left:
        assert stranger.stdout is not None
        pid = int(stranger.stdout.readline())
        stranger.wait()
    number = {"pid": stranger.pid, "start": leader.start, "cgroup": ""}
    (directory.path / layout.LEADER).write_text(json.dumps(number))
    bench.restart()
    bench.order(part)
    await bench.gone(part)
    try:
        assert alive(pid), "a stranger was killed"
    finally:
        if has_left:
            os.kill(pid, signal.SIGKILL)


async def test_who_sheds_all_but_the_session_of_a_dead_leader_is_known_by_where_it_works(bench: Bench) -> None:
    part = await up(bench, "env -i sleep 1000 & echo $!; echo ready; wait")
    pid = int((await bench.printed(part, "ready")).split()[0])
    directory = bench.directory(part)
    leader = directory.leader()
    assert leader is not None
    bench.close()
    for one in (keeper_of(directory).pid, leader.pid):
        os.kill(one, signal.SIGKILL)
    await until(lambda: layout.read_stat(leader.pid) is None, "the leader is buried")
    bench.restart()
    bench.order(part)
    await bench.gone(part)
    assert not alive(pid)


async def test_a_run_of_another_cell_here_that_has_the_same_id_is_not_ended_with_ours(
    bench: Bench, tmp_path: Path
) -> None:
    other = Bench(tmp_path / "elsewhere").open()
    try:
        ours, theirs = await up(bench, LIVES_ON), await up(other, LIVES_ON)
        assert ours.attempt == theirs.attempt
        await bench.printed(ours, "ready")
        await other.printed(theirs, "ready")
        shutil.rmtree(bench.directory(ours).path)
        assert (await bench.gone(ours)).end is End.LOST
        other.order(other.stop(theirs))
        assert (await other.gone(theirs)).exit_code == 143, "it was killed before it was told to stop"
    finally:
        other.close()
