"""The wiring of ledger: its rule from core, what it reads, what follows a fold."""

from fairlease.core.deciders import RULES
from fairlease.runtime.service import Service, Shell, owned_verbs, plain_read

NAME = "ledger"


def define(shell: Shell) -> Service:
    """The ledger's rule; it gathers 25 ms when it is busy."""
    return Service(
        name=NAME,
        decide=RULES[NAME].decide,
        read=plain_read(shell.subjects),
        verbs=owned_verbs(NAME),
        gather_ms=25,
    )
