"""How promises end, by name, and how many there may be (6.4, 6.5)."""

import pytest

from fairlease_schemas.commands import CancelJob, CordonHost
from fairlease_schemas.cycle import CyclePlaced, PromiseEnd
from fairlease_schemas.job import End
from fairlease_schemas.reasons import Reason, ReasonBegan
from fairlease_schemas.reports import HostUp
from tests.core.bench import (
    DEBUG,
    GRACE,
    LONG,
    MARGIN,
    cell,
    change,
    evicted,
    evictions,
    hosts_of,
    left,
    names,
    promised,
    promises,
    reasons,
    victims,
    whole,
)
from tests.core.test_promise import KEY, ended, gang, half_open, made, waiting
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell, inventory

# how it ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gain_ms", [MINUTE, MINUTE - 1], ids=["just enough", "a millisecond too little"])
def test_only_a_promise_that_is_earlier_by_the_gain_takes_its_place(gain_ms: int) -> None:
    """A debug job takes the second host in between; its end, grace and margin are the new time."""
    # rule: 6.4
    here = cell(2)
    own = here.submit("own", "b", min_runtime_ms=15 * MINUTE, **LONG)
    whole(here, "run", min_runtime_ms=HOUR)
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    before = made(here)
    here.at(HOUR - 10 * MINUTE - gain_ms)
    debug = here.submit("debug", "a", settle=False, **(DEBUG | {"gpus_per_host": 8}))
    here.gone(own)
    assert hosts_of(here, debug) == names(1)
    if gain_ms == MINUTE:
        assert ended(here) == [(claim, PromiseEnd.EARLIER, "")]
        assert made(here)[len(before) :] == [promised(claim, 1, latest_ms=10 * MINUTE)]
        assert here.world.promise_book.earlier == 1
    else:
        assert (ended(here), made(here)) == ([], before)


def test_a_claim_that_may_evict_elsewhere_now_lets_its_promise_go_for_the_earlier_start() -> None:
    # rule: 6.4
    here = cell(2)
    own = here.submit("own", "b", min_runtime_ms=15 * MINUTE, **LONG)
    whole(here, "run", min_runtime_ms=HOUR)
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    assert claim in promises(here)
    here.at(20 * MINUTE)
    filler = here.submit("debug", "a", settle=False, **(DEBUG | {"gpus_per_host": 8, "min_runtime_ms": MINUTE}))
    here.gone(own).at(21 * MINUTE)
    assert ended(here)[-1] == (claim, PromiseEnd.EARLIER, "")
    assert victims(here) == [filler]


def test_a_promise_for_which_somebody_was_told_to_leave_is_kept_though_evictions_elsewhere_would_be_sooner() -> None:
    """The job on its host has ten minutes to leave and was told; the lane's job elsewhere would need one."""
    # rule: 6.4
    here = cell(2)
    own = here.submit("own", "b", min_runtime_ms=15 * MINUTE, **LONG)
    running = whole(here, "run", min_runtime_ms=HOUR, grace_ms=10 * MINUTE)
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    before = made(here)
    here.at(HOUR + SECOND)
    here.submit("debug", "a", settle=False, **(DEBUG | {"gpus_per_host": 8, "min_runtime_ms": MINUTE}))
    here.gone(own).at(HOUR + 3 * MINUTE)
    assert claim in promises(here)
    assert (ended(here), made(here)) == ([], before)
    assert victims(here) == [running]


def test_evictions_elsewhere_that_would_take_longer_leave_the_promise_as_it_is() -> None:
    """The lane's job is past its window five minutes before the start, but would take ten to leave."""
    # rule: 6.4
    here = cell(2)
    own = here.submit("own", "b", min_runtime_ms=15 * MINUTE, **LONG)
    running = whole(here, "run", min_runtime_ms=HOUR)
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    here.at(50 * MINUTE)
    debug = {"gpus_per_host": 8, "min_runtime_ms": MINUTE, "grace_ms": 10 * MINUTE}
    here.submit("debug", "a", settle=False, **(DEBUG | debug))
    here.gone(own).at(56 * MINUTE)
    assert (ended(here), victims(here)) == ([], [])
    placed = here.events(CyclePlaced)[-1]
    assert isinstance(placed, CyclePlaced)
    assert (placed.claims, [known.job for known in placed.blocked]) == ((), [claim])
    here.at(HOUR)
    assert evictions(here) == [evicted(running, claim, 8 * HOUR)]


