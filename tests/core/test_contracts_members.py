"""Members and roles of budgets: who submits, who changes, who ends the jobs of others (1.1)."""

import msgspec
import pytest

from fairlease.core.world import World
from fairlease_schemas.budget import BudgetChanged, BudgetMemberChanged
from fairlease_schemas.commands import CancelJob, ChangeBudget, ChangeMember
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import AttemptEnded, AttemptEnding, CommandRefused, End, JobCancelled, JobRefused, Problem
from tests.dsl.cell import SECOND, Cell, admitted, submitted


def role(budget: str, account: str, given: str, author: str = "ann") -> BudgetMemberChanged:
    return BudgetMemberChanged(budget=budget, account=account, role=given, author=author)


def tree(*names: str, who: str = "ann") -> Cell:
    """One host, and each budget below the one before it, made by `who` and nobody else's."""
    here = Cell().hosts(1)
    for parent, name in zip(("", *names), names, strict=False):
        here.say(ChangeBudget(budget=name, weight=1, parent=parent), who)
    return here


def refused(verb: str, who: str, seq: int, **problem: str) -> CommandRefused:
    return CommandRefused(account=who, verb=verb, seq=seq, problems=(Problem(rule="1.1", **problem),))


def stranger(field: str, budget: str, leads: str) -> dict[str, str]:
    return {
        "field": field,
        "value": budget,
        "limit": "a lead of it, or of a budget above it",
        "way_out": f"ask {leads}",
    }


def is_admitted(here: Cell, who: str, budget: str, request_id: str = "r1") -> bool:
    event = here.when(submitted(request_id, budget), who=who).events()[0]
    return not isinstance(event, JobRefused)


def test_whoever_makes_a_budget_becomes_its_lead() -> None:
    # rule: 1.1
    here = Cell()
    here.when(ChangeBudget(budget="a", weight=1)).then(
        BudgetChanged(budget="a", weight=1, author="ann"), role("a", "ann", "lead")
    )
    here.when(ChangeBudget(budget="a", weight=2)).then(BudgetChanged(budget="a", weight=2, author="ann"))


def test_only_members_and_leads_submit() -> None:
    # rule: 1.1
    here = tree("a")
    problem = Problem(
        field="spec.budget",
        rule="1.1",
        value="a",
        limit="a budget that this account is a member of",
        way_out="ask ann for `fairlease budget member a bob`",
    )
    refusal = JobRefused(job=admitted("r1", who="bob").job, account="bob", seq=1, problems=(problem,))
    here.when(submitted("r1"), who="bob").then(refusal).follows()
    here.when(ChangeMember(budget="a", account="bob", role="member")).then(role("a", "bob", "member"))
    here.when(submitted("r1"), who="bob").then(admitted("r1", who="bob"))
    here.when(submitted("r1")).then(admitted("r1"))


@pytest.mark.parametrize("given", ["member", "lead"])
def test_a_role_holds_for_all_budgets_below(given: str) -> None:
    # rule: 1.1
    here = tree("org", "team", "a")
    here.say(ChangeMember(budget="org", account="bob", role=given))
    assert is_admitted(here, "bob", "a")


def test_a_role_does_not_hold_above_or_beside() -> None:
    # rule: 1.1
    here = tree("org", "team")
    here.say(ChangeBudget(budget="other", weight=1, parent="org"))
    here.say(ChangeMember(budget="team", account="bob", role="lead"))
    assert is_admitted(here, "bob", "team")
    assert not is_admitted(here, "bob", "other")


def test_everybody_is_an_account_too() -> None:
    # rule: 1.1
    here = tree("a")
    assert not is_admitted(here, "eve", "a")
    here.when(ChangeMember(budget="a", account="*", role="member")).then(role("a", "*", "member"))
    assert is_admitted(here, "eve", "a")
    here.when(ChangeMember(budget="a", account="*", role="")).then(role("a", "*", ""))
    assert not is_admitted(here, "eve", "a", "r2")


def test_a_role_that_is_so_already_is_no_event() -> None:
    # rule: 1.1
    here = tree("a")
    here.when(ChangeMember(budget="a", account="ann", role="lead")).then()
    here.when(ChangeMember(budget="a", account="bob", role="")).then().follows()


