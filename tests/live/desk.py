"""A desk at a cell: hands in work as a client would, watches the log, and judges it at the end.

It needs a directory and nothing else, so it works the same for a cell that the test supervises and
for one that `fairlease up` does. Whatever was acknowledged here must be in the log and come to its end.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import nats.errors
from nats.aio.msg import Msg

from fairlease.runtime.connection import Connection
from fairlease_schemas.ids import job_id
from fairlease_schemas.policy import DEFAULT_WINDOW_BOUNDS, Policy, WindowBound
from fairlease_schemas.subjects import Subjects
from tests.live.court import LIMIT_S, Court, eventually
from tests.live.journal import Journal, Stored, api, last_on
from tests.live.oracle import Oracle
from tests.live.patrol import Patrol
from tests.live.witness import as_witness

ACCOUNTS = ("local", "ci")
BUDGETS = ("team-a", "team-b")
QUICK = Policy(
    window_bounds=(WindowBound(up_to_gpus=1 << 30, shortest_ms=1, longest_ms=DEFAULT_WINDOW_BOUNDS[0].longest_ms),),
    retry_backoff_ms=300,
    retry_backoff_cap_ms=500,
    rank_period_ms=2_000,
)
"""Numbers by which a test need not wait for minutes."""

LEASED = msgspec.structs.replace(
    QUICK,
    lease_ms=2_500,
    lease_margin_ms=1_000,
    stop_margin_ms=2_000,
    breaker_permille=1_000,  # half of a small cell is lost at once, and it is no disaster
)
"""The same with leases that a test can lose."""
GRACE_MS = 1_000
"""The greatest grace of these tests' jobs."""
LOSS_S = (LEASED.lease_ms + LEASED.lease_margin_ms + LEASED.stop_margin_ms + GRACE_MS) / 1_000
"""How long after its last renewal a host's GPUs are given away."""


class Job(NamedTuple):
    """A job to hand in, and the terminal event that is expected of it (any, when empty), with its exit code."""

    name: str
    script: str = "exit 0"
    account: str = "local"
    budget: str = "team-a"
    hosts: int = 1
    gpus: int = 1
    min_runtime: str = "1s"
    timeout: str = "1h"
    on_timeout: str = "fail"
    grace: str = "1s"
    uri: str = ""
    max_retries: int = 0
    end: str = "job-succeeded"
    code: int | None = None

    @property
    def id(self) -> str:
        return job_id(self.account, self.budget, self.name)


