"""What a trace lacks, added by stated rules: budgets, windows, limits, and a process for each job.

Nothing here is a matter of taste that nobody sees: each rule is a sentence with the number of jobs it
met, and the report carries them all. Time is divided by the speed; what belongs to the machine and not
to the people (starting a process, a bus, a cycle) is not, and the sentences say so too.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from fairlease.core.metrics.waiting import DebugBounds
from fairlease.trace.recorded import Outcome, Recorded, RecordedJob
from fairlease.trace.table import Problem, TraceWrong
from fairlease_schemas.ids import BudgetId, JobId, job_id
from fairlease_schemas.policy import Policy, WindowBound
from fairlease_schemas.units import HOUR_MS, MINUTE_MS, SECOND_MS, format_length

ACCOUNT: Final = "trace"
ROOT_BUDGET: Final = "trace"
WINDOWS: Final = ((8, 15 * MINUTE_MS), (64, 30 * MINUTE_MS), (1 << 30, HOUR_MS))
"""By GPUs up to and including: the window, in time of the trace."""
START_SLACK_MS: Final = 30 * SECOND_MS
"""What a timeout has on top, because starting takes the same time at any speed."""
UNCANCELLED_SLACK_MS: Final = 60 * SECOND_MS
"""How much longer a job that will be cancelled would run, were it not."""
SHORTEST_GRACE_MS: Final = 100
QUIET_PERIOD_MS: Final = 5 * MINUTE_MS
"""While nothing happens: standings move by half a permille of a lookback in it."""
_NOT_A_NAME: Final = re.compile(r"[^a-z0-9]+")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence on how the trace was read, and how many jobs (or rows, or gaps) it met."""

    rule: str
    count: int


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One job as it is submitted. `arrive_ms` and `run_ms` are the cell's time, counted from the first arrival."""

    request_id: str
    budget: BudgetId
    hosts: int
    gpus_per_host: int
    window_ms: int
    timeout_ms: int
    grace_ms: int
    arrive_ms: int
    run_ms: int
    outcome: Outcome

    @property
    def job(self) -> JobId:
        """The id that admission will give it."""
        return job_id(ACCOUNT, self.budget, self.request_id)

    def command(self) -> tuple[str, ...]:
        """A process that does nothing for as long as the job ran, and ends as it did."""
        if self.outcome is Outcome.FAILED:
            return ("/bin/sh", "-c", f"sleep {_seconds(self.run_ms)}; exit 1")
        is_left_to_a_command = self.outcome is Outcome.CANCELLED
        return ("/bin/sleep", _seconds(self.run_ms + is_left_to_a_command * UNCANCELLED_SLACK_MS))

    def contract(self) -> dict[str, Any]:
        """The contract as a person would have written it."""
        return {
            "apiVersion": "fairlease/v1",
            "kind": "Job",
            "metadata": {"name": self.request_id},
            "spec": {
                "budget": self.budget,
                "hosts": self.hosts,
                "gpus_per_host": self.gpus_per_host,
                "min_runtime": format_length(self.window_ms),
                "timeout": format_length(self.timeout_ms),
                "resumable": True,
                "checkpoint": {"grace": format_length(self.grace_ms)},
                "command": list(self.command()),
            },
        }


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A trace made ready for a cell: what to set up, and what to submit when."""

    policy_name: str
    policy: Policy
    budgets: tuple[BudgetId, ...]
    tasks: tuple[Task, ...]
    hosts: int
    gpus_per_host: int
    speed_permille: int
    cut_ms: int | None
    debug: DebugBounds
    rules: tuple[Rule, ...]


class _Scale:
    """Times of the trace as times of the cell, never rounded down to nothing."""

    def __init__(self, speed_permille: int) -> None:
        self.permille = speed_permille

    def length(self, trace_ms: int, least_ms: int = 1) -> int:
        return max(least_ms, trace_ms * 1_000 // self.permille)


def prepare(
    recorded: Recorded, *, hosts: int, gpus_per_host: int, speed: float, cut_s: float | None = None, limit: int = 0
) -> Workload:
    """The first `limit` jobs (0: all) for a cell of `hosts` x `gpus_per_host`, `speed` times as fast as recorded.

    `cut_s` is the longest any job may run, in the cell's time. TraceWrong names each job that is larger
    than the cell.
    """
    jobs = recorded.jobs[:limit] if limit else recorded.jobs
    too_large = [
        Problem(job.line, recorded.gpus_column, str(job.gpus), f"is more GPUs than {hosts} x {gpus_per_host}")
        for job in jobs
        if _gang(job.gpus, gpus_per_host)[0] > hosts
    ]
    if too_large:
        raise TraceWrong(sorted(too_large))
    scale = _Scale(max(1, round(speed * 1_000)))
    cut_ms = None if cut_s is None else max(1, round(cut_s * SECOND_MS))
    budgets = _budgets(jobs)
    tasks = tuple(_task(job, budgets[job.team], gpus_per_host, scale, cut_ms) for job in jobs)
    return Workload(
        policy_name=f"trace-{_NOT_A_NAME.sub('-', f'{speed:.15g}').strip('-')}",
        policy=_policy(scale),
        budgets=tuple(sorted(budgets.values())),
        tasks=tasks,
        hosts=hosts,
        gpus_per_host=gpus_per_host,
        speed_permille=scale.permille,
        cut_ms=cut_ms,
        debug=DebugBounds(
            max_window_ms=scale.length(15 * MINUTE_MS), max_timeout_ms=scale.length(HOUR_MS) + START_SLACK_MS
        ),
        rules=_rules(recorded, jobs, gpus_per_host, scale, cut_ms),
    )


def _gang(gpus: int, gpus_per_host: int) -> tuple[int, int]:
    """(hosts, GPUs on each): whole hosts, rounded up, above one host."""
    return (1, gpus) if gpus <= gpus_per_host else (-(-gpus // gpus_per_host), gpus_per_host)


def _window_ms(gpus: int) -> int:
    return next(window_ms for up_to, window_ms in WINDOWS if gpus <= up_to)


def _task(job: RecordedJob, budget: BudgetId, gpus_per_host: int, scale: _Scale, cut_ms: int | None) -> Task:
    hosts, gpus = _gang(job.gpus, gpus_per_host)
    window_ms = _window_ms(hosts * gpus)
    run_ms = scale.length(job.duration_ms, 0)
    return Task(
        request_id=job.request_id,
        budget=budget,
        hosts=hosts,
        gpus_per_host=gpus,
        window_ms=scale.length(window_ms),
        timeout_ms=scale.length(max(job.limit_ms, window_ms)) + START_SLACK_MS,
        grace_ms=scale.length(30 * SECOND_MS, SHORTEST_GRACE_MS),
        arrive_ms=scale.length(job.arrive_ms, 0),
        run_ms=run_ms if cut_ms is None else min(run_ms, cut_ms),
        outcome=job.outcome,
    )


def _budgets(jobs: Sequence[RecordedJob]) -> dict[str, BudgetId]:
    """A leaf for each team, by name; teams whose names differ in what a name cannot hold get a number."""
    names: dict[str, BudgetId] = {}
    for team in sorted({job.team for job in jobs}):
        plain = _NOT_A_NAME.sub("-", team.lower()).strip("-")[:48] or "unnamed"
        taken, name, number = set(names.values()), f"team-{plain}", 2
        while name in taken:
            name, number = f"team-{plain}-{number}", number + 1
        names[team] = name
    return names


def _policy(scale: _Scale) -> Policy:
    """The default policy with the people's times divided by the speed."""
    default = Policy()
    bounds = tuple(
        WindowBound(
            up_to_gpus=bound.up_to_gpus,
            shortest_ms=scale.length(bound.shortest_ms),
            longest_ms=scale.length(bound.longest_ms),
        )
        for bound in default.window_bounds
    )
    return msgspec.structs.replace(
        default,
        window_bounds=bounds,
        lookback_ms=scale.length(default.lookback_ms),
        entitlement_floor_ms=scale.length(default.entitlement_floor_ms),
        grace_cap_ms=scale.length(default.grace_cap_ms, SHORTEST_GRACE_MS),
        debug_max_window_ms=scale.length(default.debug_max_window_ms),
        debug_max_timeout_ms=scale.length(default.debug_max_timeout_ms),
        non_resumable_cap_ms=scale.length(default.non_resumable_cap_ms),
        quiet_period_ms=scale.length(QUIET_PERIOD_MS),
    )


