"""Hosts: what they are, what keeps them from new work, and health's decisions about them.

A host's facts are a value; who holds its GPUs is the fleet's index, made from the grants.
"""

from collections.abc import Collection, Iterator
from itertools import chain
from typing import assert_never

import msgspec

from fairlease_schemas.commands import CordonHost, ReturnHost
from fairlease_schemas.envelope import Answer
from fairlease_schemas.host import (
    DrainCancelled,
    DrainCompleted,
    DrainPlanned,
    DrainProgress,
    HostHeld,
    HostHoldCleared,
    HostRegistered,
    Inventory,
)
from fairlease_schemas.ids import AccountId, HostId, PoolId, is_name
from fairlease_schemas.job import CommandRefused, Problem
from fairlease_schemas.reports import HostUp

CORDON = "cordon"
CHANGED_DEVICES = "changed-devices"
REFUSED_BOOT = "refused-boot"
"""It came back from a boot with what no host can be: its agent begins nothing that is granted to the boot before."""
FAULT = "fault"
LEASE = "lease"
HEALTH = "health"
FAULT_KINDS = frozenset((FAULT, CHANGED_DEVICES, LEASE, REFUSED_BOOT))
"""Holds that mean something broke; the others are wishes."""

MAX_GPUS = 16
MAX_SIZE = 10**12
MAX_POOLS = 16
"""Pools with a host at a time: a rank has to name each, in one record, for whoever takes any of them."""
MAX_TEXT = 128
MAX_LABELS = 64

NAME_LIMIT = "1-63 of a-z 0-9 -"
_SIZES = ("memory_mib", "cpu_cores", "host_memory_mib", "disk_mib")


class Hold(msgspec.Struct, frozen=True):
    """One reason why a host takes no new work, with its owner (7.1).

    `inventory` and `incarnation` are what the host is registered as once nothing of before is left there.
    """

    owner: AccountId
    kind: str
    reason: str
    since_ms: int
    inventory: Inventory | None = None
    incarnation: str = ""


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """A drain that was asked for and not yet returned (7.2). Instants are log time; `deadline_ms` 0 is none.

    `left` is how many attempts its owner was last told of.
    """

    owner: AccountId
    start_ms: int
    deadline_ms: int
    empty_ms: int
    left: int
    is_queued: bool = False
    is_done: bool = False
    reason: str = ""
    external_id: str = ""
    asked_ms: int = 0


class Host(msgspec.Struct, frozen=True):
    """A registered host and its holds, oldest first; `registered_ms` is when it last registered.

    `fault_ms` is when it was last found that something broke here, 0 for never.
    """

    id: HostId
    incarnation: str
    inventory: Inventory
    holds: tuple[Hold, ...] = ()
    registered_ms: int = 0
    drain: Drain | None = None
    fault_ms: int = 0

    def is_held_as(self, kind: str) -> bool:
        """Whether a hold of that kind stands."""
        return any(hold.kind == kind for hold in self.holds)

    @property
    def changed(self) -> Hold | None:
        """The hold for devices that changed under running work, when it says what they are now."""
        held = (hold for hold in self.holds if hold.kind == CHANGED_DEVICES and hold.inventory is not None)
        return next(held, None)

    @property
    def closes_ms(self) -> int | None:
        """From when on a drain lets nothing be placed here; None without one, and while it is queued."""
        return None if self.drain is None or self.drain.is_queued else self.drain.start_ms

    @property
    def gpus(self) -> int:
        return len(self.inventory.gpus)


DRAIN = "drain"
HostEvent = HostRegistered | HostHeld | HostHoldCleared | DrainPlanned | DrainProgress | DrainCompleted | DrainCancelled


def evolve(host: Host | None, event: HostEvent, at_ms: int) -> Host | None:
    """The host after the event; holds outlive a new registration."""
    match event:
        case HostRegistered():
            fresh = Host(event.host, event.incarnation, event.inventory, registered_ms=at_ms)
            if host is None:
                return fresh
            return msgspec.structs.replace(fresh, holds=host.holds, drain=host.drain, fault_ms=host.fault_ms)
        case HostHeld():
            if host is None:
                return None
            hold = Hold(event.owner, event.kind, event.reason, at_ms, event.inventory, event.incarnation)
            fault_ms = at_ms if event.kind in FAULT_KINDS else host.fault_ms
            return msgspec.structs.replace(host, holds=(*host.holds, hold), fault_ms=fault_ms)
        case HostHoldCleared():
            if host is None:
                return None
            kept = tuple(h for h in host.holds if (h.owner, h.kind) != (event.owner, event.kind))
            return msgspec.structs.replace(host, holds=kept, drain=None if event.kind == DRAIN else host.drain)
        case DrainPlanned():
            return host and msgspec.structs.replace(host, drain=_planned(event, host.drain, at_ms))
        case DrainProgress():
            if host is None or host.drain is None:
                return host
            told = msgspec.structs.replace(host.drain, left=event.left, empty_ms=at_ms + event.empty_in_ms)
            return msgspec.structs.replace(host, drain=told)
        case DrainCompleted():
            if host is None or host.drain is None:
                return host
            return msgspec.structs.replace(host, drain=msgspec.structs.replace(host.drain, is_done=True, left=0))
        case DrainCancelled():
            return host and msgspec.structs.replace(host, drain=None)
        case _:
            assert_never(event)


