"""Slurm's Fair Tree: rank by level fairness, depth first, so that nobody is hurt by what a cousin does.

At each node, among siblings only: S = shares / siblings' shares, U = usage / parent's usage, level fairness = S / U.
A whole sub-tree outranks a whole sibling sub-tree. Source: `src/plugins/priority/multifactor/fair_tree.c`, Slurm
284c3b9; what is surprising there is kept: a user tied with a sibling account takes the rank of that account's best
user, and tied accounts share a rank where one ends and the next begins. Slurm's documentation says that tied accounts
have their children merged before they are sorted; its code looks for ties among users where it means accounts, and
merges none. What sshare prints is followed here, and what is documented can be asked for. Slurm divides in long
doubles; here fractions are exact, so a tie is a tie.
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


def fair_tree(root: Share, *, merges: bool = False) -> tuple[Ranked, ...]:
    """The users in their order, best first; without users nothing.

    1. the higher level fairness, at the highest level at which two users part;
    2. users before accounts;
    3. of accounts the one that its parent names first, of users the name, which decides places and never ranks: who is
       tied has the same rank.

    With `merges` tied accounts count as one, as Slurm's documentation has it; sshare does not know it.
    """
    users = _users(root)
    if not users:
        return ()
    found: list[tuple[str, int]] = []
    _Walk(_Count(users), found, merges=merges).below(level_fairness(root), users, is_tied=False)
    return tuple(Ranked(name, rank, Fraction(rank, users)) for name, rank in found)


def _users(node: Share) -> int:
    return sum(1 if child.is_user else _users(child) for child in node.children)


def _level_order(level: Level) -> tuple[bool, Fraction, bool, str]:
    fairness = level.fairness
    is_user = level.node.is_user
    return (fairness is not None, -(fairness or Fraction(0)), not is_user, level.node.name if is_user else "")


class _Walk:
    """The tree from its best branch to its worst; what it finds goes to `found`."""

    def __init__(self, count: _Count, found: list[tuple[str, int]], *, merges: bool) -> None:
        self._count = count
        self._found = found
        self._merges = merges

    def below(self, levels: tuple[Level, ...], rank: int, *, is_tied: bool) -> int:
        """Give ranks to the users below these siblings; the last rank given, which a tied neighbour takes over."""
        ordered = sorted(levels, key=_level_order)
        at = 0
        while at < len(ordered):
            level = ordered[at]
            tied = is_tied if at == 0 else ordered[at - 1].fairness == level.fairness
            if level.node.is_user:
                rank = rank if tied else self._count.left
                self._found.append((level.node.name, rank))
                self._count.left -= 1
                at += 1
                continue
            accounts = self._as_one(ordered[at:])
            rank = self.below(
                tuple(child for one in accounts for child in level_fairness(one.node)), rank, is_tied=tied
            )
            at += len(accounts)
        return rank

    def _as_one(self, ordered: list[Level]) -> list[Level]:
        """The first account, with those tied to it where they are merged; users sort before accounts."""
        if not self._merges:
            return ordered[:1]
        return [one for one in ordered if one.fairness == ordered[0].fairness]