def _rules(
    recorded: Recorded, jobs: Sequence[RecordedJob], gpus_per_host: int, scale: _Scale, cut_ms: int | None
) -> tuple[Rule, ...]:
    """Every rule that met something, in the order in which they are applied."""
    outcomes = [job.outcome for job in jobs]
    ends = {outcome: outcomes.count(outcome) for outcome in Outcome}
    gangs = [_gang(job.gpus, gpus_per_host) for job in jobs]
    is_grown = [hosts * gpus > job.gpus for (hosts, gpus), job in zip(gangs, jobs, strict=True)]
    is_cut = [cut_ms is not None and scale.length(job.duration_ms, 0) > cut_ms for job in jobs]
    stated = (
        ("rows without a GPU are left out", recorded.left_out),
        ("rows after the limit are not played", len(recorded.jobs) - len(jobs)),
        (f"arrivals and lengths of time are divided by {scale.permille / 1000:g}", len(jobs)),
        (f"jobs that would run longer than {(cut_ms or 0) / 1000:g} s are cut to it", sum(is_cut)),
        (f"teams are leaves of equal weight under the budget {ROOT_BUDGET}", len({job.team for job in jobs})),
        (f"users are not told apart: the account {ACCOUNT} submits for all", len({job.user for job in jobs} - {""})),
        ("jobs above one host are gangs of whole hosts", sum(hosts > 1 for hosts, _ in gangs)),
        ("gangs are rounded up to whole hosts", sum(is_grown)),
        ("windows are 15 min up to 8 GPUs, 30 min up to 64, 1 h above; all jobs are resumable", len(jobs)),
        (
            f"timeouts are the recorded limit, the window at least, and {START_SLACK_MS // SECOND_MS} s undivided",
            len(jobs),
        ),
        ("no outcome is recorded: every job succeeds", 0 if recorded.has_outcomes else len(jobs)),
        ("jobs that failed (their nodes too) leave with 1 after their recorded time", ends[Outcome.FAILED]),
        ("jobs that were cancelled are cancelled by a command after their time of running", ends[Outcome.CANCELLED]),
    )
    return tuple(Rule(rule=rule, count=count) for rule, count in stated if count)


def _seconds(length_ms: int) -> str:
    return f"{length_ms // SECOND_MS}.{length_ms % SECOND_MS:03d}"
