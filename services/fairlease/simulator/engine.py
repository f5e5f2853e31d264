"""The engine: a cell in virtual time. Events come off a heap by instant; at each instant the services decide.

It does what the services do (fold, decide, append) over one fold. What they are told at one instant is one record
of each service that owns something of it: what ended before what is new, because GPUs that are free at an instant
are free for who comes at it. A service is asked only when the fold says that it can have something to say. Nothing
is written as bytes unless somebody wants the log; that log is then the one that a live cell would have written.
"""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Final

from fairlease.core.deciders import Rule
from fairlease.core.decision import record_of
from fairlease.core.dues import NEVER_MS
from fairlease.core.state import IDLE, PLACED, RANKED
from fairlease.core.world import World
from fairlease_schemas.commands import OWNERS, VERBS
from fairlease_schemas.envelope import Answer, Record, Said, Submitted, TimerFired
from fairlease_schemas.reports import CheckpointDone, HostUp, RunGone, RunStarted

T0: Final = 1_700_000_000_000
"""The instant 0 of every simulation: instants of the log are milliseconds since 1970 and never 0."""
MAX_ANSWERS: Final = 200
MAX_RECORDS_AT_ONCE: Final = 100_000
_REPORTS: Final = (HostUp, RunStarted, RunGone, CheckpointDone)
_STEPS: Final = {IDLE: "ranker", RANKED: "placement", PLACED: "preemption"}
_OWNERS: Final = ("admission", "health", "ledger")
assert set(OWNERS) == set(_OWNERS)
_OWNER_OF: Final[dict[type, str]] = {
    **{VERBS[verb]: owner for owner, verbs in OWNERS.items() for verb in verbs},
    **dict.fromkeys((Submitted, RunStarted, RunGone, CheckpointDone), "admission"),
    HostUp: "health",
}
"""Which service answers what is said."""

Happening = Callable[[], None]
Watch = Callable[[World, Record], None]
Keep = Callable[[bytes], object]


class Stuck(Exception):
    """The services decided so often at one instant that they will not come to rest: a fault of the rules."""


class Engine:
    """A log that is not kept, its fold, and the time of it. `watch` is told of every record once it is folded.

    `seal` makes a record its canonical bytes, for `keep`; without them no bytes are made.
    """

    def __init__(
        self, rules: Mapping[str, Rule], watch: Watch, seal: Callable[[Record], bytes] | None = None, keep: Keep = len
    ) -> None:
        self.world = World()
        self.now_ms = T0
        self._rules = rules
        self._watch = watch
        self._seal = seal
        self._keep = keep
        self._heap: list[tuple[int, int, Happening]] = []
        self._order = 0
        self._seq: dict[str, int] = {}
        self._inbox: dict[str, list[tuple[int, str, Said]]] = {name: [] for name in _OWNERS}
        self._dues: dict[str, int] = {}
        self._dues_at = -1
        self._settle()

    # what is to come ---------------------------------------------------------------------------------
    def at(self, at_ms: int, happening: Happening) -> None:
        """Do this at that instant, or now where it is past; of one instant, in the order in which it was asked."""
        self._order += 1
        heappush(self._heap, (max(at_ms, self.now_ms), self._order, happening))

    def say(self, said: Said, who: str) -> None:
        """A message of this instant, to the service that owns it."""
        self._inbox[_OWNER_OF[type(said)]].append((int(isinstance(said, Submitted)), who, said))

    def run(self, until_ms: int) -> None:
        """Everything up to and including that instant."""
        while self._next_ms() <= until_ms:
            self.step()
        self.now_ms = max(self.now_ms, until_ms)

    def step(self) -> None:
        """The next instant at which anything happens. Stuck when nothing ever will."""
        self.now_ms = self._next_ms()
        if self.now_ms == NEVER_MS:
            raise Stuck("nothing is left that could happen")
        self._instant()

    # one instant -------------------------------------------------------------------------------------
    def _next_ms(self) -> int:
        due_ms = min(self._due().values(), default=NEVER_MS)
        if self._heap:
            due_ms = min(due_ms, self._heap[0][0])
        # A due that is past and led to nothing is asked again with the next thing that happens.
        return max(due_ms, self.now_ms)

    def _due(self) -> dict[str, int]:
        """When each service must be asked again, asked once for a position of the log."""
        if self._dues_at != self.world.position:
            self._dues_at = self.world.position
            dues = ((name, rule.due_ms(self.world)) for name, rule in self._rules.items())
            self._dues = {name: due_ms for name, due_ms in dues if due_ms is not None}
        return self._dues

    def _instant(self) -> None:
        position = self.world.position
        while self._heap and self._heap[0][0] <= self.now_ms:
            heappop(self._heap)[2]()
        self.deliver()
        for name in self._rules:
            due_ms = self._due().get(name, NEVER_MS)
            if due_ms <= self.now_ms:
                self._step(name, (self._answer(TimerFired(due_ms=due_ms), name, f"FL_LAB_TIMERS_{name.upper()}"),))
                self._settle()
        if self.world.position == position and (not self._heap or self._heap[0][0] > self.now_ms):
            due = [f"{name} at {due_ms}" for name, due_ms in self._due().items() if due_ms <= self.now_ms]
            if due:
                raise Stuck(f"{', '.join(due)} had to be asked at {self.now_ms}, and nothing followed")

    def deliver(self) -> None:
        """Hand every service what was said to it, and let all of them decide until none has anything to say."""
        for name, inbox in self._inbox.items():
            if len(inbox) > 1:
                inbox.sort(key=_place)
            while inbox:
                answers = tuple(self._answer(said, who) for _, who, said in inbox[:MAX_ANSWERS])
                answered = self._step(name, answers)
                del inbox[: max(1, answered)]
        self._settle()

    def _answer(self, said: Said, who: str, stream: str = "") -> Answer:
        """The message as a record names it, said now."""
        stream = stream or ("FL_LAB_REPORTS" if isinstance(said, _REPORTS) else f"FL_LAB_INBOX_{who}")
        self._seq[stream] = seq = self._seq.get(stream, 0) + 1
        return Answer(stream=stream, seq=seq, time_ms=self.now_ms, who=who, said=said)

    def _settle(self) -> None:
        for _ in range(MAX_RECORDS_AT_ONCE):
            if not self._any_step():
                return
        raise Stuck(f"the services do not come to rest at {self.now_ms}")

    def _any_step(self) -> bool:
        """One record of the first service that has one to write; whether there was any."""
        world = self.world
        if (world.policy is None or world.uncharged) and self._decides("ledger"):
            return True
        has_odd = world.stillborn or world.overtaken or world.lost or world.dependents.ready
        if (has_odd or world.dues.next_ms() <= world.log_time_ms) and self._decides("admission"):
            return True
        if (world.fleet.draining() or world.fleet.changed()) and self._decides("health"):
            return True
        return self._decides(_STEPS[world.cycle.stage])

    def _decides(self, name: str) -> bool:
        before = self.world.position
        self._step(name, ())
        return self.world.position > before

    def _step(self, name: str, answers: tuple[Answer, ...]) -> int:
        """One decision, folded when there is one; how many of the messages it answers."""
        decision = self._rules[name].decide(self.world, answers)
        if decision is None:
            return len(answers)
        record = record_of(self.world, name, decision)
        if self._seal is not None:
            self._keep(self._seal(record))
        self.world.apply(record, self.world.position + 1)
        self._watch(self.world, record)
        return len(decision.answers)


def _place(entry: tuple[int, str, Said]) -> int:
    """What ended before what is new."""
    return entry[0]
