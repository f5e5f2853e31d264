"""A whole simulation: a cell is set up, the workload is played, and the figures are taken on the way."""

import resource
import sys
import time
from collections.abc import Callable
from typing import IO, Any, Final

import msgspec

from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.meter import Meter
from fairlease.core.world import World
from fairlease.figures.report import report_of
from fairlease.simulator.demand import ClosedLoop
from fairlease.simulator.draws import tables
from fairlease.simulator.engine import T0, Engine
from fairlease.simulator.faults import Upkeep
from fairlease.simulator.machines import Machines, Stopping, Work, host_up
from fairlease.simulator.policies import POLICIES
from fairlease.simulator.quantiles import FAULT
from fairlease.simulator.scenario import Scenario, lab_1024, workload_digest
from fairlease.trace.recorded import Recorded
from fairlease.trace.workload import ACCOUNT, QUIET_PERIOD_MS, ROOT_BUDGET, Task, Workload
from fairlease_schemas import codec
from fairlease_schemas.commands import ChangeBudget, ChangeMember, ChangePolicy
from fairlease_schemas.envelope import Record, Submitted
from fairlease_schemas.ids import HostId, JobId
from fairlease_schemas.job import Request
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import DAY_MS, SECOND_MS

Data = dict[str, Any]
FOUNDER: Final = "lead"
POOL: Final = "sim"
HOSTS_PER_BLOCK: Final = 16
TRACE_STOPPING: Final = Stopping(stop_ms=5 * SECOND_MS, save_ms=60 * SECOND_MS)
TRACE_RULE: Final = "whoever is told to leave saves itself and loses nothing; starting takes no time"
LONGEST_MS: Final = 100 * 366 * DAY_MS


class Simulation:
    """One run over a cell of `hosts` x `gpus` in `pool`; `log` takes the records as lines, if there is one."""

    def __init__(self, policy: str, seed: int, stopping: Stopping, period: Period, log: IO[bytes] | None) -> None:
        self.policy, self.seed, self.period = policy, seed, period
        self.meter = Meter(period)
        self.machines = Machines(seed, stopping, self._is_over)
        self.followers: list[Callable[[World, Record], None]] = [self.machines.follow]
        self.on_over: Callable[[JobId], None] = lambda _job: None
        seal = None if log is None else _sealed
        keep = len if log is None else log.write
        self._started_s = time.perf_counter()
        self.engine = Engine(POLICIES[policy](self.machines), self._watch, seal, keep)
        self.machines.engine = self.engine

    def _watch(self, world: World, record: Record) -> None:
        self.meter.take(world, record)
        for follow in self.followers:
            follow(world, record)

    def _is_over(self, job: JobId) -> None:
        self.on_over(job)

    def hosts(self, count: int, gpus: int, pool: str, block: int) -> list[HostId]:
        """Bring up so many hosts; their ids in order."""
        names = [f"host-{number:04d}" for number in range(1, count + 1)]
        for number, name in enumerate(names):
            self.engine.say(host_up(name, pool, gpus, f"block-{number // block:03d}"), name)
        self.engine.deliver()
        return names

    def budget(self, name: str, weight: int, parent: str = "") -> None:
        """A budget that everybody may submit to."""
        self.engine.say(ChangeBudget(budget=name, weight=weight, parent=parent), FOUNDER)
        self.engine.say(ChangeMember(budget=name, account="*", role="member"), FOUNDER)
        self.engine.deliver()

    def report(self, digest: str, rules: list[Data]) -> Data:
        """The SimulationReport (docs/outputs.md)."""
        world = self.engine.world
        found = report_of(self.meter.report(world))
        wall_s = time.perf_counter() - self._started_s
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
        return {
            "apiVersion": "fairlease/v1",
            "kind": "SimulationReport",
            "policy": self.policy,
            "seed": self.seed,
            **found,
            "workload_digest": digest,
            "digest": world.digest(),
            "speed": {
                "wall_s": round(wall_s, 3),
                "jobs_per_s": round(len(world.jobs) / wall_s, 1),
                "decisions_per_s": round(world.position / wall_s, 1),
                "peak_rss_mib": round(peak, 1),
            },
            "rules": rules,
        }


