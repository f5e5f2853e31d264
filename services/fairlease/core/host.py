"""Hosts: what they are, what keeps them from new work, and health's decisions about them.

A host's facts are a value; who holds its GPUs is the fleet's index, made from the grants.
"""

import msgspec

from fairlease_schemas.commands import CordonHost, ReturnHost
from fairlease_schemas.envelope import Answer, Event
from fairlease_schemas.host import HostHeld, HostHoldCleared, HostRegistered, Inventory
from fairlease_schemas.ids import AccountId, HostId, is_name
from fairlease_schemas.job import CommandRefused, Problem
from fairlease_schemas.reports import HostUp

CORDON = "cordon"
CHANGED_DEVICES = "changed-devices"
FAULT = "fault"
HEALTH = "health"
FAULT_KINDS = frozenset((FAULT, CHANGED_DEVICES))
"""Holds that mean something broke; the others are wishes."""


class Hold(msgspec.Struct, frozen=True):
    """One reason why a host takes no new work, with its owner (7.1)."""

    owner: AccountId
    kind: str
    reason: str
    since_ms: int


class Host(msgspec.Struct, frozen=True):
    """A registered host and its holds, oldest first."""

    id: HostId
    incarnation: str
    inventory: Inventory
    holds: tuple[Hold, ...] = ()

    @property
    def gpus(self) -> int:
        return len(self.inventory.gpus)


def evolve(host: Host | None, event: HostRegistered | HostHeld | HostHoldCleared, at_ms: int) -> Host | None:
    """The host after the event; holds outlive a new registration."""
    match event:
        case HostRegistered():
            return Host(event.host, event.incarnation, event.inventory, host.holds if host else ())
        case HostHeld():
            if host is None:
                return None
            hold = Hold(event.owner, event.kind, event.reason, at_ms)
            return msgspec.structs.replace(host, holds=(*host.holds, hold))
        case HostHoldCleared():
            if host is None:
                return None
            kept = tuple(h for h in host.holds if (h.owner, h.kind) != (event.owner, event.kind))
            return msgspec.structs.replace(host, holds=kept)


def register(host: Host | None, answer: Answer, said: HostUp, *, is_busy: bool) -> Event | None:
    """The event for an agent's `host-up`, or None when nothing is new.

    A host whose devices changed under running work is not registered anew: its grants name GPUs by
    their old places. It is held until that work is gone, and registers at the next report.
    """
    who = answer.who
    if not is_name(who) or not _is_sound(said.inventory):
        return CommandRefused(
            account=who[:63],
            verb="host-up",
            seq=answer.seq,
            problems=(Problem(field="inventory", rule="1.3", limit="1-16 different GPUs, pool of a-z 0-9 -"),),
        )
    if host is not None and (host.incarnation, host.inventory) == (said.incarnation, said.inventory):
        return None
    if host is not None and is_busy and host.inventory != said.inventory:
        if any(hold.kind == CHANGED_DEVICES for hold in host.holds):
            return None
        return HostHeld(host=who, owner=HEALTH, kind=CHANGED_DEVICES, reason="devices changed under running work")
    return HostRegistered(host=who, incarnation=said.incarnation, inventory=said.inventory)


def _is_sound(inventory: Inventory) -> bool:
    """Whether a host can be this: a pool, 1 to 16 different GPUs, and sizes that a snapshot can hold."""
    sizes = (inventory.memory_mib, inventory.cpu_cores, inventory.host_memory_mib)
    is_measured = all(0 <= size <= 10**12 for size in sizes)
    return is_name(inventory.pool) and 1 <= len(set(inventory.gpus)) == len(inventory.gpus) <= 16 and is_measured


def command(host: Host | None, answer: Answer, said: CordonHost | ReturnHost) -> Event | None:
    """The event for a cordon or its end, or None when it is already so. Only its owner clears a hold."""
    verb = "cordon-host" if isinstance(said, CordonHost) else "return-host"
    if host is None:
        problem = Problem(field="host", rule="7.1", value=said.host[:80], limit="a registered host")
        return CommandRefused(account=answer.who, verb=verb, seq=answer.seq, problems=(problem,))
    own = any(hold.owner == answer.who and hold.kind == CORDON for hold in host.holds)
    if isinstance(said, CordonHost):
        if own:
            return None
        return HostHeld(host=host.id, owner=answer.who, kind=CORDON, reason=said.reason[:200])
    if own:
        return HostHoldCleared(host=host.id, owner=answer.who, kind=CORDON)
    if host.holds:
        owners = ", ".join(sorted({hold.owner for hold in host.holds}))
        problem = Problem(field="host", rule="7.1", value=host.id, limit="only the owner clears a hold", way_out=owners)
        return CommandRefused(account=answer.who, verb=verb, seq=answer.seq, problems=(problem,))
    return None
