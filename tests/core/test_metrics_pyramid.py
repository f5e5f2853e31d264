"""Levels of the pyramid, worked out by hand in GPU-hours or GPU-seconds."""

import msgspec
import pytest

from fairlease.core.metrics.impact import Entitled
from fairlease.core.metrics.integral import Integral, Period, ratio_ppm
from fairlease.core.metrics.pyramid import Levels
from fairlease.core.metrics.scope import Scope
from fairlease_schemas.commands import CordonHost
from fairlease_schemas.job import End
from fairlease_schemas.reports import HostUp
from tests.core.bench import LONG, cell, idle, whole
from tests.core.told import figures
from tests.dsl.cell import HOUR, SECOND, Cell, inventory


def levels(unit: int, **numbers: int) -> Levels:
    return Levels(**{f"{name}_gpu_ms": number * unit for name, number in numbers.items()})


def test_an_integral_is_the_sum_over_its_pieces_and_looking_changes_nothing() -> None:
    held = Integral()
    held.set(100, 8)
    held.add(150, -6)
    held.add(150, 1)
    assert [held.upto(150), held.upto(160), held.upto(160), held.value] == [400, 430, 430, 3]


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "expected"),
    [
        pytest.param(0, 100, 0, id="before it"),
        pytest.param(0, 150, 50, id="only its beginning"),
        pytest.param(120, 130, 10, id="inside it"),
        pytest.param(0, 1_000, 100, id="around it"),
        pytest.param(190, 1_000, 10, id="only its end"),
        pytest.param(200, 300, 0, id="after it"),
        pytest.param(180, 170, 0, id="backwards is nothing"),
    ],
)
def test_what_lies_outside_a_period_has_no_length(from_ms: int, to_ms: int, expected: int) -> None:
    assert Period(100, 200).length_ms(from_ms, to_ms) == expected


def test_periods_side_by_side_count_everything_once() -> None:
    assert [Period(0, 10).holds(at) + Period(10, 20).holds(at) for at in (0, 1, 10, 11, 20, 21)] == [0, 1, 1, 1, 1, 0]
    assert [ratio_ppm(1, 3), ratio_ppm(0, 5), ratio_ppm(0, 0)] == [333_333, 0, None]


def _held_one_by_one() -> Cell:
    """Two hosts. A job on the first until 3h; the second is cordoned at 1h, the first at 2h."""
    here = cell(2)
    job = whole(here, "x")
    here.at(HOUR).say(CordonHost(host="host-002"), "ops")
    here.at(2 * HOUR).say(CordonHost(host="host-001"), "ops")
    here.at(3 * HOUR).gone(job)
    return here


def test_a_held_host_is_schedulable_for_as_long_as_work_from_before_runs_there() -> None:
    # 16 GPUs for 4h; schedulable 16 for 1h, then the 8 with work for 2h; of the first hour's 16 the job held 8.
    # rule: 2.2
    found = figures(_held_one_by_one(), 4 * HOUR)
    expected = levels(HOUR, installed=64, schedulable=32, everybody=24, held=24, budgeted=24, no_demand=8)
    assert found.levels == expected


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        pytest.param(0, HOUR, (16, 16, 8), id="before any hold"),
        pytest.param(HOUR, 2 * HOUR, (16, 8, 8), id="one host held and empty"),
        pytest.param(2 * HOUR, 3 * HOUR, (16, 8, 8), id="the other held with work"),
        pytest.param(3 * HOUR, 5 * HOUR, (32, 0, 0), id="nothing is schedulable"),
        pytest.param(HOUR // 2, 5 * HOUR // 2, (32, 20, 16), id="from and to the middle of things"),
    ],
)
def test_any_period_has_its_own_levels(since: int, until: int, expected: tuple[int, int, int]) -> None:
    found = figures(_held_one_by_one(), until, since).levels
    assert (found.installed_gpu_ms, found.schedulable_gpu_ms, found.held_gpu_ms) == tuple(
        number * HOUR for number in expected
    )


