"""Plays a workload through a whole cell of its own: a bus, seven services, an agent, real processes.

Everything the player knows it reads in the log, as any service does, and all it does is send commands.
So whatever is killed meanwhile, it waits and goes on; each command may be sent twice without harm, the
submissions because their request ids are the rows of the trace. Its clock runs with the cell, and
jumps to the next arrival when nothing runs or waits: those hours would show nothing.
"""

import asyncio
import contextlib
import heapq
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import nats.errors

from fairlease.core.job import Phase
from fairlease.core.state import IDLE
from fairlease.core.world import World
from fairlease.runtime import keys
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.errors import ShellError
from fairlease.runtime.follower import Entry, Follower
from fairlease.runtime.settings import Settings
from fairlease.runtime.supervisor import Supervisor, agent_part, service_parts
from fairlease.runtime.tasks import end, heed_cancellation
from fairlease.trace.recorded import Outcome
from fairlease.trace.wishes import ACCOUNT
from fairlease.trace.workload import Task, Workload
from fairlease_schemas.codec import read_record
from fairlease_schemas.commands import CancelJob, ChangePolicy
from fairlease_schemas.ids import JobId, job_of
from fairlease_schemas.job import AttemptStarted, CommandRefused, JobRefused, Problem

log = logging.getLogger("fairlease.trace")

CELL: Final = "trace"
LOG_FILE: Final = "log.jsonl"
SETUP_LIMIT_S: Final = 30.0
PATIENCE_S: Final = 60.0
"""How long nothing may happen, beyond the longest job, before what is not over is given up for lost."""
_TICK_S: Final = 0.1
_SEND_S: Final = 2.0
_LEAVE_LIMIT_S: Final = 5.0


class PlayFailed(ShellError):
    """The cell could not be set up, or does not take what the player sends."""


class Progress(msgspec.Struct, frozen=True):
    """How far the play is. `cell` is handed along so that a test may do things to it."""

    total: int
    submitted: int
    waiting: int
    live: int
    over: int
    cell: Supervisor


OnProgress = Callable[[Progress], Awaitable[None]]


class Result(msgspec.Struct, frozen=True):
    """What was played. `world` is the fold of the whole log, which stands in `log`, a record a line."""

    world: World
    log: Path
    refused: dict[JobId, tuple[Problem, ...]]
    lost: tuple[JobId, ...]
    gaps: int
    skipped_trace_ms: int
    wall_s: float


class Book:
    """The log as the player folds it, and a copy of it on disk."""

    def __init__(self, copy: IO[bytes], mine: frozenset[JobId]) -> None:
        self.world = World()
        self.refused: dict[JobId, tuple[Problem, ...]] = {}
        self.over: set[JobId] = set()
        self.started: list[JobId] = []
        self.refusals: list[CommandRefused] = []
        self.news = asyncio.Event()
        self._copy = copy
        self._mine = mine

    async def fold(self, batch: list[Entry]) -> None:
        """Fold a batch of the log; wakes whoever waits for `news`."""
        for position, _, _, data in batch:
            record = read_record(data)
            self.world.apply(record, position)
            self._copy.write(data + b"\n")
            for event in record.events:
                if isinstance(event, AttemptStarted):
                    self._note_start(job_of(event.attempt))
                elif isinstance(event, CommandRefused):
                    self.refusals.append(event)
                elif isinstance(event, JobRefused) and event.job not in self.world.jobs:
                    self.refused[event.job] = event.problems
                elif hasattr(event, "job"):
                    self._note_end(event.job)
        self._copy.flush()
        self.news.set()

    @property
    def settled(self) -> int:
        """How many of mine are over or were refused: nothing more will come of them."""
        return len(self.over) + len(self.refused)

    def is_settled(self) -> bool:
        """Whether all of mine are over, charged, and no cycle is open."""
        return self.settled == len(self._mine) and not self.world.uncharged and self.world.cycle.stage == IDLE

    def _note_start(self, name: JobId) -> None:
        job = self.world.jobs.get(name)
        if name in self._mine and job is not None and job.phase is Phase.RUNNING:
            self.started.append(name)

    def _note_end(self, name: JobId) -> None:
        job = self.world.jobs.get(name)
        if name in self._mine and job is not None and job.is_terminal:
            self.over.add(name)