def _sealed(record: Record) -> bytes:
    return codec.sealed(record)[1] + b"\n"


def simulate_lab(
    *,
    policy: str,
    seed: int,
    hosts: int = 0,
    measured_ms: int | None = None,
    warm_up_ms: int | None = None,
    log: IO[bytes] | None = None,
) -> Data:
    """lab-1024, on so many hosts (0: the file's) and times. SimulationWrong if a job is refused."""
    scenario = lab_1024()
    cluster, rules = scenario.cluster, []
    count = hosts or cluster.hosts
    if warm_up_ms is None:
        warm_up_ms = scenario.time.warm_up_days * DAY_MS
    if measured_ms is None:
        measured_ms = scenario.time.measured_days * DAY_MS
    if count != cluster.hosts:
        rules.append({"rule": "demand and gang caps follow the hosts that there are", "count": count})
    period = Period(T0 + warm_up_ms, T0 + warm_up_ms + measured_ms)
    stop = scenario.stop
    stopping = Stopping(stop_ms=stop.stop_s * SECOND_MS, save_ms=stop.save_on_notice_s * SECOND_MS)
    run = Simulation(policy, seed, stopping, period, log)
    names = run.hosts(count, cluster.gpus_per_host, cluster.pool, cluster.hosts_per_block)
    run.engine.say(ChangePolicy(name=policy, policy=Policy(quiet_period_ms=QUIET_PERIOD_MS)), FOUNDER)
    _founded(run, scenario)
    shipped = tables()
    upkeep = Upkeep(run.engine, run.machines, cluster, names, seed, shipped[FAULT])
    run.followers.append(upkeep.follow)
    demand = ClosedLoop(run.engine, run.machines, scenario, count * cluster.gpus_per_host, seed, shipped)
    run.on_over = demand.over
    demand.begin()
    run.engine.run(period.until_ms)
    return run.report(workload_digest(), rules)


def _founded(run: Simulation, scenario: Scenario) -> None:
    for name, org in scenario.budgets.items():
        run.budget(name, org.weight)
        for project, weight in org.projects.items():
            run.budget(project, weight, name)


def simulate_trace(
    recorded: Recorded, workload: Workload, *, policy: str, seed: int, log: IO[bytes] | None = None
) -> Data:
    """A recorded workload from its first arrival to its last end; what the trace lacks is in the report's rules."""
    # A period counts what happens after its first instant, and the first arrival is at 0.
    run = Simulation(policy, seed, TRACE_STOPPING, Period(T0 - 1, T0 + LONGEST_MS), log)
    run.hosts(workload.hosts, workload.gpus_per_host, POOL, HOSTS_PER_BLOCK)
    run.engine.say(ChangePolicy(name=workload.policy_name, policy=workload.policy), FOUNDER)
    run.budget(ROOT_BUDGET, 1)
    for name in workload.budgets:
        run.budget(name, 1, ROOT_BUDGET)
    for task in workload.tasks:
        run.engine.at(T0 + task.arrive_ms, lambda task=task: _submit(run, task))  # type: ignore[misc]  # bound now
    left = len(workload.tasks)

    def over(_job: JobId) -> None:
        nonlocal left
        left -= 1

    run.on_over = over
    while left:
        run.engine.step()
    added = {"rule": TRACE_RULE, "count": len(workload.tasks)}
    return run.report(recorded.sha256, [*(msgspec.to_builtins(rule) for rule in workload.rules), added])


def _submit(run: Simulation, task: Task) -> None:
    work = Work(
        left_ms=task.run_ms,
        startup_ms=0,
        saves_permille=1000,
    )
    run.machines.expect(task.job, work)
    request = Request(
        hosts=task.hosts,
        gpus_per_host=task.gpus_per_host,
        pools=(),
        min_runtime_ms=task.window_ms,
        timeout_ms=task.timeout_ms,
        grace_ms=task.grace_ms,
        is_resumable=True,
    )
    said = Submitted(budget=task.budget, request_id=task.request_id, digest=f"{0:064x}", request=request)
    run.engine.say(said, ACCOUNT)
