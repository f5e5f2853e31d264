"""Reports that come again, late, in another order, or from a liar: nothing changes but what a host may say of itself.

A parrot beside the agents repeats whatever they report, on the same subjects, with the same message id and
with others, at once and much later; it has the witness's key, since no other could. A liar has the key of one host's
agent, and says with it whatever it likes: of other hosts the bus takes nothing from it.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from fairlease.runtime import keys
from fairlease.runtime.settings import url_in
from fairlease.runtime.supervisor import service_parts
from tests.attacks.bench import Party
from tests.live import process
from tests.live.cell import GPUS, Cell, agent_per_host, patrolled_cell
from tests.live.court import eventually
from tests.live.desk import LEASED, Job
from tests.live.journal import read_stream
from tests.live.test_runs_unruly import unruly
from tests.live.workload import mixed

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNS = ("run-started", "run-gone", "checkpoint-done")
AGENTS = agent_per_host()
LIAR = "host-004"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    home = tmp_path_factory.mktemp("reports") / "cell"
    async with patrolled_cell(home, parts=[*service_parts(), *AGENTS.values()], policy=LEASED) as cell:
        yield cell


@asynccontextmanager
async def _liar(cell: Cell) -> AsyncIterator[Party]:
    """Somebody with the key of the agent of `LIAR`, and no other."""
    party = Party(keys.agent_name(AGENTS[LIAR].name))
    await party.open(url_in(cell.home), cell.home)
    try:
        yield party
    finally:
        await party.client.close()


class Parrot:
    """Keeps every report, and says each again, several times and in any order."""

    def __init__(self, cell: Cell, chance: Random) -> None:
        self.said = 0
        self._cell = cell
        self._chance = chance
        self._kept: list[tuple[str, bytes]] = []

    async def hear(self, message: Msg) -> None:
        if (message.headers or {}).get("Parrot"):
            return
        self._kept.append((message.subject, message.data))
        await self._say(*self._kept[-1])  # at once
        await self._say(*self._chance.choice(self._kept))  # one of before, of a dead attempt perhaps

    async def repeat_all(self) -> None:
        """Everything that was ever reported, in another order."""
        for subject, data in self._chance.sample(self._kept, len(self._kept)):
            await self._say(subject, data)

    async def _say(self, subject: str, data: bytes) -> None:
        """Under the same message id every time, or under a new one."""
        self.said += 1
        name = str(hash(data)) if self._chance.random() < 0.5 else f"parrot-{self.said}"
        await self._cell.client.publish(subject, data, headers={"Parrot": "1", "Nats-Msg-Id": name})


@asynccontextmanager
async def _parrot(cell: Cell, seed: int) -> AsyncIterator[Parrot]:
    parrot = Parrot(cell, Random(seed))
    heard = await cell.client.subscribe(cell.subjects.report("*", "*"), cb=parrot.hear)
    try:
        yield parrot
    finally:
        await heard.unsubscribe()


def _story(cell: Cell, since: int) -> list[str]:
    """What became of jobs and attempts: the events of their lives, in order."""
    tags = ("attempt-started", "part-gone", "attempt-ended", "attempt-charged", "job-requeued", "job-succeeded")
    return [json.dumps(event, sort_keys=True) for event in cell.journal.events(*tags, after=since)]


@pytest.mark.parametrize("seed", [1])
async def test_reports_that_come_twice_late_and_in_any_order_change_nothing(cell: Cell, seed: int) -> None:
    # rule: 7.6 8.2
    since = len(cell.journal.records)
    async with _parrot(cell, seed) as parrot:
        jobs = mixed(Random(seed), 12, f"parrot-{seed}")
        retried = Job(f"retried-{seed}", '[ "$FAIRLEASE_ATTEMPT_NUMBER" = 2 ] || exit 2', max_retries=1)
        idle = Job(f"idle-{seed}", unruly("daemonising"), gpus=GPUS, min_runtime="0s")
        for job in (idle, retried):
            await cell.submit(job)
        await cell.event(idle.id, "attempt-started")
        gang = Job(f"gang-{seed}", "sleep 0.5", hosts=4, gpus=GPUS)
        for job in (gang, *jobs):
            await cell.submit(job)
        await cell.over()
        await cell.journal.read()
        before = _story(cell, since)
        await parrot.repeat_all()
        await eventually(cell.court.is_everything_answered, "all that the parrot said is answered")
        print(f"seed {seed}: the parrot repeated {parrot.said} reports")
        assert parrot.said > 60
    assert _story(cell, since) == before, "a report of something that is over changed something"
    await cell.judge()


def _lies(attempts: dict[str, Any], chance: Random) -> list[tuple[str, bytes]]:
    """What a liar says of others' runs: with their tokens, with guessed ones, with none; and what is no report."""
    said: list[tuple[str, bytes]] = []
    for name, attempt in attempts.items():
        right = f"1-{attempt.token[0]}-{attempt.token[1]}"
        for token in (right, f"1-{chance.randint(1, 99)}-0", "9-9-9", "", "1-1-0' OR 1"):
            body = {"attempt": name, "token": token}
            said += [
                ("run-started", json.dumps(body).encode()),
                ("run-gone", json.dumps({**body, "end": "succeeded", "exit_code": 0}).encode()),
                ("run-gone", json.dumps({**body, "end": "fault"}).encode()),
                ("checkpoint-done", json.dumps({**body, "step": 10**15, "digest": "0" * 64}).encode()),
            ]
    nested = b'{"attempt":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    long = json.dumps({"attempt": "a" * 60_000, "token": "1-1-0", "end": "failed"}).encode()
    said += [
        (kind, data)
        for kind in ("run-started", "run-gone", "checkpoint-done", "host-up", "nonsense")
        for data in (
            b"",
            b"\xff\xfe\x00",
            b"{",
            b"[]",
            b"null",
            b'{"attempt":1e999}',
            nested,
            long,
            b'{"step":-1}',
        )
    ]
    said.append(("run-gone", b'{"attempt":"job-none-a1","token":"1-1-0","end":"eaten"}'))
    chance.shuffle(said)
    return said


