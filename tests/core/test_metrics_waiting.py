from typing import Any

import pytest

from fairlease.core.metrics.quantile import Spread
from fairlease.core.metrics.waiting import (
    DebugBounds,
    Life,
    Promised,
    Promises,
    WaitClass,
    life,
    wait_class,
    waiting,
)
from fairlease.core.state import Promise
from fairlease.core.world import World
from fairlease_schemas.commands import CancelJob
from fairlease_schemas.cycle import Licence, PromiseEnd
from fairlease_schemas.envelope import Address
from fairlease_schemas.job import End
from tests.dsl.cell import T0, Cell, request

MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"min_runtime_ms": 0}, WaitClass.IDLE, id="no window is idle work"),
        pytest.param({"min_runtime_ms": 0, "hosts": 32, "gpus_per_host": 8}, WaitClass.IDLE, id="of any size"),
        pytest.param(
            {"min_runtime_ms": 1, "timeout_ms": HOUR}, WaitClass.DEBUG, id="the shortest window is debug work"
        ),
        pytest.param(
            {"min_runtime_ms": 15 * MINUTE, "timeout_ms": HOUR, "gpus_per_host": 8},
            WaitClass.DEBUG,
            id="15 min on 8 GPUs within an hour is still debug work",
        ),
        pytest.param({"min_runtime_ms": 15 * MINUTE + 1, "timeout_ms": HOUR}, WaitClass.SMALL, id="a longer window"),
        pytest.param({"min_runtime_ms": MINUTE, "timeout_ms": HOUR + 1}, WaitClass.SMALL, id="a longer timeout"),
        pytest.param({"min_runtime_ms": MINUTE, "timeout_ms": HOUR, "gpus_per_host": 9}, WaitClass.MEDIUM, id="9 GPUs"),
        pytest.param({"gpus_per_host": 8}, WaitClass.SMALL, id="8 GPUs are small"),
        pytest.param({"hosts": 8, "gpus_per_host": 8}, WaitClass.MEDIUM, id="64 GPUs are medium"),
        pytest.param({"hosts": 9, "gpus_per_host": 8}, WaitClass.LARGE, id="72 GPUs are large"),
        pytest.param(
            {"min_runtime_ms": MINUTE, "timeout_ms": HOUR, "hosts": 16, "gpus_per_host": 8},
            WaitClass.LARGE,
            id="a short gang is large, not debug",
        ),
    ],
)
def test_every_job_is_in_exactly_one_class(fields: dict[str, Any], expected: WaitClass) -> None:
    assert wait_class(request(**fields)) is expected


def test_a_log_with_faster_time_has_its_own_bounds_of_debug_work() -> None:
    short = request(min_runtime_ms=900, timeout_ms=3_600)
    assert wait_class(short, DebugBounds(max_window_ms=900, max_timeout_ms=3_600)) is WaitClass.DEBUG
    assert wait_class(short, DebugBounds(max_window_ms=899, max_timeout_ms=3_600)) is WaitClass.SMALL


def _life(cell: Cell, job: str) -> tuple[int, int, int, int | None, int | None]:
    """wait, pending, held, startup, slowdown"""
    now_ms = max(cell.world.log_time_ms, cell.now_ms)
    one = life(cell.world.jobs[job], now_ms)
    return one.wait_ms, one.pending_ms, one.held_ms, one.startup_ms, one.slowdown_permille


def _one_host() -> Cell:
    return Cell().hosts(1).budgets(a=1)


