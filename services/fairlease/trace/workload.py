"""A trace made ready for a cell, live or simulated: who submits what and when, and what each job then does.

Time is divided by the speed; what belongs to the machine and not to the people (starting a process, a bus, a cycle) is
not, and the sentences say so too. What is added to a trace is in stated.py; of a log nothing has to be added.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from fairlease.core.metrics.waiting import DebugBounds
from fairlease.trace import stated
from fairlease.trace.cells import Problem, TraceWrong
from fairlease.trace.recorded import Outcome, Recorded, RecordedJob, Rule, from_zero
from fairlease.trace.rules import rules_of
from fairlease.trace.stated import SHORTEST_GRACE_MS, Scale
from fairlease.trace.wishes import ACCOUNT, START_SLACK_MS, Change, Wishes
from fairlease_schemas.commands import ChangeBudget
from fairlease_schemas.ids import AccountId, BudgetId, JobId, job_id
from fairlease_schemas.job import Request
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, format_length, parse_length_ms

ENDLESS_SLACK_MS: Final = 60 * SECOND_MS
"""How much longer a job would run that is ended by a command or by its timeout, were it not."""
LONGEST_MS: Final = 3_660 * DAY_MS
"""How long after the first arrival the last may be: a simulation's figures reach no further than ten times as far."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One job as it is submitted. `arrive_ms` and `run_ms` are the cell's time, counted from the first arrival."""

    request_id: str
    budget: BudgetId
    request: Request
    arrive_ms: int
    run_ms: int
    outcome: Outcome
    account: AccountId = ACCOUNT

    @property
    def job(self) -> JobId:
        """The id that admission will give it."""
        return job_id(self.account, self.budget, self.request_id)

    @property
    def endless_ms(self) -> int:
        """How long it would run if nobody ended it."""
        if self.outcome is Outcome.TIMED_OUT:
            return self.request.timeout_ms + ENDLESS_SLACK_MS
        return self.run_ms + ENDLESS_SLACK_MS * (self.outcome is Outcome.CANCELLED)

    def command(self) -> tuple[str, ...]:
        """A process that does nothing for as long as the job ran, and ends as it did."""
        if self.outcome is Outcome.FAILED:
            return ("/bin/sh", "-c", f"sleep {_seconds(self.run_ms)}; exit 1")
        return ("/bin/sleep", _seconds(self.endless_ms))

    def contract(self) -> dict[str, Any]:
        """The contract as a person would have written it."""
        asked = self.request
        lane = {"lane": asked.lane} if asked.lane else {}
        return {
            "apiVersion": "fairlease/v1",
            "kind": "Job",
            "metadata": {"name": self.request_id},
            "spec": {
                "budget": self.budget,
                "hosts": asked.hosts,
                "gpus_per_host": asked.gpus_per_host,
                "min_runtime": format_length(asked.min_runtime_ms),
                "timeout": format_length(asked.timeout_ms),
                "resumable": asked.is_resumable,
                "checkpoint": {"grace": format_length(asked.grace_ms)},
                "command": list(self.command()),
                **lane,
            },
        }


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A trace made ready for a cell: what to set up, parents before their children, and what to submit when."""

    policy_name: str
    policy: Policy
    budgets: tuple[ChangeBudget, ...]
    tasks: tuple[Task, ...]
    hosts: int
    gpus_per_host: int
    speed_permille: int
    cut_ms: int | None
    debug: DebugBounds
    rules: tuple[Rule, ...]


def prepare(
    recorded: Recorded,
    *,
    hosts: int,
    gpus_per_host: int,
    speed: float = 1.0,
    cut_s: float | None = None,
    limit: int = 0,
    wishes: Wishes = Wishes(),  # noqa: B008 - it is frozen
) -> Workload:
    """The first `limit` jobs (0: all) for a cell of `hosts` x `gpus_per_host`, `speed` times as fast as recorded.

    `cut_s` is the longest any job may run, in the cell's time. TraceWrong names each job that is larger than the cell
    (one that never starts would hold a strict queue for ever), and a `begin` that no job comes after.
    """
    begun = _begun(recorded, wishes.begin)
    jobs = begun[:limit] if limit else begun
    _check_size(recorded, jobs, hosts, gpus_per_host)
    scale = Scale(max(1, round(speed * 1_000)))
    cut_ms = None if cut_s is None else max(1, round(cut_s * SECOND_MS))
    is_log = recorded.format == "log"
    all_teams = {job.team for job in jobs}
    teams = {team: team for team in all_teams} if is_log else stated.names("team", all_teams, "unnamed")
    users = _accounts(jobs, wishes, is_log=is_log)
    _check_length(recorded, jobs[-1], wishes)
    change = Change(gpus_per_host, scale, cut_ms, wishes, teams, users)
    base = recorded.policy[1] if recorded.policy else Policy(quiet_period_ms=stated.QUIET_PERIOD_MS)
    return Workload(
        policy_name=f"trace-{stated.plain(f'{speed:.15g}')}",
        policy=stated.policy(base, scale),
        budgets=_own_tree(recorded) if is_log else stated.leaves(jobs, teams, wishes.weights),
        tasks=tuple(_task(job, change) for job in jobs),
        hosts=hosts,
        gpus_per_host=gpus_per_host,
        speed_permille=scale.permille,
        cut_ms=cut_ms,
        debug=DebugBounds(
            max_window_ms=scale.length(15 * MINUTE_MS), max_timeout_ms=scale.length(HOUR_MS) + START_SLACK_MS
        ),
        rules=(*recorded.rules, *rules_of(recorded, begun, jobs, change)),
    )


