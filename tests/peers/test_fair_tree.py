"""`fair_tree` beside a real sshare: the same order, the same FairShare, the same ties, on the same trees."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

from fairlease.simulator.rankers.fair_tree import fair_tree, level_fairness
from fairlease.simulator.rankers.tree import Share, account, user
from tests.peers.slurm import Lab, Told

ROOT = user("root", 1)
"""Slurm makes this user in every tree; it takes a place like any other."""
AT_ONCE = 6


def cluster(*children: Share) -> Share:
    return account("root", 1, ROOT, *children)


def drawn(seed: int) -> Share:
    """Accounts in accounts, three levels at most, with shares and usage of few values: so there are ties."""
    chance = random.Random(seed)
    names = iter(range(1_000))

    def node(depth: int) -> Share:
        if depth == 3 or chance.random() < 0.4:
            leaf = user(f"u{next(names)}", chance.choice([0, 1, 1, 2, 4]), chance.choice([0, 0, 64, 128, 128, 256]))
            return leaf._replace(has_parent_share=chance.random() < 0.1)
        below = [node(depth + 1) for _ in range(chance.randrange(1, 5))]
        return account(f"a{next(names)}", chance.choice([0, 1, 1, 2, 4]), *below)

    return cluster(*(node(1) for _ in range(5)))


TREES = {
    "worked": cluster(
        account(
            "a",
            40,
            account("b", 30, user("u1", 1, 200)),
            account("c", 10, user("u2", 1, 250), user("u3", 1)),
        ),
        account("d", 60, account("e", 25, user("u4", 1, 250)), account("f", 35, user("u5", 1))),
    ),
    "unused": cluster(account("a", 3, user("u1", 1), user("u2", 2)), account("b", 1, user("u3", 1))),
    "tied-users": cluster(
        account("a", 1, user("u1", 1, 900), user("u2", 1, 100), user("u3", 1, 100), user("u4", 2, 200))
    ),
    "tied-user-and-account": cluster(
        account("acc", 1, user("best", 1, 40), user("rest", 1, 60)), user("lone", 1, 100), user("other", 1, 300)
    ),
    "merged-accounts": cluster(
        account("left", 1, user("l1", 1, 20), user("l2", 1, 80)),
        account("right", 1, user("r1", 1, 40), user("r2", 1, 60)),
        account("third", 2, user("t1", 1, 200), account("deep", 1, user("d1", 1), user("d2", 5))),
    ),
    "no-shares": cluster(
        account("none", 0, user("n1", 1), user("n2", 3, 70)),
        account("some", 2, user("s1", 0, 10), user("s2", 0), user("s3", 1, 500)),
        account("empty", 5),
    ),
    "parents-share": cluster(
        account("a", 2, user("own", 9, 500)._replace(has_parent_share=True), user("u1", 1, 10), user("u2", 3, 10)),
        account("b", 1, user("u3", 1, 40)),
    ),
    **{f"drawn-{seed}": drawn(seed) for seed in range(4)},
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Told]]]:
    """What sshare says of every tree. A controller mostly waits for its database, so several do it at once."""
    lab = Lab(tmp_path_factory.mktemp("slurm", numbered=False))
    try:
        lab.start()
        head = lab.head_of_state()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            told = pool.map(lambda name: lab.shares(name, TREES[name], head), TREES)
            yield dict(zip(TREES, told, strict=True))
    finally:
        lab.stop()


def places(told: dict[str, Told]) -> dict[str, str]:
    """FairShare by user, as it is printed."""
    return {name: one.fair_share for name, one in told.items() if not name.startswith("/")}


def ours(tree: Share) -> dict[str, str]:
    """The same of our own rule."""
    return {one.name: f"{float(one.factor):.6f}" for one in fair_tree(tree)}


def levels(parent: Share) -> Iterator[tuple[str, Fraction | None]]:
    """The level fairness of everybody for whom sshare prints one: not of who has his parent's share."""
    for level in level_fairness(parent):
        if level.node.has_parent_share:
            continue
        yield (level.node.name if level.node.is_user else f"/{level.node.name}"), level.fairness
        if not level.node.is_user:
            yield from levels(level.node)


def is_printed(fairness: Fraction | None, told: Told) -> bool:
    """Whether sshare's LevelFS, six places of it, is this number."""
    if fairness is None or told.level == "inf":
        return fairness is None and told.level == "inf"
    return abs(Fraction(told.level) - fairness) <= Fraction(1, 10**6) * max(1, fairness)


@pytest.mark.parametrize("name", TREES)
def test_sshare_gives_everybody_the_same_place(said: dict[str, dict[str, Told]], name: str) -> None:
    tree, told = TREES[name], said[name]
    assert ours(tree) == places(told)
    assert {one: (fairness, told[one]) for one, fairness in levels(tree) if not is_printed(fairness, told[one])} == {}


def test_tied_accounts_are_merged_by_the_documentation_and_not_by_sshare(said: dict[str, dict[str, Told]]) -> None:
    merged = {one.name: f"{float(one.factor):.6f}" for one in fair_tree(TREES["merged-accounts"], merges=True)}
    assert merged != places(said["merged-accounts"])


def test_the_trees_have_ties_and_zero_shares_or_they_would_show_little() -> None:
    tied = [name for name, tree in TREES.items() if len({one.rank for one in fair_tree(tree)}) < len(fair_tree(tree))]
    assert len(tied) >= 5
    without = [name for name, tree in TREES.items() if any(fairness == 0 for _, fairness in levels(tree))]
    assert len(without) >= 3
    assert len({str(ours(tree)) for tree in TREES.values()}) == len(TREES)
