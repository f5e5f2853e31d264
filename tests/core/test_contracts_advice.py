"""Advice for contracts that look mis-sized (1.18): with the job, never instead of it."""

import pytest

from fairlease.core.advice import leaf_part
from fairlease.core.fairshare.standing import standings
from fairlease.core.starts import FEWEST, KEPT, kind, window_class
from fairlease_schemas.commands import CordonHost, ReturnHost
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import Advice, JobAdmitted
from tests.dsl.cell import DAY, HOUR, MINUTE, T0, Cell, submitted


def advice(here: Cell, request_id: str = "r1", budget: str = "a", **fields: object) -> list[str]:
    """The texts of the advice with which a job is admitted."""
    (event,) = here.when(submitted(request_id, budget, **fields)).events()
    assert isinstance(event, JobAdmitted), event
    assert {one.rule for one in event.advice} <= {"1.18"}
    return [one.text for one in event.advice]


WHOLE = "the window of 2h covers the whole timeout; a shorter window fits more places and starts sooner"


def test_a_window_over_the_whole_wall_limit_is_told() -> None:
    # rule: 1.18
    here = Cell().hosts(1).budgets(a=1)
    assert advice(here, min_runtime_ms=2 * HOUR) == [WHOLE]
    assert advice(here, "r2", min_runtime_ms=2 * HOUR - 1) == []


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"is_resumable": False}, id="what cannot be resumed has no choice"),
        pytest.param({"min_runtime_ms": 0}, id="idle work has no window"),
        pytest.param({"lane": "debug", "min_runtime_ms": 5 * MINUTE, "timeout_ms": 5 * MINUTE}, id="the lane is short"),
    ],
)
def test_where_there_is_nothing_better_nothing_is_said(fields: dict[str, object]) -> None:
    # rule: 1.18
    assert advice(Cell().hosts(1).budgets(a=1), **fields) == []


def test_a_window_beyond_what_the_budget_is_entitled_to_is_told_with_the_longest_that_could_evict() -> None:
    # rule: 1.18
    # A young cell: a fortieth of 24 h x 8 GPUs is 4.8 GPU-hours, less 20 permille 4.704: 2 GPUs for 2 h 21.12.
    here = Cell().hosts(1).budgets(a=1, b=39)
    plain = {"gpus_per_host": 2, "timeout_ms": DAY}
    assert advice(here, "r1", min_runtime_ms=141 * MINUTE, **plain) == []
    (text,) = advice(here, "r2", min_runtime_ms=142 * MINUTE, **plain)
    assert text == (
        "2 GPUs for 2h22m are more than budget a is entitled to in 7d less the margin, "
        "so it starts only where room is free; the longest window that could evict is 2h21m"
    )


def test_the_limit_is_exact_to_the_millisecond() -> None:
    # rule: 1.18
    limit_ms = 8 * DAY // 40 * 980 // 1000 // 2
    here = Cell().hosts(1).budgets(a=1, b=39)
    assert advice(here, "r1", gpus_per_host=2, timeout_ms=DAY, min_runtime_ms=limit_ms) == []
    assert len(advice(here, "r2", gpus_per_host=2, timeout_ms=DAY, min_runtime_ms=limit_ms + 1)) == 1


def test_where_no_window_of_that_size_could_evict_that_is_said() -> None:
    # rule: 1.18
    here = Cell().hosts(1).budgets(a=1, b=999)
    (text,) = advice(here, gpus_per_host=8, min_runtime_ms=15 * MINUTE)
    assert text.endswith("it starts only where room is free; no window of 8 GPUs could evict")


def test_what_the_lookback_holds_counts_beyond_the_floor() -> None:
    # rule: 1.18
    here = Cell().hosts(1).budgets(a=1, b=39)
    plain = {"gpus_per_host": 8, "min_runtime_ms": HOUR}
    assert len(advice(here, "r1", **plain)) == 1
    here.at(3 * DAY)
    assert advice(here, "r2", **plain) == []


def test_one_pool_that_can_carry_the_window_is_enough() -> None:
    # rule: 1.18
    here = Cell().hosts(1).hosts(10, pool="l40s", first=20).budgets(a=1, b=39)
    plain = {"gpus_per_host": 8, "min_runtime_ms": HOUR}
    assert advice(here, "r1", **plain) == []
    assert len(advice(here, "r2", pools=("h100",), **plain)) == 1


def test_of_what_cannot_be_resumed_the_wall_limit_is_the_window() -> None:
    # rule: 1.18
    here = Cell().hosts(1).budgets(a=1, b=39)
    (event,) = here.when(submitted("r1", gpus_per_host=8, is_resumable=False)).events()
    assert isinstance(event, JobAdmitted)
    assert [one.field for one in event.advice] == ["spec.timeout"]


def test_the_oversized_comes_before_the_whole() -> None:
    # rule: 1.18
    here = Cell().hosts(1).budgets(a=1, b=39)
    first, second = advice(here, gpus_per_host=8, min_runtime_ms=2 * HOUR)
    assert first.startswith("8 GPUs for 2h are more")
    assert second == WHOLE


def test_a_cell_without_schedulable_hosts_still_answers() -> None:
    # rule: 1.18
    here = Cell().hosts(1).budgets(a=1)
    here.say(CordonHost(host="host-001"), "carol")
    assert len(advice(here)) == 1
    assert here.phase(job_id("ann", "a", "r1")) == "waiting"


