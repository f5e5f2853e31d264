"""What a contract asks of its hosts: CPU, memory, disk (1.2), pools and constraints (1.3)."""

import pytest

from fairlease.core.constraint import host_takes
from fairlease.core.host import Host
from fairlease.core.line import class_key
from fairlease_schemas.host import Inventory
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import Constraints, JobRefused, Problem
from fairlease_schemas.reports import HostUp
from tests.dsl.cell import Cell, admitted, granted, inventory, on, request, submitted

GIB = 1024


def host(number: int = 1, **facts: object) -> Inventory:
    """A host of eight H100 with 96 cores, 1 TiB of memory and 4 TiB of disk, or other facts."""
    facts = {"disk_mib": 4096 * GIB, "model": "NVIDIA H100 80GB HBM3", "labels": {"zone": "a", "net": "ib"}} | facts
    plain = inventory(number)
    return Inventory(**({name: getattr(plain, name) for name in plain.__struct_fields__} | facts))


def cell(*hosts: Inventory) -> Cell:
    here = Cell()
    for number, devices in enumerate(hosts or (host(1), host(2), host(3)), 1):
        here.say(HostUp(incarnation="boot-1", inventory=devices), f"host-{number:03d}")
    return here.budgets(a=1)


def problems_of(here: Cell, **fields: object) -> list[Problem]:
    event = here.when(submitted("r1", **fields)).events()[0]
    return list(event.problems) if isinstance(event, JobRefused) else []


def wanted(**fields: object) -> Constraints:
    return Constraints(**fields)  # type: ignore[arg-type]  # fields by name


# 1.2 ------------------------------------------------------------------------------------------------


def test_what_is_asked_of_each_host_is_part_of_the_request() -> None:
    # rule: 1.2
    fields = {"cpu_per_host": 96, "memory_per_host_mib": 1024 * GIB, "disk_per_host_mib": 4096 * GIB}
    here = cell()
    event = admitted("r1", **fields)
    here.when(submitted("r1", **fields)).then(event).follows(granted(event.job, on(1, 0)))


@pytest.mark.parametrize(
    ("fields", "field", "value", "limit"),
    [
        pytest.param({"cpu_per_host": 97}, "cpu_per_host", "97 cores", "at most 96 cores on a host", id="CPU"),
        pytest.param(
            {"memory_per_host_mib": 1024 * GIB + 1},
            "memory_per_host",
            "1048577Mi",
            "at most 1048576Mi on a host",
            id="memory",
        ),
        pytest.param(
            {"disk_per_host_mib": 4096 * GIB + 1},
            "disk_per_host",
            "4194305Mi",
            "at most 4194304Mi on a host",
            id="disk",
        ),
    ],
)
def test_more_than_any_host_has_is_refused(fields: dict[str, object], field: str, value: str, limit: str) -> None:
    # rule: 1.2
    way_out = "ask for what one host could give when empty"
    problem = Problem(field=f"spec.{field}", rule="1.2", value=value, limit=limit, way_out=way_out)
    refusal = JobRefused(job=job_id("ann", "a", "r1"), account="ann", seq=1, problems=(problem,))
    cell().when(submitted("r1", **fields)).then(refusal).follows()


def test_a_host_that_says_nothing_of_its_disk_has_none() -> None:
    # rule: 1.2
    (problem,) = problems_of(cell(inventory(1)), disk_per_host_mib=1)
    assert (problem.field, problem.limit) == ("spec.disk_per_host", "at most 0Mi on a host")


def test_a_gang_needs_enough_hosts_that_have_it() -> None:
    # rule: 1.2
    here = cell(host(1, cpu_cores=128), host(2), host(3))
    assert problems_of(here, cpu_per_host=100, gpus_per_host=8) == []
    (problem,) = problems_of(cell(host(1, cpu_cores=128), host(2)), cpu_per_host=100, hosts=2, gpus_per_host=8)
    assert (problem.field, problem.way_out) == (
        "spec.cpu_per_host",
        "ask for what 2 hosts of one pool could give when empty",
    )