async def play(
    workload: Workload, home: Path, *, on_progress: OnProgress | None = None, patience_s: float = PATIENCE_S
) -> Result:
    """Play it in a cell whose state is kept in `home`, until every job is over; the cell has ended then.

    Raises PlayFailed, or what the cell's start raises (BusAway, ConfigWrong), or LogDamaged. Jobs that
    came to no end while nothing happened for `patience_s` beyond the longest of them are `lost`.
    """
    settings = Settings(state_dir=home, cell=CELL, accounts=(ACCOUNT,))
    simulated = agent_part(f"{workload.hosts}x{workload.gpus_per_host}")
    cell = Supervisor(settings, [*service_parts(), simulated])
    try:
        await cell.start()
        await cell.wait_ready(hosts=workload.hosts)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(_connected(cell, keys.client_name(ACCOUNT)))
            reader = await stack.enter_async_context(_connected(cell, keys.AUDIT))
            copy = stack.enter_context((home / LOG_FILE).open("wb"))
            return await _followed(workload, cell, (client, reader), copy, on_progress, patience_s)
    finally:
        await cell.stop()


@asynccontextmanager
async def _connected(cell: Supervisor, identity: str) -> AsyncIterator[Connection]:
    key = keys.find(cell.settings, identity)
    client = await connect(cell.reach, f"fairlease-trace-{identity}", key=key, exit_on_close=False)
    try:
        yield client
    finally:
        await client.close()


