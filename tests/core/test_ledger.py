"""Policy, the budget tree and charges, as the ledger records them."""

import msgspec
import pytest

from fairlease.core import ledger
from fairlease.core.world import World
from fairlease_schemas.budget import BudgetChanged, BudgetMemberChanged
from fairlease_schemas.commands import CancelJob, ChangeBudget, ChangePolicy
from fairlease_schemas.job import CommandRefused, End, Problem
from fairlease_schemas.policy import Policy, PolicyChanged, WindowBound
from tests.dsl.cell import HOUR, MINUTE, Cell, charged


def changed(budget: str, weight: int = 1, parent: str = "", reason: str = "") -> BudgetChanged:
    return BudgetChanged(budget=budget, weight=weight, author="ann", parent=parent, reason=reason)


def founded(budget: str) -> BudgetMemberChanged:
    """Whoever makes a budget becomes its lead."""
    return BudgetMemberChanged(budget=budget, account="ann", role="lead", author="ann")


def refused(verb: str, seq: int, **problem: str) -> CommandRefused:
    return CommandRefused(account="ann", verb=verb, seq=seq, problems=(Problem(**problem),))


def chain(cell: Cell, *names: str) -> Cell:
    """Each name hangs below the one before it."""
    for parent, name in zip(("", *names), names, strict=False):
        cell.say(ChangeBudget(budget=name, weight=1, parent=parent))
    return cell


# policy ---------------------------------------------------------------------------------------------


def test_the_first_record_of_a_log_is_the_default_policy() -> None:
    cell = Cell()
    assert cell.events() == [PolicyChanged(name="default", author="fairlease", policy=Policy(), reason="a new cell")]
    assert cell.world.policy == Policy()


def test_until_there_is_a_policy_messages_wait() -> None:
    decision = ledger.decide(World(), (Cell().answer(ChangeBudget(budget="a", weight=1)),))
    assert decision is not None
    assert decision.answers == ()


def test_another_policy_takes_another_name() -> None:
    cell = Cell()
    short = Policy(lookback_ms=HOUR)
    cell.when(ChangePolicy(name="short", policy=short, reason="a trial")).then(
        PolicyChanged(name="short", author="ann", policy=short, reason="a trial")
    )
    assert (cell.world.policy_name, cell.world.policy) == ("short", short)
    cell.when(ChangePolicy(name="short", policy=short)).then()
    cell.when(ChangePolicy(name="short", policy=Policy())).then(
        refused(
            "change-policy",
            3,
            field="name",
            rule="10.1",
            value="short",
            limit="the numbers in force under this name",
            way_out="other numbers need another name",
        )
    )


def bounds(*of: tuple[int, int, int]) -> Policy:
    return Policy(window_bounds=tuple(WindowBound(up_to_gpus=u, shortest_ms=s, longest_ms=e) for u, s, e in of))


@pytest.mark.parametrize(
    ("policy", "field", "rule", "value", "limit"),
    [
        pytest.param(
            Policy(ranker="fair-tree"), "ranker", "3.9", "fair-tree", "budget-window", id="a ranker that is not there"
        ),
        pytest.param(Policy(lookback_ms=0), "lookback_ms", "10.1", "0", "100-316224000000", id="no lookback"),
        pytest.param(Policy(rank_period_ms=1), "rank_period_ms", "L3", "1", "100-86400000", id="a cycle every ms"),
        pytest.param(Policy(grace_cap_ms=-1), "grace_cap_ms", "10.1", "-1", "0-86400000", id="a negative length"),
        pytest.param(
            Policy(stop_margin_ms=10**12), "stop_margin_ms", "8.1", "1000000000000", "100-3600000", id="31 years to go"
        ),
        pytest.param(
            Policy(max_grants_per_cycle=501), "max_grants_per_cycle", "L2", "501", "1-500", id="too many grants"
        ),
        pytest.param(Policy(max_grants_per_cycle=0), "max_grants_per_cycle", "L2", "0", "1-500", id="no grants at all"),
        pytest.param(
            Policy(max_classes_per_pool=257), "max_classes_per_pool", "L2", "257", "1-256", id="too many classes"
        ),
        pytest.param(Policy(window_bounds=()), "window_bounds", "1.4", "0 bounds", "1-64 bounds", id="no bounds"),
        pytest.param(
            bounds(*((n, 1, 2) for n in range(1, 66))),
            "window_bounds",
            "1.4",
            "65 bounds",
            "1-64 bounds",
            id="more bounds than anybody reads",
        ),
        pytest.param(
            bounds((8, 2, 1)),
            "window_bounds.0.longest_ms",
            "1.4",
            "1",
            f"2-{10**12}",
            id="a longest below the shortest",
        ),
        pytest.param(
            bounds((8, 1, 10**30)),
            "window_bounds.0.longest_ms",
            "1.4",
            str(10**30)[:30],
            f"1-{10**12}",
            id="a bound that no snapshot could hold",
        ),
        pytest.param(
            bounds((8, -1, 1)), "window_bounds.0.shortest_ms", "1.4", "-1", f"0-{10**12}", id="a negative bound"
        ),
        pytest.param(
            bounds((8, 1, 2), (8, 1, 2)),
            "window_bounds.1.up_to_gpus",
            "1.4",
            "8",
            f"9-{10**12}",
            id="sizes that do not rise",
        ),
    ],
)
def test_a_policy_out_of_bounds_is_refused(policy: Policy, field: str, rule: str, value: str, limit: str) -> None:
    (event,) = Cell().when(ChangePolicy(name="new", policy=policy)).events()
    assert isinstance(event, CommandRefused)
    (problem,) = event.problems
    assert (problem.field, problem.rule, problem.value, problem.limit) == (f"policy.{field}", rule, value, limit)
    assert problem.way_out