def test_the_hold_of_a_host_voids_its_promise_and_is_named() -> None:
    # rule: 6.4
    here = cell()
    _, claim = waiting(here)
    here.say(CordonHost(host="host-001"))
    assert ended(here) == [(claim, PromiseEnd.HOST_HELD, "host-001")]
    assert (promises(here), here.world.promise_book.voided) == ({}, 1)


def test_a_fault_that_shows_under_running_work_voids_the_promise() -> None:
    # rule: 6.4
    here = cell()
    _, claim = waiting(here)
    here.say(HostUp(incarnation="boot-2", inventory=inventory(1, gpus=7)), "host-001")
    assert ended(here) == [(claim, PromiseEnd.HOST_HELD, "host-001")]


@pytest.mark.parametrize(
    "devices",
    [pytest.param({"pool": "l40s"}, id="in another pool"), pytest.param({"gpus": 4}, id="with fewer devices")],
)
def test_a_promised_host_that_comes_back_as_another_voids_the_promise(devices: dict[str, object]) -> None:
    # rule: 6.4
    here, _, claim = half_open()
    assert promises(here)[claim][0] == names(1, 2)
    here.say(HostUp(incarnation="boot-2", inventory=inventory(2, **devices)), "host-002")  # type: ignore[arg-type] # by name
    assert ended(here) == [(claim, PromiseEnd.HOST_HELD, "host-002")]


def test_a_change_of_policy_voids_the_promise_by_its_address() -> None:
    # rule: 6.4
    here = cell()
    _, claim = waiting(here)
    here.policy(margin_permille=0)
    assert ended(here) == [(claim, PromiseEnd.POLICY_CHANGED, str(here.world.policy_address))]
    assert claim in promises(here)
    assert len(made(here)) == 2


def test_a_change_of_the_tree_voids_the_promise_by_its_address() -> None:
    # rule: 6.4
    here = cell()
    _, claim = waiting(here)
    here.budgets(c=1)
    assert ended(here)[0] == (claim, PromiseEnd.TREE_CHANGED, str(here.world.tree_address))


def test_the_claims_own_cancel_voids_its_promise_and_opens_the_hosts() -> None:
    # rule: 6.4
    here, _, claim = half_open()
    late = whole(here, "late", min_runtime_ms=2 * HOUR)
    assert here.phase(late) == "waiting"
    here.say(CancelJob(job=claim))
    assert ended(here) == [(claim, PromiseEnd.CLAIM_LEFT, "")]
    assert here.phase(late) == "granted"


def outage(here: Cell, *, from_ms: int, to_ms: int) -> None:
    """Nothing is placed and no cycle is closed from the one instant to the other."""
    here.at(from_ms)
    here.away.update(("placement", "preemption"))
    here.at(to_ms)
    here.away.clear()


def test_an_outage_over_the_promised_time_voids_it() -> None:
    # rule: 6.4
    here = cell()
    _, claim = waiting(here)
    outage(here, from_ms=HOUR + 30 * SECOND - 1, to_ms=HOUR + 70 * SECOND)
    here.settle()
    assert ended(here) == [(claim, PromiseEnd.OUTAGE, "")]
    assert (here.world.promise_book.voided, here.world.promise_book.broken) == (1, 0)


def test_a_cycle_within_the_stop_margin_before_the_time_is_no_outage() -> None:
    # rule: 6.4
    here = cell(rank_period_ms=10 * SECOND)
    waiting(here)
    outage(here, from_ms=HOUR + 30 * SECOND, to_ms=HOUR + 70 * SECOND)
    here.settle()
    assert ended(here) == []


def test_a_grant_that_an_outage_made_late_is_a_voided_promise_and_no_broken_one() -> None:
    # rule: 6.4
    here = cell()
    running, claim = waiting(here)
    outage(here, from_ms=HOUR - MINUTE, to_ms=HOUR + 2 * MINUTE)
    here.gone(running)
    here.settle()
    assert here.phase(claim) == "granted"
    book = here.world.promise_book
    assert (book.kept, book.voided, book.broken) == (0, 1, 0)


def test_a_promise_that_somebody_overstays_is_broken_and_says_so_and_opens_the_other_hosts() -> None:
    # rule: 6.4
    here, running, claim = half_open()
    here.at(HOUR + 2 * MINUTE)
    assert (victims(here), ended(here)) == ([running], [])
    late = whole(here, "late")
    assert here.phase(late) == "waiting"
    here.at(HOUR + 3 * MINUTE)
    assert ended(here) == [(claim, PromiseEnd.BROKEN, "")]
    assert here.world.promise_book.broken == 1
    assert here.phase(late) == "granted"


