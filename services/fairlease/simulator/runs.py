"""A whole simulation: a cell is set up, the workload is played, and the figures are taken on the way."""

import gc
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.meter import Meter
from fairlease.core.world import World
from fairlease.figures.report import gpu_hours, report_of
from fairlease.simulator.demand import ClosedLoop, shares
from fairlease.simulator.engine import T0, Engine
from fairlease.simulator.faults import Upkeep
from fairlease.simulator.lab_numbers import lab_numbers_of
from fairlease.simulator.machines import Machines, SimulationWrong, Stopping, Work, host_up
from fairlease.simulator.owners import Owners
from fairlease.simulator.policies import POLICIES
from fairlease.simulator.quantiles import FAULT, exponential
from fairlease.simulator.scenario import Reweighing, Scenario, lab_1024, reweighed, unserviced
from fairlease.simulator.series import Course
from fairlease.simulator.workload_file import scenario_of, tables_of
from fairlease.trace.recorded import Outcome, Recorded, Rule, met
from fairlease.trace.workload import Task, Workload
from fairlease_schemas import codec
from fairlease_schemas.commands import ChangeBudget, ChangeMember, ChangePolicy
from fairlease_schemas.envelope import Record, Submitted
from fairlease_schemas.ids import HostId, JobId
from fairlease_schemas.job import CommandRefused
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import DAY_MS, SECOND_MS, format_length

Data = dict[str, Any]
FOUNDER: Final = "lead"
POOL: Final = "sim"
HOSTS_PER_BLOCK: Final = 16
TRACE_STOPPING: Final = Stopping(stop_ms=5 * SECOND_MS, save_ms=60 * SECOND_MS)
FAILED_CODE: Final = 1
LONGEST_MS: Final = 100 * 366 * DAY_MS
GARBAGE_THRESHOLD: Final = 200_000


class Simulation:
    """One run over a cell of `hosts` x `gpus` in `pool`; `log` takes the records as lines, if there is one."""

    def __init__(self, policy: str, seed: int, stopping: Stopping, period: Period, log: IO[bytes] | None) -> None:
        self.policy, self.seed, self.period = policy, seed, period
        self.meter = Meter(period)
        self.course = Course(self.meter, period)
        self.machines = Machines(seed, stopping, self._is_over)
        self.followers: list[Callable[[World, Record], None]] = [self.course.follow, self.machines.follow]
        self.on_over: Callable[[JobId], None] = lambda _job: None
        seal = None if log is None else _sealed
        keep = len if log is None else log.write
        self._started_s = time.perf_counter()
        self.engine = Engine(POLICIES[policy](self.machines), self._watch, seal, keep)
        self.machines.engine = self.engine

    def _watch(self, world: World, record: Record) -> None:
        self.course.passes(world.log_time_ms)
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
        self.node(ChangeBudget(budget=name, weight=weight, parent=parent))

    def node(self, node: ChangeBudget) -> None:
        """The same, with all that may be said of it."""
        self.engine.say(node, FOUNDER)
        self.engine.say(ChangeMember(budget=node.budget, account="*", role="member"), FOUNDER)
        self.engine.deliver()

    def report(self, digest: str, rules: list[Data]) -> Data:
        """The SimulationReport (docs/outputs.md)."""
        world = self.engine.world
        series = self.course.result(world, self.engine.now_ms)
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
            "series": msgspec.to_builtins(series),
        }


