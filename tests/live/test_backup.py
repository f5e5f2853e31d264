"""A cell is backed up in the middle of its work, its machine burns, and another one takes the backup up.

What was acknowledged before the backup began is there, record by record. What ran begins again, once; what waited
runs; and whoever asks again for what came later, under the same request id, is served.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.live import process
from tests.live.cell import GPUS, HOSTS, Up
from tests.live.court import eventually
from tests.live.desk import Job
from tests.live.workload import mixed


class Burning(Up):
    """A cell whose jobs say elsewhere that they began: its own directory will be lost."""

    @property
    def starts(self) -> Path:
        return self.home.parent / "starts"

    def burn(self) -> None:
        """Everything of it is gone at once: processes, jobs, disk. What the next life begins is told apart."""
        process.kill_all(self.home)
        if self.process is not None:
            self.process.wait()
            self.process = None
        shutil.rmtree(self.home)
        self.starts.rename(self.starts.with_name("starts-lost"))


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[Burning]:
    up = Burning(tmp_path / "cell")
    try:
        await up.start()
        await up.furnish()
        yield up
    finally:
        await up.close()
        process.kill_all(up.home)


async def _hand_in(up: Up, jobs: list[Job], is_enough: asyncio.Event) -> None:
    for job in jobs:
        if not is_enough.is_set():
            await up.submit(job)


async def _backed_up_under_load(up: Burning, seed: int, *more: str) -> tuple[dict[str, object], list[Job], set[str]]:
    """The backup's own words, all jobs that were meant to be handed in, and those acknowledged before it began."""
    jobs = mixed(Random(seed), 400, f"load-{seed}", longest_s=0.3)
    is_enough, before = asyncio.Event(), await up.journal.read()
    handing_in = asyncio.create_task(_hand_in(up, jobs, is_enough))

    async def is_busy() -> bool:
        return await up.journal.read() > before + 20

    await eventually(is_busy, "the cell is at work")
    acknowledged = set(up.jobs)
    code, out, said = await up.run("backup", str(up.home.parent / "cell.backup"), "-o", "json", *more)
    is_enough.set()
    await handing_in
    assert code == 0, said
    assert set(up.jobs) > acknowledged, "nothing was handed in meanwhile: the backup was made at rest"
    return json.loads(out), jobs[: len(up.jobs)], acknowledged


async def _begun_again(up: Up, gang: Job) -> None:
    """Returns once it runs on every host again. An operator releases it where faults of three hosts held it (7.7)."""
    released = 0

    async def runs() -> bool:
        nonlocal released
        await up.journal.read()
        if len(up.journal.of_job(gang.id, "job-held")) > released:
            code, _, said = await up.run("job", "release", gang.id)
            assert code == 0, said
            released += 1
        return len(up.journal.of_job(gang.id, "attempt-started")) == 2 * gang.hosts

    await eventually(runs, f"{gang.id} runs again")


@pytest.mark.long
@pytest.mark.parametrize("keys", [(), ("--with-keys",)], ids=["other keys", "the same keys"])
@pytest.mark.parametrize("seed", [1])
async def test_a_cell_that_was_backed_up_at_work_goes_on_from_there_on_another_disk(
    up: Burning, seed: int, keys: tuple[str, ...]
) -> None:
    gate = up.home.parent / "gate"
    until_open = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    running = Job("running", until_open, hosts=HOSTS - 1, gpus=GPUS)
    waiting = Job("waiting", until_open, hosts=HOSTS - 1, gpus=GPUS, min_runtime="0s")
    for job in (running, waiting):
        await up.submit(job)
    await up.event(running.id, "attempt-started", count=running.hosts)
    made, _, acknowledged = await _backed_up_under_load(up, seed, *keys)
    await up.event(running.id, "attempt-started", count=running.hosts)  # the cell itself went on
    await up.journal.read()
    lost_log = [message.data for message in up.journal.messages]
    await up.close()
    up.burn()

    again = Burning(up.home)
    code, _, said = await again.run("restore", str(up.home.parent / "cell.backup"))
    assert code == 0, said
    again.jobs = {name: up.jobs[name] for name in acknowledged}
    again.forgotten = {f"host-{number:03d}" for number in range(1, HOSTS + 1)}
    try:
        await again.start()
        await _begun_again(again, running)
        restored = [message.data for message in again.journal.messages][: made["log_position"]]
        assert restored == lost_log[: made["log_position"]]
        assert len(again.journal.of_job(running.id, "job-requeued")) == 1
        for job in up.jobs.values():  # who heard nothing of a job asks again
            await again.submit(job)
        gate.touch()
        await again.over(limit_s=240)
        await again.judge()
        assert [attempt for attempt, _ in again.started() if attempt.startswith(running.id)] == [
            f"{running.id}-a2"
        ] * running.hosts
        code, out, said = await again.run("replay", "--live")
        assert code == 0, out + said
    finally:
        await again.close()
        process.kill_all(again.home)
        if again.process is not None:
            await again.wait_left()
