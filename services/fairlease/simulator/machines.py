"""What hosts would do: start what is granted, work, save, stop when told, break and come back.

Progress is useful work, start-up not included, and is counted from what the attempt began with. Of a job that is told
to leave one draw decides whether it saves; whatever is not saved is lost, as in life. A gang's parts start together,
so no part says that it is ready; all of them say that they run. A host that breaks takes no new work until its
repair is over: its watchman says so, as a person would, and the parts of what ran there are gone by that fault.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from fairlease.core.host import FAULT
from fairlease.core.job import Attempt, Job
from fairlease.core.world import World
from fairlease.simulator.draws import Stream
from fairlease.simulator.engine import Engine
from fairlease.simulator.rankers.plain import Priority
from fairlease_schemas.commands import CancelJob, CordonHost, ReturnHost
from fairlease_schemas.cycle import EvictionOrdered, GangGranted
from fairlease_schemas.envelope import Record
from fairlease_schemas.host import Inventory
from fairlease_schemas.ids import AccountId, AttemptId, BudgetId, HostId, JobId, job_of
from fairlease_schemas.job import (
    AttemptEnded,
    AttemptEnding,
    End,
    JobCancelled,
    JobFailed,
    JobRefused,
    JobSucceeded,
    JobTimedOut,
)
from fairlease_schemas.reports import CheckpointDone, HostUp, RunGone, RunStarted

WATCHMAN: Final = "watch"


class Work(msgspec.Struct, kw_only=True):
    """What a job has to do. Times in ms of useful work; `left_ms` is what no checkpoint holds yet.

    `checkpoint_ms` 0 is never, `whole_ms` 0 all that is left at first; `priority` is what its owner says of it. At the
    end of its work it leaves with `exit_code`; one that is `cancelled_by` somebody is cancelled by him then, and one
    that `is_squatting` stays until it is told to leave, and is cancelled by its owner then.
    """

    left_ms: int
    startup_ms: int
    checkpoint_ms: int = 0
    saves_permille: int = 0
    is_resumable: bool = True
    exit_code: int = 0
    cancelled_by: AccountId = ""
    priority: Priority = Priority.NORMAL
    whole_ms: int = 0
    is_squatting: bool = False

    def __post_init__(self) -> None:
        self.whole_ms = self.whole_ms or self.left_ms


class Stopping(msgspec.Struct, frozen=True):
    """How long a stop holds the GPUs, and how long saving does before that, in ms."""

    stop_ms: int
    save_ms: int


class _Run(msgspec.Struct):
    """An attempt under way. `began_ms` is when its useful work began, 0 before that."""

    token: str
    hosts: tuple[HostId, ...]
    began_ms: int = 0
    saved_ms: int = 0
    is_stopping: bool = False
    gone: set[HostId] = set()


class SimulationWrong(Exception):
    """The workload asks for what the cell refuses; the text says which job and why."""


class Machines:
    """All hosts of the cell. `on_over` is told of each job that came to an end."""

    def __init__(self, seed: int, stopping: Stopping, on_over: Callable[[JobId], None]) -> None:
        self._seed = seed
        self._stopping = stopping
        self._on_over = on_over
        self._work: dict[JobId, Work] = {}
        self._runs: dict[AttemptId, _Run] = {}
        self._run_of: dict[JobId, _Run] = {}
        self._stops: dict[JobId, Stream] = {}
        self._done_gpu_ms: dict[BudgetId, int] = {}
        self.engine: Engine | None = None
        self.on_done: Callable[[JobId], None] = lambda _job: None
        """Told of each squatter whose work is done."""
        self.on_refused: Callable[[JobRefused], None] = refuse

    @property
    def _engine(self) -> Engine:
        assert self.engine is not None, "machines work once they have an engine"
        return self.engine

    def expect(self, job: JobId, work: Work) -> None:
        """What the job will do once it runs."""
        self._work[job] = work

    def work(self, job: JobId) -> Work:
        """What the job does; KeyError once it is over."""
        return self._work[job]

    def left_ms(self, job: JobId) -> int:
        """What the job has still to do, were it stopped now with all saved."""
        run = self._run_of.get(job)
        done_ms = self._engine.now_ms - run.began_ms if run is not None and run.began_ms else 0
        return self._work[job].left_ms - done_ms

    def saves_now(self, job: JobId) -> None:
        """Its owner has the job save all that it has done, as he may at any time."""
        run, work = self._run_of.get(job), self._work[job]
        if run is not None and run.began_ms and work.is_resumable and not run.is_stopping:
            run.saved_ms = self._engine.now_ms - run.began_ms

    def done_gpu_ms(self) -> dict[BudgetId, int]:
        """Useful work by leaf since the beginning, in GPU-ms: what others would keep, were they stopped with all saved.

        Start-ups, and what was lost and done again, count once or not at all.
        """
        found, jobs = dict(self._done_gpu_ms), self._engine.world.jobs
        for name, work in self._work.items():
            if name in jobs:
                _add(found, jobs[name], work.whole_ms - max(0, self.left_ms(name)))
        return found

    # what the log says -------------------------------------------------------------------------------
    def follow(self, world: World, record: Record) -> None:
        """Do what the record asks of hosts."""
        for event in record.events:
            match event:
                case GangGranted():
                    self._granted(world, event)
                case EvictionOrdered() | AttemptEnding():
                    self._told(world, event.attempt)
                case AttemptEnded():
                    self._runs.pop(event.attempt, None)
                    self._run_of.pop(job_of(event.attempt), None)
                case JobSucceeded() | JobFailed() | JobCancelled() | JobTimedOut():
                    work = self._work.pop(event.job, None)
                    if work is not None:
                        left_ms = 0 if isinstance(event, JobSucceeded) else work.left_ms
                        _add(self._done_gpu_ms, world.jobs[event.job], work.whole_ms - left_ms)
                    self._stops.pop(event.job, None)
                    self._on_over(event.job)
                case JobRefused():
                    self.on_refused(event)
                case _:
                    pass

    def _granted(self, world: World, event: GangGranted) -> None:
        attempt = world.jobs[event.job].attempts[-1]
        run = _Run(token=str(attempt.token), hosts=attempt.hosts)
        self._runs[event.attempt] = self._run_of[event.job] = run
        begins_ms = self._engine.now_ms + self._work[event.job].startup_ms
        self._engine.at(begins_ms, lambda: self._begins(event.job, event.attempt))

    def _begins(self, job: JobId, name: AttemptId) -> None:
        run = self._runs.get(name)
        if run is None or run.is_stopping:
            return
        engine, work = self._engine, self._work[job]
        run.began_ms = engine.now_ms
        for host in run.hosts:
            engine.say(RunStarted(attempt=name, token=run.token), host)
        engine.at(engine.now_ms + work.left_ms, lambda: self._ends(job, name))
        if 0 < work.checkpoint_ms < work.left_ms:
            engine.at(engine.now_ms + work.checkpoint_ms, lambda: self._saves(job, name))

    def _saves(self, job: JobId, name: AttemptId) -> None:
        """The checkpoint of this instant; the next falls a whole interval later, if the work lasts so long."""
        run = self._runs.get(name)
        if run is None or run.is_stopping:
            return
        engine, work = self._engine, self._work[job]
        run.saved_ms = engine.now_ms - run.began_ms
        engine.say(CheckpointDone(attempt=name, token=run.token), run.hosts[0])
        if run.saved_ms + work.checkpoint_ms < work.left_ms:
            engine.at(engine.now_ms + work.checkpoint_ms, lambda: self._saves(job, name))

    def _ends(self, job: JobId, name: AttemptId) -> None:
        run = self._runs.get(name)
        if run is None or run.is_stopping:
            return
        work = self._work[job]
        if work.is_squatting:
            if work.left_ms:
                work.left_ms = run.saved_ms = 0
                self.on_done(job)
            return
        if work.cancelled_by:
            self._engine.say(CancelJob(job=job), work.cancelled_by)
        else:
            self._gone(name, run, End.FAILED if work.exit_code else End.SUCCEEDED, work.exit_code)

    def _gone(self, name: AttemptId, run: _Run, end: End, exit_code: int | None) -> None:
        """Nothing is left of the attempt on the hosts that have not said so yet."""
        run.is_stopping = True
        for host in run.hosts:
            if host not in run.gone:
                run.gone.add(host)
                self._engine.say(RunGone(attempt=name, token=run.token, end=end, exit_code=exit_code), host)

    def _told(self, world: World, name: AttemptId) -> None:
        """The attempt is to leave. One that works and can save it may do so, when it is its owner's wish to go on."""
        run = self._runs.get(name)
        found = world.attempt(name)
        if run is None or run.is_stopping or found is None:
            return
        run.is_stopping = True
        engine, job, attempt = self._engine, found[0].id, found[1]
        work = self._work.get(job)
        is_done = work is not None and work.is_squatting and not work.left_ms
        if is_done and attempt.ending is End.PREEMPTED:
            engine.say(CancelJob(job=job), found[0].account)  # nothing is left that another attempt could do
        done_ms = engine.now_ms - run.began_ms if run.began_ms and not is_done else 0
        if done_ms and self._can_save(job, attempt):
            saved_at_ms = engine.now_ms + self._stopping.save_ms
            engine.at(saved_at_ms, lambda: self._saved_last(name, done_ms))
            engine.at(saved_at_ms + self._stopping.stop_ms, lambda: self._stopped(job, name))
            return
        engine.at(engine.now_ms + self._stopping.stop_ms, lambda: self._stopped(job, name))

    def _can_save(self, job: JobId, attempt: Attempt) -> bool:
        work = self._work.get(job)
        if work is None or not work.is_resumable or attempt.ending is not End.PREEMPTED:
            return False
        if job not in self._stops:
            self._stops[job] = Stream(self._seed, f"stop/{job}")
        return self._stops[job].below(1000) < work.saves_permille

    def _saved_last(self, name: AttemptId, done_ms: int) -> None:
        run = self._runs.get(name)
        if run is not None and not run.gone:
            run.saved_ms = done_ms
            self._engine.say(CheckpointDone(attempt=name, token=run.token), run.hosts[0])

    def _stopped(self, job: JobId, name: AttemptId) -> None:
        run = self._runs.get(name)
        if run is not None:
            self._keep(job, run)
            self._gone(name, run, End.CANCELLED, None)

    def _keep(self, job: JobId, run: _Run) -> None:
        """The job's next attempt begins from what this one has saved."""
        work = self._work.get(job)
        if work is not None and work.is_resumable:
            work.left_ms -= run.saved_ms
        run.saved_ms = 0

    # faults ------------------------------------------------------------------------------------------
    def breaks(self, host: HostId) -> None:
        """The host breaks at this instant; what ran there is gone, and its other parts are told to stop."""
        self._engine.say(CordonHost(host=host, reason=FAULT), WATCHMAN)
        self.strikes(host)

    def strikes(self, host: HostId) -> None:
        """A fault ends what runs on the host at this instant, which takes work as before; other parts are stopped."""
        engine = self._engine
        for name in engine.world.fleet.attempts_on(host):
            run = self._runs.get(name)
            if run is not None and host not in run.gone:
                run.gone.add(host)
                engine.say(RunGone(attempt=name, token=run.token, end=End.FAULT), host)
                self._keep(job_of(name), run)  # also while it was saving itself: what was saved before is no less
                if len(run.gone) == len(run.hosts):
                    run.is_stopping = True

    def repaired(self, host: HostId) -> None:
        """The host takes work again."""
        self._engine.say(ReturnHost(host=host), WATCHMAN)


def _add(found: dict[BudgetId, int], job: Job, done_ms: int) -> None:
    found[job.budget] = found.get(job.budget, 0) + done_ms * job.gpus


def refuse(event: JobRefused) -> None:
    """A workload that a cell refuses is wrong."""
    raise SimulationWrong(
        f"{event.job} of {event.account} was refused: "
        + "; ".join(f"{p.field} {p.value}: {p.limit} (rule {p.rule})" for p in event.problems)
    )


def host_up(name: HostId, pool: str, gpus: int, block: str) -> HostUp:
    """What the agent of a simulated host says when it comes up."""
    inventory = Inventory(
        pool=pool,
        gpus=tuple(f"GPU-{name}-{k}" for k in range(gpus)),
        model="H100",
        memory_mib=81_920,
        cpu_cores=96,
        host_memory_mib=1 << 20,
        block=block,
        is_simulated=True,
    )
    return HostUp(incarnation="boot-1", inventory=inventory)
