"""A whole cell in memory: the real deciders over a list of records, with virtual time.

It does what the services do (fold, decide, append with the scope's fence) without a bus, so a story
reads as messages in and events out. Every record goes through its canonical bytes on the way.

    cell = Cell().hosts(2).budgets(a=1)
    cell.when(CancelJob(job=cell.submit("r1"))).then(AttemptEnding(...)).follows(...)
"""

from collections.abc import Callable, Iterable

from fairlease.core.deciders import RULES
from fairlease.core.decision import record_of
from fairlease.core.world import World
from fairlease_schemas import codec
from fairlease_schemas.budget import AttemptCharged
from fairlease_schemas.commands import OWNERS as VERB_OWNERS
from fairlease_schemas.commands import (
    AcceptChange,
    CancelJob,
    ChangeBudget,
    ChangeMember,
    ChangePolicy,
    CordonHost,
    HoldJob,
    ProposeChange,
    RecordEvaluation,
    ReleaseJob,
    ReportChange,
    RequestDrain,
    ReturnHost,
    UndrainHost,
)
from fairlease_schemas.cycle import CycleClosed, CyclePlaced, CycleRanked, GangGranted, Licence, Part
from fairlease_schemas.envelope import Answer, Event, Misshapen, Record, Said, Submitted, TimerFired
from fairlease_schemas.host import Inventory
from fairlease_schemas.ids import attempt_id, job_id
from fairlease_schemas.job import End, JobAdmitted, Rendezvous, Request
from fairlease_schemas.policy import Policy
from fairlease_schemas.reports import CheckpointDone, HostUp, RunGone, RunReady, RunStarted

T0 = 1_700_000_000_000
SERVICES = ("ledger", "admission", "health", "ranker", "placement", "preemption")
FRAME = (CycleRanked, CyclePlaced, CycleClosed)
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
NEVER = 1_000 * DAY
"""Of a start limit: stories start a job only where that matters to them."""
OWNER = {Submitted: "admission", CancelJob: "admission", RunStarted: "admission", RunGone: "admission"}
OWNER |= {Misshapen: "admission", HoldJob: "admission", ReleaseJob: "admission", CheckpointDone: "admission"}
OWNER |= {RunReady: "admission", RecordEvaluation: "admission"}
OWNER |= dict.fromkeys((ChangeBudget, ChangeMember, ChangePolicy, ProposeChange, ReportChange, AcceptChange), "ledger")
OWNER |= dict.fromkeys((CordonHost, ReturnHost, RequestDrain, UndrainHost, HostUp), "health")
REPORTS = (HostUp, RunReady, RunStarted, RunGone, CheckpointDone)
assert set(VERB_OWNERS) == {"admission", "ledger", "health"}


