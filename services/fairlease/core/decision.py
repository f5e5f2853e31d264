"""What a service decided: one record to be, without its place in the log.

A decider is a pure function `(world, answers) -> Decision | None`. `None` says that there is nothing
to write; a decision with answers but no events says "already so" and moves the inbox cursors.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from fairlease.core.world import World
from fairlease_schemas.envelope import RECORD_VERSION, Address, Answer, Event, LeasesRead, Record, TimerFired


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` names the record on its subject; `at_ms` is log time by log.md L3."""

    kind: str
    at_ms: int
    events: tuple[Event, ...] = ()
    causes: tuple[Address, ...] = ()
    answers: tuple[Answer, ...] = ()


class Decider(Protocol):
    """A service's rule. Answers come in the order in which the record will name them."""

    def __call__(self, world: World, answers: tuple[Answer, ...], /) -> Decision | None: ...


def decision_ms(world: World, answers: Iterable[Answer]) -> int:
    """The log time of a decision: the later of the fold's and of the newest message it answers."""
    latest_ms = world.log_time_ms
    for answer in answers:
        latest_ms = max(latest_ms, answer.time_ms)
    return latest_ms


def record_of(world: World, service: str, decision: Decision) -> Record:
    """The record that `service` would append for this decision made on this fold."""
    return Record(
        v=RECORD_VERSION,
        at_ms=decision.at_ms,
        by=service,
        epoch=world.epoch,
        basis=world.position,
        policy=world.policy_name,
        causes=decision.causes,
        answers=decision.answers,
        events=decision.events,
    )


def is_owed(answer: Answer) -> bool:
    """Commands and reports are owed an answer even when it is "already so"; a timer is owed none."""
    return not isinstance(answer.said, TimerFired | LeasesRead)
