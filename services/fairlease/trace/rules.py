"""What became of a trace on its way to a cell: a sentence and a count for each rule that met anything."""

from collections.abc import Sequence
from fractions import Fraction

from fairlease.trace import stated
from fairlease.trace.recorded import Outcome, Recorded, RecordedJob, Rule, met
from fairlease.trace.stated import EQUAL
from fairlease.trace.wishes import ACCOUNT, START_SLACK_MS, Change, Wishes
from fairlease_schemas.job import Request
from fairlease_schemas.units import SECOND_MS, format_length


def rules_of(
    recorded: Recorded, begun: Sequence[RecordedJob], jobs: Sequence[RecordedJob], change: Change
) -> tuple[Rule, ...]:
    """Every rule that met something, in the order in which they are applied.

    `begun` are the jobs from the beginning that was asked for on, `jobs` those of them that are played.
    """
    scale, wishes = change.scale, change.wishes
    outcomes = [job.outcome for job in jobs]
    ends = {outcome: outcomes.count(outcome) for outcome in Outcome}
    is_cut = [
        change.cut_ms is not None and scale.length(wishes.stretched(job.duration_ms), 0) > change.cut_ms for job in jobs
    ]
    all_jobs = len(jobs)
    return met(
        (
            ("jobs before the beginning are left out", len(recorded.jobs) - len(begun)),
            ("rows after the limit are not played", len(begun) - len(jobs)),
            (f"runtimes and limits are multiplied by {_told(wishes.runtime)}", all_jobs * (wishes.runtime != 1)),
            (f"gaps between arrivals are divided by {_told(wishes.load)}", all_jobs * (wishes.load != 1)),
            (
                f"arrivals and lengths of time are divided by {scale.permille / 1000:g}",
                all_jobs * (scale.permille != 1000),
            ),
            (f"jobs that would run longer than {(change.cut_ms or 0) / 1000:g} s are cut to it", sum(is_cut)),
            ("jobs of no length run for one millisecond", sum(job.duration_ms == 0 for job in jobs)),
            *_users_rules(jobs, wishes),
            *(_own_rules(recorded, jobs) if recorded.format == "log" else _stated_rules(jobs, change)),
            ("no outcome is recorded: every job succeeds", 0 if recorded.has_outcomes else all_jobs),
            ("jobs that failed (their nodes too) leave with 1 after their recorded time", ends[Outcome.FAILED]),
            (
                "jobs that were cancelled are cancelled by a command after their time of running",
                ends[Outcome.CANCELLED],
            ),
            ("jobs that timed out run until they do", ends[Outcome.TIMED_OUT]),
        )
    )


def _users_rules(jobs: Sequence[RecordedJob], wishes: Wishes) -> tuple[tuple[str, int], ...]:
    users = len({job.user for job in jobs} - {""})
    if wishes.is_apart:
        return (("each user submits by an account of the same name", users),)
    return ((f"users are not told apart: the account {ACCOUNT} submits for all", users),)


def _stated_rules(jobs: Sequence[RecordedJob], change: Change) -> tuple[tuple[str, int], ...]:
    """What is added to a table."""
    wishes = change.wishes
    gangs = [stated.gang(job.gpus, change.gpus_per_host) for job in jobs]
    weight = "of equal weight" if wishes.weights == EQUAL else "with weights by their GPU-hours"
    return (
        (f"teams are leaves {weight} under the budget {stated.ROOT_BUDGET}", len(change.teams)),
        ("jobs above one host are gangs of whole hosts", sum(hosts > 1 for hosts, _ in gangs)),
        (
            "gangs are rounded up to whole hosts",
            sum(hosts * gpus > job.gpus for (hosts, gpus), job in zip(gangs, jobs, strict=True)),
        ),
        ("windows are 15 min up to 8 GPUs, 30 min up to 64, 1 h above; all jobs are resumable", len(jobs)),
        (
            f"checkpoints fall every {format_length(wishes.checkpoint_ms)} of work",
            len(jobs) * (wishes.checkpoint_ms > 0),
        ),
        ("limits below the recorded length are raised to it", sum(job.limit_ms < job.duration_ms for job in jobs)),
        (
            f"timeouts are the recorded limit, the window at least, and {START_SLACK_MS // SECOND_MS} s undivided",
            len(jobs),
        ),
    )


def _own_rules(recorded: Recorded, jobs: Sequence[RecordedJob]) -> tuple[tuple[str, int], ...]:
    """What is kept of a log, and what is not."""
    asked = [job.asked for job in jobs if job.asked is not None]
    name = recorded.policy[0] if recorded.policy else ""
    return (
        ("budgets, their weights and caps are those of the log's end", len(recorded.budgets)),
        (f"the policy's numbers are those of the log's last, {name}", int(bool(name))),
        ("windows, timeouts, grace, lanes and checkpoints are those of the contracts", len(asked)),
        ("all hosts are one pool: what contracts say of pools is left out", sum(bool(one.pools) for one in asked)),
        ("constraints, dependencies, arrays and retries of contracts are left out", sum(map(_has_more, asked))),
    )


def _told(factor: Fraction) -> str:
    return f"{float(factor):.12g}"


def _has_more(asked: Request) -> bool:
    """Whether the contract says anything that a simulated or borrowed cell has no place for."""
    return bool(asked.constraints or asked.after or asked.array or asked.max_retries or asked.on_timeout != "fail")
