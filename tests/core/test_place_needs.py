"""Where a request fits that asks for more than GPUs: CPU, memory and disk (1.2), constraints and blocks (1.3)."""

import pytest

from fairlease.core.placement.blocks import together
from fairlease_schemas.host import Inventory
from fairlease_schemas.job import Constraints
from fairlease_schemas.reasons import Reason
from fairlease_schemas.reports import HostUp
from tests.core.bench import (
    GRACE,
    LONG,
    MARGIN,
    change,
    hosts_of,
    idle,
    left,
    names,
    promises,
    reasons,
    victims,
    whole,
)
from tests.dsl.cell import HOUR, MINUTE, Cell, inventory

GIB = 1024


def kinds(*hosts: dict[str, object]) -> Cell:
    """Hosts of eight with 96 cores and 1 TiB that differ in these facts, and two leaves."""
    here = Cell()
    for number, facts in enumerate(hosts, 1):
        plain = inventory(number)
        devices = Inventory(**({name: getattr(plain, name) for name in plain.__struct_fields__} | facts))  # type: ignore[arg-type] # fields by name
        here.say(HostUp(incarnation="boot-1", inventory=devices), names(number)[0], settle=False)
    here.settle()
    return here.budgets(a=1, b=1).policy(rank_period_ms=MINUTE)


def only(here: Cell) -> Reason:
    """The one reason in force."""
    (code,) = reasons(here).values()
    return code


def same_block() -> Constraints:
    return Constraints(is_same_block=True)


# CPU, memory and disk -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "hosts"),
    [
        pytest.param({"cpu_per_host": 90}, {"cpu_per_host": 6}, 1, id="together all that there is"),
        pytest.param({"cpu_per_host": 90}, {"cpu_per_host": 7}, 2, id="one core too many"),
        pytest.param({"cpu_per_host": 84}, {}, 1, id="one GPU's part is left: 12 cores"),
        pytest.param({"cpu_per_host": 85}, {}, 2, id="and now it is not"),
        pytest.param({}, {"cpu_per_host": 85}, 2, id="nor the other way round"),
        pytest.param({"memory_per_host_mib": 1000 * GIB}, {"memory_per_host_mib": 25 * GIB}, 2, id="memory"),
        pytest.param({"disk_per_host_mib": 60 * GIB}, {"disk_per_host_mib": 41 * GIB}, 2, id="disk"),
        pytest.param({"cpu_per_host": 96}, {"gpus_per_host": 7}, 2, id="GPUs of a host without cores stay empty"),
    ],
)
def test_what_others_on_a_host_hold_beside_gpus_is_not_free(
    first: dict[str, int], second: dict[str, int], hosts: int
) -> None:
    # rule: 1.2
    here = kinds(*[{"disk_mib": 100 * GIB}] * 2)
    jobs = [here.submit("one", **first), here.submit("two", **second)]
    assert len({hosts_of(here, job) for job in jobs}) == hosts


def test_what_one_held_is_free_when_it_is_gone() -> None:
    # rule: 1.2
    here = kinds({})
    first, second = here.submit("one", cpu_per_host=96), here.submit("two", cpu_per_host=2)
    assert here.phase(second) == "waiting"
    assert only(here) is Reason.FRAGMENTATION
    here.start(first).gone(first)
    assert here.phase(second) == "granted"


def test_who_holds_the_cores_is_asked_to_leave_and_who_holds_only_gpus_is_not() -> None:
    # rule: 1.2 5.1 5.4
    here = kinds({})
    dear, cheap = idle(here, "cores", 2, cpu_per_host=90), idle(here, "small", 1, cpu_per_host=1)
    here.at(MINUTE)
    claim = here.submit("claim", "b", gpus_per_host=2, cpu_per_host=20)
    assert victims(here) == [dear]
    assert here.phase(cheap) == "granted"
    left(here, dear)
    assert here.phase(claim) == "granted"


@pytest.mark.parametrize(
    ("claim", "leave"),
    [
        pytest.param({"cpu_per_host": 60}, ("cores",), id="one that has nearly all the cores"),
        pytest.param({"gpus_per_host": 6, "cpu_per_host": 5}, ("gpus",), id="one that has nearly all the GPUs"),
        pytest.param({"gpus_per_host": 4, "cpu_per_host": 60}, ("cores", "gpus"), id="one of each"),
        pytest.param({"gpus_per_host": 2, "cpu_per_host": 95}, ("both", "cores"), id="GPUs that leave with the cores"),
    ],
)
def test_the_cheapest_set_frees_cores_and_gpus_both(claim: dict[str, int], leave: tuple[str, ...]) -> None:
    # rule: 1.2 5.4
    here = kinds({})
    jobs = {
        "gpus": idle(here, "gpus", 6, cpu_per_host=1),
        "cores": idle(here, "cores", 1, cpu_per_host=60),
        "both": idle(here, "both", 1, cpu_per_host=30),
    }
    here.at(MINUTE)
    here.submit("claim", "b", **claim)
    assert sorted(name for name, job in jobs.items() if job in victims(here)) == list(leave)


