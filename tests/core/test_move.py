"""Work below one host is moved to holes elsewhere, so that a host is whole, where somebody waits for one (5.8)."""

import pytest

from fairlease.core.view import job_view
from fairlease_schemas.commands import CancelJob, CordonHost, RequestDrain
from fairlease_schemas.cycle import EvictionOrdered, Licence
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.reports import HostUp
from tests.core.bench import (
    GRACE,
    LONG,
    cell,
    change,
    evictions,
    grants,
    hosts_of,
    idle,
    left,
    names,
    reasons,
    saved,
    whole,
)
from tests.core.told import figures
from tests.dsl.cell import HOUR, MINUTE, T0, Cell, inventory

NUMBERS = {"move_gain_ms": HOUR, "promises_per_pool": 0, "margin_permille": 1_000_000}
"""The margin lets nobody evict budgeted work for a claim."""


def moved(job: str, lost_gpu_ms: int = 0, number: int = 1) -> EvictionOrdered:
    return EvictionOrdered(
        attempt=attempt_id(job, number), claim="", licence=Licence.MOVE, grace_ms=GRACE, lost_gpu_ms=lost_gpu_ms
    )


def moves(here: Cell) -> list[EvictionOrdered]:
    return [event for event in evictions(here) if event.licence is Licence.MOVE]


def past(here: Cell, name: str, gpus: int, budget: str = "a", **fields: object) -> str:
    """Budgeted work with a window of a quarter of an hour."""
    return here.submit(name, budget, **({"gpus_per_host": gpus, "min_runtime_ms": 15 * MINUTE} | LONG | fields))


def two(gpus: tuple[int, int] = (2, 3), **numbers: object) -> tuple[Cell, str, str]:
    """Two hosts with one small job on each, past their windows after a quarter of an hour."""
    here = cell(2, **(NUMBERS | numbers))
    full = past(here, "full", 8 - gpus[0])
    one = past(here, "one", gpus[0])
    other = past(here, "other", gpus[1])
    here.start(one).start(other)
    here.gone(full)
    assert (hosts_of(here, one), hosts_of(here, other)) == (names(1), names(2))
    return here, one, other


def claim(here: Cell, name: str = "claim", **fields: object) -> str:
    """Somebody waits for a whole host, and may evict nobody for it."""
    return whole(here, name, "b", **({"min_runtime_ms": 15 * MINUTE} | fields))


def test_the_host_with_the_largest_hole_is_made_whole_and_who_was_there_goes_to_the_hole_on_the_other() -> None:
    # rule: 5.8
    here, one, other = two()
    waiting = claim(here)
    here.at(15 * MINUTE - 1)
    assert moves(here) == []
    here.at(15 * MINUTE)
    assert moves(here) == [moved(one, 2 * 15 * MINUTE)]
    left(here, one)
    assert hosts_of(here, one) == names(2), "in the hole"
    assert hosts_of(here, waiting) == names(1), "on the host that is whole"
    assert here.world.jobs[other].attempts[-1].number == 1
    here.at(2 * HOUR)
    assert len(moves(here)) == 1


def test_idle_work_is_moved_at_once_also_for_idle_work() -> None:
    # rule: 5.8
    here = cell(2, **NUMBERS)
    full = past(here, "full", 7)
    spare = idle(here, "spare", 1)
    past(here, "protected", 3, min_runtime_ms=2 * HOUR)
    here.start(spare).gone(full)
    assert moves(here) == []
    waiting = idle(here, "claim", 8)
    assert moves(here) == [moved(spare)]
    left(here, spare)
    assert (hosts_of(here, spare), hosts_of(here, waiting)) == (names(2), names(1))


def test_a_claim_that_may_evict_does_so_itself() -> None:
    # rule: 5.8 5.1
    here = cell(2, **NUMBERS)
    full = past(here, "full", 7)
    idle(here, "spare", 1)
    past(here, "protected", 3, min_runtime_ms=2 * HOUR)
    here.gone(full)
    claim(here)
    assert [event.licence for event in evictions(here)] == [Licence.UNDER_SHARE]


def test_nobody_waits_for_a_whole_host_and_nobody_is_moved() -> None:
    # rule: 5.8
    here, *_ = two()
    here.at(2 * HOUR)
    assert moves(here) == []


def test_nor_is_anybody_for_a_claim_for_another_size() -> None:
    # rule: 5.8
    here, *_ = two((7, 7))
    past(here, "claim", 6, "b")
    here.at(HOUR)
    assert moves(here) == []


def test_without_a_gain_there_are_no_moves() -> None:
    # rule: 5.8
    here, *_ = two(move_gain_ms=0)
    claim(here)
    here.at(2 * HOUR)
    assert moves(here) == []


