import io
import random
from itertools import pairwise
from typing import IO, Any

import pytest

from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.meter import Meter
from fairlease.core.metrics.quantile import CURVE_PERMILLE, curve
from fairlease.core.world import World
from fairlease.simulator.engine import T0
from fairlease.simulator.machines import Stopping, Work
from fairlease.simulator.rows import MAX_ROWS
from fairlease.simulator.runs import Simulation, simulate_lab
from fairlease.simulator.series import MAX_STRETCHES, Course, added, next_length_ms
from fairlease_schemas.codec import read_record
from fairlease_schemas.commands import RequestDrain
from fairlease_schemas.envelope import Submitted
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import Request
from fairlease_schemas.series import Series
from fairlease_schemas.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """A cell so small that much is evicted."""
    return simulate_lab(policy="budget-window", seed=2, hosts=4, measured_ms=6 * HOUR_MS, warm_up_ms=HOUR_MS)


def cell(hosts: int, length_ms: int, log: IO[bytes] | None = None) -> Simulation:
    stopping = Stopping(stop_ms=5 * SECOND_MS, save_ms=60 * SECOND_MS)
    run = Simulation("budget-window", 1, stopping, Period(T0, T0 + length_ms), log)
    run.hosts(hosts, 8, "h100", 16)
    run.budget("a", 1)
    return run


def submit(run: Simulation, name: str, work: Work, *, gpus: int = 8, budget: str = "a") -> str:
    job = job_id("ann", budget, name)
    request = Request(
        hosts=1,
        gpus_per_host=gpus,
        pools=("h100",),
        min_runtime_ms=30 * MINUTE_MS,
        timeout_ms=20 * HOUR_MS,
        grace_ms=90 * SECOND_MS,
        is_resumable=True,
    )
    run.machines.expect(job, work)
    said = Submitted(budget=budget, request_id=name, digest=f"{0:064x}", request=request)
    run.engine.at(run.engine.now_ms, lambda: run.engine.say(said, "ann"))
    return job


def in_hours(gpu_ms: int) -> float:
    """As the report tells it."""
    return round(gpu_ms / HOUR_MS, 6)


def told(run: Simulation) -> Series:
    return run.course.result(run.engine.world, run.engine.now_ms)


def test_what_the_stretches_add_is_what_the_figures_say(report: dict[str, Any]) -> None:
    series, hours = report["series"], report["gpu_hours"]
    lost = {cause: sum(amounts) for cause, amounts in series["lost_gpu_ms"].items()}
    assert report["preemption"]["count"] > 0, "a cell in which nobody leaves shows nothing"
    assert {name: sum(counts) for name, counts in series["promises"].items()} == {
        name: count for name, count in report["promises"].items() if name != "voided_by"
    }
    assert {reason: sum(counts) for reason, counts in series["evictions"].items()} == {
        reason: sum(by_licence.values()) for reason, by_licence in report["preemption"]["by_reason"].items()
    }
    stopped = lost.pop("eviction") + lost.pop("fault") + lost.pop("cancelled")
    assert in_hours(stopped) == hours["lost_stopped"]
    told_as = {"failure": "lost_failed", "restart": "lost_restart", "abandoned": "lost_abandoned"}
    assert {told_as[cause]: in_hours(amount) for cause, amount in lost.items()} == {
        name: hours[name] for name in told_as.values()
    }
    for name, course in series["budgets"].items():
        assert in_hours(sum(course["held_gpu_ms"])) == report["fulfilment"]["held_gpu_h"][name]
        assert in_hours(sum(course["due_gpu_ms"])) == report["fulfilment"]["due_gpu_h"][name]


