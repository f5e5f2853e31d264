"""What a contract may ask for: each refusal names field, rule, value, limit and way out."""

import pytest

from fairlease.core import contract_rules
from fairlease_schemas import contract
from fairlease_schemas.envelope import Misshapen
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import Advice, JobAdmitted, JobRefused, Problem
from tests.dsl.cell import HOUR, MINUTE, SECOND, Cell, admitted, granted, on, submitted


def cell() -> Cell:
    """Ten hosts of eight GPUs; `a` is a leaf, `org` an inner node above `team`."""
    return Cell().hosts(10).budgets(a=1, org=1, org__team=1)


def refusal(budget: str = "a", *problems: Problem) -> JobRefused:
    """The refusal of ann's first message, request id `r1`."""
    return JobRefused(job=job_id("ann", budget, "r1"), account="ann", seq=1, problems=problems)


def problems_of(here: Cell, **fields: object) -> list[tuple[str, str]]:
    """(field, rule) of all that is wrong with a request; empty when it is admitted."""
    event = here.when(submitted("r1", **fields)).events()[0]
    return [(p.field, p.rule) for p in event.problems] if isinstance(event, JobRefused) else []


def test_a_contract_becomes_a_job_in_every_pool_that_could_take_it() -> None:
    two = cell().hosts(1, gpus=4, pool="l40s", first=20)
    two.when(submitted("r1")).then(admitted("r1", pools=("h100", "l40s")))
    two.when(submitted("r2", gpus_per_host=8)).then(admitted("r2", gpus_per_host=8, pools=("h100",)))


def test_named_pools_keep_their_order() -> None:
    two = cell().hosts(1, gpus=4, pool="a100", first=20)
    two.when(submitted("r1", pools=("h100", "a100"))).then(admitted("r1", pools=("h100", "a100")))


def test_an_unknown_budget_is_refused_with_the_leaves_there_are() -> None:
    problem = Problem(
        field="spec.budget",
        rule="1.1",
        value="nowhere",
        limit="a leaf of the tree",
        way_out="leaves: a, team; a lead makes one with `fairlease budget set NAME --weight N`",
    )
    cell().when(submitted("r1", "nowhere")).then(refusal("nowhere", problem)).follows()


def test_an_inner_node_is_refused_with_the_leaves_below_it() -> None:
    problem = Problem(
        field="spec.budget", rule="1.1", value="org", limit="a leaf of the tree", way_out="charge one of team"
    )
    cell().when(submitted("r1", "org")).then(refusal("org", problem)).follows()


@pytest.mark.parametrize("pools", [(), ("h100",), ("b200",)])
def test_a_gang_of_more_hosts_than_a_record_can_grant_is_refused(pools: tuple[str, ...]) -> None:
    # rule: 1.2
    problem = Problem(
        field="spec.hosts",
        rule="1.2",
        value="2049 hosts",
        limit="2048 hosts: a gang is granted in one record",
        way_out="take hosts with more GPUs, or split the work into several gangs",
    )
    here = cell()
    here.when(submitted("r1", hosts=2049, gpus_per_host=8, pools=pools)).then(refusal("a", problem)).follows()
    assert problems_of(here, hosts=2048, gpus_per_host=8) == [("spec.hosts", "1.3")]


def test_the_contract_and_admission_allow_the_same_gang() -> None:
    assert contract_rules.MAX_HOSTS == contract.MAX_HOSTS


def test_a_pool_that_the_cell_has_not_is_refused_with_those_it_has() -> None:
    problem = Problem(field="spec.pools", rule="1.3", value="b200", limit="a pool of the cell", way_out="pools: h100")
    cell().when(submitted("r1", pools=("h100", "b200"))).then(refusal("a", problem))


def test_a_gang_that_no_hosts_could_take_when_empty_is_refused_with_what_there_is() -> None:
    problem = Problem(
        field="spec.hosts",
        rule="1.3",
        value="11 x 8 GPUs (more than one host means whole hosts)",
        limit="h100: 10 hosts of 8 GPUs",
        way_out="ask for a gang that the hosts could take when empty",
    )
    cell().when(submitted("r1", hosts=11, gpus_per_host=8)).then(refusal("a", problem))


def test_a_gang_of_parts_of_hosts_is_told_the_size_of_a_whole_one() -> None:
    # rule: 1.2 1.18
    problem = Problem(
        field="spec.hosts",
        rule="1.3",
        value="2 x 4 GPUs (more than one host means whole hosts)",
        limit="h100: 10 hosts of 8 GPUs",
        way_out="take whole hosts, with `--gpus 8`",
    )
    cell().when(submitted("r1", hosts=2, gpus_per_host=4)).then(refusal("a", problem))