@pytest.mark.parametrize(
    ("gain_ms", "is_moved"),
    [
        pytest.param(5 * MINUTE, True, id="two GPUs lose a quarter of an hour, and a hole of six gains five minutes"),
        pytest.param(5 * MINUTE - 1, False, id="a millisecond less is too little"),
    ],
)
def test_what_is_lost_is_weighed_against_the_hole_to_the_gpu_millisecond(gain_ms: int, is_moved: bool) -> None:
    # rule: 5.8
    here, *_ = two(move_gain_ms=gain_ms)
    claim(here)
    here.at(15 * MINUTE)
    assert bool(moves(here)) is is_moved


def test_a_checkpoint_makes_a_move_cheap_enough() -> None:
    # rule: 5.8
    here, one, _ = two(move_gain_ms=MINUTE)
    claim(here)
    here.at(20 * MINUTE)
    assert moves(here) == []
    saved(here, one)
    here.at(21 * MINUTE)
    assert [event.attempt for event in moves(here)] == [attempt_id(one, 1)]


def test_who_has_no_room_elsewhere_stays() -> None:
    # rule: 5.8
    here, *_ = two((5, 5))
    claim(here)
    here.at(2 * HOUR)
    assert moves(here) == []


def test_all_or_nobody_leaves_a_host() -> None:
    """One GPU and four stand on the first host; the second has three free, so that one of both could go."""
    # rule: 5.8
    here = cell(2, **NUMBERS)
    full = past(here, "full", 3)
    past(here, "small", 1)
    past(here, "large", 4)
    past(here, "other", 5)
    here.gone(full)
    claim(here)
    here.at(HOUR)
    assert moves(here) == []


def test_of_equal_holes_the_cheaper_host_is_left_and_of_equal_costs_the_first() -> None:
    # rule: 5.8
    for has_saved, expected in ((False, 1), (True, 2)):
        here, one, other = two((3, 3))
        claim(here)
        if has_saved:
            here.at(10 * MINUTE)
            saved(here, other)
        here.at(15 * MINUTE)
        (event,) = moves(here)
        assert event.attempt == attempt_id((one, other)[expected - 1], 1)


def test_work_of_which_a_window_is_left_keeps_its_host() -> None:
    # rule: 5.8 5.1
    here = cell(2, **NUMBERS)
    full = past(here, "full", 6)
    past(here, "protected", 2, min_runtime_ms=4 * HOUR)
    past(here, "other", 3, min_runtime_ms=4 * HOUR)
    here.gone(full)
    claim(here)
    here.at(4 * HOUR - 1)
    assert moves(here) == []


@pytest.mark.parametrize("cap", ["max_protected_permille", "burst_permille"])
def test_nor_does_work_below_a_cap_move_that_its_new_window_could_keep_out(cap: str) -> None:
    # rule: 5.8 2.9
    here, *_ = two()
    change(here, "a", **{cap: 2_000})
    claim(here)
    here.at(2 * HOUR)
    assert moves(here) == []


def test_a_gang_is_not_moved() -> None:
    # rule: 5.8
    here = cell(3, **NUMBERS)
    gang = here.submit("gang", hosts=2, gpus_per_host=8, min_runtime_ms=15 * MINUTE, **LONG)
    past(here, "other", 3)
    here.start(gang)
    claim(here)
    here.at(2 * HOUR)
    assert moves(here) == []


def test_a_held_host_is_neither_left_nor_filled() -> None:
    # rule: 5.8
    here, *_ = two()
    here.say(CordonHost(host="host-002"), "ops")
    claim(here)
    here.at(HOUR)
    assert moves(here) == []


def test_nor_is_one_that_drains_later() -> None:
    # rule: 5.8 7.2
    here, *_ = two()
    here.say(RequestDrain(host="host-002", not_before_ms=T0 + 12 * HOUR), "bot")
    claim(here)
    here.at(HOUR)
    assert moves(here) == []


def test_while_somebody_leaves_a_host_with_a_hole_nobody_is_moved() -> None:
    """The hole might be what who leaves would come back to."""
    # rule: 5.8
    here = cell(3, **NUMBERS)
    full = [past(here, f"full-{n}", 8 - gpus) for n, gpus in enumerate((2, 3))]
    jobs = [past(here, "one", 2)]
    jobs += [past(here, "two", 3), past(here, "three", 4)]
    for job in full:
        here.gone(job)
    claim(here)
    here.at(15 * MINUTE)
    assert len(moves(here)) == 1
    here.at(2 * HOUR)
    assert len(moves(here)) == 1, "who was told has not gone yet"
    assert {event.attempt for event in moves(here)} < {attempt_id(job, 1) for job in jobs}


def test_the_hole_may_be_gone_when_he_comes_and_then_he_waits_like_everybody() -> None:
    # rule: 5.8
    here, one, _ = two()
    claim(here)
    here.at(15 * MINUTE)
    assert moves(here)
    thief = past(here, "thief", 4, "b")
    assert hosts_of(here, thief) == names(2)
    left(here, one)
    assert here.world.jobs[one].live is None
    assert "a/h100/1x2/900000ms" in reasons(here)


