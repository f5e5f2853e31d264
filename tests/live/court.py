"""Where a cell is judged: replay, oracle, and everything that was made of the log, each against it.

What was judged once is not read again, so a cell may live through hundreds of tests and be judged
after each. Services may lag behind the log, so projections are waited for; the log itself never is.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import msgspec
from nats.aio.client import Client

from fairlease.agent.host import KEPT_RUNS, OF_BEFORE
from fairlease.core import view
from fairlease.core.order import host_order
from fairlease.replay.verify import Replay
from fairlease_schemas.codec import canonical
from fairlease_schemas.subjects import Subjects
from tests.live.journal import Journal, Tail, api, last_on
from tests.live.oracle import OWNER, Attempt
from tests.live.patrol import Patrol

LIMIT_S = 60.0
"""How long a condition is waited for: the machine may be busy; nothing here measures time."""

_JOBS_ASKED = 100
_RUNS = "agent/*/runs/*/run.json"
_MS = 1_000_000


async def eventually(holds: Callable[[], object], what: str, limit_s: float = LIMIT_S, pause_s: float = 0.02) -> Any:  # noqa: ANN401 - whatever the condition gave
    """The first true answer of a condition, which may be a coroutine; fails when there is none, saying what it was."""
    until_s = asyncio.get_running_loop().time() + limit_s
    while True:
        found: Any = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert asyncio.get_running_loop().time() < until_s, f"not within {limit_s:g} s: {what}"
        await asyncio.sleep(pause_s)


class Witness(Protocol):
    """What the court needs of a desk."""

    home: Path
    subjects: Subjects
    journal: Journal
    patrol: Patrol | None
    forgotten: set[str]

    @property
    def client(self) -> Client: ...
    def started(self) -> list[tuple[str, str]]: ...
    async def ask(self, service: str, question: str, body: object = None) -> dict[str, Any]: ...


class Court:
    """One cell's. `judge` may be called at any rest, any number of times."""

    def __init__(self, desk: Witness) -> None:
        self._desk = desk
        self._replay = Replay()
        self._replayed = 0
        self._tails: dict[str, Tail] = {}

    async def judge(self) -> None:
        await eventually(self.is_everything_answered, "every message has its answer")
        await self.judge_log()
        await eventually(self._is_every_run_gone, "every run that was ever begun is gone from its host")
        self._judge_hosts()
        self._judge_patrol()
        await eventually(self._is_feed_whole, "every answer and step is in the feed, once")

    async def judge_log(self) -> None:
        """The log as it is now: replayed without a difference, and nothing found by the oracle."""
        await eventually(self._are_orders_true, "the orders say what the log says")
        await eventually(self._are_views_true, "the explainer says what the log says")

    async def _read_on(self) -> None:
        """The replay to where the log ends by now: what is under way when a test ends is written a little later."""
        journal = self._desk.journal
        await journal.read()
        assert journal.oracle.findings == [], journal.oracle.findings
        for entry in journal.messages[self._replayed :]:
            difference = self._replay.check(entry.seq, entry.data)
            assert difference is None, difference
            self._replayed = entry.seq

    def _tail(self, stream: str) -> Tail:
        return self._tails.setdefault(stream, Tail(lambda: self._desk.client, stream))

    async def is_everything_answered(self) -> bool:
        """Whether the owners answered every command and report, each once, leaving none out."""
        desk = self._desk
        await desk.journal.read()
        assert desk.journal.oracle.findings == [], desk.journal.oracle.findings
        names = await api(desk.client, "STREAM.NAMES")
        inboxes = [name for name in names["streams"] if name.startswith(desk.subjects.inbox_prefix)]
        for stream in (*inboxes, desk.subjects.reports_stream):
            tail = self._tail(stream)
            await tail.read()
            owed: dict[str, list[int]] = {}
            for message in tail.messages:
                owner = OWNER.get(message.subject.split(".")[4])
                if owner is not None:
                    owed.setdefault(owner, []).append(message.seq)
            if any(desk.journal.oracle.answered.get((owner, stream)) != seqs for owner, seqs in owed.items()):
                return False
        return True

    async def _are_orders_true(self) -> bool:
        await self._read_on()
        desk, world = self._desk, self._replay.world
        for host in world.ordered:
            stored = await last_on(desk.client, desk.subjects.orders_stream, desk.subjects.order(host))
            if stored is None or stored.data != canonical(host_order(world, host)):
                return False
        return True

    async def _are_views_true(self) -> bool:
        """Whether the explainer, from wherever it started, has the fold that a replay from the start has."""
        await self._read_on()
        ask, world = self._desk.ask, self._replay.world
        for name, made in (("shares", view.shares(world)), ("hosts", view.hosts_view(world))):
            if await ask("explainer", name) != _as_json(made):
                return False
        jobs = list(world.jobs.values())[-_JOBS_ASKED:]
        said = await asyncio.gather(*(ask("explainer", "job", {"job": job.id}) for job in jobs))
        return said == [_as_json(view.job_view(world, job)) for job in jobs]

    def _is_every_run_gone(self) -> bool:
        """Ghosts too: runs that were given up for lost, and whose agent has come back."""
        return all((path.parent / "gone.json").exists() for path in self._desk.home.glob(_RUNS))

    def _judge_patrol(self) -> None:
        """By the kernel's word nobody shared a GPU, and nobody lived when the log gave the attempt's GPUs away."""
        patrol, attempts = self._desk.patrol, self._desk.journal.oracle.attempts
        if patrol is None:
            return
        assert patrol.findings == [], patrol.findings
        late = {part: ms - attempts[part[0]].over_ms for part, ms in patrol.last_ms.items()}
        assert all(ms <= 0 for ms in late.values()), f"lived on, ms: { {p: ms for p, ms in late.items() if ms > 0} }"

    def _judge_hosts(self) -> None:
        """What agents wrote down and what really began, against the log; but for what agents may forget."""
        attempts, started = self._desk.journal.oracle.attempts, self._desk.started()
        assert len(started) == len(set(started)), f"began twice: {[s for s in started if started.count(s) > 1]}"
        paths = self._desk.home.glob(_RUNS)
        records = {(path.parent.name, path.parts[-4]): path.parent for path in paths}
        count = Counter(host for _, host in records)
        full = {host for host, runs in count.items() if runs >= KEPT_RUNS} | self._desk.forgotten
        unknown = [(name, host) for name, host in started if host not in full and (name, host) not in records]
        assert not unknown, f"began without a record: {unknown}"
        for (name, host), directory in records.items():
            attempt = attempts[name]
            facts = json.loads((directory / "run.json").read_bytes())
            gone = json.loads((directory / "gone.json").read_bytes())
            assert facts["token"] == f"1-{attempt.token[0]}-{attempt.token[1]}", (name, host)
            logged = attempt.gone[host]
            # Where the disk is another one, an end may have been reported from the one before.
            is_of_before = host in self._desk.forgotten and gone.get("detail") == OF_BEFORE
            if host not in attempt.lost and not is_of_before:
                end = "resume-refused" if gone.get("mismatches") else gone["end"]
                assert (logged["end"], logged.get("exit_code")) == (end, gone.get("exit_code")), (name, host)
            is_noted = host in self._desk.forgotten or (directory / "started.json").exists()
            assert host not in attempt.started or is_noted, (name, host)
        began = {where: directory for where, directory in records.items() if (directory / "leader.json").exists()}
        _judge_times(began, attempts)
        for name, attempt in attempts.items():
            parts = {(name, host) for host in attempt.parts.keys() - full - (attempt.lost - attempt.started)}
            assert attempt.is_stillborn or parts <= records.keys(), name

    async def _is_feed_whole(self) -> bool:
        feed, expected = self._tail(self._desk.subjects.feed_stream), self._desk.journal.oracle.expected_feed
        await feed.read()
        count = Counter(message.headers["ce-id"] for message in feed.messages)
        twice = [name for name, times in count.items() if times > 1]
        assert not twice, f"twice in the feed: {twice}"
        assert count.keys() <= expected, count.keys() - expected
        return count.keys() == expected


