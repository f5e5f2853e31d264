"""A cell for the command line to talk to: a real bus, and an explainer, health and agents that are made up.

It runs in a thread with a loop of its own, so that tests start the command as a process and look on.
What happens to a submitted job is its `life`: steps, each a pause and the state after it.
"""

import asyncio
import hashlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import nats
import pytest
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from fairlease.cli.main import main
from fairlease.runtime import bus_server, streams
from fairlease_schemas.codec import canonical
from fairlease_schemas.explain import AsOf, AttemptView, CommandAnswer, FeedEvent, Health, JobView, Reply, Trouble
from fairlease_schemas.failure import FailureEvidence
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import Advice, Problem
from fairlease_schemas.subjects import Subjects, last_token, token
from tests.house.tree import ROOT

AS_OF = AsOf(epoch=1, position=42, log_time_ms=1_700_000_000_000)
SUBJECTS = Subjects("lab")
ACCOUNTS = ("local", "ci")


class Life(NamedTuple):
    """One step of a job: after `pause_s`, this state; `is_told` says whether the feed carries it."""

    state: str
    end: str = ""
    exit_code: int | None = None
    pause_s: float = 0.05
    is_told: bool = True


class Plan:
    """What the made-up services do; a test sets what it needs."""

    def __init__(self) -> None:
        self.outcome = "accepted"
        self.problems: tuple[Problem, ...] = ()
        self.advice: tuple[Advice, ...] = ()
        self.life: tuple[Life, ...] = ()
        self.is_mute = False
        self.replies: dict[str, Reply] = {}
        self.log: dict[str, str] = {}
        self.health: dict[str, Health] = {}
        self.hosts: tuple[str, ...] = ("host-1",)
        self.mute_agents: set[str] = set()
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.jobs: dict[str, JobView] = {}


