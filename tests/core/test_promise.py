"""The window calendar: what a blocked claim is promised, by which proof, and how a promise ends (6, 2.5)."""

import pytest

from fairlease.core.fairshare.standing import standings
from fairlease_schemas.commands import CancelJob
from fairlease_schemas.cycle import PromiseEnd, PromiseEnded, PromiseMade
from fairlease_schemas.reasons import Reason
from tests.core.bench import (
    DEBUG,
    GRACE,
    LONG,
    MARGIN,
    cell,
    evicted,
    evictions,
    grants,
    hosts_of,
    idle,
    left,
    names,
    promised,
    promises,
    reasons,
    saved,
    victims,
    whole,
)
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell

KEY = "b/h100/1x8/1800000ms"


def made(here: Cell) -> list[PromiseMade]:
    return [event for event in here.events(PromiseMade) if isinstance(event, PromiseMade)]


def ended(here: Cell) -> list[tuple[str, PromiseEnd, str]]:
    return [(e.job, e.why, e.cause) for e in here.events(PromiseEnded) if isinstance(e, PromiseEnded)]


def waiting(here: Cell, *, window_ms: int = HOUR, **fields: object) -> tuple[str, str]:
    """One host: `a` runs in its window there, and a claim of `b` is promised it; both jobs."""
    running = whole(here, "run", min_runtime_ms=window_ms, **fields)
    return running, whole(here, "claim", "b")


def gang(here: Cell, hosts: int = 2, name: str = "claim", **fields: object) -> str:
    """A claim of `b` for whole hosts with a short window."""
    return here.submit(
        name, "b", **({"hosts": hosts, "gpus_per_host": 8, "min_runtime_ms": 15 * MINUTE} | LONG | fields)
    )


def promised_gpu_ms(here: Cell, budget: str, at_ms: int) -> int:
    return next(n.promised_gpu_ms for n in standings(here.world, "h100", T0 + at_ms) if n.budget == budget)


# the time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window_ms", "grace_ms"),
    [
        pytest.param(HOUR, 30 * SECOND, id="a round hour"),
        pytest.param(HOUR + 1, 30 * SECOND + 1, id="a millisecond more of each"),
        pytest.param(47 * MINUTE + 123, 0, id="no grace"),
        pytest.param(4 * HOUR, 10 * MINUTE, id="the longest of both"),
    ],
)
def test_a_promise_begins_at_the_window_end_with_grace_and_stop_margin_behind_it(window_ms: int, grace_ms: int) -> None:
    # rule: 6.1
    here = cell()
    _, claim = waiting(here, window_ms=window_ms, grace_ms=grace_ms)
    assert made(here) == [promised(claim, 1, latest_ms=window_ms, grace_ms=grace_ms)]
    assert promises(here) == {claim: (names(1), window_ms + grace_ms + MARGIN)}


def test_the_time_is_the_latest_end_and_the_greatest_grace_though_of_two_attempts() -> None:
    # rule: 6.1
    here = cell(2, promise_permille=1000)
    whole(here, "late", min_runtime_ms=2 * HOUR)
    whole(here, "slow", min_runtime_ms=HOUR, grace_ms=10 * MINUTE)
    claim = gang(here)
    assert made(here) == [promised(claim, 1, 2, latest_ms=2 * HOUR, grace_ms=10 * MINUTE)]


def test_an_attempt_that_reaches_its_time_limit_first_is_gone_by_then() -> None:
    # rule: 6.1
    here = cell()
    here.submit("fixed", gpus_per_host=8, timeout_ms=50 * MINUTE, is_resumable=False)
    claim = whole(here, "claim", "b")
    assert made(here) == [promised(claim, 1, latest_ms=50 * MINUTE)]


