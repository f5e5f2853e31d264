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
from fairlease.core.change import (
    MAX_REASON,
    acceptance_problem,
    digest_of_changes,
    gate_problem,
    proposal_problem,
    proposed,
    report_problem,
    simulated,
    with_force,
    with_report,
    withdrawn,
)
from fairlease.core.decision import Decision, decision_ms, is_owed
from fairlease.core.flood import gathered
from fairlease.core.job import replace
from fairlease.core.membership import change_member, founding, lead_problem, with_role
from fairlease.core.world import World
from fairlease_schemas import commands, reports
from fairlease_schemas.budget import BudgetChanged, BudgetMemberChanged
from fairlease_schemas.change import (
    ChangeAccepted,
    ChangeEnd,
    ChangeForced,
    ChangeProposed,
    ChangeSimulated,
    ChangeWithdrawn,
)
from fairlease_schemas.envelope import Answer, Event, LeasesRead, Misshapen, Submitted, TimerFired, Unreadable
from fairlease_schemas.ids import ROOT, BudgetId
from fairlease_schemas.job import CommandRefused, MessageRefused, Problem
from fairlease_schemas.policy import Policy, PolicyChanged

MAX_TOLD_PROBLEMS = 20

GateEvent = ChangeProposed | ChangeSimulated | ChangeForced | ChangeAccepted | ChangeWithdrawn
LedgerEvent = BudgetChanged | BudgetMemberChanged | PolicyChanged | GateEvent | CommandRefused | MessageRefused


class Stage:
    """Tree, members, policy and proposals as they stand after the events that this record has gathered so far."""

    def __init__(self, world: World, policy: Policy, now_ms: int) -> None:
        self.world, self.now_ms = world, now_ms
        self.tree: Tree = world.tree
        self.members = world.members
        self.name, self.policy = world.policy_name, policy
        self.changed_position = world.changed_position
        self.proposals = dict(world.proposals)
        self.events: list[LedgerEvent] = []

    @cached_property
    def busy(self) -> frozenset[BudgetId]:
        """The leaves that jobs which are not over are charged to: a look at every job, when the tree is changed."""
        return frozenset(job.budget for job in self.world.jobs.values() if not job.is_terminal)

    def trial(self) -> "Stage":
        """The same, to see what a change would come to: its events are nobody's."""
        other = Stage.__new__(Stage)
        other.__dict__ |= self.__dict__ | {"events": [], "proposals": dict(self.proposals)}
        return other

    def emit(self, *events: LedgerEvent | None) -> None:
        """Record the events, those that there are, and stage what they make."""
        for event in events:
            if event is not None:
                self._take(event)
                self.events.append(event)

    def _take(self, event: LedgerEvent) -> None:
        match event:
            case BudgetChanged():
                self.tree = self.tree.with_node(event.budget, node_of(event))
                self.changed_position = self.world.position + 1
            case BudgetMemberChanged():
                self.members = with_role(self.members, event)
            case PolicyChanged():
                self.name, self.policy = event.name, event.policy
                self.changed_position = self.world.position + 1
            case ChangeProposed():
                self.proposals[event.proposal] = proposed(event, self.now_ms)
            case ChangeSimulated():
                self.proposals[event.proposal] = with_report(self.proposals[event.proposal], event, self.now_ms)
            case ChangeForced():
                self.proposals[event.proposal] = with_force(self.proposals[event.proposal], event)
            case ChangeAccepted() | ChangeWithdrawn():
                self.proposals.pop(event.proposal, None)
            case CommandRefused() | MessageRefused():
                pass
            case _:
                assert_never(event)


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """The first policy; or the answers to these commands and the charges that are owed."""
    now_ms = decision_ms(world, answers)
    if world.policy is None:
        first = PolicyChanged(name=FIRST_POLICY_NAME, author="fairlease", policy=Policy(), reason="a new cell")
        return Decision(kind="policy", at_ms=now_ms, events=(first,))
    stage = Stage(world, world.policy, now_ms)
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
        case commands.ChangeBudget() | commands.ChangePolicy():
            _change(stage, answer, answer.said)
        case commands.ChangeMember():
            stage.emit(change_member(stage.tree, stage.members, answer, answer.said))
        case commands.ProposeChange():
            _propose(stage, answer, answer.said)
        case commands.ReportChange():
            _report(stage, answer, answer.said)
        case commands.AcceptChange():
            _accept(stage, answer, answer.said)
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


def _refuse(stage: Stage, answer: Answer, verb: str, *problems: Problem) -> None:
    stage.emit(CommandRefused(account=answer.who, verb=verb, seq=answer.seq, problems=problems))


# one change, at once ---------------------------------------------------------------------------------
def _change(stage: Stage, answer: Answer, said: commands.Change) -> None:
    """The change as asked for, where the policy lets it be made without a report."""
    trial = stage.trial()
    _wanted(trial, answer, said)
    refused = [event for event in trial.events if isinstance(event, CommandRefused)]
    if trial.events and not refused:
        is_policy = isinstance(said, commands.ChangePolicy)
        problem = gate_problem(stage.policy, "name" if is_policy else "budget", _name_of(said))
        if problem is not None:
            _refuse(stage, answer, "change-policy" if is_policy else "change-budget", problem)
            return
    stage.emit(*trial.events)