@pytest.mark.parametrize(
    ("hosts", "gpus", "found"),
    [
        pytest.param(1, 8, [], id="one whole host"),
        pytest.param(1, 9, [("spec.gpus_per_host", "1.3")], id="more GPUs than a host has"),
        pytest.param(10, 8, [], id="every host"),
        pytest.param(2, 4, [("spec.hosts", "1.3")], id="a gang of half hosts"),
    ],
)
def test_feasibility_counts_hosts_as_if_they_were_empty(hosts: int, gpus: int, found: list[tuple[str, str]]) -> None:
    assert problems_of(cell(), hosts=hosts, gpus_per_host=gpus) == found


@pytest.mark.parametrize(
    ("hosts", "gpus", "window_ms", "is_taken"),
    [
        pytest.param(1, 8, 15 * MINUTE, True, id="8 GPUs, the shortest window"),
        pytest.param(1, 8, 15 * MINUTE - 1, False, id="8 GPUs, a millisecond shorter"),
        pytest.param(1, 8, 4 * HOUR, True, id="8 GPUs, the longest window"),
        pytest.param(1, 8, 4 * HOUR + 1, False, id="8 GPUs, a millisecond longer"),
        pytest.param(2, 8, 4 * HOUR + 1, True, id="16 GPUs have the next bound"),
        pytest.param(8, 8, 8 * HOUR, True, id="64 GPUs, the longest window"),
        pytest.param(8, 8, 8 * HOUR + 1, False, id="64 GPUs, a millisecond longer"),
        pytest.param(9, 8, 12 * HOUR, True, id="72 GPUs, the longest window"),
        pytest.param(9, 8, 12 * HOUR + 1, False, id="72 GPUs, a millisecond longer"),
        pytest.param(9, 8, 15 * MINUTE - 1, False, id="72 GPUs, a millisecond too short"),
        pytest.param(9, 8, 0, True, id="no window at all: idle work"),
    ],
)
def test_a_window_lies_within_the_bounds_of_its_size(hosts: int, gpus: int, window_ms: int, is_taken: bool) -> None:
    found = problems_of(cell(), hosts=hosts, gpus_per_host=gpus, min_runtime_ms=window_ms, timeout_ms=24 * HOUR)
    assert found == ([] if is_taken else [("spec.min_runtime", "1.4")])


def test_a_window_out_of_bounds_is_told_its_bounds() -> None:
    problem = Problem(
        field="spec.min_runtime",
        rule="1.4",
        value="5m",
        limit="15m to 4h for 1 GPU",
        way_out="choose 15m to 4h, or 0s for idle work: free, and preemptible at once",
    )
    cell().when(submitted("r1", min_runtime_ms=5 * MINUTE)).then(refusal("a", problem))


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        pytest.param({}, [], id="within all limits"),
        pytest.param({"min_runtime_ms": 1}, [], id="the shortest window there is"),
        pytest.param({"min_runtime_ms": 15 * MINUTE}, [], id="the longest window"),
        pytest.param({"min_runtime_ms": 15 * MINUTE + 1}, [("spec.min_runtime", "3.1")], id="a longer window"),
        pytest.param({"min_runtime_ms": 0}, [("spec.min_runtime", "3.1")], id="idle work has no lane"),
        pytest.param({"timeout_ms": HOUR}, [], id="the longest timeout"),
        pytest.param({"timeout_ms": HOUR + 1}, [("spec.timeout", "3.1")], id="a longer timeout"),
        pytest.param({"gpus_per_host": 8}, [], id="the most GPUs"),
        pytest.param({"hosts": 2, "gpus_per_host": 8}, [("spec.hosts", "3.1")], id="more GPUs"),
        pytest.param({"is_resumable": False, "timeout_ms": 15 * MINUTE}, [], id="a timeout that is the window"),
        pytest.param(
            {"is_resumable": False, "timeout_ms": 16 * MINUTE}, [("spec.timeout", "3.1")], id="a window by its timeout"
        ),
        pytest.param(
            {"gpus_per_host": 8, "hosts": 2, "min_runtime_ms": HOUR, "timeout_ms": 2 * HOUR},
            [("spec.hosts", "3.1"), ("spec.min_runtime", "3.1"), ("spec.timeout", "3.1")],
            id="all that is wrong is told at once",
        ),
    ],
)
def test_the_debug_lane_takes_small_short_work(fields: dict[str, object], found: list[tuple[str, str]]) -> None:
    small = {"lane": "debug", "min_runtime_ms": 10 * MINUTE, "timeout_ms": 30 * MINUTE}
    assert problems_of(cell(), **(small | fields)) == found