async def _followed(
    workload: Workload,
    cell: Supervisor,
    links: tuple[Connection, Connection],
    copy: IO[bytes],
    on_progress: OnProgress | None,
    patience_s: float,
) -> Result:
    """The play itself by the first link, with the follower on the second: whichever fails first fails both."""
    client, reader = links
    book = Book(copy, frozenset(task.job for task in workload.tasks))
    follower = Follower(reader, cell.settings.subjects, book.fold)
    reader.guard.on_reconnect(follower.renew)
    following = asyncio.create_task(follower.run(), name="trace-follow")
    player = _Player(workload, cell, client, book, on_progress, patience_s)
    playing = asyncio.create_task(player.run())
    try:
        await asyncio.wait((following, playing), return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            await following
        return await playing
    except BaseException:
        await end((playing,))
        await player.leave_nothing_running()
        raise
    finally:
        await end((playing, following))


class _Player:
    """Who submits, cancels and waits. Instants are of the monotonic clock; arrivals count from `_origin_s`."""

    def __init__(
        self,
        workload: Workload,
        cell: Supervisor,
        client: Connection,
        book: Book,
        on_progress: OnProgress | None,
        patience_s: float,
    ) -> None:
        self._workload = workload
        self._cell = cell
        self._client = client
        self._book = book
        self._on_progress = on_progress
        longest_ms = max((task.endless_ms for task in workload.tasks), default=0)
        self._patience_s = patience_s + longest_ms / 1_000
        self._by_job = {task.job: task for task in workload.tasks}
        self._submitted = 0
        self._to_cancel: list[tuple[float, JobId]] = []
        self._origin_s = 0.0
        self._gaps = 0
        self._skipped_s = 0.0
        self._last_position = 0
        self._last_news_s = 0.0

    async def run(self) -> Result:
        await self._set_up()
        started_s = self._origin_s = self._last_news_s = time.monotonic()
        while not self._is_done():
            self._book.news.clear()
            await self._submit_due()
            await self._cancel_due()
            self._skip_gap()
            await self._tell()
            await self._wait()
            heed_cancellation()
        await self._tell()
        mine = [task.job for task in self._workload.tasks]
        return Result(
            world=self._book.world,
            log=self._cell.settings.state_dir / LOG_FILE,
            refused=self._book.refused,
            lost=tuple(job for job in mine if job not in self._book.over and job not in self._book.refused),
            gaps=self._gaps,
            skipped_trace_ms=round(self._skipped_s * self._workload.speed_permille),
            wall_s=time.monotonic() - started_s,
        )

    async def _set_up(self) -> None:
        """The policy and the budgets, in force when this returns."""
        workload = self._workload
        await self._send(
            "change-policy",
            ChangePolicy(name=workload.policy_name, policy=workload.policy, reason="times divided by the speed"),
        )
        for node in workload.budgets:
            await self._send("change-budget", node)
        until_s = time.monotonic() + SETUP_LIMIT_S
        while not self._is_set_up():
            if self._book.refusals:
                refusal = self._book.refusals[0]
                raise PlayFailed(f"{refusal.verb} was refused: {msgspec.json.encode(refusal.problems).decode()}")
            if time.monotonic() > until_s:
                raise PlayFailed(f"policy and budgets are not in force after {SETUP_LIMIT_S:g} s")
            await self._wait()
            self._book.news.clear()

    def _is_set_up(self) -> bool:
        world, workload = self._book.world, self._workload
        return world.policy_name == workload.policy_name and all(
            node.budget in world.tree.nodes for node in workload.budgets
        )

    def _is_done(self) -> bool:
        if self._submitted < len(self._workload.tasks):
            return False
        if self._book.is_settled():
            return True
        now_s, position = time.monotonic(), self._book.world.position
        if position != self._last_position or self._to_cancel:
            self._last_position, self._last_news_s = position, now_s
        return now_s - self._last_news_s > self._patience_s

    # what is sent ----------------------------------------------------------------------------------
    async def _submit_due(self) -> None:
        """Everything that has arrived by now, in the order of the trace."""
        tasks = self._workload.tasks
        while self._submitted < len(tasks):
            task = tasks[self._submitted]
            if self._due_s(task) > time.monotonic():
                return
            await self._send("submit-job", {"request_id": task.request_id, "contract": task.contract()})
            self._submitted += 1

    async def _cancel_due(self) -> None:
        """Cancel what has run for its time, and note what began to run and will be cancelled."""
        now_s = time.monotonic()
        while self._book.started:
            job = self._book.started.pop()
            task = self._by_job[job]
            if task.outcome is Outcome.CANCELLED:
                heapq.heappush(self._to_cancel, (now_s + task.run_ms / 1_000, job))
        while self._to_cancel and self._to_cancel[0][0] <= time.monotonic():
            _, job = heapq.heappop(self._to_cancel)
            if job not in self._book.over:
                await self._send("cancel-job", CancelJob(job=job))

    async def _send(self, verb: str, body: msgspec.Struct | dict[str, Any]) -> None:
        """Store a command in the inbox, however long the bus is away. PlayFailed when the bus says no."""
        plain = msgspec.to_builtins(body)
        plain.pop("type", None)  # the subject says it
        subject = self._cell.settings.subjects.command(ACCOUNT, verb)
        while True:
            try:
                reply = await self._client.request(subject, msgspec.json.encode(plain), timeout=_SEND_S)
            except (nats.errors.Error, OSError) as error:
                log.info("%s: %s, sending it again", verb, type(error).__name__)
                await asyncio.sleep(_TICK_S)
                continue
            refusal = json.loads(reply.data).get("error")
            if refusal is None:
                return
            if int(refusal.get("code", 0)) < 500:
                raise PlayFailed(f"the inbox does not take {verb}: {refusal.get('description')}")
            await asyncio.sleep(_TICK_S)

    # time ------------------------------------------------------------------------------------------
    def _due_s(self, task: Task) -> float:
        return self._origin_s + task.arrive_ms / 1_000

    def _skip_gap(self) -> None:
        """Bring the next arrival here when nothing of mine runs or waits."""
        tasks, book = self._workload.tasks, self._book
        is_quiet = book.settled == self._submitted
        if self._submitted == len(tasks) or not is_quiet:
            return
        gap_s = self._due_s(tasks[self._submitted]) - time.monotonic()
        if gap_s > 0:
            self._origin_s -= gap_s
            self._skipped_s += gap_s
            self._gaps += 1

    async def _wait(self) -> None:
        """Until something was folded or is due, a tick at most."""
        wait_s = _TICK_S
        if 0 < self._submitted < len(self._workload.tasks):
            wait_s = min(wait_s, self._due_s(self._workload.tasks[self._submitted]) - time.monotonic())
        if self._to_cancel:
            wait_s = min(wait_s, self._to_cancel[0][0] - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(wait_s, 0.0)):
                await self._book.news.wait()

    async def _tell(self) -> None:
        if self._on_progress is None:
            return
        book = self._book
        live = len(book.world.live)
        over = book.settled
        waiting = max(0, self._submitted - over - live)
        await self._on_progress(Progress(len(self._workload.tasks), self._submitted, waiting, live, over, self._cell))

    async def leave_nothing_running(self) -> None:
        """A play that was broken off cancels what it began, as far as that goes in a few seconds."""
        with contextlib.suppress(TimeoutError, PlayFailed):
            async with asyncio.timeout(_LEAVE_LIMIT_S):
                for task in self._workload.tasks[: self._submitted]:
                    if task.job not in self._book.over and task.job not in self._book.refused:
                        await self._send("cancel-job", CancelJob(job=task.job))
                while self._book.world.live or self._book.settled < self._submitted:
                    self._book.news.clear()
                    await self._book.news.wait()