def test_the_earliest_hosts_are_found_though_a_long_grace_spoils_a_set() -> None:
    """By its own grace alone each of the first two hosts is free before the third; together they are not."""
    # rule: 6.1
    here = cell(3, promise_permille=1000, margin_permille=0)
    whole(here, "r1", min_runtime_ms=20 * MINUTE, grace_ms=10 * MINUTE)
    whole(here, "r2", min_runtime_ms=29 * MINUTE, grace_ms=0)
    whole(here, "r3", min_runtime_ms=22 * MINUTE, grace_ms=9 * MINUTE)
    claim = gang(here)
    assert made(here) == [promised(claim, 1, 3, latest_ms=22 * MINUTE, grace_ms=10 * MINUTE)]


def test_a_later_end_without_grace_may_come_before_an_earlier_one_with_it() -> None:
    # rule: 6.1
    here = cell(2)
    whole(here, "r1", min_runtime_ms=20 * MINUTE, grace_ms=10 * MINUTE)
    whole(here, "r2", min_runtime_ms=29 * MINUTE, grace_ms=0)
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    assert made(here) == [promised(claim, 2, latest_ms=29 * MINUTE, grace_ms=0)]


def test_of_hosts_free_at_the_same_time_the_lower_ids_are_promised() -> None:
    # rule: 6.1
    here = cell(8)
    for n in range(8):
        whole(here, f"r{n}", min_runtime_ms=HOUR)
    claim = gang(here)
    assert promises(here) == {claim: (names(1, 2), HOUR + GRACE + MARGIN)}


def test_who_is_stopping_already_is_gone_by_its_own_grace() -> None:
    # rule: 6.1
    here = cell()
    running = whole(here, "run", min_runtime_ms=2 * HOUR, grace_ms=5 * MINUTE)
    here.at(MINUTE).say(CancelJob(job=running))
    here.at(2 * MINUTE)
    claim = whole(here, "claim", "b")
    assert promises(here) == {claim: (names(1), MINUTE + 5 * MINUTE + MARGIN)}


# who is promised ------------------------------------------------------------------------------------


def test_hosts_where_the_licence_would_not_do_are_not_promised() -> None:
    # rule: 6.2
    here = cell(8)
    for n in range(6):
        whole(here, f"a{n}", min_runtime_ms=(20 - n) * 10 * MINUTE)
    for n in range(2):
        whole(here, f"b{n}", "b", min_runtime_ms=HOUR)
    claim = gang(here)
    own = {hosts_of(here, job)[0] for job in here.world.jobs if here.world.jobs[job].budget == "b" and job != claim}
    ((hosts, start_ms),) = promises(here).values()
    assert own.isdisjoint(hosts)
    assert start_ms == 160 * MINUTE + GRACE + MARGIN


def test_a_claim_without_the_standing_is_promised_nothing() -> None:
    # rule: 6.2
    here = cell()
    whole(here, "run", min_runtime_ms=HOUR)
    whole(here, "claim", "b", min_runtime_ms=4 * HOUR)
    assert made(here) == []
    assert reasons(here) == {"b/h100/1x8/14400000ms": Reason.WINDOW_OVERSHARE}


@pytest.mark.parametrize(
    ("short_ms", "is_made"),
    [pytest.param(0, True, id="which ends as the promise begins"), pytest.param(1, False, id="a millisecond shorter")],
)
def test_within_the_horizon_of_the_policy_a_promise_is_made_and_beyond_it_none(short_ms: int, is_made: bool) -> None:
    # rule: 6.5
    here = cell(promise_horizon_ms=HOUR + GRACE + MARGIN - short_ms)
    _, claim = waiting(here)
    assert [event.job for event in made(here)] == ([claim] if is_made else [])