def _judge_times(records: dict[tuple[str, str], Path], attempts: dict[str, Attempt]) -> None:
    """By the agents' own records no GPU had two runs at once, and no job two attempts; one clock, so far as it goes.

    And by the log: nothing of an attempt was there before its grant, or after its end. Runs whose end nobody saw
    are left out: when it was written down is no word about when it was.
    """
    on_gpu: dict[str, list[tuple[int, int, str]]] = {}
    of_job: dict[str, dict[int, tuple[int, int]]] = {}
    for (name, host), directory in records.items():
        gone = json.loads((directory / "gone.json").read_bytes())
        if gone["end"] == "lost" or gone.get("detail") == "the machine was restarted":
            continue
        facts, attempt = json.loads((directory / "run.json").read_bytes()), attempts[name]
        began, ended = ((directory / file).stat().st_mtime_ns for file in ("leader.json", "gone.json"))
        assert attempt.granted_ms <= began // _MS, f"{name} began on {host} before it was granted"
        assert ended // _MS <= attempt.over_ms, f"{name} was left on {host} when its GPUs were given away"
        for gpu in facts["gpus"]:
            on_gpu.setdefault(gpu, []).append((began, ended, name))
        numbers, number = of_job.setdefault(facts["job"], {}), int(name.rpartition("-a")[2])
        first, last = numbers.get(number, (began, ended))
        numbers[number] = min(first, began), max(last, ended)
    for gpu, runs in on_gpu.items():
        runs.sort()
        for before, after in pairwise(runs):
            assert before[1] <= after[0], f"{gpu} had {before[2]} and {after[2]} at once"
    for job, numbers in of_job.items():
        for earlier, later in pairwise(sorted(numbers)):
            assert numbers[earlier][1] <= numbers[later][0], f"{job} ran as {earlier} and {later} at once"


def _as_json(value: object) -> dict[str, Any]:
    return dict(json.loads(msgspec.json.encode(value)))
