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

from msgspec.structs import replace

from fairlease.core.deciders import RULES
from fairlease.core.job import Phase
from fairlease.core.line import class_key
from fairlease_schemas import budget, cycle, host, job, reasons
from fairlease_schemas.commands import CancelJob, ChangeBudget, ChangeMember, ChangePolicy, CordonHost, ReturnHost
from fairlease_schemas.envelope import Event, Record, Said
from fairlease_schemas.ids import job_id, job_of
from fairlease_schemas.job import End
from fairlease_schemas.policy import Policy, WindowBound
from fairlease_schemas.reasons import Reason
from fairlease_schemas.reports import CheckpointDone, HostUp, RunGone, RunStarted
from fairlease_schemas.units import MAX_LENGTH_MS, format_length, parse_length_ms
from tests.dsl.cell import SERVICES, T0, Cell, inventory, submitted

ANY_WINDOW = (WindowBound(up_to_gpus=1 << 30, shortest_ms=1, longest_ms=MAX_LENGTH_MS),)


FAULTY_ATTEMPTS = 2


class Habit(NamedTuple):
    """How a job behaves: starts so long after its grant, runs so long (0: for ever), saves, and stops in time.

    `stop_permille` is the part of grace + stop margin that a stop takes; `stops_ms` is that length itself, if given.
    With `faults_ms` a fault of its last host ends its first two attempts so long after their starts.
    """

    runs_ms: int = 0
    starts_ms: int = 0
    saves_ms: int = 0
    stop_permille: int = 0
    stops_ms: int | None = None
    end: End = End.SUCCEEDED
    faults_ms: int = 0


class Tended(Cell):
    """A cell whose hosts have agents. Time goes from one thing that happens to the next."""

    def __init__(self) -> None:
        self.habits: dict[str, Habit] = {}
        self.dead: set[str] = set()
        """Hosts whose agents do nothing any more."""
        self._acts: list[tuple[int, int, Callable[[], None]]] = []
        self._planned: set[tuple[str, str]] = set()
        self._count = 0
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

    def _look(self, attempt_id: str, name: str) -> None:
        """What the agents of an attempt plan to do about their orders."""
        attempt, habit = self.world.jobs[name].live, self.habits.get(name)
        if attempt is None or attempt.is_stillborn or habit is None:
            return
        last = len(attempt.parts) - 1
        if self._is_new(attempt_id, "start"):
            begin_ms = self.now_ms + habit.starts_ms
            if habit.faults_ms and attempt.number <= FAULTY_ATTEMPTS:
                self._plan(begin_ms + habit.faults_ms, attempt_id, last, End.FAULT)
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
                part_ms = lag_ms if index == last else lag_ms // 2
                self._plan(attempt.ending_ms + part_ms, attempt_id, index, End.CANCELLED)

    def _is_new(self, attempt: str, what: str) -> bool:
        is_new = (attempt, what) not in self._planned
        self._planned.add((attempt, what))
        return is_new

    def _plan(self, at_ms: int, attempt: str, index: int, what: Any) -> None:  # noqa: ANN401 - a report's type or an end
        self._count += 1
        heappush(self._acts, (at_ms, self._count, lambda: self._report(attempt, index, what)))

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
            if isinstance(said, CheckpointDone):  # of a format that can be read nowhere else
                said = replace(said, is_bound=True)
        else:
            return
        self.step("admission", (self.answer(said, attempt.hosts[index], "FL_LAB_REPORTS"),))


# the log in words -----------------------------------------------------------------------------------------


