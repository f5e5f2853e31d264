"""A refusal names the field, the rule, the value, the limit and the way out, whoever writes it (1.18)."""

from collections.abc import Callable

import pytest

from fairlease.core import membership
from fairlease.core.budget import MAX_NODES, Node, Tree, change_budget
from fairlease.core.job import replace
from fairlease_schemas.commands import (
    CancelJob,
    ChangeBudget,
    ChangeMember,
    ChangePolicy,
    CordonHost,
    HoldJob,
    RecordEvaluation,
    ReleaseJob,
    ReturnHost,
)
from fairlease_schemas.envelope import Said
from fairlease_schemas.evaluation import Outcome
from fairlease_schemas.host import Inventory
from fairlease_schemas.job import After, Array, CommandRefused, JobRefused, Problem
from fairlease_schemas.policy import Policy
from fairlease_schemas.reports import HostUp
from tests.dsl.cell import HOUR, Cell, submitted

NOBODYS = "job-aaaaaaaaaaaaaaaaaaaa"

PASSED = Outcome.PASSED


def cell() -> Cell:
    """Two hosts; a tree of `org` above `a`, and `b`; `a` has a running job `r1`, and `r2` is over."""
    here = Cell().hosts(2).budgets(org=1, org__a=1, b=1)
    here.submit("r1")
    here.gone(here.submit("r2"))
    here.say(CordonHost(host="host-002"), "bob")
    return here


def problems(here: Cell, said: Said, who: str = "ann") -> tuple[Problem, ...]:
    """What the one refusal that this brings about names."""
    refused = [event for event in here.say(said, who) if isinstance(event, CommandRefused | JobRefused)]
    (event,) = refused
    return event.problems


def job(here: Cell, request_id: str) -> str:
    return next(one.id for one in here.world.jobs.values() if one.request_id == request_id)


COMMANDS: list[tuple[str, Callable[[Cell], Said]]] = [
    ("a budget that is no name", lambda _: ChangeBudget(budget="A b", weight=1)),
    ("a weight of nothing", lambda _: ChangeBudget(budget="c", weight=0)),
    ("an order that is not there", lambda _: ChangeBudget(budget="c", weight=1, order="lifo")),
    ("a cap below nothing", lambda _: ChangeBudget(budget="c", weight=1, max_protected_permille=-1)),
    ("a burst above all bounds", lambda _: ChangeBudget(budget="c", weight=1, burst_permille=10**7)),
    ("a parent that is not there", lambda _: ChangeBudget(budget="c", weight=1, parent="nowhere")),
    ("a budget of others", lambda _: ChangeBudget(budget="b", weight=2)),
    ("a member of no budget", lambda _: ChangeMember(budget="nowhere", account="bob", role="member")),
    ("an account that is no name", lambda _: ChangeMember(budget="org", account="B b", role="member")),
    ("a role that is not there", lambda _: ChangeMember(budget="org", account="bob", role="boss")),
    ("a member of a budget of others", lambda _: ChangeMember(budget="org", account="bob", role="member")),
    ("a policy that is no name", lambda _: ChangePolicy(name="A b", policy=Policy())),
    ("the name of another policy", lambda _: ChangePolicy(name="default", policy=Policy(lookback_ms=HOUR))),
    ("a policy of no numbers", lambda _: ChangePolicy(name="x", policy=Policy(ranker="x", lookback_ms=0))),
    ("a policy of no windows", lambda _: ChangePolicy(name="x", policy=Policy(window_bounds=()))),
    ("no host to cordon", lambda _: CordonHost(host="host-009")),
    ("a hold of another", lambda _: ReturnHost(host="host-002")),
    ("no job to cancel", lambda _: CancelJob(job=NOBODYS)),
    ("no job to hold", lambda _: HoldJob(job=NOBODYS)),
    ("no job to release", lambda _: ReleaseJob(job=NOBODYS)),
    ("a job that runs", lambda here: HoldJob(job=job(here, "r1"))),
    ("a job that is over", lambda here: HoldJob(job=job(here, "r2"))),
    ("an evaluation that is not there", lambda _: RecordEvaluation(request_id="e", evaluation="x", outcome=PASSED)),
    ("no request id", lambda _: RecordEvaluation(request_id="", evaluation="x", outcome=PASSED)),
    ("another body", lambda _: replace(submitted("r1"), digest="f" * 64)),
    ("no such budget", lambda _: submitted("x", "nowhere")),
    ("a budget with children", lambda _: submitted("x", "org")),
    ("no such pool", lambda _: submitted("x", pools=("l40s",))),
    ("more than the pool has", lambda _: submitted("x", hosts=3, gpus_per_host=8)),
    ("a window out of bounds", lambda _: submitted("x", min_runtime_ms=1)),
    ("more than the lane takes", lambda _: submitted("x", lane="debug", gpus_per_host=8, hosts=2, timeout_ms=9 * HOUR)),
    ("idle work that cannot resume", lambda _: submitted("x", min_runtime_ms=0, is_resumable=False)),
    ("too long without a checkpoint", lambda _: submitted("x", timeout_ms=9 * HOUR, is_resumable=False)),
    ("an array of too many", lambda _: submitted("x", array=Array(count=201))),
    ("after a job that is not there", lambda _: submitted("x", after=(After(job=NOBODYS),))),
]


@pytest.mark.parametrize("said", [pytest.param(said, id=name) for name, said in COMMANDS])
def test_every_refusal_leaves_nothing_unsaid(said: Callable[[Cell], Said]) -> None:
    here = cell()
    told = problems(here, said(here))
    assert told
    for problem in told:
        assert all((problem.field, problem.rule, problem.value, problem.limit, problem.way_out)), problem


def test_a_host_that_cannot_be_leaves_nothing_unsaid() -> None:
    nothing = Inventory(pool="-", gpus=(), model="", memory_mib=-1, cpu_cores=-1, host_memory_mib=-1, disk_mib=-1)
    told = problems(Cell(), HostUp(incarnation="boot-1", inventory=nothing), "host-001")
    assert [problem.field.removeprefix("inventory.") for problem in told] == [
        "pool",
        "gpus",
        "memory_mib",
        "cpu_cores",
        "host_memory_mib",
        "disk_mib",
    ]
    assert all(problem.rule and problem.value and problem.limit and problem.way_out for problem in told)


def test_a_full_tree_says_what_to_do() -> None:
    full = Tree({f"b-{n:05d}": Node("", 1) for n in range(MAX_NODES)})
    said = ChangeBudget(budget="one-more", weight=1)
    event = change_budget(full, frozenset(), Cell().answer(said), said)
    assert isinstance(event, CommandRefused)
    limit, way_out = "2000 budgets in the tree", "join small budgets into one"
    assert event.problems == (Problem(field="budget", rule="2.1", value="one-more", limit=limit, way_out=way_out),)


def test_a_full_budget_says_what_to_do() -> None:
    tree = Tree({"a": Node("", 1)})
    members = {"a": {"ann": "lead", **{f"member-{n}": "member" for n in range(membership.MAX_MEMBERS - 1)}}}
    said = ChangeMember(budget="a", account="bob", role="member")
    event = membership.change_member(tree, members, Cell().answer(said), said)
    assert isinstance(event, CommandRefused)
    way_out = "give a role further up, or to * for everybody"
    limit = "1000 accounts in one budget"
    assert event.problems == (Problem(field="account", rule="1.1", value="bob", limit=limit, way_out=way_out),)
