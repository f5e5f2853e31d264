"""A past played again under another tree: budgets that are made, moved and capped, and who had which right."""

import pytest

from fairlease.simulator.again import Change, play_again
from fairlease.simulator.crew import Wrong
from fairlease.simulator.past import Past
from fairlease.simulator.regrown import unplayable, wanted_of
from fairlease_schemas.commands import CancelJob, ChangeBudget, ChangeMember, ChangePolicy
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import HOUR_MS, MINUTE_MS
from tests.simulator.test_again import Cell, crowded, told

Report = dict[str, object]


def played(past: Past, *budgets: ChangeBudget) -> Report:
    return play_again(told, past=past, change=Change(budgets=budgets))


def waited(report: Report, past: Past, budget: str) -> int:
    """How long the jobs of a budget waited in all, in ms."""
    waits = report["waits"]
    assert isinstance(waits, dict)
    return sum(waits[job] for job, name in past.budgets.items() if name == budget)


def preempted(report: Report) -> int:
    found = report["preemption"]
    assert isinstance(found, dict)
    return int(found["count"])


def refusals(report: Report) -> dict[str, int]:
    rules = report["rules"]
    assert isinstance(rules, list)
    return {rule["rule"]: rule["count"] for rule in rules}


# what is wanted of the tree -------------------------------------------------------------------------
def test_a_budget_that_is_made_takes_its_share_and_has_no_jobs() -> None:
    # given: work of b that evicts work of a
    past = crowded().past()
    # when: nearly all is entitled to a third budget
    would = played(past, ChangeBudget(budget="c", weight=1_000_000))
    # then: whoever has had anything is above his share, and may not evict for more
    assert preempted(would) == 1 < preempted(played(past))
    assert (set(past.waits), refusals(would)) == (set(past.work), {})


def test_a_budget_that_is_moved_takes_its_jobs_with_it() -> None:
    past = crowded().past()
    heavy = played(past, ChangeBudget(budget="b", weight=100))
    moved = played(past, ChangeBudget(budget="org", weight=100), ChangeBudget(budget="b", weight=1, parent="org"))
    assert moved["waits"] == heavy["waits"] != played(past)["waits"]
    assert refusals(moved) == {}


def test_a_budget_that_is_capped_waits() -> None:
    past = crowded().past()
    capped = played(past, ChangeBudget(budget="a", weight=1, burst_permille=1))
    again = played(past)
    # then: a leaves a host to b, which need not evict for it
    assert waited(capped, past, "b") < waited(again, past, "b")
    assert preempted(capped) < preempted(again)


def test_several_words_on_one_budget_are_its_last_on_each_field() -> None:
    said = (ChangeBudget(budget="a", weight=2, parent="org"), ChangeBudget(budget="a", weight=3, order="smallest"))
    assert wanted_of(said) == {"a": ChangeBudget(budget="a", weight=3, parent="org", order="smallest")}


def test_a_new_place_is_taken_once_the_log_has_it() -> None:
    # given: an organisation that comes an hour after the budget
    cell = crowded()
    cell.says(ChangeBudget(budget="org", weight=100), "lead", HOUR_MS)
    past = cell.past()
    # when / then: the budget is heavier from then on, not before
    late = played(past, ChangeBudget(budget="b", weight=1, parent="org"))
    early = played(past, ChangeBudget(budget="b", weight=100))
    assert waited(early, past, "b") < waited(late, past, "b") <= waited(played(past), past, "b")
    assert refusals(late) == {}


def test_the_past_may_have_turned_around_what_is_wanted() -> None:
    # given: d hung below c for an hour, and c is to hang below d
    cell = Cell()
    cell.run.budget("c", 1)
    cell.says(ChangeBudget(budget="d", weight=1), "lead", MINUTE_MS)
    cell.says(ChangeBudget(budget="d", weight=1, parent="c"), "lead", HOUR_MS)
    cell.says(ChangeBudget(budget="d", weight=1, parent=""), "lead", 2 * HOUR_MS)
    cell.submits("one")
    past = cell.past()
    # when / then: what the log did meanwhile has no room, and is told
    would = played(past, ChangeBudget(budget="c", weight=1, parent="d"))
    assert refusals(would) == {"changes of budgets that had no room when they were made": 1}
    assert would["waits"] == past.waits


# what no simulation can play ------------------------------------------------------------------------
def test_below_a_budget_that_had_jobs_nothing_can_hang_and_that_is_told() -> None:
    past = crowded().past()
    below = ChangeBudget(budget="c", weight=1, parent="a")
    assert unplayable(past, [below]) == "budget c is to hang below a, which 5 jobs of the log are charged to"
    assert not unplayable(past, [ChangeBudget(budget="c", weight=1), ChangeBudget(budget="d", weight=1, parent="c")])
    with pytest.raises(Wrong, match="budget c can hold at no time"):
        played(past, below)


def test_below_a_budget_that_had_jobs_before_it_had_children_there_is_room() -> None:
    cell = crowded()
    cell.says(ChangeBudget(budget="a1", weight=1, parent="a"), "lead", 11 * HOUR_MS + 50 * MINUTE_MS)
    past = cell.past()
    below = ChangeBudget(budget="a2", weight=1, parent="a")
    assert not unplayable(past, [below])
    would = played(past, below)
    assert (would["waits"], refusals(would)) == (past.waits, {})


# rights ---------------------------------------------------------------------------------------------
def owned() -> Cell:
    """A cell led by `boss`, where `ann` may submit below `org` alone."""
    cell = Cell(hosts=1)
    for said in (
        ChangeMember(budget="/", account="boss", role="lead"),
        ChangeBudget(budget="org", weight=1),
        ChangeBudget(budget="team", weight=1, parent="org"),
        ChangeMember(budget="org", account="ann", role="member"),
        ChangeBudget(budget="other", weight=1),
    ):
        cell.says(said, "boss", 0)
    return cell


def test_who_had_a_role_in_the_old_place_alone_is_played_in_the_new_one() -> None:
    cell = owned()
    job = cell.submits("one", budget="team", at_ms=MINUTE_MS)
    past = cell.past()
    would = played(past, ChangeBudget(budget="team", weight=1, parent="other"))
    assert (would["waits"], refusals(would)) == ({job: past.waits[job]}, {})


def test_a_policy_that_came_after_the_cell_had_leads_comes_again() -> None:
    # given: a cell with leads, in which nobody may evict from early on
    cell = crowded()
    cell.says(ChangeMember(budget="/", account="boss", role="lead"), "boss", MINUTE_MS)
    cell.says(ChangePolicy(name="calm", policy=Policy(margin_permille=10**6)), "boss", 2 * MINUTE_MS)
    past = cell.past()
    assert past.report["preemption"]["count"] == 0
    # when / then
    again = played(past)
    assert (preempted(again), again["waits"]) == (0, past.waits)


def test_what_was_refused_is_not_said_again() -> None:
    # given: a stranger who wants a job ended that is not his
    cell = owned()
    job = cell.submits("one", budget="team", hours=3, at_ms=MINUTE_MS)
    cell.says(CancelJob(job=job), "eve", HOUR_MS)
    past = cell.past()
    # when / then
    again = played(past)
    assert isinstance(again["jobs"], dict)
    assert again["jobs"]["finished"] == past.report["jobs"]["finished"] == 1
    assert {"rule": "commands that were refused are left out", "count": 1} in past.rules