def test_a_promise_waits_for_the_cores_too() -> None:
    # rule: 1.2 6.1
    here = kinds({})
    here.submit("cores", gpus_per_host=4, cpu_per_host=90, min_runtime_ms=2 * HOUR, timeout_ms=4 * HOUR)
    here.at(MINUTE)
    claim = here.submit("claim", "b", cpu_per_host=10, min_runtime_ms=15 * MINUTE)
    assert only(here) is Reason.PROTECTED_WINDOWS
    assert promises(here) == {claim: (names(1), 2 * HOUR + GRACE + MARGIN)}


# constraints ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "host"),
    [
        pytest.param(Constraints(gpu_models=("H200",)), 2, id="the model"),
        pytest.param(Constraints(min_gpu_memory_mib=100_000), 2, id="the memory of a GPU"),
        pytest.param(Constraints(labels={"net": "ib"}), 3, id="a label"),
        pytest.param(Constraints(labels={"zone": "z"}, gpu_models=("H100",)), 3, id="all of them together"),
    ],
)
def test_a_job_is_placed_only_where_its_constraints_hold(wanted: Constraints, host: int) -> None:
    # rule: 1.3
    here = kinds({}, {"model": "NVIDIA H200", "memory_mib": 143_000}, {"labels": {"net": "ib", "zone": "z"}}, {})
    job = here.submit("picky", constraints=wanted)
    assert hosts_of(here, job) == names(host)


def test_a_picky_job_waits_although_other_hosts_are_empty_and_says_what_it_could_use() -> None:
    # rule: 1.3 9.1
    here = kinds({}, {"model": "NVIDIA H200"})
    running = whole(here, "first", constraints=Constraints(gpu_models=("H200",)), min_runtime_ms=2 * HOUR)
    assert hosts_of(here, running) == names(2)
    here.at(MINUTE)
    claim = whole(here, "second", "b", constraints=Constraints(gpu_models=("H200",)), min_runtime_ms=30 * MINUTE)
    (reason,) = here.world.reasons_of("placement").values()
    assert (reason.code, reason.evidence.free_gpus) == (Reason.PROTECTED_WINDOWS, 0)
    assert promises(here) == {claim: (names(2), 2 * HOUR + GRACE + MARGIN)}
    assert hosts_of(here, whole(here, "plain")) == names(1)


def test_nobody_is_evicted_from_a_host_that_the_claim_could_not_use() -> None:
    # rule: 1.3 5.1
    here = kinds({}, {"labels": {"net": "ib"}})
    cheap = idle(here, "cheap")
    here.at(MINUTE)
    dear = idle(here, "dear", constraints=Constraints(labels={"net": "ib"}))
    here.at(20 * MINUTE)
    whole(here, "claim", "b", constraints=Constraints(labels={"net": "ib"}))
    assert victims(here) == [dear]
    assert here.phase(cheap) == "granted"


def test_hosts_that_change_under_a_waiting_job_conflict_with_it() -> None:
    # rule: 1.3 9.1
    here = kinds({"model": "NVIDIA H200"})
    running = whole(here, "first")
    job = whole(here, "second", constraints=Constraints(gpu_models=("H200",)))
    here.start(running).gone(running, hosts=()).settle()
    assert here.phase(job) == "granted"
    here.gone(job)
    waiting = whole(here, "third", constraints=Constraints(gpu_models=("H200",)), settle=False)
    plain = inventory(1)
    here.say(HostUp(incarnation="boot-2", inventory=plain), "host-001")
    assert here.phase(waiting) == "waiting"
    assert only(here) is Reason.CONSTRAINT_CONFLICT


def test_a_cap_counts_only_demand_that_the_pool_could_take() -> None:
    # rule: 2.10 2.9
    here = kinds({}, {"model": "NVIDIA H200"})
    change(here, "a", burst_permille=1000)
    first = whole(here, "first")
    assert here.phase(first) == "granted"
    # b wants H200, which is there: a may not burst beyond its part while it waits
    whole(here, "b1", "b", constraints=Constraints(gpu_models=("H200",)), min_runtime_ms=2 * HOUR)
    here.at(MINUTE)
    whole(here, "b2", "b", constraints=Constraints(gpu_models=("H200",)), min_runtime_ms=2 * HOUR)
    second = whole(here, "second")
    assert reasons(here)[next(key for key in reasons(here) if key.startswith("a/"))] is Reason.BUDGET_CAP
    assert here.phase(second) == "waiting"


# one block ------------------------------------------------------------------------------------------