# limits ---------------------------------------------------------------------------------------------


def full(hosts: int, **numbers: object) -> Cell:
    """That many hosts, each in a window of `a` that ends ten minutes after the one before."""
    here = cell(hosts, **numbers)
    for n in range(hosts):
        whole(here, f"r{n}", min_runtime_ms=HOUR + n * 10 * MINUTE)
    return here


def test_a_pool_promises_one_claim_at_a_time() -> None:
    # rule: 6.5
    here = full(8)
    first = whole(here, "c1", "b")
    whole(here, "c2", "b", min_runtime_ms=20 * MINUTE)
    assert list(promises(here)) == [first]


def test_as_many_as_the_policy_says_and_never_the_same_hosts() -> None:
    # rule: 6.5
    here = full(8, promises_per_pool=2)
    jobs = [whole(here, f"c{n}", "b", min_runtime_ms=(15 + n) * MINUTE, settle=False) for n in range(3)]
    here.settle()
    assert promises(here) == {
        jobs[0]: (names(1), HOUR + GRACE + MARGIN),
        jobs[1]: (names(2), 70 * MINUTE + GRACE + MARGIN),
    }


def test_each_pool_has_its_own_promise() -> None:
    # rule: 6.5
    here = Cell().hosts(1).hosts(1, pool="l40s", first=2).budgets(a=1, b=1)
    for pool in ("h100", "l40s"):
        whole(here, f"run-{pool}", min_runtime_ms=HOUR, pools=(pool,))
    claims = [whole(here, f"claim-{pool}", "b", pools=(pool,)) for pool in ("h100", "l40s")]
    assert list(promises(here)) == claims


@pytest.mark.parametrize(
    ("hosts", "wanted", "is_promised"),
    [
        pytest.param(8, 2, True, id="exactly a quarter of the pool"),
        pytest.param(7, 2, False, id="a little more than a quarter"),
        pytest.param(1, 1, True, id="one host is always allowed"),
    ],
)
def test_a_promise_takes_at_most_a_quarter_of_the_pool(hosts: int, wanted: int, is_promised: bool) -> None:
    # rule: 6.5
    here = full(hosts)
    gang(here, wanted)
    assert bool(promises(here)) is is_promised


def test_a_gang_that_is_too_large_for_a_promise_leaves_it_to_the_next() -> None:
    # rule: 6.5
    here = full(4)
    gang(here, name="big", settle=False)
    small = whole(here, "small", "b", min_runtime_ms=15 * MINUTE)
    assert list(promises(here)) == [small]


def test_no_cap_takes_back_what_is_owed_and_nobody_else_is_granted_beyond_it() -> None:
    # rule: 6.4 2.9
    here = cell(2)
    change(here, "b", burst_permille=1000)
    running = whole(here, "run", min_runtime_ms=HOUR)
    here.submit("half", gpus_per_host=4, min_runtime_ms=2 * HOUR, **LONG)
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    assert promises(here) == {claim: (names(1), HOUR + GRACE + MARGIN)}
    whole(here, "more", min_runtime_ms=HOUR)
    other = here.submit("other", "b", gpus_per_host=4, min_runtime_ms=15 * MINUTE, **LONG)
    assert (here.phase(other), reasons(here)["b/h100/1x4/900000ms"]) == ("waiting", Reason.BUDGET_CAP)
    left(here.at(HOUR), running)
    assert (here.phase(claim), here.world.promise_book.kept) == ("granted", 1)


def test_the_reason_says_until_when_the_windows_are() -> None:
    # rule: 9.1 6.1
    here = cell()
    waiting(here)
    (began,) = [e for e in here.events(ReasonBegan) if isinstance(e, ReasonBegan)]
    assert (began.subject, began.code) == (KEY, Reason.PROTECTED_WINDOWS)
    assert began.evidence.for_ms == HOUR + GRACE + MARGIN


def test_a_claim_that_finds_room_elsewhere_in_time_has_its_promise_kept() -> None:
    # rule: 6.4
    here = cell(2)
    own = here.submit("own", "b", min_runtime_ms=15 * MINUTE)
    whole(here, "run", min_runtime_ms=HOUR)
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    assert promises(here)[claim][0] == names(2)
    here.at(20 * MINUTE).gone(own, End.FAILED, 1)
    assert hosts_of(here, claim) == names(1)
    assert (here.world.promises, here.world.promise_book.kept, ended(here)) == ({}, 1, [])