def test_a_job_that_ran_waited_for_its_first_grant() -> None:
    cell = _one_host()
    first = cell.submit("first", gpus_per_host=8)
    cell.at(1_000).start(first)
    second = cell.at(2_000).submit("second", gpus_per_host=8)
    cell.at(12_000).gone(first)
    cell.at(12_500).start(second)
    cell.at(22_500).gone(second)
    assert _life(cell, first) == (0, 0, 12_000, 1_000, 12_000 * 1000 // 11_000)
    assert _life(cell, second) == (10_000, 10_000, 10_500, 500, 2_050)


def test_a_job_that_still_waits_counts_with_its_wait_so_far() -> None:
    cell = _one_host()
    cell.submit("first", gpus_per_host=8)
    waits = cell.at(2_000).submit("second", gpus_per_host=8)
    assert _life(cell.at(9_000), waits) == (7_000, 7_000, 0, None, None)


def test_a_job_cancelled_while_it_waited_counts_until_then() -> None:
    cell = _one_host()
    cell.submit("first", gpus_per_host=8)
    job = cell.at(2_000).submit("second", gpus_per_host=8)
    cell.at(5_000).say(CancelJob(job=job))
    assert _life(cell.at(9_000), job) == (3_000, 3_000, 0, None, None)


def test_a_stillborn_attempt_is_no_grant() -> None:
    cell = _one_host()
    job = cell.submit("late", settle=False)
    cell.step("ranker")
    cell.now_ms += 4_000
    ranked = cell.world.cycle.ranked
    assert ranked is not None
    # Placement decided on a fold in which the job still waited; its record stands behind the cancel.
    other = Cell()
    other.world, other.records, other.now_ms = World(), [], cell.now_ms
    for data in cell.records:
        other.append(data)
    other.step("placement")
    cell.say(CancelJob(job=job), settle=False)
    cell.append(other.records[-1])
    attempts = cell.world.jobs[job].attempts
    assert [attempt.is_stillborn for attempt in attempts] == [True]
    cell.settle()
    assert _life(cell.at(9_000), job) == (4_000, 4_000, 0, None, None)


def test_a_job_that_came_back_waited_twice_and_its_lost_attempt_is_no_useful_work() -> None:
    cell = _one_host()
    job = cell.submit("again", max_retries=1, gpus_per_host=8)
    cell.at(1_000).start(job)
    cell.at(11_000).gone(job, End.FAILED, 1)
    cell.at(41_000)
    assert cell.phase(job) == "granted", "30 s of backoff are over"
    cell.at(42_000).start(job)
    cell.at(52_000).gone(job)
    assert _life(cell, job) == (0, 30_000, 22_000, 1_000, 5_200)


def test_a_job_that_failed_has_no_slowdown() -> None:
    cell = _one_host()
    job = cell.submit("fails")
    cell.at(1_000).start(job)
    cell.at(3_000).gone(job, End.FAILED, 1)
    assert _life(cell, job) == (0, 0, 3_000, 1_000, None)


def test_a_refused_submission_counts_nowhere() -> None:
    cell = _one_host()
    cell.submit("refused", budget="nobody")
    assert cell.world.jobs == {}


def _of(name: str, of: WaitClass, gpus: int, wait_ms: int) -> Life:
    return Life(
        job=name,
        wait_class=of,
        gpus=gpus,
        wait_ms=wait_ms,
        pending_ms=wait_ms,
        held_ms=1,
        startup_ms=None,
        slowdown_permille=None,
    )


def test_all_leaves_idle_work_out_and_gangs_are_counted_beside_their_class() -> None:
    figures = waiting(
        [
            _of("a", WaitClass.IDLE, 128, 1_000_000),
            _of("b", WaitClass.DEBUG, 1, 10),
            _of("c", WaitClass.LARGE, 127, 20),
            _of("d", WaitClass.LARGE, 128, 40),
        ]
    )
    assert list(figures.wait) == ["all", "idle", "debug", "small", "medium", "large", "gangs_128"]
    assert {name: (s.count, s.p50, s.mean) for name, s in figures.wait.items()} == {
        "all": (3, 20, 23),
        "idle": (1, 1_000_000, 1_000_000),
        "debug": (1, 10, 10),
        "small": (0, None, None),
        "medium": (0, None, None),
        "large": (2, 20, 30),
        "gangs_128": (1, 40, 40),
    }
    assert figures.startup["all"] == Spread(count=0, p50=None, p90=None, p99=None, mean=None)


def test_times_come_from_the_log_alone() -> None:
    cell = _one_host()
    job = cell.submit("x")
    assert cell.world.jobs[job].submitted_ms == T0


PROMISE = Promise(job="job-x", pool="h100", hosts=(), start_ms=100, licence=Licence.UNDER_SHARE, made=Address(1, 1, 0))


def _promised(*steps: tuple[str, int | PromiseEnd], closed_ms: int = 95) -> Promised:
    """Each step: `made`, `used` at an instant, or `ended` by something; the stop margin is 10 ms."""
    promises = Promises()
    for what, how in steps:
        if what == "made":
            promises.made(PROMISE, is_counted=bool(how))
        elif isinstance(how, PromiseEnd):
            promises.ended("job-x", how, is_counted=True)
        else:
            promises.used("job-x", how, closed_ms, 10, is_counted=True)
    return promises.result()


@pytest.mark.parametrize(
    ("steps", "closed_ms", "expected"),
    [
        pytest.param([("made", 1)], 95, Promised(made=1), id="it stands"),
        pytest.param([("made", 1), ("used", 100)], 95, Promised(made=1, kept=1), id="kept to the millisecond"),
        pytest.param([("made", 1), ("used", 101)], 95, Promised(made=1, broken=1), id="late is broken"),
        pytest.param(
            [("made", 1), ("used", 101)], 89, Promised(made=1, voided={"outage": 1}), id="but for an outage before it"
        ),
        pytest.param(
            [("made", 1), ("ended", PromiseEnd.EARLIER), ("made", 1), ("used", 90)],
            95,
            Promised(made=2, earlier=1, kept=1),
            id="replaced by an earlier one",
        ),
        pytest.param(
            [("made", 1), ("ended", PromiseEnd.DRAIN)], 95, Promised(made=1, voided={"drain": 1}), id="voided by name"
        ),
        pytest.param([("made", 1), ("ended", PromiseEnd.BROKEN)], 95, Promised(made=1, broken=1), id="overstayed"),
        pytest.param([("used", 100)], 95, Promised(), id="a grant without a promise"),
        pytest.param([("made", 0), ("used", 100)], 95, Promised(kept=1), id="made before the period, kept in it"),
    ],
)
def test_every_promise_comes_to_one_end(
    steps: list[tuple[str, int | PromiseEnd]], closed_ms: int, expected: Promised
) -> None:
    # rule: 6.4
    assert _promised(*steps, closed_ms=closed_ms) == expected