def test_every_list_has_one_number_for_each_stretch(report: dict[str, Any]) -> None:
    series = report["series"]
    count = len(series["ends_ms"])
    assert series["ends_ms"][-1] == 6 * HOUR_MS
    assert all(before < after for before, after in pairwise(series["ends_ms"]))
    lists = [*series["lost_gpu_ms"].values(), *series["evictions"].values(), *series["promises"].values()]
    lists += [course[key] for course in series["budgets"].values() for key in ("held_gpu_ms", "due_gpu_ms")]
    lists += [states for row in series["hosts"] for states in row["permille"].values()]
    assert {len(numbers) for numbers in lists} == {count}


def test_waits_are_those_of_the_figures(report: dict[str, Any]) -> None:
    waits = report["series"]["waits"]
    for name, found in waits["by_class"].items():
        at = dict(zip(waits["permille"], found["wait_ms"], strict=bool(found["wait_ms"])))
        for key, permille in (("p50_s", 500), ("p90_s", 900), ("p99_s", 990)):
            told_s = report["wait"][name][key]
            assert (at[permille] / 1000 if at else None) == told_s, (name, key)


def test_a_host_is_busy_then_saves_then_is_faulty_and_returns() -> None:
    run = cell(1, 4 * HOUR_MS)
    submit(run, "one", Work(left_ms=HOUR_MS, startup_ms=0), gpus=4)
    run.engine.run(T0 + 2 * HOUR_MS)
    run.engine.at(T0 + 2 * HOUR_MS, lambda: run.machines.breaks("host-0001"))
    run.engine.at(T0 + 3 * HOUR_MS, lambda: run.machines.repaired("host-0001"))
    run.engine.run(T0 + 4 * HOUR_MS)
    series = told(run)
    by_hour = {
        state: [sum(numbers[k : k + 12]) for k in range(0, 48, 12)]
        for state, numbers in series.hosts[0].permille.items()
    }
    assert len(series.ends_ms) == 48
    assert by_hour == {"busy": [6000, 0, 0, 0], "faulty": [0, 0, 12000, 0], "idle": [6000, 12000, 0, 12000]}


def test_work_that_is_told_to_leave_is_saving_until_it_is_gone() -> None:
    run = cell(1, 4 * HOUR_MS)
    work = Work(left_ms=3 * HOUR_MS, startup_ms=0, checkpoint_ms=15 * MINUTE_MS, saves_permille=1000)
    submit(run, "one", work)
    run.engine.run(T0 + HOUR_MS)
    drain = RequestDrain(host="host-0001", reason="service")
    run.engine.at(T0 + HOUR_MS, lambda: run.engine.say(drain, "ops"))
    run.engine.run(T0 + 4 * HOUR_MS)
    row = told(run).hosts[0].permille
    saved_ms = sum(row["saving"]) * 5 * MINUTE_MS // 1000
    assert saved_ms == pytest.approx(65 * SECOND_MS, abs=SECOND_MS)
    assert row["drained"][-1] == 1000


