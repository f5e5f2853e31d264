"""Health: which hosts there are and what keeps them from new work (scope `alloc`)."""

from fairlease.core import host as hosts
from fairlease.core.budget import refuse_unreadable
from fairlease.core.decision import Decision, decision_ms, is_owed
from fairlease.core.host import CHANGED_DEVICES, HEALTH, Host
from fairlease.core.world import World
from fairlease_schemas.commands import CordonHost, ReturnHost
from fairlease_schemas.envelope import Answer, Event, Unreadable
from fairlease_schemas.host import HostHeld, HostHoldCleared, HostRegistered
from fairlease_schemas.ids import HostId
from fairlease_schemas.reports import HostUp


def decide(world: World, answers: tuple[Answer, ...]) -> Decision | None:
    """One record for these messages, decided one after another on the hosts as they stand by then."""
    if world.policy is None:
        return None
    now_ms = decision_ms(world, answers)
    staged: dict[HostId, Host] = {}
    events: list[Event] = []
    for answer in answers:
        for event in _answer(world, staged, answer):
            events.append(event)
            if isinstance(event, HostRegistered | HostHeld | HostHoldCleared):
                changed = hosts.evolve(_host(world, staged, event.host), event, now_ms)
                if changed is not None:
                    staged[event.host] = changed
    if not events and not any(map(is_owed, answers)):
        return None
    return Decision(kind="hosts", at_ms=now_ms, events=tuple(events), answers=answers)


def _host(world: World, staged: dict[HostId, Host], name: HostId) -> Host | None:
    return staged.get(name) or world.fleet.hosts.get(name)


def _answer(world: World, staged: dict[HostId, Host], answer: Answer) -> list[Event]:
    match answer.said:
        case HostUp():
            host = _host(world, staged, answer.who)
            is_busy = host is not None and host.id in world.fleet.hosts and bool(world.fleet.attempts_on(host.id))
            event = hosts.register(host, answer, answer.said, is_busy=is_busy)
            events: list[Event] = [] if event is None else [event]
            held = host is not None and any(hold.kind == CHANGED_DEVICES for hold in host.holds)
            is_as_registered = isinstance(event, HostRegistered) or (host and host.inventory == answer.said.inventory)
            if held and is_as_registered:
                events.append(HostHoldCleared(host=answer.who, owner=HEALTH, kind=CHANGED_DEVICES))
            return events
        case CordonHost() | ReturnHost():
            event = hosts.command(_host(world, staged, answer.said.host), answer, answer.said)
            return [] if event is None else [event]
        case Unreadable():
            return [refuse_unreadable(answer, answer.said)]
        case _:
            return []
