"""`policy simulate`: what of a proposal is played, and what is told of one that no log could have had."""

import msgspec
import pytest

from fairlease.cli import judge
from fairlease.cli.exits import USAGE, CommandError
from fairlease.simulator.again import Change
from fairlease_schemas.commands import Change as Wanted
from fairlease_schemas.commands import ChangeBudget, ChangePolicy
from fairlease_schemas.explain import ProposalRow
from fairlease_schemas.policy import Policy
from tests.simulator.test_again import Cell

MADE = ChangeBudget(budget="org", weight=2)
MOVED = ChangeBudget(budget="a", weight=1, parent="org", burst_permille=500, reason="the new group")
CALM = ChangePolicy(name="calm", policy=Policy(margin_permille=900))


def row_of(*changes: Wanted) -> ProposalRow:
    """The proposal of these changes as the explainer tells it."""
    return ProposalRow(
        proposal="wider",
        author="ann",
        at_ms=1,
        position=3,
        log_digest="ab" * 32,
        change="cd" * 32,
        changes=tuple(msgspec.to_builtins(changes)),
        reports=(),
        forced_by="",
        is_stale=False,
    )


def test_budgets_that_are_made_moved_and_capped_are_played_with_the_policy() -> None:
    # rule: 10.1
    found = judge.change_of(row_of(MADE, MOVED, CALM))
    assert found == Change(policy=CALM.policy, budgets=(MADE, MOVED))


def test_a_place_below_a_budget_that_had_jobs_is_refused_with_two_ways_out() -> None:
    # rule: 10.2
    cell = Cell()
    cell.submits("one")
    past = cell.past()
    below = ChangeBudget(budget="c", weight=1, parent="a")
    with pytest.raises(CommandError) as caught:
        judge._check(past, judge.change_of(row_of(below)))
    assert caught.value.code == USAGE
    assert caught.value.text == (
        "budget c is to hang below a, which 1 job of the log is charged to, so no simulation can play it"
    )
    assert "below a budget that has children or never had jobs" in caught.value.way_out
    assert "--force" in caught.value.way_out
    judge._check(past, judge.change_of(row_of(MADE, MOVED)))