async def _is_too_long(cell: Cell, liar: Party) -> bool:
    """Whether the bus keeps nothing of a report that is longer than any agent's."""
    huge = json.dumps({"attempt": "job-a1", "token": "1-1-0", "end": "failed", "detail": "x" * 300_000}).encode()
    return "error" in (await liar.ask(cell.subjects.report(LIAR, "run-gone"), huge) or {})


async def _is_refused(cell: Cell, liar: Party, lies: list[tuple[str, bytes]]) -> bool:
    """Whether the bus takes none of it as another host's word."""
    subjects = [cell.subjects.report(host, kind) for host in AGENTS if host != LIAR for kind in {k for k, _ in lies}]
    for subject in subjects:
        await liar.say(subject, lies[0][1])
    return len(await liar.refusals()) == len(subjects) >= 3 * len(RUNS)


@pytest.mark.parametrize("seed", [1])
async def test_an_agent_that_lies_harms_at_most_the_jobs_of_its_own_host(cell: Cell, seed: int) -> None:
    # rule: 7.6
    gate = cell.home / f"gate-{seed}"
    until_open = f"trap '' TERM; while [ ! -e {gate} ]; do sleep 0.1; done; exit 0"
    honest = [Job(f"honest-{seed}-{number}", until_open, gpus=GPUS, min_runtime="1m") for number in range(4)]
    for job in honest:
        await cell.submit(job)
    for job in honest:
        await cell.event(job.id, "attempt-started")
    oracle = cell.journal.oracle
    live = {name: attempt for name, attempt in oracle.attempts.items() if not attempt.over_at}
    theirs = {name: attempt for name, attempt in oracle.attempts.items() if LIAR not in attempt.parts}
    assert len(live) == 4
    since = len(cell.journal.records)
    last, lies = 0, _lies(theirs, Random(seed))
    async with _liar(cell) as liar:
        assert await _is_refused(cell, liar, lies)
        for kind, data in lies:
            last = (await liar.ask(cell.subjects.report(LIAR, kind), data) or {})["seq"]
        assert await _is_too_long(cell, liar)
    stored = await read_stream(cell.client, cell.subjects.reports_stream)
    assert len(stored) >= last > 300
    print(f"seed {seed}: {len(stored)} reports are stored, the longest has {max(len(m.data) for m in stored)} bytes")

    async def is_answered() -> bool:
        await cell.journal.read()
        answers = [a for record in cell.journal.records for a in record.get("answers", ())]
        return any(a["stream"] == cell.subjects.reports_stream and a["seq"] >= _last(stored) for a in answers)

    await eventually(is_answered, "the last of the lies is answered")
    changed = cell.journal.events("part-gone", "attempt-started", "attempt-ended", "checkpoint-confirmed", after=since)
    assert changed == [], "a lie about another host's run was believed"
    assert {name for name, attempt in oracle.attempts.items() if not attempt.over_at} == live.keys()
    assert len(process.jobs_of(cell.home)) >= 4
    gate.touch()
    await cell.over(*(job.id for job in honest))
    await cell.judge()


async def test_a_host_up_of_an_earlier_life_that_comes_late_is_set_right_by_the_agent_that_lives(cell: Cell) -> None:
    # rule: 7.6
    gate = cell.home / "gate-earlier"
    running = Job("running", f"while [ ! -e {gate} ]; do sleep 0.1; done", hosts=2, gpus=GPUS, min_runtime="1m")
    await cell.submit(running)
    await cell.event(running.id, "attempt-started", count=2)
    host = (await cell.event(running.id, "gang-granted"))["parts"][0]["host"]
    stored = await read_stream(cell.client, cell.subjects.reports_stream)
    said = json.loads(
        next(m.data for m in stored if m.subject == cell.subjects.report(host, "host-up") and b"gpus" in m.data)
    )
    before = len(cell.journal.records)
    await cell.publish(cell.subjects.report(host, "host-up"), json.dumps({**said, "incarnation": "0" * 32}).encode())

    async def registered() -> list[str]:
        await cell.journal.read()
        events = cell.journal.events("host-registered", after=before)
        return [event["incarnation"] for event in events if event["host"] == host][1:]

    assert await eventually(registered, "the host is registered as it is again") == [said["incarnation"]]
    gate.touch()
    after = Job("after-earlier", hosts=4, gpus=GPUS)
    await cell.submit(after)
    await cell.over(running.id, after.id)
    assert len(cell.journal.of_job(running.id, "gang-granted")) == 1
    await cell.judge()


def _last(stored: list[Any]) -> int:
    """The place of the last report whose kind somebody owns."""
    return int(max(message.seq for message in stored if message.subject.rpartition(".")[2] in (*RUNS, "host-up")))
