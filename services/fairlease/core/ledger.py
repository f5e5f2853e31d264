"""The ledger: policy, the budget tree, its members, and what ended attempts were charged (scope `intake`).

The first record of every log is the ledger's: the default policy, so that nothing is ever decided
without numbers. A second change of the same node in one record is decided on the first one's tree.
"""

from functools import cached_property
from typing import assert_never

from fairlease.core.budget import (
    FIRST_POLICY_NAME,
    MAX_CHARGES_PER_RECORD,
    Tree,
    change_budget,
    change_policy,
    charge,
    node_of,
    parent_of,
    refuse_unreadable,
)
from fairlease.core.decision import Decision, decision_ms, is_owed
from fairlease.core.flood import gathered
from fairlease.core.membership import change_member, founding, lead_problem, with_role
from fairlease.core.world import World
from fairlease_schemas import commands, reports
from fairlease_schemas.budget import BudgetChanged, BudgetMemberChanged
from fairlease_schemas.envelope import Answer, Event, LeasesRead, Misshapen, Submitted, TimerFired, Unreadable
from fairlease_schemas.ids import BudgetId
from fairlease_schemas.job import CommandRefused, MessageRefused, Problem
from fairlease_schemas.policy import Policy, PolicyChanged

LedgerEvent = BudgetChanged | BudgetMemberChanged | PolicyChanged | CommandRefused | MessageRefused


class Stage:
    """Tree, members and policy as they stand after the events that this record has gathered so far."""

    def __init__(self, world: World, policy: Policy) -> None:
        self.tree: Tree = world.tree
        self.members = world.members
        self.name, self.policy = world.policy_name, policy
        self._jobs = world.jobs
        self.events: list[LedgerEvent] = []

    @cached_property
    def busy(self) -> frozenset[BudgetId]:
        """The leaves that jobs which are not over are charged to: a look at every job, when the tree is changed."""
        return frozenset(job.budget for job in self._jobs.values() if not job.is_terminal)

    def emit(self, event: LedgerEvent | None) -> None:
        """Record the event, if there is one, and stage what it makes."""
        match event:
            case None:
                return
            case BudgetChanged():
                self.tree = self.tree.with_node(event.budget, node_of(event))
            case BudgetMemberChanged():
                self.members = with_role(self.members, event)
            case PolicyChanged():
                self.name, self.policy = event.name, event.policy
            case CommandRefused() | MessageRefused():
                pass
            case _:
                assert_never(event)
        self.events.append(event)


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """The first policy; or the answers to these commands and the charges that are owed."""
    now_ms = decision_ms(world, answers)
    if world.policy is None:
        first = PolicyChanged(name=FIRST_POLICY_NAME, author="fairlease", policy=Policy(), reason="a new cell")
        return Decision(kind="policy", at_ms=now_ms, events=(first,))
    stage = Stage(world, world.policy)
    for answer in answers:
        _answer(stage, answer)
    owed = list(world.uncharged.items())[:MAX_CHARGES_PER_RECORD]
    events: list[Event] = [*stage.events, *(charge(attempt, due) for attempt, due in owed)]
    if not events and not any(map(is_owed, answers)):
        return None
    causes = {due.ended for _, due in owed}
    return Decision(
        kind="ledger", at_ms=now_ms, events=gathered(answers, events), causes=tuple(sorted(causes)), answers=answers
    )


def _answer(stage: Stage, answer: Answer) -> None:
    match answer.said:
        case commands.ChangeBudget():
            _change_budget(stage, answer, answer.said)
        case commands.ChangeMember():
            stage.emit(change_member(stage.tree, stage.members, answer, answer.said))
        case commands.ChangePolicy():
            stage.emit(change_policy(stage.name, stage.policy, answer, answer.said))
        case Unreadable():
            stage.emit(refuse_unreadable(answer, answer.said))
        case TimerFired() | LeasesRead():
            pass
        case (
            Submitted()
            | Misshapen()
            | commands.CancelJob()
            | commands.HoldJob()
            | commands.ReleaseJob()
            | commands.RecordEvaluation()
            | commands.CordonHost()
            | commands.ReturnHost()
            | commands.RequestDrain()
            | commands.UndrainHost()
            | reports.HostUp()
            | reports.RunReady()
            | reports.RunStarted()
            | reports.RunGone()
            | reports.CheckpointDone()
        ):
            pass  # for another service
        case _:
            assert_never(answer.said)


def _change_budget(stage: Stage, answer: Answer, said: commands.ChangeBudget) -> None:
    """The node as asked for, by somebody who leads it and what it shall hang below; its maker becomes its lead."""
    is_new = said.budget not in stage.tree.nodes
    problem = _stranger_problem(stage, answer.who, said, is_new=is_new)
    if problem is not None:
        stage.emit(CommandRefused(account=answer.who, verb="change-budget", seq=answer.seq, problems=(problem,)))
        return
    event = change_budget(stage.tree, stage.busy, answer, said)
    stage.emit(event)
    if isinstance(event, BudgetChanged):
        stage.emit(founding(stage.tree, stage.members, said.budget, answer.who, is_new=is_new))


def _stranger_problem(stage: Stage, who: str, said: commands.ChangeBudget, *, is_new: bool) -> Problem | None:
    """Why this account may not: it leads neither the node nor, of a new or moved one, the node above.

    A new child of the root may be made by anybody, and a node that one leads may be moved there.
    """
    tree, members = stage.tree, stage.members
    present: BudgetId = "" if is_new else tree.nodes[said.budget].parent
    problem = None if is_new else lead_problem(tree, members, who, said.budget, "budget")
    parent = parent_of(tree, said)
    if problem is None and parent != present and parent in tree.nodes:
        problem = lead_problem(tree, members, who, parent, "parent")
    return problem
