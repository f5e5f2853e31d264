"""What a service is to the loop, and what the loop is to a service.

A service is data: its rule, which messages it reads and how, what follows a fold. It is made by a
function of the `Shell`, so that its edge and its hooks can reach the bus, and core never does.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from nats.aio.client import Client
from prometheus_client import Metric

from fairlease.core.decision import Decider
from fairlease.core.world import World
from fairlease.runtime.bus import Handler, Message
from fairlease.runtime.clock import BusClock
from fairlease.runtime.edge import answer_to, read_said
from fairlease.runtime.settings import Settings
from fairlease.runtime.spans import Spans
from fairlease_schemas import commands, reports
from fairlease_schemas.envelope import Answer, Record
from fairlease_schemas.subjects import Subjects

Read = Callable[[Message], Awaitable[Answer]]
OnRecord = Callable[[World, int, Record], None]
AfterFold = Callable[[World, list[tuple[int, Record]]], Awaitable[None]]
Task = Callable[[], Awaitable[None]]


class Shell(Protocol):
    """What a service may use of its process. `world` is the present fold: read it between two awaits."""

    settings: Settings
    clock: BusClock
    spans: Spans

    @property
    def subjects(self) -> Subjects: ...
    @property
    def client(self) -> Client: ...
    @property
    def world(self) -> World: ...
    @property
    def is_ready(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Service:
    """One service's definition.

    `read` makes an answer of a message and never raises for what the sender wrote; it may raise
    `BusAway`, and is then called again. `read_timer` does so for a timer that fired, where its falling due
    is not all that the decision reads. `after_fold` gets each folded list of (position, record) with
    the world after the last of them, also while the log is read at the start (`Shell.is_ready` is
    false then); it is called again with the same list when the bus was away, so it must bear
    repeats. `needs_fresh_time` makes no decision older than a second by the bus's clock.
    `prepare` is awaited before the first record is folded; `on_record` is called with each record and
    the world right after it, and may not wait; `tasks` run for ever from when the service is ready.
    `streams` are those that it reads or writes beside the log and what `verbs`, `kinds` and timers come from.
    `gather_ms` is how long a busy service waits for more messages before it writes the next record.
    `figures` makes this service's own figures whenever somebody asks.
    `closed` says why no new work is taken now; empty when it is.
    """

    name: str
    decide: Decider | None = None
    due_ms: Callable[[World], int | None] | None = None
    read: Read | None = None
    read_timer: Read | None = None
    verbs: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    prepare: Task | None = None
    on_record: OnRecord | None = None
    after_fold: AfterFold | None = None
    tasks: tuple[Task, ...] = ()
    questions: Mapping[str, Handler] = field(default_factory=dict)
    needs_fresh_time: bool = False
    gather_ms: int = 0
    closed: Callable[[], str] | None = None
    streams: tuple[str, ...] = ()
    figures: Callable[[World], Iterable[Metric]] | None = None

    @property
    def has_timers(self) -> bool:
        return self.due_ms is not None or self.needs_fresh_time or self.read_timer is not None

    def uses(self, subjects: Subjects, stream: str) -> bool:
        """Whether it reads or writes the stream, and so may not start when that is missing or not as declared."""
        if stream.startswith(subjects.inbox_prefix):
            return bool(self.verbs)
        if stream == subjects.reports_stream:
            return bool(self.kinds)
        if stream.startswith(subjects.timers_prefix):
            return self.has_timers and stream == subjects.timers_stream(self.name)
        return stream == subjects.log_stream or stream in self.streams


Define = Callable[[Shell], Service]


def owned_verbs(name: str) -> tuple[str, ...]:
    """The commands this service answers."""
    return tuple(commands.OWNERS.get(name, ()))


def owned_kinds(name: str) -> tuple[str, ...]:
    """The reports this service answers."""
    return tuple(reports.OWNERS.get(name, ()))


def plain_read(subjects: Subjects) -> Read:
    """The edge of a service whose messages hold all that its decisions read."""

    async def read(message: Message) -> Answer:
        return answer_to(subjects, message, read_said(message))

    return read