def test_a_gang_has_the_horizon_of_each_of_its_hosts() -> None:
    # rule: 6.5
    here = cell(2, promise_horizon_ms=(HOUR + GRACE + MARGIN) // 2 + 1, promise_permille=1000)
    for n in range(2):
        whole(here, f"run{n}", min_runtime_ms=HOUR)
    claim = gang(here)
    assert [event.job for event in made(here)] == [claim]


def test_while_a_better_claim_is_too_far_off_a_worse_one_that_is_near_is_promised_what_it_needs() -> None:
    # rule: 6.5
    here = Cell().hosts(2).budgets(a=1, b=1, c=1).policy(promise_permille=1000, promise_horizon_ms=20 * MINUTE)
    whole(here, "far", min_runtime_ms=2 * HOUR)
    whole(here, "near", min_runtime_ms=15 * MINUTE)
    best = gang(here)
    worse = whole(here, "worse", "c", min_runtime_ms=15 * MINUTE)
    assert [event.job for event in made(here)] == [worse]
    assert here.phase(best) == "waiting"


def test_what_was_too_far_off_is_promised_once_it_is_near() -> None:
    # rule: 6.5
    here = cell(promise_horizon_ms=20 * MINUTE)
    _, claim = waiting(here)
    assert made(here) == []
    here.at(45 * MINUTE).settle()
    assert promises(here) == {claim: (names(1), HOUR + GRACE + MARGIN)}


def test_a_part_of_a_host_is_promised_only_where_everybody_may_be_asked_to_leave() -> None:
    """Own work beside the victim is no reason to wait, and none to be evicted: without a promise the window ends."""
    # rule: 6.2
    here = cell(margin_permille=0)
    other = here.submit("other", gpus_per_host=4, min_runtime_ms=HOUR, **LONG)
    here.at(40 * MINUTE)
    own = here.submit("own", "b", gpus_per_host=4, min_runtime_ms=15 * MINUTE, **LONG)
    saved(here.at(55 * MINUTE), own)
    claim = here.submit("claim", "b", gpus_per_host=4, min_runtime_ms=15 * MINUTE, **LONG)
    assert made(here) == []
    here.at(HOUR)
    assert evictions(here) == [evicted(other, claim, 4 * HOUR)]


def test_a_part_of_a_host_is_promised_once_everybody_there_is_past_its_window() -> None:
    # rule: 6.2 6.4
    here = cell()
    first = here.submit("first", gpus_per_host=4, min_runtime_ms=30 * MINUTE, **LONG)
    second = here.submit("second", gpus_per_host=4, min_runtime_ms=HOUR, **LONG)
    claim = here.submit("claim", "b", gpus_per_host=4, min_runtime_ms=15 * MINUTE, **LONG)
    assert promises(here) == {claim: (names(1), HOUR + GRACE + MARGIN)}
    saved(here.start(second).at(50 * MINUTE), second)
    here.at(HOUR)
    assert evictions(here) == [evicted(second, claim, 4 * 10 * MINUTE)]
    assert here.phase(first) == "granted"


def test_idle_work_promises_nothing_and_is_promised_nothing() -> None:
    # rule: 6.2 3.8
    here = cell()
    whole(here, "run", min_runtime_ms=HOUR)
    idle(here, "idle")
    assert made(here) == []


def test_nothing_is_kept_for_the_debug_lane() -> None:
    # rule: 3.1 6.2
    here = cell()
    whole(here, "run", min_runtime_ms=HOUR)
    here.submit("debug", "a", **DEBUG)
    assert made(here) == []
    assert reasons(here) == {"a/h100/1x1/600000ms/debug:ann": Reason.PROTECTED_WINDOWS}


def test_the_licence_is_kept_until_the_promise_whatever_becomes_of_standings() -> None:
    # rule: 6.2
    here = cell().hosts(1, gpus=4, first=2)
    running, claim = waiting(here)
    assert promises(here) == {claim: (names(1), HOUR + GRACE + MARGIN)}
    more = here.submit("more", "b", gpus_per_host=4, min_runtime_ms=4 * HOUR, **LONG)
    assert here.phase(more) == "granted"
    here.at(HOUR)
    spent = {n.budget: n.used_gpu_ms + n.promised_gpu_ms for n in standings(here.world, "h100", T0 + HOUR)}
    assert spent["b"] > spent["a"]
    assert evictions(here) == [evicted(running, claim, 8 * HOUR)]


def test_the_claims_window_counts_as_promised_from_now_until_its_promise_ends() -> None:
    # rule: 2.5 6.2
    here = cell()
    _, claim = waiting(here)
    assert promised_gpu_ms(here, "b", 0) == 8 * 30 * MINUTE
    assert promised_gpu_ms(here, "a", 0) == 8 * HOUR
    here.say(CancelJob(job=claim))
    assert promised_gpu_ms(here, "b", 0) == 0


def test_the_claims_window_counts_once_when_it_is_granted() -> None:
    # rule: 2.5
    here = cell()
    running, claim = waiting(here)
    left(here.at(HOUR), running)
    assert here.phase(claim) == "granted"
    assert promised_gpu_ms(here, "b", HOUR) == 8 * 30 * MINUTE
    assert promised_gpu_ms(here, "b", HOUR + 10 * MINUTE) == 8 * 20 * MINUTE


# keeping it -----------------------------------------------------------------------------------------


def test_who_stands_in_the_way_is_told_grace_and_margin_before_and_not_a_millisecond_sooner() -> None:
    # rule: 6.3
    here = cell()
    running, claim = waiting(here, grace_ms=47_123)
    here.at(HOUR - 1)
    assert evictions(here) == []
    here.at(HOUR)
    assert evictions(here) == [evicted(running, claim, 8 * HOUR, grace_ms=47_123)]
    left(here.at(HOUR + 47_123 + MARGIN), running)
    assert here.phase(claim) == "granted"
    book = here.world.promise_book
    assert (book.made, book.kept, book.broken, here.world.promises) == (1, 1, 0, {})


def test_each_is_told_its_own_grace_before_also_when_another_is_stopping_by_then() -> None:
    # rule: 6.3
    here = cell()
    slow = here.submit("slow", gpus_per_host=4, min_runtime_ms=HOUR, grace_ms=10 * MINUTE, **LONG)
    quick = here.submit("quick", gpus_per_host=4, min_runtime_ms=HOUR, grace_ms=30 * SECOND, **LONG)
    claim = whole(here, "claim", "b")
    start_ms = HOUR + 10 * MINUTE + MARGIN
    assert promises(here) == {claim: (names(1), start_ms)}
    here.at(HOUR)
    assert victims(here) == [slow]
    here.at(start_ms - 60 * SECOND - 1)
    assert victims(here) == [slow]
    here.at(start_ms - 60 * SECOND)
    assert victims(here) == [slow, quick]
    left(left(here.at(start_ms), slow), quick)
    assert here.phase(claim) == "granted"


def test_who_could_no_longer_be_gone_in_time_is_not_chosen_late() -> None:
    """The dear one with the short grace stays the choice, although by then the other has become the cheaper."""
    # rule: 6.3
    here = cell()
    slow = here.submit("slow", gpus_per_host=4, min_runtime_ms=HOUR, grace_ms=10 * MINUTE, **LONG)
    quick = here.submit("quick", gpus_per_host=4, min_runtime_ms=HOUR, grace_ms=30 * SECOND, **LONG)
    claim = here.submit("claim", "b", gpus_per_host=4, min_runtime_ms=15 * MINUTE, **LONG)
    start_ms = HOUR + 10 * MINUTE + MARGIN
    saved(here.start(slow).start(quick).at(30 * MINUTE), quick)
    assert promises(here) == {claim: (names(1), start_ms)}
    here.at(HOUR)
    assert victims(here) == []
    saved(here.at(HOUR + MINUTE), slow)
    here.at(start_ms - 60 * SECOND)
    assert victims(here) == [quick]
    left(here.at(start_ms), quick)
    assert here.phase(claim) == "granted"


def test_running_work_stays_until_then_also_when_it_is_past_its_window() -> None:
    # rule: 6.3
    here = cell(2, promise_permille=1000)
    early = whole(here, "early", min_runtime_ms=30 * MINUTE)
    whole(here, "late", min_runtime_ms=2 * HOUR)
    claim = gang(here)
    here.at(2 * HOUR - 1)
    assert (evictions(here), here.phase(early)) == ([], "granted")
    here.at(2 * HOUR)
    assert sorted(victims(here)) == sorted(here.world.jobs.keys() - {claim})


def half_open() -> tuple[Cell, str, str]:
    """Two hosts, one in a window of an hour, the other empty; a claim for both is promised them. The two jobs."""
    here = cell(2, promise_permille=1000, margin_permille=0)
    running = whole(here, "run", min_runtime_ms=HOUR)
    claim = gang(here)
    assert promises(here) == {claim: (names(1, 2), HOUR + GRACE + MARGIN)}
    return here, running, claim


@pytest.mark.parametrize(
    ("fields", "longest_ms"),
    [
        pytest.param({"min_runtime_ms": 0}, 1, id="idle work, for a millisecond"),
        pytest.param({"min_runtime_ms": 15 * MINUTE}, 15 * MINUTE, id="a short window"),
        pytest.param(
            {"min_runtime_ms": 15 * MINUTE, "grace_ms": 5 * MINUTE}, 19 * MINUTE + 30 * SECOND, id="its grace"
        ),
        pytest.param(DEBUG, 10 * MINUTE, id="debug work"),
    ],
)
@pytest.mark.parametrize("over_ms", [0, 1], ids=["in time", "a millisecond too long"])
def test_a_hole_takes_what_is_over_before_the_promise_to_the_millisecond(
    fields: dict[str, object], longest_ms: int, over_ms: int
) -> None:
    """A gang is promised both hosts; one of them is empty until the window on the other ends."""
    # rule: 6.3
    here, *_ = half_open()
    here.at(HOUR - longest_ms + over_ms)
    filler = here.submit("filler", "a", gpus_per_host=8, **(LONG | fields))
    assert (filler in grants(here)) is not bool(over_ms)
    if over_ms:
        assert Reason.RESERVATION in reasons(here).values()


def test_what_fills_the_hole_is_gone_in_time() -> None:
    # rule: 6.3
    here, running, claim = half_open()
    filler = idle(here, "filler", grace_ms=2 * MINUTE)
    assert (here.phase(filler), hosts_of(here, filler)) == ("granted", names(2))
    here.at(HOUR - 90 * SECOND - 1)
    assert victims(here) == []
    here.at(HOUR - 90 * SECOND)
    assert victims(here) == [filler]
    left(left(here.at(HOUR + MINUTE), filler), running)
    assert here.phase(claim) == "granted"


def test_a_gang_may_fill_a_hole_beside_open_hosts() -> None:
    # rule: 6.3
    here = cell(5, promise_permille=1000, margin_permille=0)
    jobs = [whole(here, f"r{n}", min_runtime_ms=HOUR + n * MINUTE) for n in range(4)]
    claim = gang(here, hosts=3)
    assert promises(here)[claim][0] == names(1, 2, 5)
    here.gone(jobs[2])
    filler = here.submit("filler", hosts=2, gpus_per_host=8, min_runtime_ms=20 * MINUTE, **LONG)
    assert hosts_of(here, filler) == names(3, 5)


def test_no_better_claim_takes_promised_hosts() -> None:
    # rule: 6.3
    here = Cell().hosts(1).budgets(a=1, b=1, c=4)
    running, claim = waiting(here)
    better = whole(here, "better", "c", min_runtime_ms=HOUR)
    here.at(HOUR)
    assert evictions(here) == [evicted(running, claim, 8 * HOUR)]
    left(here, running)
    assert (here.phase(claim), here.phase(better)) == ("granted", "waiting")