def _planned(event: DrainPlanned, before: Drain | None, at_ms: int) -> Drain:
    return Drain(
        owner=event.owner,
        start_ms=at_ms + event.start_in_ms,
        deadline_ms=0 if event.deadline_in_ms is None else at_ms + event.deadline_in_ms,
        empty_ms=at_ms + event.empty_in_ms,
        left=len(event.attempts),
        is_queued=event.is_queued,
        reason=event.reason,
        external_id=event.external_id,
        asked_ms=before.asked_ms if before is not None else at_ms,
    )


def register(
    host: Host | None, answer: Answer, said: HostUp, *, pools: Collection[PoolId], is_busy: bool
) -> tuple[HostEvent | CommandRefused, ...]:
    """The events for an agent's `host-up`, none when nothing is new. `pools` are those that have a host.

    A host whose devices changed under running work is not registered anew: its grants name GPUs by
    their old places. It is held, and registered as what it says now once that work is gone. Other labels, or another
    place in the topology, move no GPU: they are registered at once. One that is refused
    after a boot stays known by the boot before, for which its agent begins nothing: it is held too, until what it
    says is taken.
    """
    who = answer.who
    problems = tuple(
        chain(
            _name_problems(who), _inventory_problems(said.inventory), _text_problems(said), _pool_problems(said, pools)
        )
    )
    if problems:
        refused = CommandRefused(account=who[:63], verb="host-up", seq=answer.seq, problems=problems)
        if host is None or host.incarnation == said.incarnation or host.is_held_as(REFUSED_BOOT):
            return (refused,)
        return refused, HostHeld(host=who, owner=HEALTH, kind=REFUSED_BOOT, reason="its host-up was refused")
    if host is None:
        return (HostRegistered(host=who, incarnation=said.incarnation, inventory=said.inventory),)
    if is_busy and not _is_same_machine(host.inventory, said.inventory):
        return _hold_changed(host, said)
    return _taken(host, said.inventory, said.incarnation)


def _is_same_machine(before: Inventory, now: Inventory) -> bool:
    """Whether running work finds everything where it was: labels and block are for those who are still to come."""
    return msgspec.structs.replace(now, labels=before.labels, block=before.block) == before


def _hold_changed(host: Host, said: HostUp) -> tuple[HostEvent, ...]:
    """The host is held for what it says; a hold for something else that it said before gives way."""
    held = HostHeld(
        host=host.id,
        owner=HEALTH,
        kind=CHANGED_DEVICES,
        reason="devices changed under running work",
        inventory=said.inventory,
        incarnation=said.incarnation,
    )
    if not host.is_held_as(CHANGED_DEVICES):
        return (held,)
    before = host.changed
    if before is not None and (before.inventory, before.incarnation) == (said.inventory, said.incarnation):
        return ()
    return HostHoldCleared(host=host.id, owner=HEALTH, kind=CHANGED_DEVICES), held


def _taken(host: Host, inventory: Inventory, incarnation: str) -> tuple[HostEvent, ...]:
    """The host as what it says that it is, and without the holds that waited for that."""
    over = (kind for kind in (CHANGED_DEVICES, REFUSED_BOOT) if host.is_held_as(kind))
    cleared = tuple(HostHoldCleared(host=host.id, owner=HEALTH, kind=kind) for kind in over)
    if (host.inventory, host.incarnation) == (inventory, incarnation):
        return cleared
    return (HostRegistered(host=host.id, incarnation=incarnation, inventory=inventory), *cleared)


def settle(host: Host, pools: Collection[PoolId]) -> tuple[HostEvent, ...]:
    """A host that was held for changed devices, and where nothing of before is left, becomes what it said (7.1).

    Not while it is silent, for a registration counts as a sign of life (7.6); nor while its new pool would be one
    more than a cell has: `pools` are those that have a host.
    """
    hold = host.changed
    if hold is None or hold.inventory is None or host.is_held_as(LEASE):
        return ()
    if any(_pool_problems(HostUp(incarnation=hold.incarnation, inventory=hold.inventory), pools)):
        return ()
    return _taken(host, hold.inventory, hold.incarnation)