class Run(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Cell:
    """The bus and its made-up services, from the outside."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.plan = Plan()
        self._server = bus_server.start(home)
        self.url = self._server.url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._do(self._open())

    def close(self) -> None:
        self._do(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._server.stop()

    def env(self, **more: str) -> dict[str, str]:
        """The environment a command sees: this bus, no account, no colours of ours."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEASE_")}
        paths = f"{ROOT / 'schemas'}{os.pathsep}{ROOT / 'services'}"
        return {**kept, "PYTHONPATH": paths, "FAIRLEASE_HOME": str(self.home), **more}

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """Start `fairlease` as a process of its own: for signals, pipes and restarts."""
        return subprocess.Popen(
            [sys.executable, "-m", "fairlease", *words],
            env=self.env(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **more: str) -> Run:
        """Run `fairlease` with these words to its end, within this process, which saves its start."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for key in [key for key in os.environ if key.startswith("FAIRLEASE_")]:
                patch.delenv(key)
            for key, value in {"FAIRLEASE_HOME": str(self.home), **more}.items():
                patch.setenv(key, value)
            code = main(words)
        return Run(code, out.getvalue(), err.getvalue())

    def keep(self, host: str, found: FailureEvidence, *, digest: str = "") -> str:
        """Stores what is kept of an end, as an agent would; its digest, or the one it is to be found under."""
        body = canonical(found)
        digest = digest or hashlib.sha256(body).hexdigest()
        self._do(self._kept(SUBJECTS.evidence(host, digest), body))
        return digest

    async def _kept(self, subject: str, body: bytes) -> None:
        await self._js.publish(subject, body)

    def restart_bus(self) -> None:
        """Kill the bus and start it again on the same port."""
        self._server.kill()
        self._server = bus_server.start(self.home)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self) -> None:
        self._client = await nats.connect(
            self.url, max_reconnect_attempts=-1, reconnect_time_wait=0.05, error_cb=_quiet
        )
        self._js = self._client.jetstream()
        await streams.declare(self._client, SUBJECTS, ACCOUNTS)
        await self._client.subscribe(SUBJECTS.ask("explainer", "*"), cb=self._on_question)
        await self._client.subscribe(SUBJECTS.ask("*", "logs"), cb=self._on_logs)
        await self._client.subscribe(SUBJECTS.ask("*", "health"), cb=self._on_health)
        for account in ACCOUNTS:
            # A config of its own for each: the client writes the delivery subject into it.
            reading = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW)
            await self._js.subscribe(SUBJECTS.command(account, ">"), config=reading, cb=self._on_command)
        self._tasks: set[asyncio.Task[None]] = set()

    async def _on_command(self, message: Msg) -> None:
        account, verb = token(message.subject, 3), token(message.subject, 4)
        seq = message.metadata.sequence.stream
        body = msgspec.json.decode(message.data)
        self.plan.commands.append((f"{account}/{verb}", body))
        job, state = "", ""
        if verb == "submit-job":
            contract = body["contract"]
            job, state = job_id(account, contract["spec"]["budget"], body["request_id"]), "waiting"
            count = contract["spec"].get("array", {}).get("count", 0)
            budget, stem = contract["spec"]["budget"], body["request_id"]
            for name in [job_id(account, budget, f"{stem}/{index}") for index in range(count)] or [job]:
                if self.plan.outcome != "refused":
                    self.plan.jobs.setdefault(name, job_view(name, account, budget))
                    self._spawn(self._live(name))
        answer = CommandAnswer(
            account=account,
            seq=seq,
            verb=verb,
            outcome=self.plan.outcome,
            job=job,
            state=state,
            problems=self.plan.problems,
            advice=self.plan.advice,
            as_of=AS_OF,
        )
        if not self.plan.is_mute:
            await self._js.publish(SUBJECTS.answer(account, seq), msgspec.json.encode(answer))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _live(self, job: str) -> None:
        for step in self.plan.life:
            await self._advance(job, step)

    def renew(self, host: str) -> None:
        """Renew the lease of a host, as its agent would."""
        self._do(self._renewed(host))

    async def _renewed(self, host: str) -> None:
        await self._js.publish(SUBJECTS.lease(host), b"{}")

    def finish(self, job: str, step: Life) -> None:
        """Take one more step with a job, from a test."""
        self._do(self._advance(job, step))

    async def _advance(self, job: str, step: Life) -> None:
        await asyncio.sleep(step.pause_s)
        view = self.plan.jobs[job]
        attempts = _after(view.attempts, job, step, self.plan.hosts)
        view = msgspec.structs.replace(
            view, state=step.state, end=step.end, exit_code=step.exit_code, attempts=attempts
        )
        self.plan.jobs[job] = view
        if step.is_told:
            event = FeedEvent(
                job=job,
                event="step",
                state=step.state,
                at_ms=1_700_000_000_000,
                attempt=attempts[-1].attempt if attempts else "",
                hosts=attempts[-1].hosts if attempts else (),
                end=step.end,
                exit_code=step.exit_code,
                as_of=AS_OF,
            )
            await self._client.publish(SUBJECTS.feed(view.budget, job, "step"), msgspec.json.encode(event))

    async def _on_health(self, message: Msg) -> None:
        found = self.plan.health.get(token(message.subject, 3))
        await message.respond(msgspec.json.encode(found or Trouble(code="unready", text="no such service here")))

    async def _on_question(self, message: Msg) -> None:
        question = last_token(message.subject)
        if question == "health":
            return
        body = msgspec.json.decode(message.data)
        self.plan.asked.append((question, body))
        reply: Reply | None = self.plan.replies.get(question)
        if question == "job" and reply is None:
            reply = self.plan.jobs.get(body["job"])
        if reply is None:
            job = body.get("job", "")
            reply = Trouble(code="unknown-job", text=f"no job {job} was ever admitted here")
        await message.respond(msgspec.json.encode(reply))

    async def _on_logs(self, message: Msg) -> None:
        host = token(message.subject, 3).removeprefix("agent-")
        if host in self.plan.mute_agents:
            return
        body = msgspec.json.decode(message.data)
        self.plan.asked.append(("logs", {"host": host}))
        text = self.plan.log.get(host)
        if text is None:
            await message.respond(
                msgspec.json.encode({"data": "", "next": 0, "is_end": False, "problem": "no such log"})
            )
            return
        start = body["offset"]
        data = text[start : start + min(body["limit"], 10)]
        is_end = start + len(data) >= len(text)
        await message.respond(
            msgspec.json.encode({"data": data, "next": start + len(data), "is_end": is_end, "problem": ""})
        )


async def _quiet(_: Exception) -> None:
    """The bus is killed on purpose."""


@contextmanager
def cell_at(home: Path) -> Iterator[Cell]:
    """A cell for the time of a `with`."""
    cell = Cell(home)
    try:
        yield cell
    finally:
        cell.close()


def _after(attempts: tuple[AttemptView, ...], job: str, step: Life, hosts: tuple[str, ...]) -> tuple[AttemptView, ...]:
    """The attempts of a job after a step."""
    if step.state in ("granted", "running") and not attempts:
        attempts = (attempt_view(job, hosts),)
    if not attempts:
        return ()
    last = attempts[-1]
    if step.state == "running":
        last = msgspec.structs.replace(last, started_ms=1_700_000_001_000)
    if step.end:
        last = msgspec.structs.replace(last, end=step.end, ended_ms=1_700_000_009_000)
    return (*attempts[:-1], last)


def attempt_view(job: str, hosts: tuple[str, ...]) -> AttemptView:
    return AttemptView(
        attempt=f"{job}-a1",
        number=1,
        pool="h100",
        hosts=hosts,
        gpus=8 * len(hosts),
        granted_ms=1_700_000_000_000,
        started_ms=None,
        ended_ms=None,
        window_ms=900_000,
        end="",
        exit_code=None,
        token="1-40-0",
    )


def job_view(job: str, account: str = "local", budget: str = "team-a", **more: object) -> JobView:
    plain: dict[str, Any] = {
        "job": job,
        "account": account,
        "budget": budget,
        "request_id": "r-1",
        "state": "waiting",
        "end": "",
        "exit_code": None,
        "submitted_ms": 1_700_000_000_000,
        "hosts": 1,
        "gpus_per_host": 8,
        "min_runtime_ms": 900_000,
        "timeout_ms": 3_600_000,
        "lane": "",
        "digest": "d" * 64,
        "attempts": (),
        "as_of": AS_OF,
    }
    return JobView(**{**plain, **more})


def eventually(holds: Callable[[], bool], limit_s: float = 5.0) -> bool:
    """Whether a condition comes true in time."""
    event = threading.Event()
    for _ in range(int(limit_s / 0.02)):
        if holds():
            return True
        event.wait(0.02)
    return holds()
