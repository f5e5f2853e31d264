"""The tree that Slurm's two share rules read: accounts with shares, users as leaves."""

from typing import NamedTuple


class Share(NamedTuple):
    """An account with children, or a user, who has none.

    `shares` count among siblings; `usage` is a user's own, in any unit that all users have in common. A user whose
    `has_parent_share` is true takes no part in the division among its siblings.
    """

    name: str
    shares: int
    usage: int = 0
    children: tuple["Share", ...] = ()
    is_user: bool = True
    has_parent_share: bool = False


def account(name: str, shares: int, *children: Share) -> Share:
    """An account; its usage is the sum of its children's."""
    return Share(name, shares, sum(child.usage for child in children), children, is_user=False)


def user(name: str, shares: int, usage: int = 0) -> Share:
    """A user: a leaf that takes a rank."""
    return Share(name, shares, usage)


def sibling_shares(children: tuple[Share, ...]) -> int:
    """The sum that each child's shares are divided by; those with their parent's share stand outside."""
    return sum(child.shares for child in children if not child.has_parent_share)
