"""Topology: which hosts of a gang stand together (decisions.md 4.1).

A label names the blocks that a host stands in, outermost first, parts joined by `/`. The surprising
choice: a host without a label stands in a block without a name, which is one like any other for the
choice, but never what a contract means by the same block.
"""

from collections.abc import Iterable, Mapping

from fairlease_schemas.ids import HostId

Labels = Mapping[HostId, str]


def groups(hosts: Iterable[HostId], labels: Labels, depth: int) -> dict[str, list[HostId]]:
    """The hosts by the first `depth` parts of their labels, in the order they came."""
    found: dict[str, list[HostId]] = {}
    for host in hosts:
        label = labels[host]
        name = label if label.count("/") < depth else "/".join(label.split("/")[:depth])
        found.setdefault(name, []).append(host)
    return found


def together(hosts: list[HostId], wanted: int, labels: Labels, *, is_same_block: bool = False) -> list[HostId] | None:
    """`wanted` of these hosts that stand as close together as can be; None when a contract's block has not enough.

    1. The smallest block of the innermost level at which one has enough: the fewest hosts, then the name;
    2. else, without `is_same_block`, over as few outermost blocks as possible: the fullest first, then by name.

    Within a block the hosts are taken in the order they came. `hosts` has at least `wanted`.
    """
    depth = max((labels[host].count("/") + 1 for host in hosts), default=1)
    for level in range(depth, 0, -1):
        blocks = groups(hosts, labels, level)
        enough = [(len(members), name) for name, members in blocks.items() if len(members) >= wanted]
        if is_same_block:
            enough = [(count, name) for count, name in enough if name.partition("/")[0]]
        if enough:
            return blocks[min(enough)[1]][:wanted]
    if is_same_block:
        return None
    blocks = groups(hosts, labels, 1)
    chosen: list[HostId] = []
    for _, name in sorted((-len(members), name) for name, members in blocks.items()):
        chosen.extend(blocks[name][: wanted - len(chosen)])
    return chosen


def most_together(hosts: Iterable[HostId], labels: Labels, *, is_same_block: bool) -> int:
    """How many of the hosts a gang could have together: all, or those of the fullest named block."""
    if not is_same_block:
        return len(list(hosts))
    return max((len(members) for name, members in groups(hosts, labels, 1).items() if name), default=0)