class Cell:
    """A log, its fold, and a clock that only tests move. Times are milliseconds after `T0`."""

    def __init__(self, watch: "Callable[[Cell, Record], None] | None" = None) -> None:
        """`watch` is told of every record once it is folded: the laws look on from there."""
        self.world = World()
        self.records: list[bytes] = []
        self.now_ms = T0
        self.watch = watch
        self.away: set[str] = set()
        """Services that are down: they decide nothing until they are back."""
        self._seq: dict[str, int] = {}
        self.settle()

    # what happens ------------------------------------------------------------------------------------
    def at(self, after_ms: int) -> "Cell":
        """Move the clock to `after_ms` after the start, and let what is due happen on the way."""
        until_ms = T0 + after_ms
        while True:
            dues = {name: due for name in SERVICES if (due := RULES[name].due_ms(self.world)) is not None}
            name = min(dues, key=lambda n: dues[n], default=None)
            if name is None or dues[name] > until_ms:
                break
            self.now_ms = max(self.now_ms, dues[name])
            before = len(self.records)
            self.step(name, (self.answer(TimerFired(due_ms=dues[name]), name, "FL_LAB_TIMERS"),))
            self.settle()
            if len(self.records) == before:
                break
        self.now_ms = max(self.now_ms, until_ms)
        return self

    def say(self, said: Said, who: str = "ann", *, settle: bool = True) -> list[Event]:
        """One message to the service that owns it; then everything that follows. Its own record's events."""
        events = self.step(OWNER[type(said)], (self.answer(said, who),))
        if settle:
            self.settle()
        return events

    def when(self, *said: Said, who: str = "ann") -> "When":
        """These messages, answered by one record of the service that owns them."""
        before = len(self.records)
        self.step(OWNER[type(said[0])], tuple(self.answer(one, who) for one in said))
        return When(self, before)

    def passes(self, after_ms: int) -> "When":
        """Time goes on to `after_ms` after the start; what it brings about is the story."""
        before = len(self.records)
        return When(self.at(after_ms), before)

    def step(self, service: str, answers: tuple[Answer, ...] = ()) -> list[Event]:
        """One decision of one service, appended when there is one."""
        data = self.draft(service, answers)
        return list(self.append(data).events) if data else []

    def draft(self, service: str, answers: tuple[Answer, ...] = ()) -> bytes:
        """A record decided on the fold as it is, to be appended later: so records of two scopes cross."""
        decision = RULES[service].decide(self.world, answers)
        return codec.sealed(record_of(self.world, service, decision))[1] if decision else b""

    def append(self, data: bytes) -> Record:
        record = codec.read_record(data)
        self.records.append(data)
        self.world.apply(record, len(self.records))
        if self.watch is not None:
            self.watch(self, record)
        return record

    def settle(self) -> None:
        """Let every service decide until none has anything to say."""
        for _ in range(10_000):
            if not any(self.step(service) for service in SERVICES if service not in self.away):
                return
        raise AssertionError("the cell does not come to rest")

    def answer(self, said: Said, who: str = "ann", stream: str = "") -> Answer:
        """The message as a record names it, said now."""
        stream = "FL_LAB_REPORTS" if isinstance(said, REPORTS) else stream or f"FL_LAB_INBOX_{who}"
        self._seq[stream] = seq = self._seq.get(stream, 0) + 1
        return Answer(stream=stream, seq=seq, time_ms=self.now_ms, who=who, said=said)

    # words of the stories ----------------------------------------------------------------------------
    def hosts(self, count: int, gpus: int = 8, pool: str = "h100", first: int = 1, block: int = 16) -> "Cell":
        for number in range(first, first + count):
            name, devices = f"host-{number:03d}", inventory(number, gpus, pool, block)
            self.say(HostUp(incarnation="boot-1", inventory=devices), name, settle=False)
        self.settle()
        return self

    def budgets(self, **weights: int) -> "Cell":
        """`org__team=3` hangs `team` below `org`; underscores in names become dashes.

        `lead` leads them, and everybody is a member: stories about membership say so themselves.
        """
        for name, weight in weights.items():
            parent, _, leaf = (part.replace("_", "-") for part in name.rpartition("__"))
            self.say(ChangeBudget(budget=leaf, weight=weight, parent=parent), "lead")
            self.say(ChangeMember(budget=leaf, account="*", role="member"), "lead")
        return self

    def policy(self, **numbers: object) -> "Cell":
        self.say(ChangePolicy(name=f"policy-{len(self.records)}", policy=Policy(**numbers)), "lead")  # type: ignore[arg-type]  # fields by name
        return self

    def submit(
        self, request_id: str, budget: str = "a", *, who: str = "ann", settle: bool = True, **fields: object
    ) -> str:
        """Submit and settle; the job's id."""
        self.say(submitted(request_id, budget, **fields), who, settle=settle)
        return job_id(who, budget, request_id)

    def start(self, job: str) -> "Cell":
        """Every host of the job's live attempt reports it started."""
        attempt = self.world.jobs[job].live
        assert attempt is not None, f"{job} has no live attempt"
        for host in attempt.hosts:
            self.say(self.run_started(job), host, settle=False)
        self.settle()
        return self

    def gone(self, job: str, end: End = End.SUCCEEDED, exit_code: int | None = 0, hosts: Iterable[str] = ()) -> "Cell":
        """The hosts (all, by default) of the job's live attempt report it gone."""
        attempt = self.world.jobs[job].live
        assert attempt is not None, f"{job} has no live attempt"
        for host in hosts or attempt.hosts:
            self.say(self.run_gone(job, end, exit_code), host, settle=False)
        self.settle()
        return self

    def run_ready(self, job: str, rendezvous: Rendezvous | None = None) -> RunReady:
        """What a host of the job's last attempt says when its part could begin; the gang's first host where to meet."""
        attempt = self.world.jobs[job].attempts[-1]
        return RunReady(attempt=attempt.id, token=str(attempt.token), rendezvous=rendezvous)

    def run_started(self, job: str) -> RunStarted:
        """What a host of the job's last attempt says when its part runs."""
        attempt = self.world.jobs[job].attempts[-1]
        return RunStarted(attempt=attempt.id, token=str(attempt.token))

    def run_gone(self, job: str, end: End = End.SUCCEEDED, exit_code: int | None = 0) -> RunGone:
        """What a host of the job's last attempt says when nothing of it is left there."""
        attempt = self.world.jobs[job].attempts[-1]
        return RunGone(attempt=attempt.id, token=str(attempt.token), end=end, exit_code=exit_code)

    def events(self, *kinds: type) -> list[Event]:
        """All events so far of these kinds, in order."""
        found = [event for data in self.records for event in codec.read_record(data).events]
        return [event for event in found if not kinds or isinstance(event, kinds)]

    def record(self, position: int) -> Record:
        """The record at a position, 1 for the first."""
        return codec.read_record(self.records[position - 1])

    def phase(self, job: str) -> str:
        return str(self.world.jobs[job].phase)