def _sealed(record: Record) -> bytes:
    return codec.sealed(record)[1] + b"\n"


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """A run makes no cycles of objects, and the collector would look through all its jobs again and again."""
    before = gc.get_threshold()
    gc.set_threshold(GARBAGE_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_seldom_collected()
def simulate_lab(
    *,
    policy: str,
    seed: int,
    hosts: int = 0,
    measured_ms: int | None = None,
    warm_up_ms: int | None = None,
    log: IO[bytes] | None = None,
    file: Path | None = None,
    over: Mapping[str, Any] | None = None,
    numbers: Policy | None = None,
    tell: Callable[[int], None] | None = None,
) -> Data:
    """lab-1024, or the workload of a file, on so many hosts (0: the file's) and times.

    It is run by these `numbers`, or by those that are chosen for a cell of that size.
    `over` is what is different from that workload, in the form of its file.
    `tell` is told with every record how much of the time is over, in permille. SimulationWrong if a job is refused;
    WorkloadWrong, with every problem found, for a file that is no workload; OSError when it cannot be read.
    """
    scenario, digest = scenario_of(file, over)
    quantiles = tables_of(scenario)
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
    run.engine.say(ChangePolicy(name=policy, policy=numbers or lab_numbers_of(policy, count)), FOUNDER)
    _founded(run, scenario)
    upkeep = Upkeep(run.engine, run.machines, cluster, names, seed, quantiles[FAULT])
    run.followers.append(upkeep.follow)
    demand = ClosedLoop(run.engine, run.machines, scenario, count * cluster.gpus_per_host, seed, quantiles)
    run.on_over = demand.over
    if scenario.game:
        run.followers.append(demand.follow)
    if scenario.change:
        run.followers.append(_refuse_refusals)
    rules += _reweighed_later(run, demand, scenario)
    before: Data = {}
    run.engine.at(period.since_ms, lambda: before.update(run.machines.done_gpu_ms()))
    if tell is not None:
        run.followers.append(lambda world, _record: tell((world.log_time_ms - T0) * 1000 // (period.until_ms - T0)))
    demand.begin()
    run.engine.run(period.until_ms)
    done = run.machines.done_gpu_ms()
    useful = {name: gpu_hours(done.get(name, 0) - before.get(name, 0)) for name in shares(scenario)}
    return {**run.report(digest, rules), "useful_gpu_h": useful}


def _reweighed_later(run: Simulation, demand: ClosedLoop, scenario: Scenario) -> list[Data]:
    """Other weights on the days that the workload says, of those that are played; and the rule that tells of them."""
    parents = {project: name for name, org in scenario.budgets.items() for project in org.projects}
    changes = sorted(scenario.change, key=lambda one: one.at_day)
    made = [one for one in changes if T0 + _day_ms(one) < run.period.until_ms]
    now = scenario
    for change in made:
        now = reweighed(now, change)
        node = ChangeBudget(budget=change.budget, weight=change.weight, parent=parents.get(change.budget, ""))

        def happen(node: ChangeBudget = node, now: Scenario = now) -> None:
            run.engine.say(node, FOUNDER)
            demand.reweighed(now)

        run.engine.at(T0 + _day_ms(change), happen)
    rules = (("a budget has another weight in mid-run, and its people want as much more or less", len(made)),)
    beyond = (("a change of a weight falls behind the end, and is not made", len(changes) - len(made)),)
    games = (("a project's people do not play fair, as the workload says", len(scenario.game)),)
    return [msgspec.to_builtins(rule) for rule in met((*rules, *beyond, *games))]


def _day_ms(change: Reweighing) -> int:
    return round(change.at_day * DAY_MS)


def _founded(run: Simulation, scenario: Scenario) -> None:
    for name, org in scenario.budgets.items():
        run.budget(name, org.weight)
        for project, weight in org.projects.items():
            run.budget(project, weight, name)


@_seldom_collected()
def simulate_trace(
    recorded: Recorded,
    workload: Workload,
    *,
    policy: str,
    seed: int,
    log: IO[bytes] | None = None,
    mtbf_days: int = 0,
    startup_ms: int = 0,
) -> Data:
    """A recorded workload from its first arrival to its last end; what the trace lacks is in the report's rules.

    Hosts break once in `mtbf_days` each in the mean, 0 for never, and are repaired as those of lab-1024 are. Each
    attempt takes `startup_ms` from its grant to its work.
    """
    run, owners = play_trace(workload, policy=policy, seed=seed, log=log, mtbf_days=mtbf_days, startup_ms=startup_ms)
    rules = (*workload.rules, *_trace_rules(workload, mtbf_days, startup_ms, owners.released))
    return run.report(recorded.sha256, [msgspec.to_builtins(rule) for rule in rules])


def play_trace(
    workload: Workload,
    *,
    policy: str,
    seed: int,
    log: IO[bytes] | None = None,
    mtbf_days: int = 0,
    startup_ms: int = 0,
) -> tuple[Simulation, Owners]:
    """The same, as the run that it was, and its people.

    SimulationWrong for a job that is refused, and for a policy or a budget of a log that is.
    """
    # A period counts what happens after its first instant, and the first arrival is at 0.
    run = Simulation(policy, seed, TRACE_STOPPING, Period(T0 - 1, T0 + LONGEST_MS), log)
    run.followers.append(_refuse_refusals)
    names = run.hosts(workload.hosts, workload.gpus_per_host, POOL, HOSTS_PER_BLOCK)
    run.engine.say(ChangePolicy(name=workload.policy_name, policy=workload.policy), FOUNDER)
    for node in workload.budgets:
        run.node(node)
    owners = Owners(run.engine)
    run.followers.append(owners.follow)
    if mtbf_days:
        cluster = lab_1024().cluster
        upkeep = Upkeep(run.engine, run.machines, unserviced(cluster), names, seed, exponential(mtbf_days * DAY_MS))
        run.followers.append(upkeep.follow)
    for task in workload.tasks:
        run.engine.at(T0 + task.arrive_ms, lambda task=task: _submit(run, task, startup_ms))  # type: ignore[misc]  # bound now
    left = len(workload.tasks)

    def over(_job: JobId) -> None:
        nonlocal left
        left -= 1

    run.on_over = over
    while left:
        run.engine.step()
    return run, owners


def _refuse_refusals(_world: World, record: Record) -> None:
    """A cell that was not set up as it should be would answer another question."""
    for event in record.events:
        if isinstance(event, CommandRefused) and event.account == FOUNDER:
            told = "; ".join(f"{one.field} {one.value}: {one.limit} (rule {one.rule})" for one in event.problems)
            raise SimulationWrong(f"{event.verb} is refused, so the cell cannot be set up as was asked: {told}")


def _trace_rules(workload: Workload, mtbf_days: int, startup_ms: int, released: int) -> tuple[Rule, ...]:
    starting = format_length(startup_ms) if startup_ms else "no time"
    repair = f"each host breaks once in {mtbf_days} days in the mean, drawn by the seed, and is back as in lab-1024"
    return met(
        (
            (
                f"starting takes {starting}; who is told to leave and can be resumed saves all its work",
                len(workload.tasks),
            ),
            (repair, workload.hosts * (mtbf_days > 0)),
            ("a job that faults brought to a hold is released by its owner an hour later", released),
        )
    )


def _submit(run: Simulation, task: Task, startup_ms: int) -> None:
    asked = task.request
    is_endless = task.outcome is Outcome.TIMED_OUT
    work = Work(
        left_ms=task.endless_ms if is_endless else task.run_ms,
        startup_ms=startup_ms,
        checkpoint_ms=asked.checkpoint_interval_ms,
        saves_permille=1000,
        is_resumable=asked.is_resumable,
        exit_code=FAILED_CODE if task.outcome is Outcome.FAILED else 0,
        cancelled_by=task.account if task.outcome is Outcome.CANCELLED else "",
    )
    run.machines.expect(task.job, work)
    said = Submitted(budget=task.budget, request_id=task.request_id, digest=f"{0:064x}", request=asked)
    run.engine.say(said, task.account)
