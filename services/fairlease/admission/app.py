"""The wiring of admission: its rule from core, what it reads, what follows a fold."""

from fairlease.admission.edge import Edge
from fairlease.core.deciders import RULES
from fairlease.runtime.contracts import Contracts
from fairlease.runtime.room import room_of
from fairlease.runtime.service import Service, Shell, owned_kinds, owned_verbs

NAME = "admission"


def define(shell: Shell) -> Service:
    """Admission's rule and edge, which looks at the bus's disk; it gathers 25 ms when it is busy."""
    room = room_of(shell.settings)
    room.look()
    edge = Edge(shell.subjects, Contracts(shell.client, shell.subjects), room, lambda job: job in shell.world.jobs)
    return Service(
        name=NAME,
        decide=RULES[NAME].decide,
        due_ms=RULES[NAME].due_ms,
        read=edge.read,
        verbs=owned_verbs(NAME),
        kinds=owned_kinds(NAME),
        gather_ms=25,
        tasks=(room.watch,),
        closed=edge.closed,
        streams=(shell.subjects.contracts_stream,),
    )