def test_rows_are_what_the_attempts_say_once_everything_is_over() -> None:
    """The slow, right model: every attempt held its GPUs from its grant, and was told to leave at `ending_ms`."""
    run = cell(3, 24 * HOUR_MS)
    run.budget("b", 1)
    chance = random.Random(7)
    for number in range(24):
        left_ms = chance.randrange(10, 300) * MINUTE_MS
        work = Work(left_ms=left_ms, startup_ms=MINUTE_MS, checkpoint_ms=15 * MINUTE_MS, saves_permille=500)
        submit(run, f"job-{number}", work, gpus=chance.choice((2, 4, 8)), budget=chance.choice("ab"))
        run.engine.run(T0 + number * 20 * MINUTE_MS)
    run.engine.run(T0 + 24 * HOUR_MS)
    series, world = told(run), run.engine.world
    attempts = [attempt for job in world.jobs.values() for attempt in job.attempts]
    assert sum(attempt.ending_ms > 0 for attempt in attempts) > 2, "where nobody leaves nothing is shown"
    lengths = [end - before for before, end in zip((0, *series.ends_ms), series.ends_ms, strict=False)]
    for row in series.hosts:
        busy = saving = 0
        for attempt in attempts:
            gpus = sum(len(part.gpus) for part in attempt.parts if part.host == row.first)
            until_ms = attempt.ended_ms or run.period.until_ms
            told_ms = attempt.ending_ms or until_ms
            busy += gpus * (told_ms - attempt.granted_ms)
            saving += gpus * (until_ms - told_ms)
        for state, gpu_ms in (("busy", busy), ("saving", saving)):
            shown = sum(part * length * 8 // 1000 for part, length in zip(row.permille[state], lengths, strict=True))
            assert 0 <= gpu_ms - shown <= len(lengths) * max(lengths) * 8 // 1000, (row.first, state)


@pytest.mark.parametrize(("days", "stretch_ms"), [(1, 15 * MINUTE_MS), (6, 2 * HOUR_MS), (30, 6 * HOUR_MS)])
def test_stretches_are_as_long_as_their_number_asks(days: int, stretch_ms: int) -> None:
    run = cell(1, days * DAY_MS)
    run.engine.run(T0 + days * DAY_MS)
    series = told(run)
    assert series.ends_ms[0] == stretch_ms
    assert len(series.ends_ms) == days * DAY_MS // stretch_ms <= MAX_STRETCHES


def test_a_run_of_unknown_length_has_the_stretches_of_one_whose_length_was_known() -> None:
    known, unknown = cell(1, 2 * DAY_MS), cell(1, 1000 * DAY_MS)
    for run in (known, unknown):
        submit(run, "one", Work(left_ms=HOUR_MS, startup_ms=0))
        run.engine.run(T0 + 2 * DAY_MS)
    assert told(known).hosts == told(unknown).hosts
    assert told(known).ends_ms == told(unknown).ends_ms


def test_lengths_of_stretches_divide_each_other() -> None:
    length_ms, lengths = MINUTE_MS, [MINUTE_MS]
    while length_ms < 64 * DAY_MS:
        length_ms = next_length_ms(length_ms)
        lengths.append(length_ms)
    assert all(after % before == 0 for before, after in pairwise(lengths))


@pytest.mark.parametrize("hosts", [1, MAX_ROWS, MAX_ROWS + 1, 300])
def test_many_hosts_share_rows_and_none_is_lost(hosts: int) -> None:
    run = cell(hosts, HOUR_MS)
    run.engine.run(T0 + HOUR_MS)
    rows = told(run).hosts
    assert len(rows) <= MAX_ROWS
    assert sum(row.hosts for row in rows) == hosts
    assert (rows[0].first, rows[-1].last) == ("host-0001", f"host-{hosts:04d}")
    assert all(set(row.permille["idle"]) == {1000} for row in rows)


def test_reading_sums_on_the_way_changes_no_figure() -> None:
    log = io.BytesIO()
    run = cell(2, 6 * HOUR_MS, log)
    for number in range(6):
        submit(run, f"job-{number}", Work(left_ms=HOUR_MS + number, startup_ms=MINUTE_MS))
    run.engine.run(T0 + 6 * HOUR_MS)
    read, unread = Meter(run.period), Meter(run.period)
    course, world = Course(read, run.period), World()
    for position, line in enumerate(log.getvalue().splitlines(), start=1):
        record = read_record(line)
        world.apply(record, position)
        course.passes(world.log_time_ms)
        for meter in (read, unread):
            meter.take(world, record)
    course.result(world, run.period.until_ms)
    assert read.report(world) == unread.report(world)


def test_what_is_added_is_the_difference_of_readings() -> None:
    assert list(added(iter((3, 3, 10)))) == [3, 0, 7]


def test_a_curve_of_nothing_is_empty_and_one_of_few_repeats_them() -> None:
    assert curve(()) == ()
    assert set(curve((7, 5))) == {5, 7}
    assert len(curve((7, 5))) == len(CURVE_PERMILLE)