def test_every_number_that_is_wrong_is_told_at_once() -> None:
    policy = Policy(ranker="x", lookback_ms=0, brake_count=-1, window_bounds=())
    (event,) = Cell().when(ChangePolicy(name="new", policy=policy)).events()
    assert isinstance(event, CommandRefused)
    fields = ["policy.ranker", "policy.lookback_ms", "policy.brake_count", "policy.window_bounds"]
    assert [problem.field for problem in event.problems] == fields


@pytest.mark.parametrize("name", ["", "Short", "a b", "x" * 64])
def test_a_policy_has_a_name(name: str) -> None:
    limit, way_out = "1-63 of a-z 0-9 -", "choose another name"
    Cell().when(ChangePolicy(name=name, policy=Policy())).then(
        refused("change-policy", 1, field="name", rule="10.1", value=name, limit=limit, way_out=way_out)
    )


# the tree -------------------------------------------------------------------------------------------


def test_nodes_are_made_reweighted_and_moved() -> None:
    cell = Cell()
    cell.when(ChangeBudget(budget="org", weight=2, reason="new")).then(changed("org", 2, reason="new"), founded("org"))
    cell.when(ChangeBudget(budget="team", weight=1, parent="org")).then(changed("team", 1, "org"), founded("team"))
    cell.when(ChangeBudget(budget="team", weight=5)).then(changed("team", 5, "org"))
    cell.when(ChangeBudget(budget="team", weight=5)).then()
    cell.when(ChangeBudget(budget="team", weight=5, parent="")).then(changed("team", 5))
    assert cell.world.tree.is_leaf("org")


def test_a_second_change_in_one_record_is_decided_on_the_first_ones_tree() -> None:
    cell = Cell()
    cell.when(
        ChangeBudget(budget="org", weight=1),
        ChangeBudget(budget="team", weight=1, parent="org"),
        ChangeBudget(budget="org", weight=1, parent="team"),
    ).then(
        changed("org"),
        founded("org"),
        changed("team", 1, "org"),
        founded("team"),
        refused(
            "change-budget",
            3,
            field="parent",
            rule="2.1",
            value="team",
            limit="not below the budget itself",
            way_out="move the parent first",
        ),
    )


@pytest.mark.parametrize("parent", ["a", "b", "c"])
def test_no_node_hangs_below_itself(parent: str) -> None:
    cell = chain(Cell(), "a", "b", "c")
    cell.when(ChangeBudget(budget="a", weight=1, parent=parent)).then(
        refused(
            "change-budget",
            4,
            field="parent",
            rule="2.1",
            value=parent,
            limit="not below the budget itself",
            way_out="move the parent first",
        )
    )


def test_the_tree_has_eight_levels() -> None:
    cell = chain(Cell(), *"abcdefgh")
    too_deep = {"field": "parent", "rule": "2.1", "limit": "8 levels", "way_out": "hang it higher up"}
    cell.when(ChangeBudget(budget="i", weight=1, parent="h")).then(refused("change-budget", 9, value="h", **too_deep))
    chain(cell, "x", "y")
    cell.when(ChangeBudget(budget="x", weight=1, parent="g")).then(refused("change-budget", 12, value="g", **too_deep))
    cell.when(ChangeBudget(budget="x", weight=1, parent="f")).then(changed("x", 1, "f"))
    assert max(depth for _, depth in cell.world.tree.walk()) == 7