# 1.3 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraints", "ruled_out_by"),
    [
        pytest.param(wanted(), "", id="nothing asked"),
        pytest.param(wanted(gpu_models=("h100",)), "", id="a model by one of its words"),
        pytest.param(wanted(gpu_models=("A100", "NVIDIA H100")), "", id="one of several"),
        pytest.param(wanted(gpu_models=("H10",)), "constraints.gpu_model", id="half a word"),
        pytest.param(wanted(gpu_models=("H100 HBM3",)), "constraints.gpu_model", id="words that are not in a row"),
        pytest.param(wanted(gpu_models=("-",)), "constraints.gpu_model", id="no word at all"),
        pytest.param(wanted(min_gpu_memory_mib=81_920), "", id="just enough memory"),
        pytest.param(wanted(min_gpu_memory_mib=81_921), "constraints.min_gpu_memory", id="a mebibyte too little"),
        pytest.param(wanted(labels={"zone": "a", "net": "ib"}), "", id="both labels"),
        pytest.param(wanted(labels={"zone": "b"}), "constraints.labels.zone", id="another value"),
        pytest.param(wanted(labels={"gone": ""}), "constraints.labels.gone", id="a label that is not there"),
        pytest.param(wanted(is_same_block=True), "", id="one block is no matter of one host"),
    ],
)
def test_a_host_takes_what_it_meets(constraints: Constraints, ruled_out_by: str) -> None:
    # rule: 1.3
    assert host_takes(request(constraints=constraints), Host("host-001", "boot-1", host())) == ruled_out_by


@pytest.mark.parametrize(
    ("fields", "ruled_out_by"),
    [
        pytest.param({"gpus_per_host": 9}, "gpus_per_host", id="more GPUs than it has"),
        pytest.param({"hosts": 2, "gpus_per_host": 4}, "gpus_per_host", id="half of it for a gang"),
        pytest.param({"hosts": 2, "gpus_per_host": 8}, "", id="all of it for a gang"),
        pytest.param({"gpus_per_host": 9, "cpu_per_host": 97}, "gpus_per_host", id="the size is told first"),
        pytest.param({"cpu_per_host": 97, "memory_per_host_mib": 1 << 40}, "cpu_per_host", id="then the CPU"),
    ],
)
def test_size_and_room_come_before_the_rest(fields: dict[str, object], ruled_out_by: str) -> None:
    # rule: 1.3
    asked = request(**fields, constraints=wanted(gpu_models=("A100",)) if ruled_out_by else None)
    assert host_takes(asked, Host("host-001", "boot-1", host())) == ruled_out_by


def test_a_contract_without_pools_gets_those_whose_hosts_meet_it() -> None:
    # rule: 1.3
    old = host(4, pool="a100", model="NVIDIA A100-SXM4-80GB", labels={"zone": "b"})
    here = cell(host(1), host(2), host(3), old)
    in_zone_b = wanted(labels={"zone": "b"})
    here.when(submitted("r1", constraints=in_zone_b)).then(admitted("r1", pools=("a100",), constraints=in_zone_b))
    here.when(submitted("r2")).then(admitted("r2", pools=("a100", "h100")))


@pytest.mark.parametrize(
    ("constraints", "name", "value", "limit"),
    [
        pytest.param(
            wanted(gpu_models=("A100", "L40S")),
            "gpu_model",
            "A100, L40S",
            "models: NVIDIA H100 80GB HBM3",
            id="a model",
        ),
        pytest.param(
            wanted(min_gpu_memory_mib=141_000), "min_gpu_memory", "141000Mi", "at most 81920Mi on a GPU", id="memory"
        ),
        pytest.param(wanted(labels={"zone": "c"}), "labels.zone", "c", "values: a, b", id="a label's value"),
        pytest.param(wanted(labels={"rack": "9"}), "labels.rack", "9", "values: none", id="a label nobody has"),
    ],
)
def test_the_constraint_that_rules_all_hosts_out_is_named(
    constraints: Constraints, name: str, value: str, limit: str
) -> None:
    # rule: 1.3
    here = cell(host(1), host(2, labels={"zone": "b"}))
    way_out = "ask for what one host could give when empty"
    problem = Problem(field=f"spec.constraints.{name}", rule="1.3", value=value, limit=limit, way_out=way_out)
    assert problems_of(here, constraints=constraints) == [problem]


