"""Seeded jobs of mixed shapes, small enough that a busy machine runs dozens of them in seconds."""

from random import Random

from tests.live.desk import ACCOUNTS, BUDGETS, Job


def mixed(chance: Random, count: int, prefix: str, *, longest_s: float = 0.6) -> list[Job]:
    """`count` jobs: mostly single hosts, some gangs, some idle work, some failures, of all accounts."""
    return [_one(chance, f"{prefix}-{number}", longest_s) for number in range(count)]


def _one(chance: Random, name: str, longest_s: float) -> Job:
    hosts = chance.choices((1, 2, 4), (12, 3, 1))[0]
    code = chance.choices((0, 3, 42), (8, 1, 1))[0]
    return Job(
        name=name,
        script=f"sleep {chance.uniform(0, longest_s):.2f}; exit {code}",
        account=chance.choice(ACCOUNTS),
        budget=chance.choice(BUDGETS),
        hosts=hosts,
        gpus=8 if hosts > 1 else chance.choice((1, 1, 2, 4, 8)),
        min_runtime=chance.choices(("1s", "0s"), (4, 1))[0],
        end="job-failed" if code else "job-succeeded",
        code=code or None,
    )