def test_changing_a_budget_needs_a_lead_of_it_or_above_it() -> None:
    # rule: 1.1
    here = tree("org", "team")
    change = ChangeBudget(budget="team", weight=2)
    here.when(change, who="bob").then(refused("change-budget", "bob", 1, **stranger("budget", "team", "ann")))
    here.say(ChangeMember(budget="team", account="bob", role="member"))
    here.when(change, who="bob").then(refused("change-budget", "bob", 2, **stranger("budget", "team", "ann")))
    here.say(ChangeMember(budget="org", account="bob", role="lead"))
    here.when(change, who="bob").then(BudgetChanged(budget="team", weight=2, parent="org", author="bob"))


def test_a_new_child_needs_a_lead_of_its_parent_and_a_new_tree_needs_nobody() -> None:
    # rule: 1.1
    here = tree("org")
    child = ChangeBudget(budget="team", weight=1, parent="org")
    here.when(child, who="bob").then(refused("change-budget", "bob", 1, **stranger("parent", "org", "ann")))
    here.when(ChangeBudget(budget="bobs", weight=1), who="bob").then(
        BudgetChanged(budget="bobs", weight=1, author="bob"), role("bobs", "bob", "lead", "bob")
    )


def test_a_move_needs_a_lead_of_both_sides() -> None:
    # rule: 1.1
    here = tree("org", "team")
    here.say(ChangeBudget(budget="bobs", weight=1), "bob")
    move = ChangeBudget(budget="team", weight=1, parent="bobs")
    here.when(move).then(refused("change-budget", "ann", 3, **stranger("parent", "bobs", "bob")))
    here.when(move, who="bob").then(refused("change-budget", "bob", 2, **stranger("budget", "team", "ann")))
    here.say(ChangeMember(budget="bobs", account="ann", role="lead"), "bob")
    here.when(move).then(BudgetChanged(budget="team", weight=1, parent="bobs", author="ann"))


def test_who_moves_a_budget_to_where_nobody_leads_it_becomes_its_lead() -> None:
    # rule: 1.1
    here = tree("org", "team")
    here.say(ChangeMember(budget="team", account="ann", role=""))
    here.when(ChangeBudget(budget="team", weight=1, parent="")).then(
        BudgetChanged(budget="team", weight=1, author="ann"), role("team", "ann", "lead")
    )


def test_roles_are_changed_by_leads_alone() -> None:
    # rule: 1.1
    here = tree("org", "team")
    join = ChangeMember(budget="team", account="bob", role="lead")
    here.when(join, who="bob").then(refused("change-member", "bob", 1, **stranger("budget", "team", "ann")))
    here.say(join)
    here.when(ChangeMember(budget="team", account="carol", role="member"), who="bob").then(
        role("team", "carol", "member", "bob")
    )
    here.when(ChangeMember(budget="org", account="carol", role="member"), who="bob").then(
        refused("change-member", "bob", 3, **stranger("budget", "org", "ann"))
    )


def test_a_budget_keeps_a_lead() -> None:
    # rule: 1.1
    here = tree("org", "team")
    last = {"field": "role", "value": "ann", "limit": "a budget keeps a lead"}
    last["way_out"] = "make somebody else lead first"
    here.when(ChangeMember(budget="org", account="ann", role="member")).then(refused("change-member", "ann", 3, **last))
    here.when(ChangeMember(budget="team", account="ann", role="")).then(role("team", "ann", ""))
    here.say(ChangeMember(budget="org", account="bob", role="lead"))
    here.when(ChangeMember(budget="org", account="ann", role="")).then(role("org", "ann", ""))


@pytest.mark.parametrize(
    ("said", "field"),
    [
        pytest.param(ChangeMember(budget="nowhere", account="bob", role="member"), "budget", id="an unknown budget"),
        pytest.param(ChangeMember(budget="a", account="Bob B", role="member"), "account", id="no account"),
        pytest.param(ChangeMember(budget="a", account="", role="member"), "account", id="nobody"),
        pytest.param(ChangeMember(budget="a", account="bob", role="owner"), "role", id="an unknown role"),
    ],
)
def test_a_role_that_means_nothing_is_refused(said: ChangeMember, field: str) -> None:
    # rule: 1.1
    (event,) = tree("a").when(said).events()
    assert isinstance(event, CommandRefused)
    assert [(problem.field, problem.rule) for problem in event.problems] == [(field, "1.1")]


def test_a_maker_is_lead_for_the_next_message_of_the_same_record() -> None:
    # rule: 1.1
    here = Cell()
    here.when(
        ChangeBudget(budget="org", weight=1),
        ChangeMember(budget="org", account="bob", role="member"),
        ChangeBudget(budget="team", weight=1, parent="org"),
    ).then(
        BudgetChanged(budget="org", weight=1, author="ann"),
        role("org", "ann", "lead"),
        role("org", "bob", "member"),
        BudgetChanged(budget="team", weight=1, parent="org", author="ann"),
        role("team", "ann", "lead"),
    )


