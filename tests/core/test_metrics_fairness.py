"""Dues and fulfilment, worked out by hand in GPU-hours."""

import msgspec
import pytest

from fairlease.core.metrics.fairness import Fulfilment
from fairlease.core.metrics.integral import PPM
from fairlease.core.metrics.scope import Scope
from fairlease_schemas.commands import CordonHost, ReturnHost
from fairlease_schemas.job import Constraints, End
from fairlease_schemas.reports import HostUp
from tests.core.bench import LONG, cell, change, idle, saved, whole
from tests.core.told import figures
from tests.dsl.cell import HOUR, SECOND, Cell, inventory


def fulfilled(held: int, due: int, uncapped: int | None = None) -> Fulfilment:
    """All in GPU-hours."""
    whole_due = due if uncapped is None else uncapped
    return Fulfilment(
        held_gpu_ms=held * HOUR, due_gpu_ms_ppm=due * HOUR * PPM, uncapped_due_gpu_ms_ppm=whole_due * HOUR * PPM
    )


def _late() -> Cell:
    """One host; `a` has all of it for four hours, protected, and `b` asks for four GPUs after two."""
    here = cell(1)
    whole(here, "x", min_runtime_ms=4 * HOUR)
    here.at(2 * HOUR).submit("y", "b", gpus_per_host=4, **LONG)
    return here.at(4 * HOUR - 1)


def test_a_leaf_is_due_what_it_demands_of_what_it_is_entitled_to() -> None:
    # Each is entitled to 4 GPUs. `a` demands 8 for 4h: due 16, held 32. `b` demands 4 for 2h: due 8, held none.
    found = figures(_late(), 4 * HOUR).fairness
    assert found.by_budget == {"a": fulfilled(32, 16), "b": fulfilled(0, 8)}
    assert (found.mean_ppm, found.lowest_ppm, found.at_least_95) == (500_000, 0, 1)


def test_a_leaf_that_asks_for_nothing_is_due_nothing_and_is_not_counted() -> None:
    found = figures(_late(), 2 * HOUR).fairness
    assert found.by_budget == {"a": fulfilled(16, 8)}
    assert (found.mean_ppm, found.lowest_ppm, found.at_least_95) == (PPM, PPM, 1)


def test_no_budget_with_a_due_has_no_mean() -> None:
    here = cell(1)
    idle(here, "i")
    found = figures(here, HOUR).fairness
    assert (found.by_budget, found.mean_ppm, found.lowest_ppm, found.at_least_95) == ({}, None, None, 0)


def test_demand_that_would_not_fit_even_an_empty_pool_is_none() -> None:
    # rule: 2.10
    here = cell(3)
    job = whole(here, "x", min_runtime_ms=4 * HOUR)
    host = here.world.jobs[job].attempts[0].hosts[0]
    whole(here, "gang", "b", hosts=3)
    here.at(HOUR)
    free = next(name for name in here.world.fleet.hosts if name != host)
    here.say(CordonHost(host=free), "ops")
    here.at(2 * HOUR)
    # `b` is due 12 of 24 GPUs for the first hour, and nothing once its gang of three has two hosts left.
    assert figures(here, 2 * HOUR).fairness.by_budget["b"] == fulfilled(0, 12)


def test_demand_that_only_a_held_host_could_take_is_none_until_the_host_is_back() -> None:
    # rule: 2.10 1.3
    here = cell(1)
    devices = msgspec.structs.replace(inventory(2), labels={"zone": "x"})
    here.say(HostUp(incarnation="boot-1", inventory=devices), "host-002")
    for name in ("x1", "x2"):
        whole(here, name, min_runtime_ms=4 * HOUR)
    here.submit("y", "b", gpus_per_host=2, constraints=Constraints(labels={"zone": "x"}), **LONG)
    here.at(HOUR).say(CordonHost(host="host-002"), "ops")
    here.at(2 * HOUR).say(ReturnHost(host="host-002"), "ops")
    here.at(3 * HOUR)
    # `b` asks for 2 of the 8 it is entitled to, in the first hour and in the third.
    assert figures(here, 3 * HOUR).fairness.by_budget["b"] == fulfilled(0, 4)


