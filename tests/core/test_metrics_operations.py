"""How long drains, faults, decisions and starts took."""

import pytest

from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.operations import Follow
from fairlease.core.metrics.quantile import Spread, spread
from fairlease_schemas.commands import RequestDrain
from tests.core.bench import cell, left, whole
from tests.core.told import figures
from tests.dsl.cell import HOUR, MINUTE, SECOND

ALWAYS = Period(0, 1_000_000)
NONE = spread([])


def one(value: int) -> Spread:
    return spread([value])


def test_a_drain_is_measured_from_its_request_to_the_empty_host_and_against_what_was_promised() -> None:
    # rule: 7.2
    here = cell(1)
    job = whole(here, "x", min_runtime_ms=30 * MINUTE)
    here.start(job).at(10 * MINUTE)
    here.say(RequestDrain(host="host-001"), "ops")
    here.at(30 * MINUTE + 20 * SECOND)
    left(here, job)
    drains = figures(here, HOUR).operations.drains
    # Asked at 10m, promised by the window's end + grace + margin at 31m, empty at 30m20s.
    assert (drains.asked, drains.emptied, drains.in_time) == (1, 1, 1)
    assert (drains.took, drains.promised) == (one(20 * MINUTE + 20 * SECOND), one(21 * MINUTE))
    assert figures(here, 20 * MINUTE).operations.drains.emptied == 0


def test_a_drain_that_is_called_off_is_asked_and_never_emptied() -> None:
    follow = Follow(ALWAYS)
    follow.drain_planned("h", 10, 5, is_queued=False)
    follow.drain_over("h", 20, is_empty=False)
    follow.drain_over("other", 20, is_empty=True)
    drains = follow.result().drains
    assert (drains.asked, drains.emptied, drains.took) == (1, 0, NONE)


def test_a_drain_that_waits_in_a_queue_is_promised_when_it_begins() -> None:
    follow = Follow(ALWAYS)
    follow.drain_planned("h", 10, 0, is_queued=True)
    follow.drain_planned("h", 50, 30, is_queued=False)
    follow.drain_over("h", 81, is_empty=True)
    drains = follow.result().drains
    assert (drains.asked, drains.in_time, drains.took, drains.promised) == (1, 0, one(71), one(70))


def test_a_lost_lease_is_detected_after_its_silence_and_its_jobs_are_in_line_again() -> None:
    follow = Follow(ALWAYS)
    follow.lease_lost(["job-x", "job-y"], 100, 75)
    follow.requeued("job-x", 103)
    follow.requeued("job-z", 103)
    found = follow.result()
    assert (found.detection, found.requeue) == (one(75), one(3))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([("news", 5, 100), ("ranked", 5), ("closed", 112)], one(12), id="from the news to the close"),
        pytest.param(
            [("news", 5, 100), ("news", 6, 104), ("ranked", 6), ("closed", 112)], one(12), id="from the first news"
        ),
        pytest.param(
            [("news", 5, 100), ("news", 7, 104), ("ranked", 6), ("closed", 112), ("ranked", 9), ("closed", 124)],
            spread([12, 20]),
            id="what came behind the rank's basis is the next cycle's",
        ),
        pytest.param(
            [("news", 5, 100), ("rested",), ("news", 6, 900), ("ranked", 6), ("closed", 912)],
            one(12),
            id="what nobody waited for is no trigger",
        ),
        pytest.param([("ranked", 6), ("closed", 112)], NONE, id="a cycle of the clock has no trigger"),
        pytest.param(
            [("news", 5, 100), ("ranked", 5), ("abandoned",), ("ranked", 8), ("closed", 150)],
            one(50),
            id="an abandoned cycle is answered by the next",
        ),
    ],
)
def test_a_decision_takes_from_its_trigger_to_the_close(
    steps: list[tuple[str, *tuple[int, ...]]], expected: Spread
) -> None:
    follow = Follow(ALWAYS)
    for what, *numbers in steps:
        match what:
            case "news":
                follow.news(numbers[0], numbers[1])
            case "ranked":
                follow.ranked(numbers[0])
            case "closed":
                follow.closed(500, numbers[0])
            case "rested":
                follow.rested()
            case _:
                follow.abandoned()
    assert follow.result().decision == expected


def test_what_happens_while_nobody_waits_asks_for_no_decision() -> None:
    here = cell(1)
    first = whole(here, "x")
    here.start(first)
    here.at(10 * SECOND).gone(first)
    here.at(HOUR)
    assert here.phase(whole(here, "y")) == "granted"
    found = figures(here, 2 * HOUR).operations.decision
    assert (found.p50, found.p99) == (0, 0), "the cell's idle hour is no part of a decision"


def test_a_start_is_counted_for_jobs_that_fitted_at_once() -> None:
    here = cell(1)
    first = whole(here, "x")
    here.at(2 * SECOND).start(first)
    second = whole(here, "y")
    here.at(60 * SECOND).gone(first)
    here.at(61 * SECOND).start(second)
    assert figures(here, HOUR).operations.start == one(2 * SECOND)