class Scribe:
    """Writes a record's events as lines. Jobs have the names of their submissions; a class is who waits in it."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._waited: dict[str, str] = {}

    def look(self) -> None:
        """Who waits in each class before a record: the reason that it ends was theirs."""
        self._waited |= {key: self._members(key) for key in self.cell.world.line.classes}

    def lines(self, record: Record) -> list[str]:
        """One line for each event that matters; the record is folded already, and `look` came before."""
        at = format_length(self.cell.world.log_time_ms - T0)
        return [f"{at:<9} {text}" for event in record.events if (text := self._text(event))]

    def _text(self, event: Event) -> str:  # the longest match of the project, one line to an event
        match event:
            case cycle.GangGranted():
                hosts = " ".join(f"{_short(part.host)}:{len(part.gpus)}" for part in event.parts)
                return f"{self._job(event.job)} granted {hosts} as {event.licence}"
            case cycle.EvictionOrdered():
                loss = f", {_gpu_time(event.lost_gpu_ms)} lost" if event.lost_gpu_ms else ""
                return f"{self._job(event.attempt)} must leave for {self._left_for(event)}{loss}"
            case cycle.ReservationMade():
                return f"{_shorts(event.hosts)} kept for {self._job(event.job)}"
            case cycle.ReservationEnded():
                return f"hosts no longer kept for {self._job(event.job)}: {event.why}"
            case cycle.PromiseMade():
                by = format_length(self.cell.world.log_time_ms + event.start_in_ms - T0)
                return f"{_shorts(event.hosts)} promised to {self._job(event.job)} by {by}"
            case cycle.PromiseEnded():
                return f"promise to {self._job(event.job)} over: {event.why}"
            case reasons.ReasonBegan():
                return f"{self._subject(event.subject)} waits: {event.code}{self._evidence(event)}"
            case reasons.ReasonEnded():
                who = self._waited.get(event.subject) or self._subject(event.subject)
                return f"{who} no longer waits: {event.code}"
            case cycle.CycleAbandoned():
                return f"cycle abandoned, {event.missing} is missing"
            case _:
                return self._life(event)

    def _left_for(self, event: cycle.EvictionOrdered) -> str:
        """Whose room an eviction makes: a claim's, a drain's, or a whole host."""
        if event.licence is cycle.Licence.MOVE:
            return "a whole host"
        return f"the drain of {_short(event.drain)}" if event.drain else self._job(event.claim)

    def _life(self, event: Event) -> str:
        match event:
            case job.JobAdmitted() if event.advice:
                return f"{self._job(event.job)} advised: " + ", ".join(f"{a.field} ({a.rule})" for a in event.advice)
            case job.JobRefused():
                return "refused: " + ", ".join(f"{p.field} ({p.rule})" for p in event.problems)
            case job.CommandRefused():
                return f"{event.verb} refused: " + ", ".join(f"{p.field} ({p.rule})" for p in event.problems)
            case job.AttemptEnding():
                return f"{self._job(event.attempt)} must stop: {event.end}"
            case job.AttemptEnded():
                return f"{self._job(event.attempt)} ended: {event.end}"
            case job.JobRequeued():
                return f"{self._job(event.job)} is in line again"
            case job.JobFailed() | job.JobCancelled() | job.JobTimedOut():
                return f"{self._job(event.job)} is over: {type(event).__name__[3:].lower()}"
            case host.HostHeld():
                return f"{_short(event.host)} held: {event.kind}"
            case host.HostHoldCleared():
                return f"{_short(event.host)} no longer held: {event.kind}"
            case budget.AttemptCharged():
                surcharge = event.surcharge_gpu_ms
                extra = f", of that {_gpu_time(surcharge)} for its victims" if surcharge else ""
                extra += f", {_gpu_time(event.credit_gpu_ms)} credited" if event.credit_gpu_ms else ""
                return f"{event.budget} charged {_gpu_time(event.charged_gpu_ms)} for {self._job(event.attempt)}{extra}"
            case _:
                return ""

    def _job(self, name: str) -> str:
        """The submission's name; of an attempt after the first also which."""
        number = int(name.rpartition("-a")[2]) if job_of(name) in self.cell.world.jobs and job_of(name) != name else 1
        found = self.cell.world.jobs.get(job_of(name)) or self.cell.world.jobs.get(name)
        shown = found.request_id if found is not None else name
        return shown if number == 1 else f"{shown}#{number}"

    def _subject(self, subject: str) -> str:
        if subject in self.cell.world.jobs:
            return self._job(subject)
        return self._members(subject) or self._waited.get(subject, "nobody")

    def _members(self, key: str) -> str:
        """The jobs of a class that wait, as one name."""
        jobs = self.cell.world.jobs.values()
        return "+".join(one.request_id for one in jobs if one.phase is Phase.WAITING and class_key(one) == key)

    def _evidence(self, event: reasons.ReasonBegan) -> str:
        evidence, until_ms = event.evidence, self.cell.world.log_time_ms + event.evidence.for_ms - T0
        until = f" until {format_length(until_ms)}" if evidence.for_ms else ""
        match event.code:
            case Reason.CAPACITY:
                return f" ({evidence.needed_gpus} GPUs, {evidence.free_gpus} free)"
            case Reason.FRAGMENTATION:
                hole = evidence.largest_hole_gpus
                return f" ({evidence.needed_gpus} GPUs, {evidence.free_gpus} free, {hole} on one host)"
            case Reason.RESERVATION | Reason.SAVING:
                return f" (for {self._job(evidence.claim)}){until}" if evidence.claim else until
            case Reason.WINDOW_OVERSHARE:
                ours, theirs = evidence.standing_permille, evidence.other_permille
                return f" ({evidence.level} would stand at {ours}, {evidence.other or '-'} at {theirs})"
            case Reason.BUDGET_CAP | Reason.PROTECTED_CAP:
                return f" ({evidence.level}: {evidence.held_gpus} GPUs of {evidence.limit_gpus})"
            case _:
                return until


