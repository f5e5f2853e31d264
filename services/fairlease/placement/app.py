"""The wiring of placement: its rule from core, what it reads, what follows a fold."""

from fairlease.core.deciders import RULES
from fairlease.runtime.service import Service, Shell

NAME = "placement"


def define(_shell: Shell) -> Service:
    """Placement's rule and nothing else: all it reads is the log."""
    return Service(name=NAME, decide=RULES[NAME].decide)
