"""Accounts and users in a whole cell (1.16): whose a job is goes from its submission to its process."""

import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from fairlease.runtime.supervisor import agent_part, service_parts
from tests.live import process
from tests.live.cell import GPUS, SIMULATE, Cell, Up, cell_at
from tests.live.desk import Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

IS_ROOT = os.geteuid() == 0
USER = pwd.getpwnam("nobody") if IS_ROOT else pwd.getpwuid(os.geteuid())
"""Whose a job of the account `local` is: who is not root can give it to nobody else."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that every user may pass through, which those of pytest are not; a map lies there."""
    path = Path(tempfile.mkdtemp(prefix="fairlease-", dir="/tmp"))
    path.chmod(0o711)
    (path / "users").write_text("local nobody\n")
    (path / "users").chmod(0o644)
    yield path
    shutil.rmtree(path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(place: Path) -> AsyncIterator[Cell]:
    agent = agent_part(SIMULATE)
    agent = msgspec.structs.replace(agent, arguments=(*agent.arguments, "--users", str(place / "users")))
    async with cell_at(place / "cell", parts=[*service_parts(), agent]) as cell:
        yield cell


async def printed(cell: Cell, job: str) -> str:
    """What the only part of a job that is over printed."""
    grant = await cell.event(job, "gang-granted")
    question = {"attempt": f"{job}-a1", "offset": 0, "limit": 4096}
    page = await cell.ask(f"agent-{grant['parts'][0]['host']}", "logs", question)
    return str(page["data"])


async def test_a_job_is_its_submitters_user_and_its_output_is_still_read(cell: Cell) -> None:
    # rule: 1.16
    script = f"exec 2>/dev/null; echo $(id -u) $(stat -c %u .); cat {cell.home}/bus.json {cell.home}/bus.conf; true"
    job = await cell.submit(Job("whose", script))
    await cell.over(job)
    lines = (await printed(cell, job)).splitlines()
    assert f"{USER.pw_uid} {USER.pw_uid}" in lines
    assert not IS_ROOT or not [line for line in lines if "{" in line or "port" in line], "nothing of the bus is read"
    await cell.judge()


async def test_a_job_of_an_account_without_a_user_fails_to_start_and_says_which_file(cell: Cell) -> None:
    # rule: 1.16 8.4
    job = await cell.submit(Job("nobodys", account="ci", end="job-failed" if IS_ROOT else "job-succeeded"))
    await cell.over(job)
    (gone,) = cell.journal.of_job(job, "part-gone")
    if IS_ROOT:
        view = await cell.ended(job)
        assert (gone["end"], view["end"]) == ("start-failed", "start-failed")
        told = f"account ci has no user on this host: add a line 'ci USER' to {cell.home.parent / 'users'}"
        assert view["attempts"][0]["detail"] == told
    await cell.judge()


async def test_a_gang_of_a_user_is_stopped_by_a_cancel_whatever_its_processes_do(cell: Cell) -> None:
    # rule: 1.16 1.15
    script = (
        "trap '' TERM; (setsid sh -c \"trap '' TERM; while :; do sleep 0.05; done\" &); while :; do sleep 0.05; done"
    )
    job = await cell.submit(Job("stubborn", script, hosts=2, gpus=GPUS, grace="200ms", end="job-cancelled"))
    await cell.event(job, "attempt-started", count=2)
    await cell.cancel(job)
    await cell.over(job)
    assert process.jobs_of(cell.home) == []
    await cell.judge()


async def test_what_a_cell_that_up_keeps_writes_for_itself_is_closed_to_users_and_the_map_is_remembered(
    place: Path,
) -> None:
    # rule: 1.16
    up = Up(place / "up")
    try:
        await up.start("--users", str(place / "users"))
        await up.furnish()
        for turn in range(2):
            job = await up.submit(Job(f"whose-{turn}", 'test "$(id -u)" = ' + str(USER.pw_uid)))
            await up.over(job)
            theirs = {"agent", "stores", "starts", "up.out", "up.err"}  # of users, and of this test
            found = {path.name: path.stat().st_mode & 0o077 for path in up.home.iterdir() if path.name not in theirs}
            assert found.keys() >= {"bus.json", "bus.conf", "cell.json", "logs"}
            assert not any(found.values()), found
            if turn == 0:
                await up.kill_everything()
                await up.start()
        await up.judge()
    finally:
        await up.close()
        process.kill_all(up.home)
        if up.process is not None:
            up.process.wait(process.LIMIT_S)
