"""What became of held time, one row for each story of attempts on two GPUs; numbers are GPU-minutes."""

import pytest

from fairlease.core.job import Attempt, Phase
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.progress import Fates, Progress, cut_of
from fairlease_schemas.job import End
from tests.core.told import past, run
from tests.dsl.cell import MINUTE, T0

ALWAYS = Period(T0 - 1, T0 + 1_000 * MINUTE)


def told(*attempts: Attempt, phase: Phase, period: Period = ALWAYS, **fields: object) -> Progress:
    """The attempts one after another, as a log would tell them; then the job's end, if it is over."""
    fates = Fates(period)
    for count, attempt in enumerate(attempts, start=1):
        if attempt.started_ms is not None:
            fates.attempt_runs("job-x")
        if attempt.is_over:
            job = past(*attempts[:count], **fields)
            fates.attempt_ended(job, attempt, cut_of(job))
    if past(phase=phase).is_terminal:
        fates.job_over("job-x")
    return fates.result()


def minutes(**numbers: int) -> Progress:
    return Progress(**{f"{name}_gpu_ms": number * MINUTE for name, number in numbers.items()})


def at(minute: int) -> int:
    return minute * MINUTE


FIRST = run(1, at(0), at(60), End.PREEMPTED, started=at(1), saved=at(40))
"""Two GPUs for an hour, saved at minute 40."""


@pytest.mark.parametrize(
    ("attempts", "phase", "expected"),
    [
        pytest.param(
            [run(1, at(0), at(60), End.SUCCEEDED)], Phase.SUCCEEDED, minutes(kept=120), id="a success is kept"
        ),
        pytest.param([run(1, at(0))], Phase.RUNNING, minutes(), id="of one that runs nobody knows"),
        pytest.param([FIRST], Phase.WAITING, minutes(stopped=40), id="what is saved waits for its fate"),
        pytest.param(
            [FIRST, run(2, at(70), started=at(73))],
            Phase.RUNNING,
            minutes(kept=80, stopped=40),
            id="it is gone on from",
        ),
        pytest.param(
            [FIRST, run(2, at(70), started=None)], Phase.GRANTED, minutes(stopped=40), id="not yet: a grant is no run"
        ),
        pytest.param(
            [FIRST, run(2, at(70), at(80), End.SUCCEEDED, started=at(73))],
            Phase.SUCCEEDED,
            minutes(kept=80 + 14, stopped=40, restart=6),
            id="and until it runs it is a restart",
        ),
        pytest.param(
            [FIRST, run(2, at(70), at(75), End.START_FAILED, started=None)],
            Phase.FAILED,
            minutes(stopped=40, restart=10, abandoned=80),
            id="a restart that never ran, and a checkpoint that nobody used",
        ),
        pytest.param(
            [run(1, at(0), at(30), End.FAILED, saved=at(10))],
            Phase.FAILED,
            minutes(failed=40, abandoned=20),
            id="a failure",
        ),
        pytest.param(
            [run(1, at(0), at(30), End.TIMED_OUT)],
            Phase.TIMED_OUT,
            minutes(failed=60),
            id="a time-out is its own doing",
        ),
        pytest.param(
            [run(1, at(0), at(30), End.CANCELLED)], Phase.CANCELLED, minutes(stopped=60), id="a cancel is not"
        ),
        pytest.param(
            [run(1, at(0), at(5), End.PREEMPTED, started=None), run(2, at(6), at(16), End.SUCCEEDED, started=at(8))],
            Phase.SUCCEEDED,
            minutes(stopped=10, kept=20),
            id="after one that never ran there is nothing to go on from: no restart",
        ),
        pytest.param(
            [FIRST, run(2, at(70), at(80), End.SUCCEEDED, started=None)],
            Phase.SUCCEEDED,
            minutes(kept=80, stopped=40, restart=20),
            id="a success of which nobody said that it ran",
        ),
    ],
)
def test_every_minute_has_one_fate(attempts: list[Attempt], phase: Phase, expected: Progress) -> None:
    assert told(*attempts, phase=phase) == expected


def test_what_cannot_be_resumed_keeps_nothing_of_its_checkpoints() -> None:
    found = told(FIRST, run(2, at(70), started=at(73)), phase=Phase.RUNNING, is_resumable=False)
    assert found == minutes(stopped=120)


def test_only_the_part_inside_the_period_counts() -> None:
    part = Period(T0 + at(30), T0 + at(50))
    assert told(FIRST, run(2, at(70)), phase=Phase.RUNNING, period=part) == minutes(kept=20, stopped=20)