def _name_problems(who: HostId) -> Iterator[Problem]:
    if not is_name(who):
        yield Problem(
            field="host",
            rule="1.3",
            value=_shown(who),
            limit=NAME_LIMIT,
            way_out="let the agent give the host such a name",
        )


def _inventory_problems(inventory: Inventory) -> Iterator[Problem]:
    """What no host can be: without a pool, without GPUs or with one twice, or of a size that no snapshot could hold."""
    if not is_name(inventory.pool):
        yield Problem(
            field="inventory.pool",
            rule="1.3",
            value=_shown(inventory.pool),
            limit=NAME_LIMIT,
            way_out="give the host's agent a pool with such a name",
        )
    gpus = inventory.gpus
    if not 1 <= len(gpus) <= MAX_GPUS:
        yield Problem(
            field="inventory.gpus",
            rule="1.3",
            value=f"{len(gpus)} GPUs",
            limit=f"1-{MAX_GPUS} GPUs",
            way_out="let the agent offer a part of them, or find out why it sees none",
        )
    elif len(set(gpus)) < len(gpus):
        yield Problem(
            field="inventory.gpus",
            rule="1.3",
            value=_shown(next(gpu for gpu in gpus if gpus.count(gpu) > 1)),
            limit="each GPU once",
            way_out="let the agent name every GPU by an id of its own",
        )
    for name in _SIZES:
        size = getattr(inventory, name)
        if not 0 <= size <= MAX_SIZE:
            yield Problem(
                field=f"inventory.{name}",
                rule="1.3",
                value=str(size)[:30],
                limit=f"0-{MAX_SIZE}",
                way_out="let the agent report what is there, in MiB or cores",
            )


def _text_problems(said: HostUp) -> Iterator[Problem]:
    """What an agent says in words and everybody sees: short, and nothing that a terminal or a log obeys."""
    inventory = said.inventory
    if len(inventory.labels) > MAX_LABELS:
        yield Problem(
            field="inventory.labels",
            rule="1.3",
            value=f"{len(inventory.labels)} labels",
            limit=f"{MAX_LABELS} labels",
            way_out="let the agent say what contracts ask for, and no more",
        )
        return
    named = [("incarnation", said.incarnation), ("model", inventory.model), ("block", inventory.block)]
    named += [("gpus", gpu) for gpu in inventory.gpus[:MAX_GPUS]]
    named += [("labels", text) for label in inventory.labels.items() for text in label]
    for name, text in named:
        if len(text) > MAX_TEXT or not text.isprintable():
            yield Problem(
                field=name if name == "incarnation" else f"inventory.{name}",
                rule="1.3",
                value=_shown(text),
                limit=f"at most {MAX_TEXT} printable characters",
                way_out="let the agent say it shorter, in letters that can be printed",
            )


def _shown(text: str) -> str:
    """What somebody wrote, short and fit for the log."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:80])


def _pool_problems(said: HostUp, pools: Collection[PoolId]) -> Iterator[Problem]:
    """One pool more than a rank can name (log.md L2)."""
    pool = said.inventory.pool
    if len(pools) >= MAX_POOLS and pool not in pools:
        yield Problem(
            field="inventory.pool",
            rule="1.3",
            value=pool[:80],
            limit=f"{MAX_POOLS} pools in a cell",
            way_out="join a pool that is there, and tell its hosts apart by model or labels",
        )


def command(
    host: Host | None, answer: Answer, said: CordonHost | ReturnHost
) -> HostHeld | HostHoldCleared | CommandRefused | None:
    """The event for a cordon or its end, or None when it is already so. Only its owner clears a hold."""
    verb = "cordon-host" if isinstance(said, CordonHost) else "return-host"
    if host is None:
        problem = Problem(
            field="host", rule="7.1", value=said.host[:80], limit="a registered host", way_out="see `fairlease hosts`"
        )
        return CommandRefused(account=answer.who, verb=verb, seq=answer.seq, problems=(problem,))
    own = [hold.kind for hold in host.holds if hold.owner == answer.who and hold.kind in (CORDON, DRAIN)]
    if isinstance(said, CordonHost):
        if CORDON in own:
            return None
        return HostHeld(host=host.id, owner=answer.who, kind=CORDON, reason=said.reason[:200])
    if own:
        return HostHoldCleared(
            host=host.id, owner=answer.who, kind=DRAIN if DRAIN in own else CORDON, checks=said.checks
        )
    if host.holds:
        owners = ", ".join(sorted({hold.owner for hold in host.holds}))
        problem = Problem(
            field="host", rule="7.1", value=host.id, limit="only the owner clears a hold", way_out=f"ask {owners}"
        )
        return CommandRefused(account=answer.who, verb=verb, seq=answer.seq, problems=(problem,))
    return None