class When:
    """What a step led to. The frame of a cycle (ranked, placed, closed) is told only in stories about it."""

    def __init__(self, cell: Cell, before: int) -> None:
        self.cell = cell
        self._told = before

    def then(self, *events: Event) -> "When":
        """Exactly these events, whole and in order, were recorded."""
        assert self.events() == list(events)
        return self

    def follows(self, *events: Event) -> "When":
        """Exactly these events come of it until the cell is at rest."""
        self.cell.settle()
        assert self.events() == list(events)
        return self

    def events(self) -> list[Event]:
        """The events since the last look, without the frames."""
        records = map(codec.read_record, self.cell.records[self._told :])
        self._told = len(self.cell.records)
        return [event for record in records for event in record.events if not isinstance(event, FRAME)]


def inventory(number: int, gpus: int = 8, pool: str = "h100", block: int = 16) -> Inventory:
    """The devices of `host-<number>`; `block` hosts with numbers in a row share one topology block."""
    return Inventory(
        pool=pool,
        gpus=tuple(f"GPU-host-{number:03d}-{k}" for k in range(gpus)),
        model="H100",
        memory_mib=81_920,
        cpu_cores=96,
        host_memory_mib=1 << 20,
        block=f"block-{(number - 1) // block:02d}",
        is_simulated=True,
    )


def request(**fields: object) -> Request:
    """A request with honest defaults: one GPU for 30 protected minutes, 2 h at most, resumable."""
    defaults: dict[str, object] = {
        "hosts": 1,
        "gpus_per_host": 1,
        "pools": (),
        "min_runtime_ms": 30 * 60_000,
        "timeout_ms": 2 * 3_600_000,
        "grace_ms": 30_000,
        "is_resumable": True,
        "start_limit_ms": NEVER,
    }
    return Request(**(defaults | fields))  # type: ignore[arg-type]  # fields by name


def submitted(request_id: str, budget: str = "a", **fields: object) -> Submitted:
    """A submission as admission reads it; its body's digest is made of the request id."""
    return Submitted(budget=budget, request_id=request_id, digest=f"{request_id:0>64}", request=request(**fields))


def admitted(request_id: str, budget: str = "a", *, who: str = "ann", **fields: object) -> JobAdmitted:
    """The admission of `submitted` in a cell with the pool `h100` alone."""
    said = submitted(request_id, budget, **({"pools": ("h100",)} | fields))
    name = job_id(who, budget, request_id)
    return JobAdmitted(
        job=name, account=who, budget=budget, request_id=request_id, digest=said.digest, request=said.request
    )


def granted(job: str, *parts: Part, number: int = 1, **fields: object) -> GangGranted:
    """A grant in the pool `h100` of the window that `request` asks for, ranked by a standing below its share."""
    defaults: dict[str, object] = {
        "pool": "h100",
        "window_ms": 30 * MINUTE,
        "licence": Licence.UNDER_SHARE,
        "start_limit_ms": NEVER,
    }
    whole = defaults | fields
    return GangGranted(job=job, attempt=attempt_id(job, number), number=number, parts=parts, **whole)  # type: ignore[arg-type]  # fields by name


def on(host: int, *gpus: int) -> Part:
    """GPUs of a host by number: `on(1, 0, 1)` are the first two of `host-001`."""
    return Part(host=f"host-{host:03d}", gpus=gpus)


def charged(job: str, gpu_ms: int, *, number: int = 1, budget: str = "a", is_idle: bool = False) -> AttemptCharged:
    """The charge of an attempt that held that much in the pool `h100`; idle work is charged nothing."""
    return AttemptCharged(
        attempt=attempt_id(job, number),
        budget=budget,
        pool="h100",
        held_gpu_ms=gpu_ms,
        charged_gpu_ms=0 if is_idle else gpu_ms,
    )
