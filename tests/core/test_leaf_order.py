"""The order inside a leaf: by submission, by what was attained, by size; and who keeps its place (3.2)."""

import pytest

from fairlease_schemas.cycle import CyclePlaced, GangGranted
from fairlease_schemas.job import End
from tests.core.bench import DEBUG, LONG, cell, change, grants, idle, left, victims, whole
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell


def order_of(here: Cell, jobs: dict[str, str], since: int = 0) -> str:
    """Names of those granted after the first `since` grants."""
    known = {job: name for name, job in jobs.items()}
    return " ".join(known[job] for job in grants(here)[since:] if job in known)


def crowd(here: Cell, *sizes: tuple[str, int, int]) -> dict[str, str]:
    """(name, GPUs, window in minutes), submitted in this order while the host is full, then all at once."""
    full = whole(here, "full", "b")
    jobs = {
        name: here.submit(name, gpus_per_host=gpus, min_runtime_ms=minutes * MINUTE, **LONG)
        for name, gpus, minutes in sizes
    }
    here.gone(full)
    return jobs


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param("fifo", "big long small tiny", id="as they came"),
        pytest.param("smallest", "tiny small long big", id="by GPUs times window"),
        pytest.param("least-attained", "tiny small long big", id="nobody has attained anything: by size"),
    ],
)
def test_a_leaf_is_served_in_its_own_order(order: str, expected: str) -> None:
    # rule: 3.2
    here = change(cell(promises_per_pool=0), "a", order=order)
    jobs = crowd(here, ("big", 2, 120), ("long", 1, 180), ("small", 2, 20), ("tiny", 1, 15))
    assert order_of(here, jobs) == expected


def test_equal_sizes_go_by_submission() -> None:
    # rule: 3.2
    here = change(cell(promises_per_pool=0), "a", order="smallest")
    jobs = crowd(here, ("one", 1, 60), ("two", 2, 30), ("three", 4, 15))
    assert order_of(here, jobs) == "one two three"


@pytest.mark.parametrize("of_policy", ["fifo", "smallest"])
def test_who_has_held_least_goes_first_where_the_leaf_says_so_whatever_the_policy_says(of_policy: str) -> None:
    # rule: 3.2
    here = change(cell(promises_per_pool=0, leaf_order=of_policy), "a", order="least-attained")
    jobs = {name: whole(here, name, max_retries=3) for name in ("first", "second", "third")}
    here.at(20 * MINUTE).gone(jobs["first"], End.FAILED, 1)
    here.at(30 * MINUTE).gone(jobs["second"], End.FAILED, 1)
    here.at(35 * MINUTE).gone(jobs["third"], End.FAILED, 1)
    assert order_of(here, jobs) == "first second third second"
    here.at(40 * MINUTE).gone(jobs["second"])
    assert order_of(here, jobs) == "first second third second third"


def test_a_leaf_keeps_its_own_order_beside_others() -> None:
    # rule: 3.2
    here = change(cell(promises_per_pool=0), "a", order="smallest")
    full = whole(here, "full", "b")
    here.submit("a-big", gpus_per_host=4, min_runtime_ms=HOUR)
    here.submit("a-small", gpus_per_host=4, min_runtime_ms=15 * MINUTE)
    here.submit("b-big", "b", gpus_per_host=4, min_runtime_ms=HOUR)
    here.submit("b-small", "b", gpus_per_host=4, min_runtime_ms=15 * MINUTE)
    here.gone(full)
    known = [here.world.jobs[job].request_id for job in grants(here)[1:]]
    assert known == ["a-small", "b-big"]


def test_the_policy_has_an_order_for_leaves_without_one() -> None:
    # rule: 3.2
    here = change(cell(promises_per_pool=0, leaf_order="smallest"), "a", order="fifo")
    jobs = crowd(here, ("big", 2, 120), ("long", 1, 180), ("small", 2, 20), ("tiny", 1, 15))
    assert order_of(here, jobs) == "tiny small long big"