def test_a_fault_ends_what_is_schedulable_though_the_gpus_are_held_until_the_release() -> None:
    here = cell(1)
    job = whole(here, "x")
    here.start(job).at(HOUR)
    devices = msgspec.structs.replace(inventory(1), gpus=tuple(f"other-{k}" for k in range(8)))
    here.say(HostUp(incarnation="boot-2", inventory=devices), "host-001")
    here.at(2 * HOUR).gone(job, End.FAULT, None)
    found = figures(here, 2 * HOUR)
    assert found.levels == levels(HOUR, installed=16, schedulable=8, everybody=8, held=8, budgeted=8)
    assert found.recovery.held_gpu_ms == 16 * HOUR


def test_hosts_that_wait_for_the_rest_of_a_gangs_victims_are_reserved() -> None:
    here = cell(2)
    first, second = idle(here, "i1"), idle(here, "i2")
    here.start(first).start(second).at(60 * SECOND)
    gang = whole(here, "gang", hosts=2)
    here.at(70 * SECOND).gone(first, End.CANCELLED, 143)
    here.at(90 * SECOND).gone(second, End.CANCELLED, 143)
    here.at(100 * SECOND)
    assert here.phase(gang) == "granted"
    # 8 GPUs stood free for the gang from 70s to 90s.
    found = figures(here, 100 * SECOND).levels
    expected = levels(SECOND, installed=1_600, schedulable=1_600, everybody=1_440, held=1_440, budgeted=160)
    assert found == msgspec.structs.replace(expected, reserved_gpu_ms=160 * SECOND)


def test_free_gpus_are_fragmentation_as_far_as_somebody_waits_for_them() -> None:
    here = cell(2)
    for name in ("x", "y"):
        here.submit(name, gpus_per_host=5, **LONG)
    waits = here.at(HOUR).submit("z", gpus_per_host=4, **LONG)
    here.at(2 * HOUR)
    assert here.phase(waits) == "waiting"
    # 6 GPUs were free for 2h, 3 on each host; for 4 of them somebody waited in the second hour.
    found = figures(here, 2 * HOUR).levels
    assert (found.fragmentation_gpu_ms, found.no_demand_gpu_ms) == (4 * HOUR, 8 * HOUR)


def test_a_scope_has_its_own_part_of_what_everybody_held() -> None:
    here = cell(2)
    here.submit("x", "a", gpus_per_host=2, **LONG)
    here.submit("y", "b", who="bob", gpus_per_host=4, **LONG)
    idle(here, "i", gpus=1)
    for scope, held, budgeted in (
        (Scope(), 7, 6),
        (Scope(budget="a"), 3, 2),
        (Scope(budget="b"), 4, 4),
        (Scope(account="bob"), 4, 4),
        (Scope(pool="h100"), 7, 6),
        (Scope(pool="l40s"), 0, 0),
    ):
        found = figures(here, HOUR, scope=scope).levels
        assert (found.held_gpu_ms, found.budgeted_gpu_ms) == (held * HOUR, budgeted * HOUR), scope
        assert found.everybody_gpu_ms == (0 if scope.pool == "l40s" else 7 * HOUR)


def test_impact_is_what_was_held_within_entitlement_over_each_whole_lookback() -> None:
    # One host of 8, two leaves: each is entitled to 4 x 2h = 8 GPU-hours in a bucket of two hours.
    here = cell(1, lookback_ms=2 * HOUR)
    job = whole(here, "x", min_runtime_ms=30 * 60 * SECOND)
    here.at(HOUR).gone(job)
    # 8 held in one hour and none in the next: all within.
    assert figures(here, 2 * HOUR).entitled == Entitled(within_gpu_ms=8 * HOUR)
    again = whole(here.at(2 * HOUR), "y")
    here.at(4 * HOUR).gone(again)
    # In the second bucket 16, of which 8 are beyond.
    assert figures(here, 4 * HOUR).entitled == Entitled(within_gpu_ms=16 * HOUR, beyond_gpu_ms=8 * HOUR)
    # As one bucket of four hours all but 8 would be within as well; cut after three, the last one is 4 and 4.
    assert figures(here, 3 * HOUR).entitled == Entitled(within_gpu_ms=12 * HOUR, beyond_gpu_ms=4 * HOUR)