def _name_of(said: commands.Change) -> str:
    return said.name if isinstance(said, commands.ChangePolicy) else said.budget


def _wanted(stage: Stage, answer: Answer, said: commands.Change) -> None:
    """What the change comes to on this stage, its refusal too, whatever the gate says."""
    if isinstance(said, commands.ChangePolicy):
        problem = lead_problem(stage.tree, stage.members, answer.who, ROOT, "name")
        if problem is not None:
            _refuse(stage, answer, "change-policy", problem)
            return
        stage.emit(change_policy(stage.name, stage.policy, answer, said))
        return
    is_new = said.budget not in stage.tree.nodes
    problem = _stranger_problem(stage, answer.who, said, is_new=is_new)
    if problem is not None:
        _refuse(stage, answer, "change-budget", problem)
        return
    event = change_budget(stage.tree, stage.busy, answer, said)
    stage.emit(event)
    if isinstance(event, BudgetChanged):
        stage.emit(founding(stage.tree, stage.members, said.budget, answer.who, is_new=is_new))


def _stranger_problem(stage: Stage, who: str, said: commands.ChangeBudget, *, is_new: bool) -> Problem | None:
    """Why this account may not: it leads neither the node nor, of a new or moved one, the node above, or the cell."""
    tree, members = stage.tree, stage.members
    problem = None if is_new else lead_problem(tree, members, who, said.budget, "budget")
    parent = parent_of(tree, said)
    is_moved = is_new or parent != tree.nodes[said.budget].parent
    if problem is None and is_moved and not parent:
        problem = lead_problem(tree, members, who, ROOT, "budget")
    elif problem is None and is_moved and parent in tree.nodes:
        problem = lead_problem(tree, members, who, parent, "parent")
    return problem


# changes that are judged first -----------------------------------------------------------------------
def _propose(stage: Stage, answer: Answer, said: commands.ProposeChange) -> None:
    ends = withdrawn(stage.proposals, said, stage.policy, stage.changed_position, stage.now_ms)
    stale = {end.proposal for end in ends if end.why is ChangeEnd.STALE}
    left = {name: one for name, one in stage.proposals.items() if name not in stale}
    problem = proposal_problem(left, answer.who, said)
    problems = (problem,) if problem is not None else _trial_problems(stage, answer, said.changes)
    if problems:
        _refuse(stage, answer, "propose-change", *problems)
        return
    event = ChangeProposed(
        proposal=said.proposal,
        author=answer.who,
        changes=said.changes,
        position=stage.world.position,
        log_digest=stage.world.log_digest,
        change=digest_of_changes(said.changes),
        span_ms=stage.world.log_time_ms - stage.world.began_ms,
        reason=said.reason[:MAX_REASON],
    )
    stage.emit(*ends, event)


def _trial_problems(stage: Stage, answer: Answer, changes: tuple[commands.Change, ...]) -> tuple[Problem, ...]:
    """What is wrong with the changes, made one after another by this account; also that one of them changes nothing."""
    trial, problems = stage.trial(), []
    for place, said in enumerate(changes):
        before = len(trial.events)
        _wanted(trial, answer, said)
        new = trial.events[before:]
        found = [problem for event in new if isinstance(event, CommandRefused) for problem in event.problems]
        if not new:
            limit, way_out = "a change of what is in force", "leave it out"
            found = [Problem(field="", rule="10.1", value=_name_of(said)[:80], limit=limit, way_out=way_out)]
        problems += [replace(problem, field=f"changes.{place}.{problem.field}".rstrip(".")) for problem in found]
    return tuple(problems[:MAX_TOLD_PROBLEMS])


def _report(stage: Stage, answer: Answer, said: commands.ReportChange) -> None:
    proposal = stage.proposals.get(said.report.proposal)
    problem = report_problem(proposal, answer.who, said, stage.policy, stage.changed_position, stage.now_ms)
    if problem is not None:
        _refuse(stage, answer, "report-change", problem)
    elif proposal is not None and said.report.digest not in proposal.reports:
        stage.emit(simulated(answer.who, said.report))


def _accept(stage: Stage, answer: Answer, said: commands.AcceptChange) -> None:
    """The proposal's changes, made by who accepts it; of a forced one the first word is only noted.

    A first word counts no more once its author may not make the changes: then this one is the first.
    """
    proposal = stage.proposals.get(said.proposal)
    problem = acceptance_problem(proposal, answer.who, said, stage.policy, stage.changed_position, stage.now_ms)
    if problem is not None or proposal is None:
        _refuse(stage, answer, "accept-change", *((problem,) if problem is not None else ()))
        return
    problems = _trial_problems(stage, answer, proposal.changes)
    if problems:
        _refuse(stage, answer, "accept-change", *problems)
        return
    first = proposal.forced_by if said.is_forced else ""
    if first and _trial_problems(stage, replace(answer, who=first), proposal.changes):
        first = ""
    if said.is_forced and not first:
        stage.emit(ChangeForced(proposal=said.proposal, author=answer.who, reason=said.reason[:MAX_REASON]))
        return
    report = said.report if said.report in proposal.reports else ""
    stage.emit(ChangeAccepted(proposal=said.proposal, author=answer.who, report=report, first=first))
    for change in proposal.changes:
        _wanted(stage, answer, change)
