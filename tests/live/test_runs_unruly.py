"""Jobs that do not behave, on several hosts, evicted and orphaned: nobody is lost, doubled or left behind.

They ignore TERM, fork without end, become daemons or die by a signal of their own (unruly.sh). Beside the
agents' records a patrol looks at every process of every job while all this happens.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import msgspec
import pytest
import pytest_asyncio

from tests.live import process
from tests.live.cell import GPUS, HOSTS, Cell, patrolled_cell
from tests.live.court import eventually
from tests.live.desk import BUDGETS, QUICK, Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNRULY = Path(__file__).with_name("unruly.sh")
NATURES = ("stubborn", "forking", "daemonising")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    policy = msgspec.structs.replace(QUICK, stop_margin_ms=2_000)  # KILL a second after TERM
    async with patrolled_cell(tmp_path_factory.mktemp("unruly") / "cell", policy=policy) as cell:
        yield cell


def unruly(nature: str, *, attempts: int = 1, after: str = "exit 0") -> str:
    """A script that is so in its first attempts, and does something quiet in later ones."""
    read = f'UNRULY={UNRULY}; export UNRULY; . "$UNRULY"'
    return f"{read}; [ $FAIRLEASE_ATTEMPT_NUMBER -gt {attempts} ] || {nature}; {after}"


def _idle(number: int, nature: str, gpus: int, seed: int) -> Job:
    """Idle work that any gang may evict; once evicted it has nothing more to do."""
    return Job(
        f"idle-{seed}-{number}",
        unruly(nature),
        budget=BUDGETS[number % 2],
        gpus=gpus,
        min_runtime="0s",
        grace="500ms" if number % 2 else "0s",
        end="",
    )


def _gang(number: int, seed: int, chance: Random) -> Job:
    """A gang that needs whole hosts, leaves daemons behind when it ends, and sometimes kills itself."""
    is_dying = chance.random() < 0.4
    script = unruly("dying", attempts=9) if is_dying else unruly("daemon", attempts=9, after="sleep 0.6; exit 0")
    return Job(
        f"gang-{seed}-{number}",
        script,
        budget=BUDGETS[number % 2],
        hosts=chance.choice((2, 3, HOSTS)),
        gpus=GPUS,
        max_retries=1 if is_dying else 0,
        end="job-failed" if is_dying else "job-succeeded",
        code=137 if is_dying else None,
    )


async def _evicted_all_over(cell: Cell, seed: int, gangs: int) -> None:
    chance = Random(seed)
    halves = [4, 4] * (HOSTS - 1) + [GPUS]
    idle = [_idle(number, chance.choice(NATURES), gpus, seed) for number, gpus in enumerate(halves)]
    for job in idle:
        await cell.submit(job)
    for job in idle:
        await cell.event(job.id, "attempt-started")
    before = len(cell.journal.events("eviction-ordered"))
    ordered = [_gang(number, seed, chance) for number in range(gangs)]
    for job in ordered:
        await cell.submit(job)
    await cell.over(*(job.id for job in ordered))
    evicted = len(cell.journal.events("eviction-ordered")) - before
    print(f"seed {seed}: {evicted} evictions for {gangs} gangs; the patrol saw {len(cell.patrol.last_ms)} parts")
    assert evicted >= HOSTS - 1
    await cell.cancel_rest()
    await eventually(lambda: process.jobs_of(cell.home) == [], "nothing of any job is left")
    await cell.judge()


@pytest.mark.parametrize("seed", [1, 2])
async def test_unruly_jobs_that_are_evicted_leave_their_gpus_before_anybody_else_has_them(
    cell: Cell, seed: int
) -> None:
    # rule: 8.1
    await _evicted_all_over(cell, seed, 4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 13))
async def test_unruly_jobs_for_longer(cell: Cell, seed: int) -> None:
    await _evicted_all_over(cell, seed, 10)


@pytest.mark.parametrize("kills", [1, 3])
async def test_a_gang_whose_agent_is_killed_is_adopted_over_all_its_hosts_and_nothing_is_lost_or_doubled(
    cell: Cell, kills: int
) -> None:
    gate = cell.home / f"gate-{kills}"
    until_open = f"while [ ! -e {gate} ]; do sleep 0.05; done; exit $FAIRLEASE_RANK"
    gang = Job(f"adopted-{kills}", unruly("daemon", attempts=9, after=until_open), hosts=3, gpus=GPUS, end="job-failed")
    beside = Job(f"beside-{kills}", unruly("forking"), min_runtime="0s", grace="0s", end="job-cancelled")
    for job in (gang, beside):
        await cell.submit(job)
    await cell.event(gang.id, "attempt-started", count=3)
    await cell.event(beside.id, "attempt-started")
    for _ in range(kills):
        (old,) = cell.kill("agent")
        await cell.replaced("agent", old)
    await cell.cancel(beside.id)
    gate.touch()
    await cell.over(gang.id, beside.id)
    assert [attempt for attempt, _ in cell.started()].count(f"{gang.id}-a1") == 3
    assert len(cell.journal.of_job(gang.id, "gang-granted")) == 1
    assert process.jobs_of(cell.home) == []
    await cell.judge()
