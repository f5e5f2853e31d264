"""The ledger: policy, the budget tree, and what ended attempts were charged (scope `intake`).

The first record of every log is the ledger's: the default policy, so that nothing is ever decided
without numbers. A second change of the same node in one record is decided on the first one's tree.
"""

from fairlease.core.budget import (
    FIRST_POLICY_NAME,
    MAX_CHARGES_PER_RECORD,
    Node,
    change_budget,
    change_policy,
    charge,
    refuse_unreadable,
)
from fairlease.core.decision import Decision, decision_ms, is_owed
from fairlease.core.world import World
from fairlease_schemas.budget import BudgetChanged
from fairlease_schemas.commands import ChangeBudget, ChangePolicy
from fairlease_schemas.envelope import Answer, Event, Unreadable
from fairlease_schemas.policy import Policy, PolicyChanged


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """The first policy; or the answers to these commands and the charges that are owed."""
    now_ms = decision_ms(world, answers)
    if world.policy is None:
        first = PolicyChanged(name=FIRST_POLICY_NAME, author="fairlease", policy=Policy(), reason="a new cell")
        return Decision(kind="policy", at_ms=now_ms, events=(first,))
    events: list[Event] = []
    tree, name, policy = world.tree, world.policy_name, world.policy
    busy = frozenset(job.budget for job in world.jobs.values() if not job.is_terminal)
    for answer in answers:
        event: Event | None = None
        match answer.said:
            case ChangeBudget():
                event = change_budget(tree, busy, answer, answer.said)
                if isinstance(event, BudgetChanged):
                    tree = tree.with_node(event.budget, Node(event.parent, event.weight))
            case ChangePolicy():
                event = change_policy(name, policy, answer, answer.said)
                if isinstance(event, PolicyChanged):
                    name, policy = event.name, event.policy
            case Unreadable():
                event = refuse_unreadable(answer, answer.said)
            case _:
                pass
        if event is not None:
            events.append(event)
    owed = list(world.uncharged.items())[:MAX_CHARGES_PER_RECORD]
    events.extend(charge(attempt, due) for attempt, due in owed)
    if not events and not any(map(is_owed, answers)):
        return None
    causes = {due.ended for _, due in owed}
    return Decision(kind="ledger", at_ms=now_ms, events=tuple(events), causes=tuple(sorted(causes)), answers=answers)
