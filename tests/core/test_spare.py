"""Empty hosts that are kept for the debug lane, gangs of which a fault left a part, and large ones (3.1, 7.7)."""

import pytest

from fairlease.core.outlook import Outlooks
from fairlease.core.placement.fit import Room
from fairlease.core.planning import plan
from fairlease.core.words import sentence_of
from fairlease_schemas.commands import CordonHost
from fairlease_schemas.job import End
from fairlease_schemas.reasons import Evidence, Reason
from tests.core.bench import DEBUG, LONG, cell, hosts_of, idle, names, reasons, whole
from tests.dsl.cell import MINUTE, Cell, request


def spare(here: Cell) -> tuple[str, ...]:
    return tuple(Room(here.world, "h100", here.now_ms).spare)


def lane(here: Cell, name: str = "debug", gpus: int = 1, budget: str = "b") -> str:
    return here.submit(name, budget, gpus_per_host=gpus, **DEBUG)


def is_waiting(here: Cell, job: str) -> bool:
    return here.phase(job) == "waiting"


@pytest.mark.parametrize(
    ("hosts", "wanted", "expected"),
    [
        pytest.param(3, 0, (), id="none unless asked for"),
        pytest.param(3, 1, (1,), id="the first of equal ones"),
        pytest.param(4, 2, (1, 2), id="so many"),
        pytest.param(1, 1, (), id="a pool of one host keeps none"),
        pytest.param(5, 9, (1, 2), id="never more than half of the pool"),
    ],
)
def test_so_many_empty_hosts_are_spare(hosts: int, wanted: int, expected: tuple[int, ...]) -> None:
    # rule: 3.1
    assert spare(cell(hosts, debug_spare_hosts=wanted)) == names(*expected)


def test_ordinary_and_idle_work_wait_beside_it_and_the_lane_does_not() -> None:
    # rule: 3.1
    here = cell(2, debug_spare_hosts=1, promises_per_pool=0)
    first = whole(here, "first")
    assert hosts_of(here, first) == names(2)
    second, third = whole(here, "second", "b"), idle(here, "third", 1)
    assert is_waiting(here, second)
    assert is_waiting(here, third)
    debug = lane(here)
    assert hosts_of(here, debug) == names(1)
    assert hosts_of(here, third) == names(1), "once somebody has begun there, the rest of it is open"
    assert spare(here) == ()


def test_the_lane_takes_a_hole_first_and_the_spare_host_last() -> None:
    # rule: 3.1 4.1
    here = cell(2, debug_spare_hosts=1)
    here.submit("small", gpus_per_host=4, **LONG)
    debug = lane(here)
    assert hosts_of(here, debug) == names(2)
    assert spare(here) == names(1)


def test_when_another_host_empties_it_is_the_spare_one() -> None:
    # rule: 3.1
    here = cell(2, debug_spare_hosts=1, promises_per_pool=0, debug_permille=1000)
    first = whole(here, "first")
    lane(here, gpus=8)
    waiting = whole(here, "waiting", "b")
    here.gone(first)
    assert spare(here) == names(2)
    assert is_waiting(here, waiting)
    debug = lane(here, "again", 8)
    assert hosts_of(here, debug) == names(2)


def test_a_gang_that_lost_a_host_takes_the_spare_one_and_another_gang_does_not() -> None:
    # rule: 7.7 3.1
    here = cell(3, debug_spare_hosts=1, promises_per_pool=0)
    gang = here.submit("gang", hosts=2, gpus_per_host=8, **LONG)
    assert hosts_of(here, gang) == names(2, 3)
    here.start(gang)
    here.say(CordonHost(host="host-002", reason="broken"), "ops", settle=False)
    attempt = here.world.jobs[gang].attempts[-1]
    for host in attempt.hosts:
        end = End.FAULT if host == "host-002" else End.CANCELLED
        here.step("admission", (here.answer(here.run_gone(gang, end, None), host, "FL_LAB_REPORTS"),))
    here.settle()
    assert set(hosts_of(here, gang)) == set(names(1, 3))


def test_a_debug_gang_takes_spare_hosts_beside_open_ones() -> None:
    # rule: 3.1
    here = cell(4, debug_spare_hosts=1, debug_max_gpus=16, debug_permille=1000, promises_per_pool=0)
    whole(here, "one"), whole(here, "two")
    other = here.submit("other", hosts=2, gpus_per_host=8, **LONG)
    assert is_waiting(here, other)
    debug = here.submit("debug", "b", hosts=2, gpus_per_host=8, **DEBUG)
    assert set(hosts_of(here, debug)) == set(names(1, 4))


def test_a_gang_that_is_large_enough_takes_the_spare_host_when_that_is_all_it_lacks() -> None:
    # rule: 3.1
    here = cell(4, debug_spare_hosts=1, spare_yield_hosts=2, promises_per_pool=0)
    running = whole(here, "run")
    gang = here.submit("gang", "b", hosts=3, gpus_per_host=8, **LONG)
    assert len(hosts_of(here, gang)) == 3, "two open ones and the spare one"
    assert spare(here) == ()
    here.gone(running)
    assert len(spare(here)) == 1, "the next that is empty is spare"
    assert is_waiting(here, whole(here, "small", "b"))