def test_each_constraint_that_is_hopeless_by_itself_is_told() -> None:
    # rule: 1.3
    found = problems_of(cell(), cpu_per_host=97, constraints=wanted(gpu_models=("A100",), labels={"zone": "c"}))
    assert [(problem.field, problem.rule) for problem in found] == [
        ("spec.cpu_per_host", "1.2"),
        ("spec.constraints.gpu_model", "1.3"),
        ("spec.constraints.labels.zone", "1.3"),
    ]


def test_constraints_that_only_together_rule_all_hosts_out_are_told_together() -> None:
    # rule: 1.3
    here = cell(host(1, labels={"zone": "b"}), host(2, cpu_cores=64))
    constraints = wanted(labels={"zone": "a"})
    assert problems_of(here, cpu_per_host=96, constraints=constraints) == [
        Problem(
            field="spec.constraints",
            rule="1.3",
            value="1 hosts",
            limit="0 hosts of one pool meet cpu_per_host, constraints.labels.zone",
            way_out="leave one of them out",
        )
    ]


@pytest.mark.parametrize(
    ("blocks", "hosts", "is_taken"),
    [
        pytest.param(("b1/r1", "b1/r2", "b2/r1"), 2, True, id="two racks of a block"),
        pytest.param(("b1/r1", "b2/r1", "b3/r1"), 2, False, id="three blocks of one host"),
        pytest.param(("b1", "b1", "b1"), 3, True, id="all in one"),
        pytest.param(("", "", ""), 2, False, id="hosts that nobody placed"),
        pytest.param(("", "", ""), 1, True, id="one host is in one block"),
    ],
)
def test_one_block_must_have_hosts_enough(blocks: tuple[str, ...], hosts: int, is_taken: bool) -> None:
    # rule: 1.3
    here = cell(*(host(number, block=block) for number, block in enumerate(blocks, 1)))
    found = problems_of(here, hosts=hosts, gpus_per_host=8, constraints=wanted(is_same_block=True))
    assert [problem.field for problem in found] == ([] if is_taken else ["spec.constraints.same_block"])


def test_hosts_are_judged_as_if_empty_and_without_holds() -> None:
    # rule: 1.3
    here = cell(host(1))
    here.submit("r0", gpus_per_host=8)
    assert problems_of(here, gpus_per_host=8, cpu_per_host=96, constraints=wanted(labels={"zone": "a"})) == []


def test_requests_that_ask_other_things_of_their_hosts_are_of_other_classes() -> None:
    # rule: 1.3
    here = cell()
    plain = here.submit("r1")
    asks = [
        {"cpu_per_host": 8},
        {"cpu_per_host": 9},
        {"memory_per_host_mib": 8},
        {"constraints": wanted(labels={"zone": "a"})},
        {"constraints": wanted(labels={"net": "ib"})},
        {"constraints": wanted(is_same_block=True)},
    ]
    jobs = [here.submit(f"x{number}", **fields) for number, fields in enumerate(asks)]
    again = here.submit("y", constraints=wanted(labels={"zone": "a"}))
    keys = [class_key(here.world.jobs[job]) for job in (plain, *jobs)]
    assert len(set(keys)) == 7
    assert keys[0] == "a/h100/1x1/1800000ms"
    assert class_key(here.world.jobs[again]) == keys[4]
