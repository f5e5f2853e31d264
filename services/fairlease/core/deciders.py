"""Every deciding service by name: its rule, and when it must look again. Services and replay meet here."""

from collections.abc import Callable
from typing import Final

import msgspec

from fairlease.core import admission, drain, health, ledger
from fairlease.core.decision import Decider
from fairlease.core.fairshare import rank
from fairlease.core.placement import place
from fairlease.core.preemption import preempt
from fairlease.core.world import World


class Rule(msgspec.Struct, frozen=True):
    """`due_ms` is the log time at which `decide` must be asked again although nothing arrived."""

    decide: Decider
    due_ms: Callable[[World], int | None]


def _never(_world: World) -> int | None:
    return None


RULES: Final[dict[str, Rule]] = {
    "admission": Rule(admission.decide, admission.due_ms),
    "ledger": Rule(ledger.decide, _never),
    "ranker": Rule(rank.decide, rank.due_ms),
    "placement": Rule(place.decide, _never),
    "preemption": Rule(preempt.decide, _never),
    "health": Rule(health.decide, drain.due_ms),
}