def racks(*labels: str) -> Cell:
    return kinds(*[{"block": label} for label in labels])


def test_a_gang_of_one_block_waits_for_one() -> None:
    # rule: 1.3 4.1
    here = racks("b1", "b1", "b2", "b2")
    here.submit("x", gpus_per_host=8, **LONG)
    here.submit("y", gpus_per_host=8, constraints=Constraints(), **LONG)
    used = {hosts_of(here, job)[0] for job in here.world.jobs}
    assert used == set(names(1, 2))  # the smaller rest first: larger blocks stay whole
    gang = here.submit("gang", hosts=2, gpus_per_host=8, constraints=same_block(), **LONG)
    assert hosts_of(here, gang) == names(3, 4)


def test_enough_hosts_in_two_blocks_are_a_fragmentation_of_one() -> None:
    # rule: 1.3 9.1
    here = racks("b1", "b1", "b2", "b2")
    jobs = [whole(here, f"x{n}") for n in range(4)]
    here.start(jobs[0]).gone(jobs[0])
    there = next(job for job in jobs[1:] if hosts_of(here, job)[0] in names(3, 4))
    here.start(there).gone(there)
    gang = here.submit("gang", hosts=2, gpus_per_host=8, constraints=same_block(), **LONG)
    (reason,) = here.world.reasons_of("placement").values()
    assert reason.code is Reason.FRAGMENTATION
    assert reason.evidence.whole_free_hosts == 1
    loose = here.submit("loose", hosts=2, gpus_per_host=8, **LONG)
    assert (here.phase(gang), here.phase(loose)) == ("waiting", "granted")


def test_a_gang_of_one_block_evicts_within_one() -> None:
    # rule: 1.3 5.1
    here = racks("b1", "b1", "b2", "b2")
    jobs = [idle(here, f"i{n}") for n in range(4)]
    here.at(MINUTE)
    here.start(jobs[0]).gone(jobs[0])
    for n in range(2, 5):
        here.at(n * MINUTE)
        here.submit(f"again{n}", min_runtime_ms=0, gpus_per_host=8, **LONG)
    here.at(HOUR)
    here.submit("gang", "b", hosts=2, gpus_per_host=8, constraints=same_block(), **LONG)
    blocks = {here.world.fleet.hosts[hosts_of(here, job)[0]].inventory.block for job in victims(here)}
    assert len(blocks) == 1


def test_a_gang_of_one_block_is_promised_one() -> None:
    # rule: 1.3 6.1
    here = racks("b1", "b2", "b1", "b2")
    for n, hours in enumerate((1, 2, 4, 3)):
        whole(here, f"x{n}", min_runtime_ms=hours * HOUR)
    ends = {hosts_of(here, job)[0]: here.world.jobs[job].request.min_runtime_ms for job in here.world.jobs}
    here.at(MINUTE).policy(rank_period_ms=MINUTE, promise_permille=1000)
    claim = here.submit("gang", "b", hosts=2, gpus_per_host=8, constraints=same_block(), **LONG)
    soonest = min(max(ends[first], ends[second]) for first, second in (names(1, 3), names(2, 4)))
    ((hosts, start_ms),) = promises(here).values()
    assert hosts in {names(1, 3), names(2, 4)}
    assert start_ms == soonest + GRACE + MARGIN
    assert list(promises(here)) == [claim]


@pytest.mark.parametrize(
    ("labels", "wanted", "hosts"),
    [
        pytest.param("b1/r1 b1/r2 b1/r2 b2/r3", 2, "23", id="one rack of the block that has it"),
        pytest.param("b1/r1 b1/r2 b2/r3 b2/r4", 2, "12", id="else one block, by name"),
        pytest.param("b1/r1 b1/r1 b1/r2 b2/r3 b2/r3", 2, "12", id="the first of two equal racks"),
        pytest.param("b1/r1 b1/r1 b1/r1 b2/r2 b2/r2", 2, "45", id="the smallest rack that has enough"),
        pytest.param("b1/r1 b1/r2 b2/r3 b3/r4 b3/r5", 3, "124", id="else over few blocks, the fullest first"),
        pytest.param("b1 b2/r1 b2/r2 b1", 2, "14", id="a label of one part is a block"),
    ],
)
def test_hosts_of_a_gang_stand_as_close_as_can_be(labels: str, wanted: int, hosts: str) -> None:
    # rule: 4.1
    there = {str(number): label for number, label in enumerate(labels.split(), 1)}
    assert together(list(there), wanted, there) == list(hosts)


def test_a_host_without_a_label_is_in_nobodys_block() -> None:
    # rule: 1.3 4.1
    there = {"1": "", "2": "", "3": "b1"}
    assert together(list(there), 2, there) == ["1", "2"]
    assert together(list(there), 2, there, is_same_block=True) is None