class Desk:
    """One test's view of the cell in `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.subjects = Subjects("lab")
        self.jobs: dict[str, Job] = {}
        self.journal = Journal(lambda: self.client, self.subjects.log_stream)
        self.court = Court(self)
        self.patrol: Patrol | None = None
        self.forgotten: set[str] = set()
        """Hosts that lost their disk: what their agents had written down is gone."""
        self._client: Connection | None = None

    @property
    def client(self) -> Connection:
        assert self._client is not None, "open comes first"
        return self._client

    @property
    def starts(self) -> Path:
        """Where every job writes a line when its command really begins."""
        return self.home / "starts"

    async def open(self) -> None:
        """Connects to the bus of this directory; the connection outlives restarts of the bus."""
        self._client = await as_witness(self.home, "desk", LIMIT_S)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def furnish(self, policy: Policy = QUICK) -> None:
        """Budgets and quick numbers, in force when this returns."""
        for budget in BUDGETS:
            await self.answered("change-budget", {"budget": budget, "weight": 1})
            await self.answered("change-member", {"budget": budget, "account": "*", "role": "member"})
        await self.answered("change-policy", {"name": "quick", "policy": msgspec.to_builtins(policy)})

    # what is handed in -----------------------------------------------------------------------------
    async def publish(self, subject: str, data: bytes) -> int:
        """Stores a message on a stream, again and again until the bus has acknowledged it; its sequence."""
        while True:
            try:
                reply = await self.client.request(subject, data, timeout=2)
            except (nats.errors.Error, OSError):
                await asyncio.sleep(0.05)
                continue
            answer = json.loads(reply.data)
            if "error" not in answer:
                return int(answer["seq"])
            assert answer["error"].get("code", 0) >= 500, answer
            await asyncio.sleep(0.05)

    async def send(self, verb: str, body: object, account: str = "local") -> int:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.publish(self.subjects.command(account, verb), data)

    async def submit(self, job: Job) -> str:
        """Hands a job in; from the acknowledgement on it is owed an end."""
        await self.send("submit-job", self.body(job), job.account)
        self.jobs[job.id] = job
        return job.id

    def body(self, job: Job) -> dict[str, Any]:
        spec = {
            "budget": job.budget,
            "hosts": job.hosts,
            "gpus_per_host": job.gpus,
            "min_runtime": job.min_runtime,
            "timeout": job.timeout,
            "on_timeout": job.on_timeout,
            "checkpoint": {"grace": job.grace, **({"uri": job.uri} if job.uri else {})},
            "max_retries": job.max_retries,
            "command": ["sh", "-c", f'echo "$FAIRLEASE_ATTEMPT $FAIRLEASE_HOST" >>"$STARTS"; {job.script}'],
            "env": {"STARTS": str(self.starts)},
        }
        return {"request_id": job.name, "contract": {"apiVersion": "fairlease/v1", "kind": "Job", "spec": spec}}

    async def cancel(self, job: str) -> int:
        return await self.send("cancel-job", {"job": job}, self.jobs[job].account)

    async def answer(self, account: str, seq: int) -> dict[str, Any]:
        """The answer in the feed to the command at that place of the account's inbox."""

        async def stored() -> Stored | None:
            return await last_on(self.client, self.subjects.feed_stream, self.subjects.answer(account, seq))

        found = await eventually(stored, f"the answer to {account} {seq}")
        return dict(json.loads(found.data))

    async def answered(self, verb: str, body: object, account: str = "local") -> dict[str, Any]:
        return await self.answer(account, await self.send(verb, body, account))

    # what became of it -----------------------------------------------------------------------------
    async def ask(self, service: str, question: str, body: object = None) -> dict[str, Any]:
        """A service's reply; empty while nobody replies."""
        try:
            reply = await self.client.request(
                self.subjects.ask(service, question), json.dumps(body or {}).encode(), timeout=1
            )
        except (nats.errors.Error, OSError):
            return {}
        return dict(json.loads(reply.data))

    async def ended(self, job: str) -> dict[str, Any]:
        """The explainer's view of a job that is over, once it has read so far: the log may be ahead of it."""

        async def view() -> dict[str, Any] | None:
            told = await self.ask("explainer", "job", {"job": job})
            return told if told.get("end") else None

        return dict(await eventually(view, f"the explainer tells the end of {job}"))

    async def event(self, job: str, *tags: str, count: int = 1) -> dict[str, Any]:
        """The job's `count`-th event with one of these tags, once it is in the log; fails when the job is refused."""

        async def found() -> list[dict[str, Any]]:
            await self.journal.read()
            refused = [] if "job-refused" in tags else self.journal.of_job(job, "job-refused")
            assert not refused, refused
            return self.journal.of_job(job, *tags)[count - 1 : count]

        return (await eventually(found, f"{count} x {' or '.join(tags)} of {job}"))[0]

    async def written(self, service: str, after: int) -> None:
        """Returns once the service wrote a record behind that position."""

        async def found() -> int:
            await self.journal.read()
            return self.journal.written_by(service, after=after)

        await eventually(found, f"a record of {service} after {after}")

    async def over(self, *jobs: str, limit_s: float = LIMIT_S) -> None:
        """Returns once these jobs (all that were acknowledged, when none is named) are over, as expected of them."""
        names = jobs or tuple(self.jobs)

        async def ended() -> bool:
            await self.journal.read()
            return all(name in self.journal.ends for name in names)

        try:
            await eventually(ended, "the ends of all jobs", limit_s)
        except AssertionError as error:
            left = {name: [e["type"] for e in self.journal.of_job(name)] for name in names}
            left = {name: steps for name, steps in left.items() if name not in self.journal.ends}
            raise AssertionError(f"{error}; without an end: {left}") from None
        for name in names:
            self._check_end(self.jobs[name], self.journal.ends[name])

    @staticmethod
    def _check_end(job: Job, end: dict[str, Any]) -> None:
        assert not job.end or end["type"] == job.end, (job, end)
        assert job.code is None or end.get("exit_code") == job.code, (job, end)

    def started(self) -> list[tuple[str, str]]:
        """(attempt, host) of every command that ever began, in order."""
        lines = self.starts.read_text().splitlines() if self.starts.exists() else []
        return [(attempt, host) for attempt, _, host in (line.partition(" ") for line in lines)]

    async def cancel_rest(self) -> None:
        """Cancels what is not over, and waits until all is."""
        await self.journal.read()
        for name in self.jobs:
            if name not in self.journal.ends:
                await self.cancel(name)
        await eventually(self._is_at_rest, "every job is over and nothing is left to write")

    async def _is_at_rest(self) -> bool:
        """Whether every job is over, charged, and holds nothing; fails as soon as the oracle finds something."""
        await self.journal.read()
        assert self.journal.oracle.findings == [], self.journal.oracle.findings
        over = self.journal.ends.keys() >= self.jobs.keys() | self.journal.admitted
        return over and not self.journal.oracle.rest()

    async def judge(self) -> Oracle:
        """Lets everything come to rest; then the log, and all that was made of it, is judged."""
        await self.cancel_rest()
        missing = self.jobs.keys() - self.journal.oracle.jobs.keys()
        assert not missing, f"acknowledged and lost: {missing}"
        await self.court.judge()
        assert self.journal.oracle.rest() == []
        return self.journal.oracle


class Ears:
    """Hears messages as they are stored, and keeps them; `next` waits for one that fits."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[Msg] = asyncio.Queue()

    @classmethod
    async def at(cls, desk: Desk, *subjects: str) -> "Ears":
        ears = cls()

        async def hear(message: Msg) -> None:
            ears._heard.put_nowait(message)

        for subject in subjects:
            await desk.client.subscribe(subject, cb=hear)
        await api(desk.client, "STREAM.NAMES")  # answered behind the subscriptions, however long the bus is away
        return ears

    async def next(self, fits: Callable[[Msg], bool] = lambda _: True, limit_s: float = LIMIT_S) -> Msg:
        async with asyncio.timeout(limit_s):
            while not fits(message := await self._heard.get()):
                pass
        return message