@pytest.mark.parametrize(
    ("hosts", "window"),
    [pytest.param(2, LONG, id="one too small"), pytest.param(3, {"min_runtime_ms": 0}, id="idle work of any size")],
)
def test_nobody_else_takes_the_spare_host(hosts: int, window: dict[str, int]) -> None:
    # rule: 3.1
    here = cell(hosts + 1, debug_spare_hosts=1, spare_yield_hosts=3, promises_per_pool=0)
    whole(here, "run")
    assert is_waiting(here, here.submit("gang", "b", hosts=hosts, gpus_per_host=8, **window))
    assert len(spare(here)) == 1


def test_a_large_gang_leaves_the_spare_host_where_it_has_enough_beside_it() -> None:
    # rule: 3.1
    here = cell(3, debug_spare_hosts=1, spare_yield_hosts=2, promises_per_pool=0)
    gang = here.submit("gang", "b", hosts=2, gpus_per_host=8, **LONG)
    assert set(hosts_of(here, gang)).isdisjoint(spare(here))
    assert len(spare(here)) == 1


def test_who_may_have_the_spare_host_is_told_that_it_starts_at_once() -> None:
    # rule: 3.1 9.4
    here = cell(3, debug_spare_hosts=1, spare_yield_hosts=2, promises_per_pool=0)
    whole(here, "run")
    found = plan(here.world, "ann", "b", request(hosts=2, gpus_per_host=8, pools=("h100",)))
    assert (found.when, len(found.hosts)) == ("now", 2)


def test_a_gang_that_needs_every_host_of_the_pool_is_not_kept_waiting_for_ever() -> None:
    # rule: 3.1
    here = cell(3, debug_spare_hosts=1, promises_per_pool=0)
    running = whole(here, "run")
    gang = here.submit("gang", "b", hosts=3, gpus_per_host=8, **LONG)
    assert spare(here) == ()
    here.gone(running)
    assert hosts_of(here, gang) == names(1, 2, 3)


def test_one_that_has_enough_beside_the_spare_host_leaves_it() -> None:
    # rule: 3.1
    here = cell(3, debug_spare_hosts=1, promises_per_pool=0)
    running = whole(here, "run")
    gang = here.submit("gang", "b", hosts=2, gpus_per_host=8, **LONG)
    assert len(spare(here)) == 1
    assert is_waiting(here, gang)
    here.gone(running)
    assert len(hosts_of(here, gang)) == 2
    assert len(spare(here)) == 1


def test_who_waits_beside_a_spare_host_is_told_whose_it_is() -> None:
    # rule: 9.1 3.1
    here = cell(2, debug_spare_hosts=1, promises_per_pool=0)
    whole(here, "first")
    idle(here, "second", 8)
    (key,) = reasons(here)
    reason = here.world.reasons_of("placement")[key]
    assert reason.code is Reason.RESERVATION
    assert (reason.evidence.claim, reason.evidence.for_ms, reason.evidence.reserved_hosts) == ("", 0, 1)
    assert "kept empty for the debug lane" in sentence_of(reason.code, reason.evidence)["en"]
    assert "调试通道" in sentence_of(reason.code, reason.evidence)["zh"]
    named = sentence_of(reason.code, Evidence(claim="job-1"))
    assert "debug lane" not in named["en"]


def test_the_outlook_of_a_lane_job_is_the_spare_host_and_of_another_it_is_not() -> None:
    # rule: 3.1 9.4
    here = cell(2, debug_spare_hosts=1, promises_per_pool=0, debug_per_person=1)
    here.submit("small", gpus_per_host=8, **DEBUG)
    here.away = {"placement"}
    debug, other = lane(here, gpus=8), whole(here, "other")
    found = Outlooks(here.world, here.world.policy)
    of_lane, of_other = found.best(here.world.jobs[debug]), found.best(here.world.jobs[other])
    assert of_lane is not None
    assert of_other is not None
    assert (str(of_lane.when), of_lane.hosts) == ("now", spare(here))
    assert of_other.hosts != spare(here)


def test_a_plan_knows_whose_the_spare_host_is() -> None:
    # rule: 3.1 9.2
    here = cell(2, debug_spare_hosts=1, promises_per_pool=0)
    whole(here, "first")
    ordinary = plan(here.world, "ann", "b", request(gpus_per_host=8, pools=("h100",)))
    debug = plan(here.world, "ann", "b", request(gpus_per_host=8, pools=("h100",), **DEBUG))
    assert (debug.when, debug.hosts) == ("now", names(1))
    assert (ordinary.when, ordinary.hosts) != ("now", names(1))
    ordinary = plan(here.world, "ann", "b", request(gpus_per_host=8, pools=("h100",), min_runtime_ms=0))
    assert (ordinary.when, ordinary.code) == ("later", "reservation")


def test_a_gang_that_would_fit_with_the_spare_host_may_still_be_promised_one_that_comes_free() -> None:
    """What is kept for the lane is kept from the claim for ever, so that it must not wait for that."""
    # rule: 6.2 3.1
    here = cell(2, debug_spare_hosts=1, promise_permille=1000, margin_permille=0)
    whole(here, "first", min_runtime_ms=30 * MINUTE)
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    assert is_waiting(here, claim)
    assert here.world.promises[claim].hosts == names(2)
