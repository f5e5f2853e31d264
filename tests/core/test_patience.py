"""Waiting a little where that loses less than evicting now: for a checkpoint, for a window's end; once (5.5)."""

import pytest

from fairlease_schemas.commands import CancelJob
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan, ReasonEnded
from tests.core.bench import (
    DEBUG,
    LONG,
    cell,
    evicted,
    evictions,
    idle,
    saved,
    victims,
    whole,
)
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell

KEY = "b/h100/1x8/1800000ms"


def told(here: Cell, key: str = KEY) -> list[ReasonBegan | ReasonEnded]:
    """What preemption wrote about the class."""
    codes = (Reason.AWAITING_CHECKPOINT, Reason.PROTECTED_WINDOWS)
    return [e for e in here.events(ReasonBegan, ReasonEnded) if e.subject == key and e.code in codes]  # type: ignore[attr-defined] # both have them


def awaiting(code: Reason, for_ms: int, gpus: int = 8, key: str = KEY) -> ReasonBegan:
    return ReasonBegan(subject=key, code=code, evidence=Evidence(pool="h100", needed_gpus=gpus, for_ms=for_ms))


def saving(*, every_ms: int, at_ms: int, hosts: int = 1, **numbers: object) -> tuple[Cell, str]:
    """Idle work that saves every so often runs since the start; it is `at_ms` later."""
    here = cell(hosts, **numbers)
    spare = idle(here, "spare", checkpoint_interval_ms=every_ms)
    here.start(spare).at(at_ms)
    return here, spare


def test_a_checkpoint_that_falls_due_soon_is_awaited_and_then_the_eviction_is_cheap() -> None:
    # rule: 5.5
    here, spare = saving(every_ms=20 * MINUTE, at_ms=17 * MINUTE)
    claim = whole(here, "claim", "b")
    assert (evictions(here), told(here)) == ([], [awaiting(Reason.AWAITING_CHECKPOINT, 3 * MINUTE)])
    here.at(20 * MINUTE - 1)
    assert evictions(here) == []
    saved(here.at(20 * MINUTE - 1), spare)
    here.at(20 * MINUTE)
    assert evictions(here) == [evicted(spare, claim, 8)]
    assert told(here)[1:] == [ReasonEnded(subject=KEY, code=Reason.AWAITING_CHECKPOINT)]


@pytest.mark.parametrize(
    ("at_ms", "waits"),
    [
        pytest.param(15 * MINUTE, True, id="due exactly at the end of patience"),
        pytest.param(15 * MINUTE - 1, False, id="a millisecond later"),
        pytest.param(20 * MINUTE - 1, True, id="due in a millisecond"),
        pytest.param(20 * MINUTE, False, id="due now"),
    ],
)
def test_only_what_comes_within_patience_is_awaited(at_ms: int, waits: bool) -> None:
    # rule: 5.5
    here, _ = saving(every_ms=20 * MINUTE, at_ms=at_ms)
    whole(here, "claim", "b")
    assert (evictions(here) == []) is waits


def test_without_patience_nobody_waits() -> None:
    # rule: 5.5
    here, spare = saving(every_ms=20 * MINUTE, at_ms=19 * MINUTE, patience_ms=0)
    whole(here, "claim", "b")
    assert victims(here) == [spare]


def test_where_nothing_would_be_lost_nobody_waits() -> None:
    # rule: 5.5
    here, spare = saving(every_ms=2 * MINUTE, at_ms=2 * MINUTE)
    saved(here, spare)
    whole(here, "claim", "b")
    assert victims(here) == [spare]


def test_gpus_that_would_stand_free_meanwhile_are_a_loss_too() -> None:
    """Seven GPUs free for three minutes are more than one GPU's seventeen minutes of work."""
    # rule: 5.5
    here = cell()
    spare = idle(here, "spare", gpus=1, checkpoint_interval_ms=20 * MINUTE)
    here.start(spare).at(17 * MINUTE)
    whole(here, "claim", "b")
    assert victims(here) == [spare]


def test_and_are_weighed_against_what_is_saved_to_the_gpu_millisecond() -> None:
    """Four free GPUs for a minute against four busy ones since the start: equal is no reason to wait."""
    # rule: 5.5
    waits = []
    for at_ms in (2 * MINUTE, 2 * MINUTE + 1):
        here = cell()
        spare = idle(here, "spare", gpus=4, checkpoint_interval_ms=4 * MINUTE)
        here.start(spare).at(at_ms)
        whole(here, "claim", "b")
        waits.append(evictions(here) == [])
    assert waits == [False, True]


def test_a_window_that_ends_soon_and_adds_a_cheaper_victim_is_awaited() -> None:
    # rule: 5.5
    here = cell(2, margin_permille=0, promises_per_pool=0)
    dear = idle(here, "dear")
    running = whole(here, "run", min_runtime_ms=HOUR)
    saved(here.start(dear).start(running).at(58 * MINUTE), running)
    claim = whole(here, "claim", "b")
    assert (evictions(here), told(here)) == ([], [awaiting(Reason.PROTECTED_WINDOWS, 2 * MINUTE)])
    here.at(HOUR)
    assert evictions(here) == [evicted(running, claim, 8 * 2 * MINUTE)]


