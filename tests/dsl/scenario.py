"""Scenarios: a small cell, what happens to it line by line, and the log that must come of it, as an operator reads it.

A *tended* cell has agents: what is granted starts at once, runs its time and stops when it must, so that a timeline
says only what matters. The log of a scenario is one line for each event that matters, with log time and names; the
frames of cycles, and events that only repeat the timeline (admitted, started, saved, gone), are left out.
"""

import re
import tomllib
from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

from fairlease.core.deciders import RULES
from fairlease.core.line import class_key
from fairlease_schemas import budget, codec, cycle, host, job, reasons
from fairlease_schemas.commands import CancelJob, ChangeBudget, ChangePolicy, CordonHost, ReturnHost
from fairlease_schemas.envelope import Event, Record, Said
from fairlease_schemas.ids import job_id, job_of
from fairlease_schemas.job import End
from fairlease_schemas.policy import Policy, WindowBound
from fairlease_schemas.reasons import Reason
from fairlease_schemas.reports import CheckpointDone, HostUp, RunGone, RunStarted
from fairlease_schemas.units import format_length, parse_length_ms
from tests.dsl.cell import SERVICES, T0, Cell, inventory, submitted

STOP_MARGIN_MS = Policy().stop_margin_ms
ANY_WINDOW = (WindowBound(up_to_gpus=1 << 30, shortest_ms=1, longest_ms=1 << 40),)


class Habit(NamedTuple):
    """How a job behaves: starts so long after its grant, runs so long (0: for ever), saves, and stops in time.

    `stop_permille` is the part of grace + stop margin that a stop takes; `stops_ms` is that length itself, if given.
    """

    runs_ms: int = 0
    starts_ms: int = 0
    saves_ms: int = 0
    stop_permille: int = 0
    stops_ms: int | None = None
    end: End = End.SUCCEEDED


class Tended(Cell):
    """A cell whose hosts have agents. Time goes from one thing that happens to the next."""

    def __init__(self) -> None:
        self.habits: dict[str, Habit] = {}
        self.dead: set[str] = set()
        """Hosts whose agents do nothing any more."""
        self._acts: list[tuple[int, int, Callable[[], None]]] = []
        self._planned: set[tuple[str, str]] = set()
        super().__init__()

    def rest(self) -> None:
        """Everybody decides, and agents look at their orders."""
        self.settle()
        for attempt_id, name in list(self.world.live.items()):
            self._look(attempt_id, name)

    def wait(self, ms: int) -> None:
        """Time passes; what falls due, and what agents do, happens in the order of its time, agents first."""
        until_ms = self.now_ms + ms
        while True:
            dues = [due for name in SERVICES if (due := RULES[name].due_ms(self.world)) is not None]
            due_ms = min(dues, default=until_ms + 1)
            act_ms = self._acts[0][0] if self._acts else until_ms + 1
            if min(due_ms, act_ms) > until_ms:
                break
            if act_ms <= due_ms:
                self.now_ms = max(self.now_ms, act_ms)
                heappop(self._acts)[2]()
            else:
                before = len(self.records)
                self.at(max(due_ms, self.now_ms) - T0)
                assert len(self.records) > before, f"due at {due_ms - T0} ms, and nobody had anything to say"
            self.rest()
        self.now_ms = until_ms

    def acts_due(self) -> bool:
        """Whether an agent has something to do at this very instant."""
        return bool(self._acts) and self._acts[0][0] <= self.now_ms

    def _look(self, attempt_id: str, name: str) -> None:
        """What the agents of an attempt plan to do about their orders."""
        attempt, habit = self.world.jobs[name].live, self.habits.get(name)
        if attempt is None or attempt.is_stillborn or habit is None:
            return
        last = len(attempt.parts) - 1
        if self._is_new(attempt_id, "start"):
            begin_ms = self.now_ms + habit.starts_ms
            for index in range(last + 1):
                self._plan(begin_ms, attempt_id, index, RunStarted)
                if habit.runs_ms:
                    self._plan(begin_ms + habit.runs_ms, attempt_id, index, habit.end)
            for number in range(1, min(8, habit.runs_ms // habit.saves_ms if habit.saves_ms else 0) + 1):
                self._plan(begin_ms + number * habit.saves_ms, attempt_id, 0, CheckpointDone)
        if attempt.ending is not None and self._is_new(attempt_id, "stop"):
            margin_ms = self.world.policy.stop_margin_ms if self.world.policy else 0
            lag_ms = (attempt.grace_ms + margin_ms) * habit.stop_permille // 1000
            lag_ms = habit.stops_ms if habit.stops_ms is not None else lag_ms
            for index in range(last + 1):
                self._plan(attempt.ending_ms + (lag_ms if index == last else lag_ms // 2), attempt_id, index, End.CANCELLED)

    def _is_new(self, attempt: str, what: str) -> bool:
        is_new = (attempt, what) not in self._planned
        self._planned.add((attempt, what))
        return is_new

    def _plan(self, at_ms: int, attempt: str, index: int, what: Any) -> None:  # noqa: ANN401 - a report's type or an end
        heappush(self._acts, (at_ms, len(self._planned) * 1000 + len(self._acts), lambda: self._report(attempt, index, what)))

    def _report(self, attempt_id: str, index: int, what: Any) -> None:  # noqa: ANN401 - a report's type or an end
        """One agent says that its part started, saved, or is gone."""
        found = self.world.attempt(attempt_id)
        if found is None or found[1].hosts[index] in self.dead:
            return
        attempt = found[1]
        said: Any
        if isinstance(what, End):
            code = {End.SUCCEEDED: 0, End.FAILED: 1}.get(what)
            said = RunGone(attempt=attempt_id, token=str(attempt.token), end=what, exit_code=code)
        elif attempt.ending is None:
            said = what(attempt=attempt_id, token=str(attempt.token))
        else:
            return
        self.step("admission", (self.answer(said, attempt.hosts[index], "FL_LAB_REPORTS"),))