def test_a_parent_that_is_not_there_is_refused() -> None:
    Cell().when(ChangeBudget(budget="a", weight=1, parent="nowhere")).then(
        refused(
            "change-budget",
            1,
            field="parent",
            rule="2.1",
            value="nowhere",
            limit="a budget of the tree",
            way_out="make it first",
        )
    )


def test_no_children_below_a_leaf_that_live_jobs_are_charged_to() -> None:
    cell = chain(chain(Cell().hosts(1), "a"), "b")
    job = cell.submit("r1")
    busy = {
        "field": "parent",
        "rule": "1.1",
        "value": "a",
        "limit": "no children while jobs are charged to it",
        "way_out": "end or move its jobs first",
    }
    cell.when(ChangeBudget(budget="sub", weight=1, parent="a")).then(refused("change-budget", 4, **busy))
    cell.when(ChangeBudget(budget="b", weight=1, parent="a")).then(refused("change-budget", 5, **busy))
    cell.gone(job)
    cell.when(ChangeBudget(budget="sub", weight=1, parent="a")).then(changed("sub", 1, "a"), founded("sub"))


def test_a_leaf_with_jobs_may_be_moved_and_reweighted() -> None:
    cell = chain(chain(Cell().hosts(1), "org"), "a")
    cell.submit("r1")
    cell.when(ChangeBudget(budget="a", weight=3, parent="org")).then(changed("a", 3, "org"))


@pytest.mark.parametrize("weight", [0, -1, 1_000_001, 10**30])
def test_weights_are_from_one_to_a_million(weight: int) -> None:
    Cell().when(ChangeBudget(budget="a", weight=weight)).then(
        refused(
            "change-budget",
            1,
            field="weight",
            rule="2.1",
            value=str(weight)[:30],
            limit="1 to 1000000",
            way_out="write a whole number from 1 on",
        )
    )


@pytest.mark.parametrize("weight", [1, 1_000_000])
def test_the_bounds_of_weights_are_weights(weight: int) -> None:
    Cell().when(ChangeBudget(budget="a", weight=weight)).then(changed("a", weight), founded("a"))


@pytest.mark.parametrize("name", ["", "A", "a b", "a.b", "-a", "a-", "a" * 64, "é", "a\n"])
def test_a_budget_has_a_name_that_a_subject_can_hold(name: str) -> None:
    (event,) = Cell().when(ChangeBudget(budget=name, weight=1)).events()
    assert isinstance(event, CommandRefused)
    assert event.problems[0].field == "budget"


# charges --------------------------------------------------------------------------------------------


def test_idle_work_is_charged_nothing_for_what_it_held() -> None:
    cell = Cell().hosts(1).budgets(a=1)
    job = cell.submit("r1", min_runtime_ms=0, gpus_per_host=4)
    cell.start(job).at(MINUTE)
    before = len(cell.records)
    cell.gone(job)
    assert charged(job, 4 * MINUTE, is_idle=True) in cell.events()
    assert len(cell.records) == before + 2


def test_each_attempt_is_charged_once() -> None:
    cell = Cell().hosts(1).budgets(a=1)
    job = cell.submit("r1", max_retries=1)
    cell.at(MINUTE).gone(job, End.FAILED, 1)
    cell.at(3 * MINUTE).gone(job)
    retried = charged(job, MINUTE + 30_000, number=2)
    assert [e for e in cell.events() if isinstance(e, type(retried))] == [charged(job, MINUTE), retried]
    assert cell.world.uncharged == {}


def test_charges_beyond_a_records_bound_come_in_the_next() -> None:
    cell = Cell().hosts(26).budgets(a=1)
    jobs = [cell.submit(f"r{n}", settle=False) for n in range(201)]
    cell.settle()
    answers = tuple(cell.answer(cell.run_gone(job), cell.world.jobs[job].attempts[0].hosts[0]) for job in jobs)
    cell.step("admission", answers)
    assert [len(cell.step("ledger")) for _ in range(3)] == [200, 1, 0]


def test_a_charge_names_the_end_it_rests_on() -> None:
    cell = Cell().hosts(1).budgets(a=1)
    job = cell.submit("r1")
    cell.say(cell.run_gone(job), "host-001", settle=False)
    (owed,) = cell.world.uncharged.values()
    record = msgspec.json.decode(cell.draft("ledger"))
    assert record["causes"] == [[owed.ended.epoch, owed.ended.position, owed.ended.index]]


def test_a_command_of_another_service_is_not_the_ledgers() -> None:
    cell = Cell()
    assert cell.step("ledger", (cell.answer(CancelJob(job="job-x")),)) == []
