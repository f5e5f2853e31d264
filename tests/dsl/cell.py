"""A whole cell in memory: the real deciders over a list of records, with virtual time.

It does what the services do (fold, decide, append with the scope's fence) without a bus, so a story
reads as messages in and events out. Every record goes through its canonical bytes on the way.
"""

from collections.abc import Iterable

from fairlease.core.deciders import RULES
from fairlease.core.decision import record_of
from fairlease.core.world import World
from fairlease_schemas import codec
from fairlease_schemas.commands import OWNERS as VERB_OWNERS
from fairlease_schemas.commands import CancelJob, ChangeBudget, ChangePolicy, CordonHost, ReturnHost
from fairlease_schemas.envelope import Answer, Event, Record, Said, Submitted, TimerFired
from fairlease_schemas.host import Inventory
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import End, Request
from fairlease_schemas.policy import Policy
from fairlease_schemas.reports import HostUp, RunGone, RunStarted

T0 = 1_700_000_000_000
SERVICES = ("ledger", "admission", "health", "ranker", "placement", "preemption")
OWNER = {Submitted: "admission", CancelJob: "admission", RunStarted: "admission", RunGone: "admission"}
OWNER |= {ChangeBudget: "ledger", ChangePolicy: "ledger"}
OWNER |= {CordonHost: "health", ReturnHost: "health", HostUp: "health"}
assert set(VERB_OWNERS) == {"admission", "ledger", "health"}


class Cell:
    """A log, its fold, and a clock that only tests move. Times are milliseconds after `T0`."""

    def __init__(self) -> None:
        self.world = World()
        self.records: list[bytes] = []
        self.now_ms = T0
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
            self.step(name, (self._answer(name, TimerFired(due_ms=dues[name]), "TIMERS"),))
            self.settle()
            if len(self.records) == before:
                break
        self.now_ms = max(self.now_ms, until_ms)
        return self

    def say(self, said: Said, who: str = "ann", *, settle: bool = True) -> list[Event]:
        """One message to the service that owns it; then everything that follows. Its own record's events."""
        events = self.step(OWNER[type(said)], (self._answer(who, said, f"FL_LAB_INBOX_{who}"),))
        if settle:
            self.settle()
        return events

    def step(self, service: str, answers: tuple[Answer, ...] = ()) -> list[Event]:
        """One decision of one service, appended when there is one."""
        decision = RULES[service].decide(self.world, answers)
        if decision is None:
            return []
        record, data = codec.sealed(record_of(self.world, service, decision))
        self.append(data)
        return list(record.events)

    def append(self, data: bytes) -> Record:
        record = codec.read_record(data)
        self.records.append(data)
        self.world.apply(record, len(self.records))
        return record

    def settle(self) -> None:
        """Let every service decide until none has anything to say."""
        for _ in range(10_000):
            if not any(self.step(service) for service in SERVICES):
                return
        raise AssertionError("the cell does not come to rest")

    def _answer(self, who: str, said: Said, stream: str) -> Answer:
        self._seq[stream] = seq = self._seq.get(stream, 0) + 1
        return Answer(stream=stream, seq=seq, time_ms=self.now_ms, who=who, said=said)

    # words of the stories ----------------------------------------------------------------------------
    def hosts(self, count: int, gpus: int = 8, pool: str = "h100", first: int = 1, block: int = 16) -> "Cell":
        for number in range(first, first + count):
            name = f"host-{number:03d}"
            inventory = Inventory(
                pool=pool,
                gpus=tuple(f"GPU-{name}-{k}" for k in range(gpus)),
                model="H100",
                memory_mib=81_920,
                cpu_cores=96,
                host_memory_mib=1 << 20,
                block=f"block-{(number - 1) // block:02d}",
                is_simulated=True,
            )
            self.say(HostUp(incarnation="boot-1", inventory=inventory), name, settle=False)
        self.settle()
        return self

    def budgets(self, **weights: int) -> "Cell":
        """`org__team=3` hangs `team` below `org`; underscores in names become dashes."""
        for name, weight in weights.items():
            parent, _, leaf = name.rpartition("__")
            self.say(
                ChangeBudget(budget=leaf.replace("_", "-"), weight=weight, parent=parent.replace("_", "-")), "lead"
            )
        return self

    def policy(self, **numbers: object) -> "Cell":
        self.say(ChangePolicy(name=f"policy-{len(self.records)}", policy=Policy(**numbers)), "lead")  # type: ignore[arg-type]
        return self

    def submit(self, request_id: str, budget: str = "a", *, who: str = "ann", settle: bool = True, **fields: object) -> str:
        """Submit and settle; the job's id."""
        said = Submitted(budget=budget, request_id=request_id, digest=f"{request_id:0>64}", request=request(**fields))
        self.say(said, who, settle=settle)
        return job_id(who, budget, request_id)

    def start(self, job: str) -> "Cell":
        """Every host of the job's live attempt reports it started."""
        attempt = self.world.jobs[job].live
        assert attempt is not None, f"{job} has no live attempt"
        for host in attempt.hosts:
            self.say(RunStarted(attempt=attempt.id, token=str(attempt.token)), host, settle=False)
        self.settle()
        return self

    def gone(self, job: str, end: End = End.SUCCEEDED, exit_code: int | None = 0, hosts: Iterable[str] = ()) -> "Cell":
        """The hosts (all, by default) of the job's live attempt report it gone."""
        attempt = self.world.jobs[job].live
        assert attempt is not None, f"{job} has no live attempt"
        for host in hosts or attempt.hosts:
            said = RunGone(attempt=attempt.id, token=str(attempt.token), end=end, exit_code=exit_code)
            self.say(said, host, settle=False)
        self.settle()
        return self

    def events(self, *kinds: type) -> list[Event]:
        """All events so far of these kinds, in order."""
        found = [event for data in self.records for event in codec.read_record(data).events]
        return [event for event in found if not kinds or isinstance(event, kinds)]

    def phase(self, job: str) -> str:
        return str(self.world.jobs[job].phase)


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
    }
    return Request(**(defaults | fields))  # type: ignore[arg-type]
