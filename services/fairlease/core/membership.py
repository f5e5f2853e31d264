"""Who may do what in a budget (decisions.md 1.1): members submit, leads also change it and end its jobs.

A role holds for the node and all below it. The surprising choice: a path on which no role was ever given
belongs to everybody, because logs older than membership have only such trees; a node made since
has its maker as lead, and never loses its last one, so that no budget is left to nobody. The root, which
a command names `/`, has leads too: they lead every budget, make those directly below it, and change the
policy. While it has none everybody may, and its first one is whoever asks to be it.
"""

from collections.abc import Mapping

from fairlease.core.budget import Tree
from fairlease_schemas.budget import BudgetMemberChanged
from fairlease_schemas.commands import ChangeMember
from fairlease_schemas.envelope import Answer
from fairlease_schemas.ids import ROOT, AccountId, BudgetId, is_name
from fairlease_schemas.job import CommandRefused, Problem

MEMBER, LEAD, EVERYBODY = "member", "lead", "*"
ROLES = (MEMBER, LEAD, "")
MAX_MEMBERS = 1_000
SHOWN = 8

Members = Mapping[BudgetId, Mapping[AccountId, str]]
"""Roles by node and account. A node whose roles were all taken back keeps its empty entry."""


def role_of(tree: Tree, members: Members, account: AccountId, budget: BudgetId) -> str:
    """`lead`, `member` or nothing: the most that the account is given on the node or above it."""
    path = tree.path(budget)
    if budget == ROOT and ROOT not in members:
        return LEAD
    if budget != ROOT and is_everybodys(members, path):
        return LEAD if path else ""
    given = {members.get(node, {}).get(name, "") for node in (*path, ROOT) for name in (account, EVERYBODY)}
    return LEAD if LEAD in given else MEMBER if MEMBER in given else ""


def is_everybodys(members: Members, path: list[BudgetId]) -> bool:
    """Whether no role was ever given on the path: a tree from before there were members."""
    return not any(node in members for node in path)


def leads_of(tree: Tree, members: Members, budget: BudgetId) -> list[AccountId]:
    """Accounts that lead the node or one above it, by name."""
    nodes = (*tree.path(budget), ROOT)
    return sorted({account for node in nodes for account, role in members.get(node, {}).items() if role == LEAD})


def with_role(members: Members, event: BudgetMemberChanged) -> Members:
    """The members after the event, as a new value."""
    roles = {name: role for name, role in members.get(event.budget, {}).items() if name != event.account}
    return {**members, event.budget: {**roles, event.account: event.role} if event.role else roles}


def lead_problem(tree: Tree, members: Members, account: AccountId, budget: BudgetId, field: str) -> Problem | None:
    """Why the account may not change the node; None when it leads it or one above it."""
    if role_of(tree, members, account, budget) == LEAD:
        return None
    return Problem(
        field=field,
        rule="1.1",
        value=budget[:80],
        limit="a lead of it, or of a budget above it" if budget != ROOT else "a lead of the whole cell",
        way_out=f"ask {shown(leads_of(tree, members, budget))}",
    )


def shown(accounts: list[AccountId]) -> str:
    """The first few accounts, for a sentence."""
    return ", ".join(accounts[:SHOWN]) + (", …" if len(accounts) > SHOWN else "")


def founding(
    tree: Tree, members: Members, budget: BudgetId, author: AccountId, *, is_new: bool
) -> BudgetMemberChanged | None:
    """Whoever makes a budget becomes its lead; so does whoever moves one to where nobody would lead it."""
    path = tree.path(budget)
    is_left_alone = not is_everybodys(members, path) and not leads_of(tree, members, budget)
    if not is_new and not is_left_alone:
        return None
    return BudgetMemberChanged(budget=budget, account=author, role=LEAD, author=author)


def change_member(
    tree: Tree, members: Members, answer: Answer, said: ChangeMember
) -> BudgetMemberChanged | CommandRefused | None:
    """The event for a `change-member`, or None when the account has that role there already."""
    problem = _member_problem(tree, members, answer.who, said)
    if problem is not None:
        return CommandRefused(account=answer.who, verb="change-member", seq=answer.seq, problems=(problem,))
    if members.get(said.budget, {}).get(said.account, "") == said.role:
        return None
    return BudgetMemberChanged(budget=said.budget, account=said.account, role=said.role, author=answer.who)


def _member_problem(tree: Tree, members: Members, who: AccountId, said: ChangeMember) -> Problem | None:
    if said.budget not in tree.nodes and said.budget != ROOT:
        return Problem(
            field="budget", rule="1.1", value=said.budget[:80], limit="a budget of the tree", way_out="make it first"
        )
    if said.account != EVERYBODY and not is_name(said.account):
        return Problem(
            field="account",
            rule="1.1",
            value=said.account[:80],
            limit="an account, or * for everybody",
            way_out="write 1-63 of a-z 0-9 -",
        )
    if said.role not in ROLES:
        return Problem(
            field="role",
            rule="1.1",
            value=said.role[:40],
            limit="member, lead, or empty for none",
            way_out="write one of these",
        )
    if said.budget == ROOT and (said.role == MEMBER or said.account == EVERYBODY):
        limit, way_out = "single accounts as lead, for the whole cell", "make members of its budgets"
        return Problem(field="role", rule="1.1", value=f"{said.account} {said.role}", limit=limit, way_out=way_out)
    if said.budget == ROOT and ROOT not in members and said.account != who:
        # A name that is nobody's would close the whole cell to everybody.
        limit, way_out = f"{who} itself, as the first lead", "make yourself lead first, then others"
        return Problem(field="account", rule="1.1", value=said.account, limit=limit, way_out=way_out)
    problem = lead_problem(tree, members, who, said.budget, "budget")
    if problem is not None:
        return problem
    after = with_role(
        members, BudgetMemberChanged(budget=said.budget, account=said.account, role=said.role, author=who)
    )
    if len(after[said.budget]) > MAX_MEMBERS:
        return Problem(
            field="account",
            rule="1.1",
            value=said.account,
            limit=f"{MAX_MEMBERS} accounts in one budget",
            way_out="give a role further up, or to * for everybody",
        )
    if not leads_of(tree, after, said.budget):
        return Problem(
            field="role",
            rule="1.1",
            value=said.account,
            limit="a budget keeps a lead",
            way_out="make somebody else lead first",
        )
    return None
