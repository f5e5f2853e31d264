"""Changes that are judged before they hold: the gate, its reports, and the second person (decisions.md 10)."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlease.core.change import (
    KEPT_BUDGETS,
    MAX_CHANGES_BYTES,
    MAX_FIGURE,
    MAX_PROPOSALS,
    MAX_PROPOSALS_EACH,
    MAX_REPORTS,
    digest_of_changes,
)
from fairlease.core.view import proposals_view
from fairlease.runtime.bus_server import MAX_PAYLOAD
from fairlease_schemas.budget import BudgetChanged, BudgetMemberChanged
from fairlease_schemas.change import (
    ChangeAccepted,
    ChangeEnd,
    ChangeForced,
    ChangeProposed,
    ChangeSimulated,
    ChangeWithdrawn,
)
from fairlease_schemas.commands import (
    AcceptChange,
    ChangeBudget,
    ChangeMember,
    ChangePolicy,
    ProposeChange,
    ReportChange,
)
from fairlease_schemas.job import CommandRefused
from fairlease_schemas.policy import Policy, PolicyChanged
from fairlease_schemas.simulated import BudgetFigures, Figures, Source
from tests.dsl.cell import DAY, HOUR, Cell
from tests.dsl.proposals import GOOD, proposed, reported

GATED = Policy(change_gate="reported")
WIDER = replace(GATED, margin_permille=50)
WIDE = ChangePolicy(name="wide", policy=WIDER)


def gated(**weights: int) -> Cell:
    """A cell of three days whose policy asks for reports; `lead` and `second` lead the whole of it."""
    cell = Cell().hosts(2).budgets(**(weights or {"a": 1, "b": 1}))
    for account in ("lead", "second"):
        cell.say(ChangeMember(budget="/", account=account, role="lead"), "lead")
    cell.say(ChangePolicy(name="gated", policy=GATED), "lead")
    cell.at(3 * DAY).say(ChangeMember(budget="a", account="late", role="member"), "lead")
    return cell


Asked = ChangePolicy | ChangeBudget | ProposeChange | ReportChange | AcceptChange


def problem(cell: Cell, said: Asked, who: str = "lead") -> tuple[str, str]:
    """The field and the rule of the one refusal."""
    (event,) = cell.say(said, who, settle=False)
    assert isinstance(event, CommandRefused), event
    (found,) = event.problems
    assert found.limit
    assert found.way_out
    return found.field, found.rule


# the way through ------------------------------------------------------------------------------------
def test_a_change_holds_once_a_report_on_it_is_accepted() -> None:
    # rule: 10.1
    cell = gated()
    digest, position = cell.world.log_digest, cell.world.position
    told = cell.when(ProposeChange(proposal="wider", changes=(WIDE,), reason="fewer evictions"), who="lead")
    proposal = ChangeProposed(
        proposal="wider",
        author="lead",
        changes=(WIDE,),
        position=position,
        log_digest=digest,
        change=digest_of_changes((WIDE,)),
        span_ms=3 * DAY,
        reason="fewer evictions",
    )
    told.then(proposal)
    report = reported(proposal)
    cell.when(ReportChange(report=report), who="anybody").then(
        ChangeSimulated(
            proposal="wider",
            report=report.digest,
            author="anybody",
            source=Source.LOG,
            span_ms=2 * DAY,
            before=GOOD,
            after=GOOD,
            seeds=(1,),
            budgets=report.budgets,
        )
    )
    assert cell.world.policy == GATED
    cell.when(AcceptChange(proposal="wider", report=report.digest), who="second").then(
        ChangeAccepted(proposal="wider", author="second", report=report.digest),
        PolicyChanged(name="wide", author="second", policy=WIDER),
    )
    assert (cell.world.policy_name, dict(cell.world.proposals)) == ("wide", {})


def test_budgets_change_by_the_same_way_several_at_once() -> None:
    # rule: 10.1
    cell = gated(a=1, b=1)
    proposal = proposed(cell, ChangeBudget(budget="a", weight=3), ChangeBudget(budget="b", weight=2))
    report = reported(proposal)
    cell.say(ReportChange(report=report), "lead")
    cell.when(AcceptChange(proposal="wider", report=report.digest), who="lead").then(
        ChangeAccepted(proposal="wider", author="lead", report=report.digest),
        BudgetChanged(budget="a", weight=3, author="lead"),
        BudgetChanged(budget="b", weight=2, author="lead"),
    )


def test_the_same_report_twice_is_one() -> None:
    cell = gated()
    report = reported(proposed(cell, WIDE))
    cell.say(ReportChange(report=report), "lead")
    cell.when(ReportChange(report=report), who="other").then()


def test_of_a_report_what_differs_most_is_kept_for_whoever_is_to_accept_it() -> None:
    # rule: 10.1
    cell = gated()
    found = [(f"b-{number:02}", 900, 900 - number) for number in range(30)] + [("idle", None, None), ("made", None, 7)]
    budgets = tuple(BudgetFigures(budget=name, before_permille=was, after_permille=is_) for name, was, is_ in found)
    report = reported(proposed(cell, WIDE), budgets=budgets)
    cell.say(ReportChange(report=report), "anybody")
    (row,) = proposals_view(cell.world).rows
    (told,) = row.reports
    assert [one.budget for one in told.budgets] == [f"b-{number:02}" for number in range(29, 29 - KEPT_BUDGETS, -1)]
    assert (told.digest, told.author, told.source, told.span_ms) == (report.digest, "anybody", Source.LOG, 2 * DAY)
    assert (told.before, told.after) == (GOOD, GOOD)


def test_of_a_proposal_is_told_what_is_in_force_and_what_would_be() -> None:
    """A number that goes back to its default is a change, and one that stays is none; the next is told by the first."""
    # rule: 10.1
    cell = gated()
    first = replace(GATED, due_first_permille=500, window_bounds=GATED.window_bounds[2:])
    changes = (
        ChangePolicy(name="first", policy=first),
        ChangeBudget(budget="a", weight=2),
        ChangePolicy(name="second", policy=Policy()),
    )
    cell.say(ProposeChange(proposal="both", changes=changes), "lead")
    (row,) = proposals_view(cell.world).rows
    told = [{one.number: (one.now, one.then) for one in of} for of in row.numbers]
    now, then = (msgspec.to_builtins(bounds) for bounds in (GATED.window_bounds, first.window_bounds))
    assert told == [
        {"due_first_permille": (0, 500), "window_bounds": (now, then)},
        {},
        {"due_first_permille": (500, 0), "window_bounds": (then, now), "change_gate": ("reported", "")},
    ]


def test_of_many_reports_the_newest_are_kept() -> None:
    cell = gated()
    proposal = proposed(cell, WIDE)
    reports = [reported(proposal, seeds=(seed,)) for seed in range(MAX_REPORTS + 1)]
    for number, report in enumerate(reports):
        cell.say(ReportChange(report=report), f"person-{number}")
    assert list(cell.world.proposals["wider"].reports) == [report.digest for report in reports[1:]]
    assert problem(cell, AcceptChange(proposal="wider", report=reports[0].digest)) == ("report", "10.1")


# what the gate refuses ------------------------------------------------------------------------------
def test_nothing_changes_at_once_where_the_policy_asks_for_a_report() -> None:
    # rule: 10.1
    cell = gated()
    assert problem(cell, WIDE) == ("name", "10.1")
    assert problem(cell, ChangeBudget(budget="a", weight=2)) == ("budget", "10.1")
    assert problem(cell, ChangePolicy(name="open", policy=Policy())) == ("name", "10.1")
    assert cell.world.policy == GATED


def test_what_is_so_already_needs_no_report() -> None:
    cell = gated()
    cell.when(ChangeBudget(budget="a", weight=1), who="lead").then()
    cell.when(ChangePolicy(name="gated", policy=GATED), who="lead").then()


def test_an_unsimulated_proposal_does_not_hold() -> None:
    # rule: 10.1
    cell = gated()
    proposed(cell, WIDE)
    assert problem(cell, AcceptChange(proposal="wider")) == ("report", "10.1")
    assert problem(cell, AcceptChange(proposal="wider", report="0" * 64)) == ("report", "10.1")
    assert problem(cell, AcceptChange(proposal="nothing", report="0" * 64)) == ("proposal", "10.1")


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"after": replace(GOOD, fulfilment_permille=999)}, id="a better figure"),
        pytest.param({"span_ms": 9 * DAY}, id="a longer time"),
        pytest.param({"seeds": ()}, id="other seeds"),
        pytest.param({"budgets": ()}, id="a budget left out"),
        pytest.param({"digest": "f" * 64}, id="another digest"),
        pytest.param({"digest": ""}, id="no digest"),
    ],
)
def test_a_tampered_report_is_refused(changed: dict[str, Any]) -> None:
    # rule: 10.1
    cell = gated()
    report = replace(reported(proposed(cell, WIDE)), **changed)
    assert problem(cell, ReportChange(report=report)) == ("report.digest", "10.1")


@pytest.mark.parametrize(
    ("other", "field"),
    [
        pytest.param({"position": 1}, "position", id="of another position"),
        pytest.param({"log_digest": "0" * 64}, "log_digest", id="of another log"),
        pytest.param({"change": "0" * 64}, "change", id="of other changes"),
        pytest.param({"source": Source.LAB_1024}, "source", id="of a workload that is not the cell's"),
        pytest.param({"span_ms": 2 * DAY - 1}, "span_ms", id="of too short a time"),
        pytest.param({"seeds": tuple(range(101))}, "seeds", id="of more seeds than a record holds"),
        pytest.param(
            {"budgets": (BudgetFigures(budget="a" * 64, before_permille=1, after_permille=1),)},
            "budgets",
            id="of what is no budget's name",
        ),
        pytest.param(
            {"budgets": (BudgetFigures(budget="a", before_permille=1, after_permille=-1),)}, "budgets", id="of less"
        ),
        pytest.param({"before": replace(GOOD, wait_p50_ms=1 << 62)}, "before.wait_p50_ms", id="of no sensible figure"),
        pytest.param({"after": replace(GOOD, windows_broken=1)}, "after.windows_broken", id="that breaks a window"),
        pytest.param({"after": replace(GOOD, promises_broken=2)}, "after.promises_broken", id="that breaks promises"),
        pytest.param({"after": replace(GOOD, loops=1)}, "after.loops", id="that loops"),
        pytest.param({"after": replace(GOOD, windows_broken=-1)}, "after.windows_broken", id="of less than none"),
    ],
)
def test_a_report_that_does_not_fit_or_breaks_a_limit_is_refused(other: dict[str, Any], field: str) -> None:
    # rule: 10.1
    cell = gated()
    assert problem(cell, ReportChange(report=reported(proposed(cell, WIDE), **other))) == (f"report.{field}", "10.1")


def test_a_report_on_the_proposal_before_is_of_another() -> None:
    # rule: 10.1
    cell = gated()
    report = reported(proposed(cell, WIDE))
    cell.when(ProposeChange(proposal="wider", changes=(replace(WIDE, name="wide-2"),)), who="lead").events()
    assert problem(cell, ReportChange(report=report)) == ("report.position", "10.1")


def test_a_stale_proposal_does_not_hold_whatever_was_reported() -> None:
    # rule: 10.1
    cell = gated()
    proposal = proposed(cell, WIDE)
    report = reported(proposal)
    cell.say(ReportChange(report=report), "lead")
    cell.at(4 * DAY + 1)
    assert problem(cell, AcceptChange(proposal="wider", report=report.digest)) == ("proposal", "10.1")
    # and nothing more on it goes into the log
    late = reported(proposal, seeds=(2,))
    assert problem(cell, ReportChange(report=late)) == ("proposal", "10.1")


def test_a_change_makes_every_other_proposal_stale() -> None:
    # rule: 10.1
    cell = gated()
    reports = []
    for name, change in (("wider", WIDE), ("heavier", ChangeBudget(budget="a", weight=2))):
        reports.append(reported(proposed(cell, change, name=name)))
        cell.say(ReportChange(report=reports[-1]), "lead")
    accepted = AcceptChange(proposal="heavier", report=reports[1].digest)
    cell.when(accepted, AcceptChange(proposal="wider", report=reports[0].digest), who="lead").events()
    assert cell.world.policy == GATED
    assert problem(cell, AcceptChange(proposal="wider", report=reports[0].digest)) == ("proposal", "10.1")
    told = cell.say(ProposeChange(proposal="wider", changes=(WIDE,)), "second", settle=False)
    assert told[0] == ChangeWithdrawn(proposal="wider", why=ChangeEnd.STALE)


def test_a_young_cell_may_rest_on_the_reference_workload() -> None:
    # rule: 10.1
    cell = Cell().hosts(2).budgets(a=1)
    cell.say(ChangePolicy(name="gated", policy=GATED), "lead")
    cell.at(DAY).say(ChangeMember(budget="a", account="late", role="member"), "lead")
    proposal = proposed(cell, WIDE)
    too_short = reported(proposal, source=Source.LAB_1024, span_ms=DAY)
    assert problem(cell, ReportChange(report=too_short)) == ("report.span_ms", "10.1")
    report = reported(proposal, source=Source.LAB_1024)
    assert isinstance(cell.say(ReportChange(report=report))[0], ChangeSimulated)
    of_all_there_is = reported(proposal, span_ms=proposal.span_ms)
    assert isinstance(cell.say(ReportChange(report=of_all_there_is), "bea")[0], ChangeSimulated)


# a second person ------------------------------------------------------------------------------------
def test_a_forced_change_takes_two_people() -> None:
    # rule: 10.2
    cell = gated()
    proposed(cell, WIDE)
    forced = AcceptChange(proposal="wider", is_forced=True, reason="the lane is jammed")
    cell.when(forced, who="lead").then(ChangeForced(proposal="wider", author="lead", reason="the lane is jammed"))
    assert cell.world.policy == GATED
    assert problem(cell, forced) == ("is_forced", "10.2")
    cell.when(forced, who="second").then(
        ChangeAccepted(proposal="wider", author="second", first="lead"),
        PolicyChanged(name="wide", author="second", policy=WIDER),
    )


def test_the_second_person_is_one_who_may_change_it_too() -> None:
    # rule: 10.2
    cell = gated()
    proposed(cell, WIDE)
    forced = AcceptChange(proposal="wider", is_forced=True)
    cell.say(forced, "lead")
    assert problem(cell, forced, "ann") == ("changes.0.name", "1.1")


def test_a_forced_change_is_forced_while_it_is_fresh() -> None:
    # rule: 10.2
    cell = gated()
    proposed(cell, WIDE)
    forced = AcceptChange(proposal="wider", is_forced=True)
    cell.say(forced, "lead")
    cell.at(4 * DAY + 1)
    assert problem(cell, forced, "second") == ("proposal", "10.1")


def test_the_first_of_two_people_still_may_when_the_second_says_so() -> None:
    # given: a first word of somebody who leads the cell no more
    # rule: 10.2
    cell = gated()
    cell.say(ChangeMember(budget="/", account="mallory", role="lead"), "lead")
    proposed(cell, WIDE)
    forced = AcceptChange(proposal="wider", is_forced=True)
    cell.say(forced, "mallory")
    cell.say(ChangeMember(budget="/", account="mallory", role=""), "lead")
    # when / then: the next word is the first
    cell.when(forced, who="second").then(ChangeForced(proposal="wider", author="second"))
    assert problem(cell, forced, "second") == ("is_forced", "10.2")
    cell.when(forced, who="lead").then(
        ChangeAccepted(proposal="wider", author="lead", first="second"),
        PolicyChanged(name="wide", author="lead", policy=WIDER),
    )


def test_what_somebody_wants_forced_is_not_replaced_before_the_second_says_so() -> None:
    # rule: 10.2
    cell = gated()
    proposed(cell, WIDE)
    cell.say(AcceptChange(proposal="wider", is_forced=True), "lead")
    worse = ChangePolicy(name="worse", policy=replace(GATED, margin_permille=900))
    assert problem(cell, ProposeChange(proposal="wider", changes=(worse,))) == ("proposal", "10.1")
    assert cell.say(AcceptChange(proposal="wider", is_forced=True), "second")
    assert cell.world.policy == WIDER


# who, and how much ----------------------------------------------------------------------------------
def test_only_leads_of_the_cell_change_its_policy_once_there_are_some() -> None:
    # rule: 1.1
    cell = Cell().budgets(a=1)
    assert cell.say(ChangePolicy(name="wide", policy=Policy(margin_permille=50)), "ann")
    cell.say(ChangeMember(budget="/", account="lead", role="lead"), "lead")
    assert problem(cell, ChangePolicy(name="wider", policy=Policy(margin_permille=60)), "ann") == ("name", "1.1")
    assert problem(cell, ChangeBudget(budget="c", weight=1), "ann") == ("budget", "1.1")
    assert problem(cell, ProposeChange(proposal="p", changes=(WIDE,)), "ann") == ("changes.0.name", "1.1")
    assert cell.say(ChangePolicy(name="wider", policy=Policy(margin_permille=60)), "lead")
    assert cell.say(ChangeBudget(budget="a", weight=9), "lead")


@pytest.mark.parametrize(
    ("said", "field"),
    [
        pytest.param(ChangeMember(budget="/", account="lead", role=""), "role", id="the last lead"),
        pytest.param(ChangeMember(budget="/", account="ann", role="member"), "role", id="a member of the whole"),
        pytest.param(ChangeMember(budget="/", account="*", role="lead"), "role", id="everybody"),
    ],
)
def test_the_cell_keeps_leads_and_has_no_other_roles(said: ChangeMember, field: str) -> None:
    # rule: 1.1
    cell = Cell().budgets(a=1)
    cell.say(ChangeMember(budget="/", account="lead", role="lead"), "lead")
    (event,) = cell.say(said, "lead")
    assert isinstance(event, CommandRefused)
    assert event.problems[0].field == field


def test_the_first_lead_of_the_cell_is_who_asks_so_that_a_slip_locks_nobody_out() -> None:
    # given: nobody leads the cell, and its lead-to-be mistypes a name
    # rule: 1.1
    cell = Cell().budgets(a=1)
    (event,) = cell.say(ChangeMember(budget="/", account="lesd", role="lead"), "lead")
    assert isinstance(event, CommandRefused)
    assert event.problems[0].way_out == "make yourself lead first, then others"
    # then: everybody still may, and the way out is one
    for account in ("lead", "lesd"):
        (event,) = cell.say(ChangeMember(budget="/", account=account, role="lead"), "lead")
        assert isinstance(event, BudgetMemberChanged)


def test_a_strangers_role_in_the_cell_is_for_its_leads_to_give() -> None:
    # rule: 1.1
    cell = Cell().budgets(a=1)
    cell.say(ChangeMember(budget="/", account="lead", role="lead"), "lead")
    (event,) = cell.say(ChangeMember(budget="/", account="ann", role="lead"), "ann")
    assert isinstance(event, CommandRefused)
    assert event.problems[0].way_out == "ask lead"


@pytest.mark.parametrize(
    ("said", "field"),
    [
        pytest.param(ProposeChange(proposal="No Name", changes=(WIDE,)), "proposal", id="a name that is none"),
        pytest.param(ProposeChange(proposal="p", changes=()), "changes", id="no change"),
        pytest.param(ProposeChange(proposal="p", changes=(WIDE,) * 65), "changes", id="too many changes"),
        pytest.param(
            ProposeChange(proposal="p", changes=(ChangePolicy(name="gated", policy=GATED),)), "changes.0", id="no news"
        ),
        pytest.param(
            ProposeChange(proposal="p", changes=(WIDE, ChangeBudget(budget="a", weight=0))),
            "changes.1.weight",
            id="a change that would be refused",
        ),
    ],
)
def test_a_proposal_that_could_never_hold_is_refused_at_once(said: ProposeChange, field: str) -> None:
    # rule: 10.1
    assert problem(gated(), said)[0] == field


def test_nobody_replaces_anothers_proposal_and_there_are_only_so_many() -> None:
    cell = gated()
    for account in ("third", "fourth", "fifth"):
        cell.say(ChangeMember(budget="/", account=account, role="lead"), "lead")
    for number in range(MAX_PROPOSALS):
        proposed(cell, WIDE, name=f"p-{number}", who=("lead", "third", "fourth", "fifth")[number % 4])
    assert problem(cell, ProposeChange(proposal="p-0", changes=(WIDE,)), "second") == ("proposal", "10.1")
    assert problem(cell, ProposeChange(proposal="one-more", changes=(WIDE,)), "second") == ("proposal", "10.1")
    told = cell.say(ProposeChange(proposal="p-0", changes=(WIDE,)), "lead", settle=False)
    assert told[0] == ChangeWithdrawn(proposal="p-0", why=ChangeEnd.REPLACED)
    cell.at(4 * DAY + HOUR)
    told = cell.say(ProposeChange(proposal="p-0", changes=(WIDE,)), "second", settle=False)
    assert [type(event) for event in told] == [ChangeWithdrawn] * MAX_PROPOSALS + [ChangeProposed]


def test_one_account_leaves_room_for_the_proposals_of_others() -> None:
    # given: a lead of one small budget who opens as many proposals as it may
    cell = gated()
    cell.say(ChangeMember(budget="a", account="mallory", role="lead"), "lead")
    for number in range(MAX_PROPOSALS_EACH):
        proposed(cell, ChangeBudget(budget="a", weight=2), name=f"m-{number}", who="mallory")
    # when / then
    one_more = ProposeChange(proposal="m-more", changes=(ChangeBudget(budget="a", weight=2),))
    assert problem(cell, one_more, "mallory") == ("proposal", "10.1")
    assert proposed(cell, WIDE).author == "lead"


def test_all_open_proposals_fit_the_one_message_that_tells_them() -> None:
    # given: as many and as large proposals as there may be, with all their reports
    budgets = tuple(
        BudgetFigures(budget=f"{number:063}", before_permille=MAX_FIGURE, after_permille=0) for number in range(99)
    )
    wide = replace(GOOD, **{name: MAX_FIGURE for name in Figures.__struct_fields__ if getattr(GOOD, name) != 0})
    cell = gated()
    for account in ("third", "fourth", "fifth"):
        cell.say(ChangeMember(budget="/", account=account, role="lead"), "lead")
    for number in range(MAX_PROPOSALS):
        who = ("lead", "third", "fourth", "fifth")[number % 4]
        large = replace(WIDE, reason="x" * (MAX_CHANGES_BYTES - 500))
        proposal = proposed(cell, large, name=f"p-{number}", who=who)
        for seed in range(MAX_REPORTS):
            full = reported(proposal, seeds=(seed,), budgets=budgets, before=wide, after=wide)
            cell.say(ReportChange(report=full), f"person-{seed}", settle=False)
    # then
    view = proposals_view(cell.world)
    assert [len(row.reports) for row in view.rows] == [MAX_REPORTS] * MAX_PROPOSALS
    assert len(msgspec.json.encode(view)) < MAX_PAYLOAD
    too_large = ProposeChange(proposal="p-0", changes=(replace(WIDE, reason="x" * MAX_CHANGES_BYTES),))
    assert problem(cell, too_large) == ("changes", "10.1")


def test_an_account_reports_once_on_a_proposal_so_that_nobody_fills_the_log() -> None:
    # rule: 10.1
    cell = gated()
    proposal = proposed(cell, WIDE)
    report = reported(proposal)
    cell.say(ReportChange(report=report), "lead")
    # when: somebody sends many that fit, also after others pushed out the first
    first, *more = (ReportChange(report=reported(proposal, seeds=(seed,))) for seed in range(100, 110))
    assert isinstance(cell.say(first, "mallory")[0], ChangeSimulated)
    for one in more:
        assert problem(cell, one, "mallory") == ("report", "10.1")
    assert cell.say(first, "mallory") == []
    for number in range(MAX_REPORTS):
        cell.say(ReportChange(report=reported(proposal, seeds=(200 + number,))), f"person-{number}")
    assert problem(cell, first, "mallory") == ("report", "10.1")
    # then: a new proposal of that name is another thing
    anew = proposed(cell, WIDE)
    assert isinstance(cell.say(ReportChange(report=reported(anew)), "mallory")[0], ChangeSimulated)


def test_nobody_pushes_out_the_report_of_another() -> None:
    # rule: 10.1
    cell = gated()
    proposal = proposed(cell, WIDE)
    report = reported(proposal)
    cell.say(ReportChange(report=report), "lead")
    # when: somebody sends many that fit
    for seed in range(100, 100 + 2 * MAX_REPORTS):
        cell.say(ReportChange(report=reported(proposal, seeds=(seed,))), "mallory")
    # then
    cell.when(AcceptChange(proposal="wider", report=report.digest), who="second").then(
        ChangeAccepted(proposal="wider", author="second", report=report.digest),
        PolicyChanged(name="wide", author="second", policy=WIDER),
    )


def test_no_policy_closes_the_gate_for_ever() -> None:
    # rule: 10.1
    shut = replace(GATED, report_valid_ms=HOUR - 1)
    assert problem(Cell().budgets(a=1), ChangePolicy(name="shut", policy=shut)) == ("policy.report_valid_ms", "10.1")


def test_without_a_gate_a_proposal_may_be_accepted_as_it_is() -> None:
    cell = Cell().budgets(a=1)
    cell.say(ProposeChange(proposal="wider", changes=(WIDE,)), "lead")
    cell.when(AcceptChange(proposal="wider"), who="lead").then(
        ChangeAccepted(proposal="wider", author="lead"), PolicyChanged(name="wide", author="lead", policy=WIDER)
    )
