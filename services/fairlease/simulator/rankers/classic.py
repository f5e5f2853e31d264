"""Slurm's classic fair share: 2^-(effective usage / share), where a child answers in part for its parent's usage.

UE = U + (UE of the parent - U) x shares / siblings' shares; F = 2^(-UE / S), S being the product of the shares down
the path. Source: Slurm 284c3b9, `classic_fair_share`. The order needs no power: the smaller UE / S goes first.
"""

from fractions import Fraction
from typing import NamedTuple

from fairlease.simulator.rankers.half_life import half_to_the
from fairlease.simulator.rankers.tree import Share, sibling_shares


class Standing(NamedTuple):
    """A node's usage and share, both of the whole; `is_user` tells leaves from accounts."""

    name: str
    effective_usage: Fraction
    share: Fraction
    is_user: bool

    def factor_ppm(self) -> int:
        """F in millionths, to the nearest; 0 without a share."""
        return half_to_the(self.effective_usage / self.share, 1_000_000) if self.share else 0


def standings(root: Share, total_usage: int) -> tuple[Standing, ...]:
    """Every node below the root, accounts before their children; usage is counted as a part of `total_usage`.

    ValueError when the tree has used more than the total.
    """
    if root.usage > total_usage:
        raise ValueError(f"total_usage {total_usage} is less than the {root.usage} that the tree has used")
    found: list[Standing] = []
    _descend(root, total_usage, Fraction(1), None, found)
    return tuple(found)


def _descend(
    parent: Share, total_usage: int, parent_share: Fraction, parent_usage: Fraction | None, found: list[Standing]
) -> None:
    siblings = sibling_shares(parent.children)
    for child in parent.children:
        part = Fraction(1) if child.has_parent_share else Fraction(child.shares, siblings) if siblings else Fraction(0)
        usage = Fraction(child.usage, total_usage) if total_usage else Fraction(0)
        # Below the root the usage stands as it is: the root answers for nobody's.
        effective = usage if parent_usage is None else usage + (parent_usage - usage) * part
        found.append(Standing(child.name, effective, parent_share * part, child.is_user))
        _descend(child, total_usage, parent_share * part, effective, found)


def classic(root: Share, total_usage: int) -> tuple[Standing, ...]:
    """The users, best first.

    1. users with a share before users without;
    2. the smaller effective usage / share;
    3. the name.
    """
    return tuple(sorted((node for node in standings(root, total_usage) if node.is_user), key=_order))


def _order(node: Standing) -> tuple[bool, Fraction, str]:
    return (node.share == 0, node.effective_usage / node.share if node.share else Fraction(0), node.name)