def test_the_part_along_a_path_is_the_part_of_the_whole_division() -> None:
    # rule: 1.18
    tree = Cell().budgets(org=3, other=2, org__team=2, org__rest=5, team__a=1, team__b=2).world.tree
    for amount in (0, 1, 7, 10**6 + 7, 3 * 10**15 + 1):
        whole = tree.split_all(amount)
        assert {name: leaf_part(tree, name, amount) for name in whole} == whole


def test_the_numbers_are_those_that_rank() -> None:
    # rule: 1.18
    here = Cell().hosts(1).budgets(a=1, b=39)
    (entitled,) = [n.entitled_gpu_ms for n in standings(here.world, "h100", T0) if n.budget == "a"]
    assert entitled == 8 * DAY // 40


def test_an_array_is_advised_once() -> None:
    # rule: 1.18
    from fairlease_schemas.job import Array

    here = Cell().hosts(1).budgets(a=1)
    events = here.when(submitted("r1", min_runtime_ms=2 * HOUR, array=Array(count=3))).events()
    told = Advice(field="spec.min_runtime", rule="1.18", text=WHOLE)
    assert [event.advice for event in events if isinstance(event, JobAdmitted)] == [(told,), (), ()]


# what waited lately -------------------------------------------------------------------------------------
def after_a_week_of(waits_ms: dict[tuple[int, int], int], count: int = FEWEST) -> Cell:
    """A cell in which so many jobs of each (GPUs, window) waited so long for their start, one after another."""
    here = Cell().hosts(1).budgets(a=1).policy(rank_period_ms=HOUR)
    for number in range(count):
        for (gpus, window_ms), wait_ms in waits_ms.items():
            here.say(CordonHost(host="host-001"), "carol")
            job = here.submit(f"r-{number}-{gpus}-{window_ms}", gpus_per_host=gpus, min_runtime_ms=window_ms)
            here.at(here.now_ms - T0 + wait_ms)
            here.say(ReturnHost(host="host-001"), "carol")
            here.gone(job)
    return here


def sooner(here: Cell, **fields: object) -> list[str]:
    return [text for text in advice(here, f"asked-{here.world.position}", **fields) if "started in" in text]


def test_a_shorter_window_that_started_much_sooner_is_told_with_both_waits() -> None:
    # rule: 1.18
    here = after_a_week_of({(8, 2 * HOUR): 40 * MINUTE, (8, HOUR): 20 * MINUTE, (8, 30 * MINUTE): 2 * MINUTE})
    assert sooner(here, gpus_per_host=8, min_runtime_ms=2 * HOUR, timeout_ms=DAY) == [
        "with a window of up to 1h jobs like this started in 20m, with up to 2h in 40m (medians of the last starts)"
    ]
    assert sooner(here, gpus_per_host=7, min_runtime_ms=HOUR, timeout_ms=DAY) == [
        "with a window of up to 30m jobs like this started in 2m, with up to 1h in 20m (medians of the last starts)"
    ]


def test_where_no_shorter_window_did_better_a_smaller_size_is_told() -> None:
    # rule: 1.18
    here = after_a_week_of({(8, HOUR): 40 * MINUTE, (2, HOUR): 50_000})
    assert sooner(here, gpus_per_host=8, min_runtime_ms=HOUR, timeout_ms=DAY) == [
        "jobs of at most 2 GPUs with such a window started in 50s, those like this in 40m (medians of the last starts)"
    ]


@pytest.mark.parametrize(
    ("waits_ms", "count"),
    [
        pytest.param({(8, HOUR): 40 * MINUTE, (8, 30 * MINUTE): 21 * MINUTE}, FEWEST, id="not half as long"),
        pytest.param({(8, HOUR): 4 * MINUTE, (8, 30 * MINUTE): MINUTE}, FEWEST, id="a wait that nobody minds"),
        pytest.param({(8, HOUR): 40 * MINUTE, (8, 30 * MINUTE): MINUTE}, FEWEST - 1, id="too few to be an experience"),
    ],
)
def test_what_is_no_better_is_not_told(waits_ms: dict[tuple[int, int], int], count: int) -> None:
    # rule: 1.18
    here = after_a_week_of(waits_ms, count)
    assert sooner(here, gpus_per_host=8, min_runtime_ms=HOUR, timeout_ms=DAY) == []


def test_what_is_older_than_the_lookback_is_forgotten_and_never_more_than_so_many_kept() -> None:
    # rule: 1.18
    here = after_a_week_of({(8, HOUR): 40 * MINUTE, (8, 30 * MINUTE): MINUTE})
    for number in range(KEPT):
        here.gone(here.submit(f"s-{number}", gpus_per_host=8))
    assert len(here.world.starts[kind(8, window_class(30 * MINUTE))]) == KEPT
    here.at(here.now_ms - T0 + 8 * DAY)
    assert sooner(here, gpus_per_host=8, min_runtime_ms=HOUR, timeout_ms=DAY) == []


def test_what_cannot_be_resumed_is_told_of_no_shorter_window() -> None:
    # rule: 1.18
    here = after_a_week_of({(8, HOUR): 40 * MINUTE, (8, 30 * MINUTE): MINUTE})
    fields = {"gpus_per_host": 8, "min_runtime_ms": HOUR, "timeout_ms": HOUR, "is_resumable": False}
    assert sooner(here, **fields) == []
