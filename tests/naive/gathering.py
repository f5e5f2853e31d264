"""Refusals told together (log.md L3, Inboxes take turns), by looking at every message for every event."""

from collections.abc import Sequence

from fairlease_schemas.envelope import Answer, Event
from fairlease_schemas.job import CommandRefused, JobRefused, MessageRefused, Problem, RefusalsGathered
from fairlease_schemas.reports import KINDS

TOLD_ONE_BY_ONE = 8


def told(answers: Sequence[Answer], events: Sequence[Event]) -> list[Event]:
    """The events as the record shall have them: those of an inbox with more than eight refusals as one, at the end."""
    of_inbox: dict[str, list[tuple[Event, Answer]]] = {}
    for event in events:
        for answer in answers:
            if "_INBOX_" in answer.stream and refuses(event, answer):
                of_inbox.setdefault(answer.stream, []).append((event, answer))
                break
    many = {stream: pairs for stream, pairs in of_inbox.items() if len(pairs) > TOLD_ONE_BY_ONE}
    gone = [event for pairs in many.values() for event, _ in pairs]
    kept = [event for event in events if not any(event is one for one in gone)]
    for stream, pairs in many.items():
        first, message = pairs[0]
        seqs = tuple(answer.seq for _, answer in pairs)
        kept.append(RefusalsGathered(account=message.who, stream=stream, seqs=seqs, problems=problems(first)))
    return kept


def refuses(event: Event, answer: Answer) -> bool:
    """Whether the event says no to this message."""
    if isinstance(event, MessageRefused):
        return (event.stream, event.seq) == (answer.stream, answer.seq)
    if isinstance(event, CommandRefused) and event.verb in KINDS:
        return False
    return isinstance(event, CommandRefused | JobRefused) and (event.account, event.seq) == (answer.who, answer.seq)


def problems(event: Event) -> tuple[Problem, ...]:
    """What was wrong with the first of them."""
    if isinstance(event, MessageRefused):
        size = f"{event.size} bytes"
        return (Problem(field=event.field or "message", rule="L2", value=size, way_out=event.error),)
    assert isinstance(event, CommandRefused | JobRefused)
    return event.problems
