"""Refusals of one account in one record, told together where they are many (log.md L2).

A refusal is an event, so that its sender can be answered and anybody can see why. Whoever sends a thousand commands a
second that cannot be taken would otherwise write a thousand events a second into a log that is kept for ever.
The surprising choice: all of them become one event, with the problems of the first alone. Each command is
still answered, and moves the cursor; what is lost is the reason of the others, which their sender can send again.
"""

from collections.abc import Sequence

from fairlease_schemas.envelope import Answer, Event
from fairlease_schemas.job import CommandRefused, JobRefused, MessageRefused, Problem, RefusalsGathered
from fairlease_schemas.reports import KINDS

MAX_TOLD = 8
"""So many refusals of an account in one record are told one by one."""


def gathered(answers: Sequence[Answer], events: Sequence[Event]) -> tuple[Event, ...]:
    """The events, with the refusals of an account that has more than `MAX_TOLD` as one, behind all others.

    Only of inboxes: what a host reports is told one by one. Accounts in the order of their first refusal.
    """
    if len(events) <= MAX_TOLD:
        return tuple(events)
    many = {stream: found for stream, found in refused(answers, events).items() if len(found) > MAX_TOLD}
    if not many:
        return tuple(events)
    told_together = {place for found in many.values() for place in found}
    kept = [event for place, event in enumerate(events) if place not in told_together]
    return (*kept, *(_together(stream, found, events) for stream, found in many.items()))


def refused(answers: Sequence[Answer], events: Sequence[Event]) -> dict[str, dict[int, Answer]]:
    """By inbox the places of the events that refuse its messages, each with the (first) message that it refuses."""
    senders = {(answer.who, answer.seq): answer for answer in answers if is_inbox(answer.stream)}
    places = {(answer.stream, answer.seq): answer for answer in senders.values()}
    found: dict[str, dict[int, Answer]] = {}
    for place, event in enumerate(events):
        answer = _answered(event, senders, places)
        if answer is not None:
            found.setdefault(answer.stream, {})[place] = answer
    return found


def is_inbox(stream: str) -> bool:
    """Whether the stream is the inbox of an account."""
    return "_INBOX_" in stream


def problems_of(event: Event) -> tuple[Problem, ...]:
    """What a refusal says; empty for another event."""
    match event:
        case CommandRefused() | JobRefused() | RefusalsGathered():
            return event.problems
        case MessageRefused():
            value = f"{event.size} bytes"
            return (Problem(field=event.field or "message", rule="L2", value=value, way_out=event.error),)
        case _:
            return ()


def _answered(
    event: Event, senders: dict[tuple[str, int], Answer], places: dict[tuple[str, int], Answer]
) -> Answer | None:
    """The message in an inbox that this event refuses; None for any other event."""
    match event:
        case CommandRefused() if event.verb in KINDS:
            return None
        case CommandRefused() | JobRefused():
            return senders.get((event.account, event.seq))
        case MessageRefused():
            return places.get((event.stream, event.seq))
        case RefusalsGathered():
            return places.get((event.stream, event.seqs[0]))
        case _:
            return None


def _together(stream: str, found: dict[int, Answer], events: Sequence[Event]) -> RefusalsGathered:
    place, first = next(iter(found.items()))
    seqs = tuple(answer.seq for answer in found.values())
    return RefusalsGathered(account=first.who, stream=stream, seqs=seqs, problems=problems_of(events[place]))