def test_a_gang_in_the_debug_lane_is_told_the_lanes_limit_for_its_whole_hosts() -> None:
    # rule: 3.1
    problem = Problem(
        field="spec.hosts",
        rule="3.1",
        value="16 GPUs: more than one host means whole hosts, of 8 GPUs here",
        limit="8 GPUs in the debug lane",
        way_out="make it smaller, or leave the debug lane",
    )
    gang = {"hosts": 2, "lane": "debug", "min_runtime_ms": 10 * MINUTE, "timeout_ms": 30 * MINUTE}
    cell().when(submitted("r1", **gang)).then(refusal("a", problem))
    small = Cell().hosts(2, gpus=4).budgets(a=1)
    assert problems_of(small, gpus_per_host=4, **gang) == []


def test_idle_work_must_be_resumable() -> None:
    problem = Problem(
        field="spec.resumable",
        rule="1.6",
        value="false with min_runtime 0s",
        limit="idle work may be stopped at any time",
        way_out="write resumable: true if it may start over, or give it a window",
    )
    cell().when(submitted("r1", min_runtime_ms=0, is_resumable=False)).then(refusal("a", problem))


def test_what_cannot_be_resumed_is_protected_for_its_whole_timeout() -> None:
    here = cell()
    said = submitted("r1", is_resumable=False, min_runtime_ms=MINUTE, timeout_ms=10 * MINUTE)
    event = admitted("r1", is_resumable=False, min_runtime_ms=10 * MINUTE, timeout_ms=10 * MINUTE)
    here.when(said).then(event).follows(granted(event.job, on(1, 0), window_ms=10 * MINUTE))


def test_what_cannot_be_resumed_is_capped_at_four_hours() -> None:
    here = cell()
    assert problems_of(here, is_resumable=False, timeout_ms=4 * HOUR) == []
    problem = Problem(
        field="spec.timeout",
        rule="1.6",
        value="4h1ms",
        limit="4h when not resumable",
        way_out="write checkpoints and resumable: true, or split the work",
    )
    said = submitted("r1", is_resumable=False, timeout_ms=4 * HOUR + 1)
    cell().when(said).then(refusal("a", problem))


def test_grace_is_capped_without_a_word() -> None:
    here = cell()
    here.when(submitted("r1", grace_ms=10 * MINUTE + 1)).then(admitted("r1", grace_ms=10 * MINUTE))
    here.when(submitted("r2", grace_ms=45 * SECOND)).then(admitted("r2", grace_ms=45 * SECOND))


def test_a_window_over_the_whole_timeout_is_admitted_with_advice() -> None:
    text = "the window of 2h covers the whole timeout; a shorter window fits more places and starts sooner"
    plain = admitted("r1", min_runtime_ms=2 * HOUR)
    advised = JobAdmitted(
        job=plain.job,
        account=plain.account,
        budget=plain.budget,
        request_id=plain.request_id,
        digest=plain.digest,
        request=plain.request,
        advice=(Advice(field="spec.min_runtime", rule="1.18", text=text),),
    )
    cell().when(submitted("r1", min_runtime_ms=2 * HOUR)).then(advised)


def test_problems_found_at_the_edge_are_the_refusal() -> None:
    problem = Problem(field="spec.timeout", rule="1.5", way_out="required: write it")
    cell().when(Misshapen(budget="a", request_id="r1", problems=(problem,))).then(refusal("a", problem)).follows()


def test_the_same_request_id_and_body_again_is_the_same_job() -> None:
    here = cell()
    here.submit("r1")
    here.when(submitted("r1")).then().follows()
    assert here.world.cursor("admission", "FL_LAB_INBOX_ann") == 2


def test_a_used_request_id_with_another_body_is_refused_and_the_job_not_touched() -> None:
    here = cell()
    job = here.submit("r1")
    before = here.world.jobs[job]
    problem = Problem(
        field="request_id",
        rule="1.14",
        value=f"body {'0' * 12}",
        limit=f"body {'0' * 12}, as first submitted",
        way_out="use a new request id, or submit the first body again",
    )
    other = submitted("r1", min_runtime_ms=HOUR)
    other = type(other)(budget="a", request_id="r1", digest="0" * 63 + "1", request=other.request)
    here.when(other).then(JobRefused(job=job, account="ann", seq=2, problems=(problem,))).follows()
    assert here.world.jobs[job] is before


def test_the_same_request_id_of_another_account_or_budget_is_another_job() -> None:
    here = cell()
    jobs = {here.submit("r1"), here.submit("r1", who="bob"), here.submit("r1", "team")}
    assert len(jobs) == 3
    assert set(here.world.jobs) == jobs


def test_two_submissions_in_one_record_see_each_other() -> None:
    here = cell()
    other = type(submitted("r1"))(budget="a", request_id="r1", digest="f" * 64, request=submitted("r1").request)
    events = here.when(submitted("r1"), submitted("r1"), other).events()
    assert [type(event) for event in events] == [JobAdmitted, JobRefused]


def test_before_the_log_has_a_policy_nothing_is_admitted() -> None:
    from fairlease.core import admission
    from fairlease.core.world import World

    assert admission.decide(World(), (Cell().answer(submitted("r1")),)) is None
