"""The wiring of ranker: its rule from core, what it reads, what follows a fold."""

from fairlease.core.deciders import RULES
from fairlease.runtime.service import Service, Shell

NAME = "ranker"


def define(_shell: Shell) -> Service:
    """The ranker's rule; no cycle is dated more than a second before the bus's clock."""
    return Service(name=NAME, decide=RULES[NAME].decide, due_ms=RULES[NAME].due_ms, needs_fresh_time=True)