def test_the_order_of_the_policy_is_not_that_of_the_lane_or_of_idle_work() -> None:
    # rule: 3.1 3.2 3.3
    here = cell(promises_per_pool=0, leaf_order="smallest")
    full = whole(here, "full", "b")
    spare = [idle(here, f"i{n}", gpus=4 - n, settle=False) for n in range(2)]
    here.settle()
    here.gone(full)
    assert grants(here)[1:] == spare


def test_the_lane_and_idle_work_go_by_submission_whatever_the_leaf_says() -> None:
    # rule: 3.1 3.2 3.3
    here = change(cell(promises_per_pool=0), "a", order="smallest")
    full = whole(here, "full", "b")
    debug = [
        here.submit(f"d{n}", who=f"p{n}", settle=False, **(DEBUG | {"min_runtime_ms": (10 - n) * MINUTE}))
        for n in range(3)
    ]
    spare = [idle(here, f"i{n}", gpus=2 - n, settle=False) for n in range(2)]
    here.settle()
    here.gone(full)
    assert grants(here)[1:] == [*debug, *spare]


# places ------------------------------------------------------------------------------------------------


def test_a_preempted_job_comes_before_all_that_were_submitted_after_it() -> None:
    # rule: 3.2
    here = cell(promises_per_pool=0, margin_permille=0)
    first = whole(here, "first", min_runtime_ms=HOUR)
    here.at(30 * MINUTE)
    jobs = {name: whole(here, name) for name in ("second", "third")} | {"first": first}
    here.at(HOUR)
    claim = whole(here, "claim", "b", min_runtime_ms=15 * MINUTE)
    left(here, first).at(70 * MINUTE)
    here.gone(claim)
    assert order_of(here, jobs) == "first first"
    assert victims(here) == [first]


def test_a_retried_job_keeps_its_place_too() -> None:
    # rule: 3.2
    here = cell()
    jobs = {"one": whole(here, "one", max_retries=1), "two": whole(here, "two"), "three": whole(here, "three")}
    here.gone(jobs["one"], End.FAILED, 1).at(MINUTE)
    here.gone(jobs["two"])
    assert order_of(here, jobs) == "one two one"


def test_any_number_of_one_leaf_is_granted_in_one_cycle_past_those_that_do_not_fit() -> None:
    # rule: 3.2
    here = cell(2)
    big = here.submit("big", hosts=3, gpus_per_host=8, settle=False)
    whole(here, "taken", settle=False)
    blocked = here.submit("gang", hosts=2, gpus_per_host=8, settle=False)
    for n in range(8):
        here.submit(f"r{n}", min_runtime_ms=(15 + n) * MINUTE, settle=False)
    here.settle()
    assert big not in here.world.jobs
    assert here.phase(blocked) == "waiting"
    placed = [here.record(n) for n in range(1, len(here.records) + 1) if here.record(n).by == "placement"]
    assert sum(isinstance(event, GangGranted) for event in placed[0].events) == 9
    assert isinstance(placed[0].events[-1], CyclePlaced)


def test_a_class_in_which_somebody_is_owed_hosts_keeps_the_place_of_its_first() -> None:
    """The claim with kept hosts is the class's youngest; an older member is not overtaken by another class for it."""
    # rule: 3.2 5.6
    here = cell(3, promises_per_pool=0, rank_period_ms=10 * SECOND)
    early, other = whole(here, "early", max_retries=1), whole(here, "other", max_retries=1, min_runtime_ms=HOUR)
    full = whole(here, "full", "b", min_runtime_ms=2 * HOUR)
    here.gone(early, End.FAILED, 1).gone(other, End.FAILED, 1)
    spare = idle(here, "spare")
    whole(here, "more", "b", min_runtime_ms=3 * HOUR)
    claim = whole(here, "claim")
    assert (victims(here), list(here.world.reservations)) == ([spare], [claim])
    here.at(30 * SECOND)
    assert [here.phase(job) for job in (early, other, claim)] == ["waiting"] * 3
    here.gone(full)
    assert [here.phase(job) for job in (early, other, claim)] == ["waiting", "waiting", "granted"]
    left(here, spare)
    assert [here.phase(job) for job in (early, other)] == ["granted", "waiting"]