def test_nobody_is_moved_where_he_would_come_back_to_a_smaller_empty_host() -> None:
    """Best fit takes the small empty host, which somebody then would have to leave again."""
    # rule: 5.8 4.1
    here = cell(2, **NUMBERS)
    here.say(HostUp(incarnation="boot-1", inventory=inventory(3, 2)), "host-003")
    full = past(here, "full", 7)
    block = past(here, "block", 2)
    spare = past(here, "spare", 1)
    other = past(here, "other", 4, min_runtime_ms=4 * HOUR)
    assert [hosts_of(here, job) for job in (full, block, spare, other)] == [names(1), names(3), names(1), names(2)]
    here.gone(full).gone(block)
    here.submit("gang", "b", hosts=2, gpus_per_host=8, min_runtime_ms=15 * MINUTE, **LONG)
    here.at(4 * HOUR - 1)
    assert moves(here) == []


def test_nobody_is_moved_off_a_small_host_to_which_best_fit_would_bring_him_back() -> None:
    # rule: 5.8 4.1
    here = cell(1, **NUMBERS)
    for number in (2, 3):
        here.say(HostUp(incarnation="boot-1", inventory=inventory(number, 2)), names(number)[0])
    small = idle(here, "small", 1)
    blocks = [past(here, name, gpus, min_runtime_ms=4 * HOUR) for name, gpus in (("pair", 2), ("other", 4))]
    assert [hosts_of(here, job) for job in (small, *blocks)] == [names(2), names(3), names(1)]
    idle(here, "gang", 2, hosts=2)
    here.at(2 * HOUR)
    assert moves(here) == []


def test_two_who_would_both_come_back_are_not_moved_to_and_fro() -> None:
    """When the first has left, seven are free there and on the other host, and the first host comes first by its id."""
    # rule: 5.8 4.1
    here = cell(2, **NUMBERS)
    full = past(here, "full", 6)
    pair = [idle(here, name, 1) for name in ("one", "two")]
    other = past(here, "other", 1, min_runtime_ms=4 * HOUR)
    assert [hosts_of(here, job) for job in (*pair, other)] == [names(1), names(1), names(2)]
    here.gone(full)
    idle(here, "claim", 8)
    here.at(2 * HOUR)
    assert moves(here) == []


def test_moves_go_on_until_there_is_nothing_to_gain_and_then_end() -> None:
    """Four hosts with one small job on each: two are made whole, one after the other.

    All six GPUs of the third would have room on the fourth; but best fit would bring the first who leaves back.
    """
    # rule: 5.8
    here = cell(4, **NUMBERS)
    full = [past(here, f"full-{n}", 8 - n) for n in (1, 2, 3)]
    jobs = [idle(here, f"job-{n}", n) for n in (1, 2, 3)]
    jobs.append(past(here, "last", 2, min_runtime_ms=4 * HOUR))
    assert [hosts_of(here, job)[0] for job in jobs] == list(names(1, 2, 3, 4))
    for job in full:
        here.gone(job)
    idle(here, "gang", 8, hosts=4)
    told = 0
    while len(moves(here)) > told:
        told += 1
        job = moves(here)[-1].attempt.rpartition("-a")[0]
        left(here, job)
        assert here.world.jobs[job].live is not None
        here.at(told * 10 * MINUTE)
    assert told == 2
    assert [hosts_of(here, job) for job in jobs] == [names(3), names(3), names(3), names(4)]


def test_a_move_counts_for_the_brake() -> None:
    # rule: 5.8 5.7
    here, one, _ = two(brake_count=1)
    waiting = claim(here)
    here.at(15 * MINUTE)
    left(here, one)
    here.say(CancelJob(job=waiting), "ann")
    left(here, waiting)
    assert here.world.jobs[one].preemptions_ms == (T0 + 15 * MINUTE,), "a move counts for the brake"


def test_a_moved_job_says_so() -> None:
    # rule: 5.8
    here, one, _ = two()
    claim(here)
    here.at(15 * MINUTE)
    left(here, one)
    first, second = job_view(here.world, here.world.jobs[one]).attempts
    assert (first.is_moved, first.stop_for, first.drained_from, first.end) == (True, "", "", "preempted")
    assert not second.is_moved
    found = figures(here, HOUR).recovery
    assert (found.evicted, found.window_breaks, found.turns, found.loops) == ({"move": {"move": 1}}, 0, 0, 0)


def test_the_lane_without_a_spare_host_is_reason_enough() -> None:
    # rule: 5.8 3.1
    here, one, _ = two()
    here.at(20 * MINUTE)
    assert moves(here) == []
    here.policy(**({"rank_period_ms": MINUTE, "debug_spare_hosts": 1} | NUMBERS))
    past(here, "wide", 7, "b")
    here.at(30 * MINUTE)
    assert [event.attempt for event in moves(here)] == [attempt_id(one, 1)]
    left(here, one)
    assert hosts_of(here, one) == names(2)
    waiting = claim(here)
    assert here.world.jobs[waiting].live is None
    assert grants(here)[-1] == one
