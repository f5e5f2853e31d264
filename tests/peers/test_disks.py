"""A disk that fills up and one that is broken: admission closes before the bus stalls, nothing acknowledged is lost.

The bus's store is a small file system of its own; EIO is what strace makes of its writes. Both need root.
"""

import asyncio
import errno
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from fairlease.cli.exits import LATER
from fairlease.runtime.room import ALARM_PERMILLE, CLOSED_PERMILLE
from tests.live.cell import Up, up_at
from tests.live.court import eventually
from tests.live.desk import Job
from tests.live.test_disk import CLOSES_S, REQUESTS, WORDS, bus_pid, health, is_closed

SIZE_MIB = 64
MIB = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A directory for a cell, the store of its bus on a file system of 64 MiB."""
    home = tmp_path / "cell"
    store = home / "jetstream"
    store.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(store)], check=True)
    yield home
    subprocess.run(["umount", "--lazy", str(store)], check=True)


@asynccontextmanager
async def running(home: Path, name: str) -> AsyncIterator[tuple[Up, str]]:
    """A cell, and a job in it that nothing may touch until the end."""
    async with up_at(home) as up:
        job = await up.submit(Job(name, "exec sleep 600", end="job-cancelled"))
        await up.event(job, "attempt-started")
        yield up, job
        assert not up.journal.of_job(job, "attempt-ending", "attempt-ended")
        await up.cancel(job)
        await up.judge()


def fill(home: Path, permille: int) -> None:
    """Something else takes so much of the disk that this part of it is used; it never gives back."""
    seen = os.statvfs(home / "jetstream")
    more = (seen.f_blocks * permille // 1_000 - (seen.f_blocks - seen.f_bfree)) * seen.f_frsize
    with (home / "jetstream" / "ballast").open("ab", buffering=0) as ballast:
        try:
            ballast.write(bytes(max(0, more)))
        except OSError as error:  # the bus took the last of it between the look and this
            if error.errno != errno.ENOSPC:
                raise


def empty(home: Path) -> None:
    (home / "jetstream" / "ballast").unlink()


async def test_admission_closes_before_the_disk_is_full_and_opens_when_there_is_room(home: Path) -> None:
    async with running(home, "runs-on") as (up, _):
        fill(home, ALARM_PERMILLE + 5)
        said = up.home / "logs" / "admission-a.log"
        await eventually(lambda: "disk is filling up" in said.read_text(), "the alarm")
        assert not await is_closed(up)
        ends = await up.submit(Job("ends", f'while [ ! -e "{home}/go" ]; do sleep 0.05; done'))
        await up.event(ends, "attempt-started")
        fill(home, CLOSED_PERMILLE + 5)
        await eventually(lambda: is_closed(up), "admission is closed", limit_s=CLOSES_S)
        code, _, errors = await up.run(*WORDS, *REQUESTS)
        assert code == LATER, errors
        assert "% of the bus's disk is used" in errors
        # Whoever does not ask first is answered all the same.
        answer = await up.answered("submit-job", up.body(Job("late")))
        assert (answer["outcome"], answer["problems"][0]["field"]) == ("refused", "admission")
        assert (await up.answered("submit-job", up.body(up.jobs[ends])))["outcome"] == "repeated"
        (home / "go").touch()
        await up.over(ends)
        empty(home)
        await eventually(lambda: _is_open(up), "admission is open", limit_s=CLOSES_S)
        late = await up.submit(Job("late"))
        await up.over(late)


async def test_a_bus_whose_disk_was_full_is_started_again_when_there_is_room(home: Path) -> None:
    async with running(home, "through-it") as (up, _):
        old = bus_pid(up)
        fill(home, 1_000)
        await eventually(lambda: is_closed(up), "admission is closed", limit_s=CLOSES_S)
        await _write_until_it_stalls(up)
        said = up.home / "up.err"
        await eventually(lambda: "bus's disk is full: make room" in said.read_text(), "it is told")
        assert bus_pid(up) == old
        empty(home)
        await eventually(lambda: bus_pid(up) != old, "the bus is started again")
        await eventually(lambda: _is_open(up), "admission is open")
        job = await up.submit(Job("after-it"))
        await up.over(job)


async def _write_until_it_stalls(up: Up) -> None:
    """Commands of another account until the bus confirms none, each of which would be in the log too."""
    body = up.body(Job("too-much", "x" * 30_000, account="ci"))
    publishing = asyncio.create_task(up.send("submit-job", body, "ci"))
    try:
        for _ in range(200):
            await asyncio.wait_for(asyncio.shield(publishing), 1.5)
            publishing = asyncio.create_task(up.send("submit-job", body, "ci"))
    except TimeoutError:
        return
    finally:
        publishing.cancel()


async def _is_open(up: Up) -> bool:
    """Whether admission says so; a bus that is away says nothing."""
    return (await health(up)).get("closed") == ""


@contextmanager
def broken_writes(up: Up) -> Iterator[None]:
    """Every write to the newest file of the log fails with EIO."""
    files = (up.home / "jetstream").glob(f"**/{up.subjects.log_stream}/msgs/*.blk")
    newest = max(files, key=lambda path: int(path.stem))
    words = ["strace", "-f", "-qq", "-p", str(bus_pid(up)), "-P", str(newest)]
    words += ["-e", "trace=write,pwrite64", "-e", "inject=write,pwrite64:error=EIO", "-o", str(up.home / "strace")]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as strace:
        _await_attached(bus_pid(up), strace.pid)
        yield
        strace.terminate()


def _await_attached(pid: int, tracer: int) -> None:
    """Returns once every thread of the process is traced."""
    until_s = time.monotonic() + 10
    while True:
        states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
        if all(f"TracerPid:\t{tracer}\n" in state for state in states):
            return
        assert time.monotonic() < until_s, "strace does not attach"
        time.sleep(0.01)


async def test_a_log_on_a_broken_disk_closes_admission_and_loses_nothing(home: Path) -> None:
    async with running(home, "beside-it") as (up, _):
        await eventually(up.court.is_everything_answered, "the log is at rest")
        old = bus_pid(up)
        with broken_writes(up):
            job = await up.submit(Job("meets-it"))
            await eventually(lambda: is_closed(up), "admission is closed", limit_s=CLOSES_S)
            await eventually(lambda: bus_pid(up) != old, "the bus is started again")
        assert "EIO" in (up.home / "strace").read_text()
        await up.over(job)