def test_what_is_above_its_caps_is_due_only_without_them() -> None:
    # rule: 2.9
    here = Cell().hosts(3).budgets(a=1, b=2).policy(rank_period_ms=60_000)
    change(here, "b", weight=2, burst_permille=500)
    whole(here, "b1", "b", min_runtime_ms=4 * HOUR)
    whole(here, "a1", "a", hosts=2, min_runtime_ms=4 * HOUR)
    whole(here, "a2", "a", min_runtime_ms=4 * HOUR)
    whole(here, "b2", "b", min_runtime_ms=4 * HOUR)
    here.at(HOUR)
    # `b` is entitled to 16 GPUs and capped at 8, which it holds: so it is due 8, and 16 were there no cap.
    found = figures(here, HOUR).fairness
    assert found.by_budget == {"a": fulfilled(16, 8), "b": fulfilled(8, 8, 16)}
    assert (found.mean_ppm, found.uncapped_mean_ppm) == (PPM, 750_000)


def test_work_that_takes_either_of_two_pools_is_one_demand() -> None:
    here = Cell().hosts(1).hosts(1, pool="l40s", first=2).budgets(a=1, b=1).policy(rank_period_ms=60_000)
    for pool in ("h100", "l40s"):
        whole(here, f"full-{pool}", "a", pools=(pool,), min_runtime_ms=4 * HOUR)
    here.submit("y", "b", gpus_per_host=6, pools=("h100", "l40s"), **LONG)
    here.at(HOUR)
    # Entitled to 4 in each pool, it asks for 6 in all.
    assert figures(here, HOUR).fairness.by_budget["b"] == fulfilled(0, 6)
    assert figures(here, HOUR, scope=Scope(pool="h100")).fairness.by_budget["b"] == fulfilled(0, 4)


def test_work_that_its_checkpoint_keeps_to_a_pool_is_demand_there_alone() -> None:
    # rule: 8.3
    here = Cell().hosts(1).hosts(1, pool="l40s", first=2).budgets(a=1, b=1).policy(rank_period_ms=60_000)
    whole(here, "full-l40s", "a", pools=("l40s",), min_runtime_ms=4 * HOUR)
    job = whole(here, "y", "b", pools=("h100", "l40s"), max_retries=1)
    saved(here, job, is_bound=True)
    here.gone(job, End.FAILED, 1)
    whole(here, "full-h100", "a", pools=("h100",), min_runtime_ms=4 * HOUR)
    begin = 30 * SECOND
    here.at(begin + HOUR)
    assert here.phase(job) == "waiting"
    # Entitled to 4 in each pool, it asks for 8 that only one of them may give.
    assert figures(here, begin + HOUR, begin).fairness.by_budget["b"] == fulfilled(0, 4)
    assert "b" not in figures(here, begin + HOUR, begin, Scope(pool="l40s")).fairness.by_budget


def test_idle_work_demands_nothing_of_its_budget() -> None:
    here = cell(1)
    whole(here, "x", min_runtime_ms=4 * HOUR)
    idle(here, "i", budget="b")
    assert list(figures(here.at(HOUR), HOUR).fairness.by_budget) == ["a"]


@pytest.mark.parametrize(("since", "expected"), [(0, 0), (2 * HOUR, PPM)])
def test_the_share_error_is_that_of_leaves_that_always_wanted_their_part(since: int, expected: int) -> None:
    here = Cell().hosts(1).budgets(a=1, b=1).policy(lookback_ms=HOUR, entitlement_floor_ms=0, rank_period_ms=60_000)
    for leaf in ("a", "b"):
        here.submit(f"{leaf}1", leaf, gpus_per_host=4, min_runtime_ms=30 * 60_000, **LONG)
    here.at(2 * HOUR)
    mine = next(job for job in here.world.jobs.values() if job.budget == "b").id
    if since:
        here.gone(mine)
        whole(here, "x", "a", min_runtime_ms=30 * 60_000)
        here.submit("y", "a", gpus_per_host=4, min_runtime_ms=30 * 60_000, **LONG)
        here.at(4 * HOUR)
    found = figures(here, 4 * HOUR if since else 2 * HOUR, since).fairness
    assert found.share_error_ppm == expected
