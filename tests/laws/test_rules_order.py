"""Equal inputs in any order give equal decisions: every choice ends in an id, none in the order of a dict (H4)."""

import random
from typing import Any

import msgspec

from fairlease.core.state import IDLE
from fairlease.core.world import World
from fairlease_schemas import codec
from fairlease_schemas.envelope import Record
from tests.laws.examine import at_length, examine
from tests.laws.test_rules_reasons import another_cycle
from tests.naive.living import Law, Life, Living, lives

UNORDERED = ("jobs", "hosts", "schedulable", "held", "lumps", "reservations", "promises", "reasons", "members")
"""What a fold keeps by id: in the order of the log, which no rule may read."""


class OrderDecidesNothing(Law):
    """The same world, its jobs, hosts, reservations, promises and reasons in another order, decides the same cycle.

    Asked where a cycle begins, for at rest there is little left to decide.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def before(self, cell: Living, record: Record) -> None:
        if record.by != "ranker" or cell.world.cycle.stage != IDLE or self._chance.random() > 0.3:
            return
        data = cell.world.dump()
        said = [another_cycle(World.load(state), record.at_ms) for state in (data, self._shuffled(data))]
        first, second = (sorted(map(codec.canonical, events)) for events in said)
        assert first == second

    def _shuffled(self, data: bytes) -> bytes:
        state: dict[str, Any] = msgspec.msgpack.decode(data)
        for name in UNORDERED:
            items = list(state[name].items())
            self._chance.shuffle(items)
            state[name] = dict(items)
        return msgspec.msgpack.encode(state)


@at_length
def test_the_order_of_a_fold_decides_nothing(examples: int) -> None:
    def law(life: Life) -> None:
        Living(life, OrderDecidesNothing(len(life.steps))).live()

    examine(law, lives(), examples)