def test_a_second_change_in_one_record_keeps_the_caps_of_the_first() -> None:
    # rule: 1.1
    here = Cell()
    first, second = ChangeBudget(budget="a", weight=1, burst_permille=1500), ChangeBudget(budget="a", weight=2)
    here.when(first, second).then(
        BudgetChanged(budget="a", weight=1, author="ann", burst_permille=1500),
        role("a", "ann", "lead"),
        BudgetChanged(budget="a", weight=2, author="ann", burst_permille=1500),
    )


# the jobs of others ---------------------------------------------------------------------------------


def test_a_lead_ends_a_job_of_another_and_it_is_said_who() -> None:
    # rule: 1.1
    here = tree("org", "a", who="lead")
    here.say(ChangeMember(budget="a", account="ann", role="member"), "lead")
    job = here.submit("r1")
    here.start(job)
    attempt = attempt_id(job, 1)
    here.when(CancelJob(job=job), who="lead").then(
        AttemptEnding(attempt=attempt, end=End.CANCELLED, grace_ms=30 * SECOND, account="lead")
    )
    gone = here.when(here.run_gone(job, End.CANCELLED, 143), who="host-001").events()
    assert gone[1:] == [AttemptEnded(attempt=attempt, end=End.CANCELLED), JobCancelled(job=job, account="lead")]


def test_a_lead_ends_a_job_that_waits() -> None:
    # rule: 1.1
    here = tree("a", who="lead")
    here.say(ChangeMember(budget="a", account="*", role="member"), "lead")
    here.submit("r1", gpus_per_host=8)
    job = here.submit("r2", gpus_per_host=8)
    here.when(CancelJob(job=job), who="lead").then(JobCancelled(job=job, account="lead"))


@pytest.mark.parametrize("who", ["eve", "bob"])
def test_neither_a_stranger_nor_another_member_ends_a_job(who: str) -> None:
    # rule: 1.1
    here = tree("a", who="lead")
    for account in ("ann", "bob"):
        here.say(ChangeMember(budget="a", account=account, role="member"), "lead")
    job = here.submit("r1")
    limit = "a job of this account, or of a budget it leads"
    here.when(CancelJob(job=job), who=who).then(
        refused("cancel-job", who, 1, field="job", value=job, limit=limit, way_out="see `fairlease queue`")
    ).follows()


def test_who_is_no_member_any_more_still_ends_his_own_jobs() -> None:
    # rule: 1.1
    here = tree("a", who="lead")
    here.say(ChangeMember(budget="a", account="ann", role="member"), "lead")
    job = here.submit("r1")
    here.say(ChangeMember(budget="a", account="ann", role=""), "lead")
    assert not is_admitted(here, "ann", "a", "r2")
    (event,) = here.when(CancelJob(job=job)).events()
    assert isinstance(event, AttemptEnding)


# logs from before there were members ----------------------------------------------------------------


def old_tree() -> Cell:
    """A cell whose budget `a` was made by a log that knows no roles."""
    here = Cell().hosts(1)
    data = here.draft("ledger", (here.answer(ChangeBudget(budget="a", weight=1), "lead"),))
    record = msgspec.json.decode(data)
    record["events"] = [event for event in record["events"] if event["type"] != "budget-member-changed"]
    here.append(msgspec.json.encode(record))
    assert here.world.members == {}
    return here


def test_a_tree_from_before_membership_is_everybodys() -> None:
    # rule: 1.1
    here = old_tree()
    assert is_admitted(here, "eve", "a")
    job = admitted("r1", who="eve").job
    (event,) = here.when(CancelJob(job=job), who="ann").events()
    assert isinstance(event, CommandRefused)
    here.when(ChangeBudget(budget="a", weight=2), who="bob").then(BudgetChanged(budget="a", weight=2, author="bob"))
    assert is_admitted(here, "ann", "a")


def test_the_first_role_ends_that() -> None:
    # rule: 1.1
    here = old_tree()
    here.say(ChangeMember(budget="a", account="ann", role="lead"), "ann")
    assert is_admitted(here, "ann", "a")
    assert not is_admitted(here, "eve", "a")


def test_roles_are_in_the_snapshot() -> None:
    # rule: 1.1
    here = tree("a")
    here.say(ChangeMember(budget="a", account="bob", role="member"))
    assert World.load(here.world.dump()).members == {"a": {"ann": "lead", "bob": "member"}}
