"""The wiring of health: its rule from core, what it reads, what follows a fold."""

from fairlease.core.deciders import RULES
from fairlease.health.leases import Leases
from fairlease.runtime.service import Service, Shell, owned_kinds, owned_verbs, plain_read

NAME = "health"


def define(shell: Shell) -> Service:
    """Health's rule; it gathers 100 ms when it is busy, so that a flood of reports cannot outrun a cycle."""
    leases = Leases(NAME, shell)
    return Service(
        name=NAME,
        decide=RULES[NAME].decide,
        due_ms=RULES[NAME].due_ms,
        read=plain_read(shell.subjects),
        read_timer=leases.read_timer,
        verbs=owned_verbs(NAME),
        kinds=owned_kinds(NAME),
        gather_ms=100,
        prepare=leases.listen,
        tasks=(leases.watch,),
        streams=(shell.subjects.leases_stream,),
    )