def _begun(recorded: Recorded, begin: str) -> tuple[RecordedJob, ...]:
    """The jobs that arrive from then on, counted from the first of them."""
    if not begin:
        return recorded.jobs
    try:
        from_ms = parse_length_ms(begin)
    except ValueError:
        from_ms = _instant_ms(begin) - _zero_ms(recorded, begin)
    kept = [job for job in recorded.jobs if job.arrive_ms >= from_ms]
    if not kept:
        last = recorded.jobs[-1]
        text = (
            f"is the last arrival, {format_length(last.arrive_ms)} after the first: begin earlier than {begin[:40]!r}"
        )
        raise TraceWrong(recorded.file, [Problem(last.row, "", "", text)])
    return from_zero(kept, kept[0].arrive_ms)


def _instant_ms(text: str) -> int:
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * SECOND_MS)


def _zero_ms(recorded: Recorded, begin: str) -> int:
    if recorded.zero_ms is None:
        first = recorded.jobs[0]
        text = (
            f"begins a trace without dates, so it has no {begin[:40]!r}: write a length after its first arrival, as 2d"
        )
        raise TraceWrong(recorded.file, [Problem(first.row, "", "", text)])
    return recorded.zero_ms


def _check_size(recorded: Recorded, jobs: Sequence[RecordedJob], hosts: int, gpus_per_host: int) -> None:
    way_out = "name a larger cluster, or leave the row out"
    too_large = [
        Problem(job.row, recorded.gpus_column, str(job.gpus), f"does not fit on {hosts} x {gpus_per_host}: {way_out}")
        for job in jobs
        if _shape(job, gpus_per_host)[0] > hosts or _shape(job, gpus_per_host)[1] > gpus_per_host
    ]
    if too_large:
        raise TraceWrong(recorded.file, too_large)


def _check_length(recorded: Recorded, last: RecordedJob, wishes: Wishes) -> None:
    if last.arrive_ms > LONGEST_MS * wishes.load:
        text = f"arrives more than {LONGEST_MS // DAY_MS} days after the first: raise --load, or cut with --limit"
        raise TraceWrong(recorded.file, [Problem(last.row, "", "", text)])


def _shape(job: RecordedJob, gpus_per_host: int) -> tuple[int, int]:
    if job.asked is not None:
        return job.asked.hosts, job.asked.gpus_per_host
    return stated.gang(job.gpus, gpus_per_host)


def _accounts(jobs: Sequence[RecordedJob], wishes: Wishes, *, is_log: bool) -> dict[str, AccountId]:
    """Who submits for each user: one account for all of them, unless they are told apart."""
    users = {job.user for job in jobs}
    if not wishes.is_apart:
        return dict.fromkeys(users, ACCOUNT)
    if is_log:
        return {user: user for user in users}
    return stated.names("user", users - {""}, "unnamed") | {"": ACCOUNT}


def _own_tree(recorded: Recorded) -> tuple[ChangeBudget, ...]:
    """The tree of a log as commands that make it."""
    return tuple(
        ChangeBudget(
            budget=node.budget,
            weight=node.weight,
            parent=node.parent,
            order=node.order,
            max_protected_permille=node.max_protected_permille,
            burst_permille=node.burst_permille,
        )
        for node in recorded.budgets
    )


def _task(job: RecordedJob, change: Change) -> Task:
    scale = change.scale
    run_ms = scale.length(max(1, change.wishes.stretched(job.duration_ms)))
    asked = job.asked
    return Task(
        request_id=job.request_id,
        budget=change.teams[job.team],
        account=change.users[job.user],
        request=_request(job, change) if asked is None else _own_request(asked, change),
        arrive_ms=scale.length(int(job.arrive_ms / change.wishes.load), 0),
        run_ms=run_ms if change.cut_ms is None else min(run_ms, change.cut_ms),
        outcome=job.outcome,
    )


def _request(job: RecordedJob, change: Change) -> Request:
    scale = change.scale
    hosts, gpus = stated.gang(job.gpus, change.gpus_per_host)
    window_ms = stated.window_ms(hosts * gpus)
    limit_ms = change.wishes.stretched(max(job.limit_ms, job.duration_ms))
    return Request(
        hosts=hosts,
        gpus_per_host=gpus,
        pools=(),
        min_runtime_ms=scale.length(window_ms),
        timeout_ms=scale.length(max(limit_ms, window_ms)) + START_SLACK_MS,
        grace_ms=scale.length(30 * SECOND_MS, SHORTEST_GRACE_MS),
        is_resumable=True,
        checkpoint_interval_ms=_interval_ms(change.wishes.checkpoint_ms, scale),
    )


def _own_request(asked: Request, change: Change) -> Request:
    """What the log says was asked for, as far as a cell of one pool can give it."""
    scale = change.scale
    slack_ms = START_SLACK_MS if scale.permille != 1_000 else 0
    return Request(
        hosts=asked.hosts,
        gpus_per_host=asked.gpus_per_host,
        pools=(),
        min_runtime_ms=scale.length(asked.min_runtime_ms) if asked.min_runtime_ms else 0,
        timeout_ms=scale.length(change.wishes.stretched(asked.timeout_ms)) + slack_ms,
        grace_ms=scale.length(asked.grace_ms, SHORTEST_GRACE_MS),
        is_resumable=asked.is_resumable,
        lane=asked.lane,
        checkpoint_interval_ms=_interval_ms(asked.checkpoint_interval_ms, scale),
    )


def _interval_ms(trace_ms: int, scale: Scale) -> int:
    return scale.length(trace_ms) if trace_ms else 0


def _seconds(length_ms: int) -> str:
    return f"{length_ms // SECOND_MS}.{length_ms % SECOND_MS:03d}"
