"""Slurm's Fair Tree: rank by level fairness, depth first, so that nobody is hurt by what a cousin does.

At each node, among siblings only: S = shares / siblings' shares, U = usage / parent's usage, level fairness = S / U.
A whole sub-tree outranks a whole sibling sub-tree. Source: `src/plugins/priority/multifactor/fair_tree.c`, Slurm
284c3b9; what is surprising there is kept: tied sibling accounts have their children merged, and a user tied with a
sibling account takes the rank of that account's best user. Slurm divides in long doubles; here fractions are exact,
so a tie is a tie.
"""

from fractions import Fraction
from typing import NamedTuple

from fairlease.simulator.rankers.tree import Share, sibling_shares


class Ranked(NamedTuple):
    """A user's place: `rank` is the number of users for the best; `factor` is rank / number of users, best 1."""

    name: str
    rank: int
    factor: Fraction


class Level(NamedTuple):
    """A node with its level fairness; None is infinite: the node has used nothing, or has its parent's share."""

    node: Share
    fairness: Fraction | None


class _Count:
    """The rank without ties: it falls by one with every user met."""

    def __init__(self, users: int) -> None:
        self.left = users


def level_fairness(parent: Share) -> tuple[Level, ...]:
    """Each child with S / U; 0 without shares even when nothing is used, infinite where nothing is used."""
    return tuple(Level(child, _fairness(parent, child)) for child in parent.children)


def _fairness(parent: Share, child: Share) -> Fraction | None:
    if child.has_parent_share:
        return None
    if child.shares == 0:
        return Fraction(0)
    if child.usage == 0:
        return None
    return Fraction(child.shares * parent.usage, sibling_shares(parent.children) * child.usage)


def fair_tree(root: Share) -> tuple[Ranked, ...]:
    """The users in their order, best first; without users nothing.

    1. the higher level fairness, at the highest level at which two users part;
    2. users before accounts;
    3. the name, which decides places and never ranks: who is tied has the same rank.
    """
    users = _users(root)
    if not users:
        return ()
    found: list[tuple[str, int]] = []
    _walk(level_fairness(root), users, _Count(users), found, is_tied=False)
    return tuple(Ranked(name, rank, Fraction(rank, users)) for name, rank in found)


def _users(node: Share) -> int:
    return sum(1 if child.is_user else _users(child) for child in node.children)


def _level_order(level: Level) -> tuple[bool, Fraction, bool, str]:
    fairness = level.fairness
    return (fairness is not None, -(fairness or Fraction(0)), not level.node.is_user, level.node.name)


def _walk(levels: tuple[Level, ...], rank: int, count: _Count, found: list[tuple[str, int]], *, is_tied: bool) -> int:
    """Give ranks to the users below these siblings; the last rank given, which a tied neighbour takes over."""
    ordered = sorted(levels, key=_level_order)
    at = 0
    while at < len(ordered):
        level = ordered[at]
        tied = is_tied if at == 0 else ordered[at - 1].fairness == level.fairness
        if level.node.is_user:
            rank = rank if tied else count.left
            found.append((level.node.name, rank))
            count.left -= 1
            at += 1
            continue
        # Users sort before accounts, so what follows with the same fairness is accounts alone.
        tied_accounts = [other for other in ordered[at:] if other.fairness == level.fairness]
        merged = tuple(below for other in tied_accounts for below in level_fairness(other.node))
        rank = _walk(merged, rank, count, found, is_tied=tied)
        at += len(tied_accounts)
    return rank