def test_a_window_is_not_awaited_for_a_victim_beyond_the_licence() -> None:
    # rule: 5.5 3.7
    here = cell(2, promises_per_pool=0)
    dear = idle(here, "dear")
    running = whole(here, "run", "b", min_runtime_ms=HOUR)
    saved(here.start(dear).start(running).at(58 * MINUTE), running)
    whole(here, "claim", "b")
    assert victims(here) == [dear]


def test_a_claim_waits_once_and_not_for_the_checkpoint_after() -> None:
    # rule: 5.5
    here, spare = saving(every_ms=4 * MINUTE, at_ms=3 * MINUTE)
    whole(here, "claim", "b")
    assert told(here) == [awaiting(Reason.AWAITING_CHECKPOINT, MINUTE)]
    saved(here.at(4 * MINUTE - SECOND), spare)
    here.at(5 * MINUTE)
    assert victims(here) == [spare]


def test_another_reason_to_wait_does_not_make_the_wait_longer() -> None:
    """A window is awaited; when it ends, a checkpoint would be due soon after: the time for waiting is over."""
    # rule: 5.5
    here = cell(2, margin_permille=0, promises_per_pool=0)
    dear = idle(here, "dear", checkpoint_interval_ms=64 * MINUTE)
    running = whole(here, "run", min_runtime_ms=HOUR)
    saved(here.start(dear).start(running).at(58 * MINUTE), running)
    whole(here, "claim", "b")
    assert told(here) == [awaiting(Reason.PROTECTED_WINDOWS, 2 * MINUTE)]
    here.gone(running)
    here.at(HOUR)
    assert here.world.promises == {}
    assert told(here)[1:] == [ReasonEnded(subject=KEY, code=Reason.PROTECTED_WINDOWS)]


def test_a_checkpoint_that_comes_early_ends_the_wait() -> None:
    # rule: 5.5 9.3
    here, spare = saving(every_ms=20 * MINUTE, at_ms=16 * MINUTE)
    claim = whole(here, "claim", "b")
    saved(here.at(17 * MINUTE - 1), spare)
    here.at(17 * MINUTE)
    assert evictions(here) == [evicted(spare, claim, 8)]


def test_a_checkpoint_that_does_not_come_is_not_waited_for_beyond_its_time() -> None:
    # rule: 5.5
    here, spare = saving(every_ms=20 * MINUTE, at_ms=17 * MINUTE)
    claim = whole(here, "claim", "b")
    here.at(20 * MINUTE)
    assert evictions(here) == [evicted(spare, claim, 8 * 20 * MINUTE)]


def test_the_reason_ends_with_the_claim() -> None:
    # rule: 9.3 5.5
    here, _ = saving(every_ms=20 * MINUTE, at_ms=17 * MINUTE)
    claim = whole(here, "claim", "b")
    here.say(CancelJob(job=claim))
    assert told(here)[1:] == [ReasonEnded(subject=KEY, code=Reason.AWAITING_CHECKPOINT)]
    assert here.world.reasons_of("preemption") == {}


def test_nobody_worse_takes_the_host_of_a_claim_that_waits() -> None:
    """The second claim has hosts of its own to clear, and clears those at once."""
    # rule: 4.2 5.5
    here = cell(2)
    soon = idle(here, "soon", checkpoint_interval_ms=20 * MINUTE)
    other = idle(here, "other")
    here.start(soon).start(other).at(17 * MINUTE)
    whole(here, "first", "a", settle=False)
    second = whole(here, "second", "b", min_runtime_ms=HOUR, settle=False)
    here.settle()
    assert evictions(here) == [evicted(other, second, 8 * 17 * MINUTE)]
    assert [reason.code for reason in here.world.reasons_of("preemption").values()] == [Reason.AWAITING_CHECKPOINT]


def test_a_gang_waits_for_the_instant_at_which_all_its_victims_are_cheapest_together() -> None:
    # rule: 5.5
    here = cell(2)
    one = idle(here, "one", checkpoint_interval_ms=20 * MINUTE)
    two = idle(here, "two", checkpoint_interval_ms=22 * MINUTE)
    here.start(one).start(two).at(18 * MINUTE)
    here.submit("claim", "b", hosts=2, gpus_per_host=8, **LONG)
    (began,) = told(here, "b/h100/2x8/1800000ms")
    assert isinstance(began, ReasonBegan)
    assert began.evidence.for_ms == 4 * MINUTE


@pytest.mark.parametrize(
    ("permille", "waits"),
    [
        pytest.param(1000, True, id="all of it"),
        pytest.param(600, True, id="three minutes of five, and the checkpoint is due in three"),
        pytest.param(599, False, id="a little less"),
        pytest.param(0, False, id="none"),
    ],
)
def test_the_lane_has_a_part_of_patience(permille: int, waits: bool) -> None:
    # rule: 5.5 3.1
    here, spare = saving(every_ms=20 * MINUTE, at_ms=17 * MINUTE, debug_patience_permille=permille)
    here.submit("claim", "b", gpus_per_host=8, **DEBUG)
    assert victims(here) == ([] if waits else [spare])


def test_and_others_have_all_of_it_whatever_the_lane_has() -> None:
    # rule: 5.5
    here, _ = saving(every_ms=20 * MINUTE, at_ms=17 * MINUTE, debug_patience_permille=0)
    whole(here, "claim", "b")
    assert victims(here) == []