def _short(name: str) -> str:
    """`host-007` as `h7`."""
    return f"h{int(name.removeprefix('host-'))}" if re.fullmatch(r"host-\d+", name) else name


def _shorts(names: tuple[str, ...]) -> str:
    return " ".join(map(_short, names))


def _gpu_time(gpu_ms: int) -> str:
    return f"{format_length(gpu_ms)} of a GPU"


# the files ------------------------------------------------------------------------------------------------


class Scenario(NamedTuple):
    """One file. `row` is the report it stands for; `outcome` is what is right, by rule, and `why`."""

    path: Path
    row: str
    symptom: str
    outcome: str
    why: str
    cell: dict[str, Any]
    timeline: tuple[str, ...]
    log: tuple[str, ...]


def read(path: Path) -> Scenario:
    """The scenario of a file; a key too many or too few is an error."""
    said = tomllib.loads(path.read_text(encoding="utf-8"))
    timeline, log = (tuple(filter(None, map(str.strip, said.pop(key).splitlines()))) for key in ("timeline", "log"))
    return Scenario(path, timeline=timeline, log=tuple(" ".join(line.split()) for line in log), **said)


class Stage(Tended):
    """A scenario being played. It writes its log as it goes, from the first line of the timeline on."""

    def __init__(self, scenario: Scenario) -> None:
        self.log: list[str] = []
        self._scribe: Scribe | None = None
        self._names: dict[str, str] = {}
        self._numbers: dict[str, Any] = {"window_bounds": ANY_WINDOW}
        super().__init__()
        said = dict(scenario.cell)
        self._defaults = said.pop("jobs", {})
        self._say_policy(said.pop("policy", {}))
        first = 1
        for pool, sizes in said.pop("pools", {"h100": said.pop("hosts", [])}).items():
            for gpus in sizes:
                self._boot(first, gpus, pool, said.get("block", 16))
                first += 1
        said.pop("block", None)
        for path, numbers in said.pop("budgets").items():
            self._say_budget(path, numbers if isinstance(numbers, dict) else {"weight": numbers})
        assert not said, f"unknown keys in cell: {sorted(said)}"
        self.settle()
        self._scribe = Scribe(self)

    def play(self, timeline: tuple[str, ...]) -> list[str]:
        """The log that comes of the timeline, line by line."""
        for line in timeline:
            at, verb, *words = line.split()
            self.wait(parse_length_ms(at) - (self.now_ms - T0))
            getattr(self, f"_{verb}")(*words)
            self.rest()
        return self.log

    def append(self, data: bytes) -> Record:
        if self._scribe is not None:
            self._scribe.look()
        record = super().append(data)
        if self._scribe is not None:
            self.log.extend(" ".join(line.split()) for line in self._scribe.lines(record))
        return record

    # what a line of the timeline may say ------------------------------------------------------------------
    def _submit(self, name: str, *words: str) -> None:
        """`submit a1 budget=a hosts=2 gpus=8 window=30m runs=1h grace=30s saves=10m stops=10s lane=debug by=ann`."""
        said = {"budget": "a", "gpus": "1", "window": "30m", "timeout": "6h", "grace": "30s"}
        said |= {**self._defaults, **_pairs(words)}
        habit = Habit(
            runs_ms=_length(said.pop("runs", "0s")),
            starts_ms=_length(said.pop("starts", "0s")),
            saves_ms=_length(said.get("saves", "0s")),
            stops_ms=_length(said.pop("stops", "10s")),
            end=End(said.pop("ends", "succeeded")),
        )
        who, leaf = said.pop("by", "ann"), said.pop("budget")
        fields: dict[str, Any] = {
            "hosts": int(said.pop("hosts", 1)),
            "gpus_per_host": int(said.pop("gpus")),
            "min_runtime_ms": _length(said.pop("window")),
            "timeout_ms": _length(said.pop("timeout")),
            "grace_ms": _length(said.pop("grace")),
            "checkpoint_interval_ms": _length(said.pop("saves", "0s")),
            "pools": tuple(filter(None, str(said.pop("pools", "")).split(","))),
            "lane": said.pop("lane", ""),
            "is_resumable": said.pop("resumable", "yes") == "yes",
            "max_retries": int(said.pop("retries", 0)),
            "on_timeout": said.pop("on_timeout", "fail"),
        }
        assert not said, f"unknown words: {sorted(said)}"
        one = submitted(name, leaf, **fields)
        self._names[name] = job_id(who, leaf, name)
        self.habits[self._names[name]] = habit
        self.say(one, who, settle=False)

    def _cancel(self, name: str) -> None:
        wanted = self.world.jobs[self._names[name]]
        self.say(CancelJob(job=wanted.id), wanted.account, settle=False)

    def _saved(self, name: str) -> None:
        self._report_of(name, CheckpointDone)

    def _gone(self, name: str, end: str = "succeeded") -> None:
        self._report_of(name, End(end))

    def _report_of(self, name: str, what: Any) -> None:  # noqa: ANN401 - a report's type or an end
        attempt = self.world.jobs[self._names[name]].live
        assert attempt is not None, f"{name} has no attempt"
        for index in range(len(attempt.parts)):
            self._report(attempt.id, index, what)

    def _cordon(self, *hosts: str) -> None:
        for name in hosts:
            self._tell_host(name, CordonHost)

    def _return(self, *hosts: str) -> None:
        for name in hosts:
            self._tell_host(name, ReturnHost)

    def _tell_host(self, name: str, kind: type[CordonHost] | type[ReturnHost]) -> None:
        self.say(kind(host=_host(name)), "lead", settle=False)

    def _dies(self, *hosts: str) -> None:
        """The agent of the host falls silent."""
        self.dead.update(map(_host, hosts))

    def _joins(self, name: str, gpus: str, pool: str = "h100") -> None:
        self._boot(int(name.removeprefix("h")), int(gpus), pool, 16)

    def _changes(self, name: str, boot: str) -> None:
        """The host comes back with other devices: held while work runs there."""
        known = self.world.fleet.hosts[_host(name)]
        devices = inventory(int(name.removeprefix("h")), known.gpus, known.inventory.pool)
        gpus = tuple(f"{gpu}-{boot}" for gpu in devices.gpus)
        said = HostUp(incarnation=f"boot-{boot}", inventory=_replaced(known.inventory, gpus=gpus))
        self.say(said, _host(name), settle=False)

    def _budget(self, path: str, *words: str) -> None:
        self._say_budget(path, {key: int(value) for key, value in _pairs(words).items()})

    def _policy(self, *words: str) -> None:
        self._say_policy(_pairs(words))

    def _away(self, *services: str) -> None:
        self.away.update(services)

    def _back(self, *services: str) -> None:
        self.away.difference_update(services)

    def _crosses(self, service: str, verb: str, *words: str) -> None:
        """The service decides on the fold as it is; its record comes after what the rest of the line brings."""
        data = self.draft(service)
        assert data, f"{service} has nothing to say"
        getattr(self, f"_{verb}")(*words)
        self.append(data)

    def _nothing(self) -> None:
        """Time has passed."""

    def _say_budget(self, path: str, numbers: dict[str, int]) -> None:
        parent, _, name = path.rpartition("/")
        self.say(ChangeBudget(budget=name, parent=parent.rpartition("/")[2], **numbers), "lead", settle=False)
        self._say_member(name)

    def _say_member(self, name: str) -> None:
        self.say(ChangeMember(budget=name, account="*", role="member"), "lead", settle=False)

    def _say_policy(self, numbers: dict[str, Any]) -> None:
        if numbers.get("window_bounds") == "default":
            numbers = {key: value for key, value in numbers.items() if key != "window_bounds"}
            del self._numbers["window_bounds"]
        self._numbers |= {key: _number(value) for key, value in numbers.items()}
        self.say(ChangePolicy(name=f"policy-{len(self.records)}", policy=Policy(**self._numbers)), "lead", settle=False)

    def _boot(self, number: int, gpus: int, pool: str, block: int) -> None:
        said: Said = HostUp(incarnation="boot-1", inventory=inventory(number, gpus, pool, block))
        self.say(said, f"host-{number:03d}", settle=False)


def _pairs(words: tuple[str, ...]) -> dict[str, Any]:
    return dict(word.split("=", 1) for word in words)


def _length(value: str) -> int:
    return parse_length_ms(value)


def _number(value: Any) -> int:  # noqa: ANN401 - a number, or a length as people write it
    return value if isinstance(value, int) else int(value) if str(value).isdigit() else parse_length_ms(value)


def _host(name: str) -> str:
    return f"host-{int(name.removeprefix('h')):03d}"


def _replaced(devices: Any, **fields: Any) -> Any:  # noqa: ANN401 - a struct
    return type(devices)(**{name: getattr(devices, name) for name in devices.__struct_fields__} | fields)


def play(scenario: Scenario) -> list[str]:
    """What the log says."""
    return Stage(scenario).play(scenario.timeline)
