"""Random small cells: what may happen to one, as data that a failing test can print, and how it is played.

A story is a list of steps. Jobs and hosts are named by number, taken modulo what there is, so that
every story means something and stays meaningful while it is made smaller.
"""

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import strategies as st

from fairlease_schemas.commands import CancelJob, ChangeBudget, ChangeMember, ChangePolicy, CordonHost, ReturnHost
from fairlease_schemas.envelope import Answer, Said
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import End, Rendezvous
from fairlease_schemas.policy import Policy
from fairlease_schemas.reports import HostUp, RunGone, RunReady, RunStarted
from fairlease_schemas.subjects import SCOPES
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell, inventory, submitted

READY = "ready"
PEOPLE = ("ann", "bob")
LEAVES = ("a", "b", "c")
POOLS = ((), ("h100",), ("l40s", "h100"))
SELDOM = 5 * MINUTE
POLICIES = (
    Policy(rank_period_ms=SELDOM),
    Policy(rank_period_ms=SELDOM, max_classes_per_pool=1, max_grants_per_cycle=1),
    Policy(rank_period_ms=SELDOM, lookback_ms=HOUR, entitlement_floor_ms=0, retry_backoff_ms=0),
    Policy(rank_period_ms=MINUTE, max_classes_per_pool=2, max_grants_per_cycle=2, debug_per_person=1),
    Policy(rank_period_ms=SELDOM, debug_spare_hosts=1, move_gain_ms=HOUR, leaf_order="smallest"),
)


class Submit(NamedTuple):
    """A submission; names come again, so that some repeat and some contradict an earlier one."""

    name: int
    who: str
    budget: str
    hosts: int
    gpus: int
    window: str
    pools: tuple[str, ...]
    retries: int
    on_timeout: str


class Cancel(NamedTuple):
    """A cancel by some account of some job."""

    job: int
    who: str


class Report(NamedTuple):
    """A host says that its part is ready or started (`end` absent) or is gone; `lie` gives a wrong host or token."""

    job: int
    part: int
    end: End | str | None
    lie: str


class Hold(NamedTuple):
    """A cordon or its end."""

    host: int
    who: str
    is_cordon: bool


class Boot(NamedTuple):
    """A host says what it is: as before, after a boot, or with other devices."""

    host: int
    boot: int
    gpus: int
    pool: str


class Share(NamedTuple):
    """A change of the tree."""

    budget: str
    weight: int
    parent: str


class Rules(NamedTuple):
    """A change of policy."""

    number: int


class Wait(NamedTuple):
    """Time passes, and what is due happens."""

    ms: int


class Turn(NamedTuple):
    """One service decides once."""

    service: str


class Cross(NamedTuple):
    """One service decides, and its record is appended after the next step, if the fence of its scope lets it.

    Admission decides on the end of some attempt, so that it crosses with what `alloc` decides about it.
    """

    service: str
    job: int


class Rest(NamedTuple):
    """Everybody decides until nobody has anything to say."""


class Again(NamedTuple):
    """The last message is delivered again, as an agent or a client repeats itself."""


Step = Submit | Cancel | Report | Hold | Boot | Share | Rules | Wait | Turn | Cross | Rest | Again


class Story(NamedTuple):
    """A cell's hosts, as numbers of GPUs, and what happens to it."""

    hosts: tuple[int, ...]
    steps: tuple[Step, ...]


_WINDOWS = ("idle", "short", "long", "debug", "whole")
_SERVICES = st.sampled_from(sorted(SCOPES))
_SUBMIT = st.builds(
    Submit,
    name=st.integers(0, 9),
    who=st.sampled_from(PEOPLE),
    budget=st.sampled_from(LEAVES),
    hosts=st.sampled_from((1, 1, 1, 2)),
    gpus=st.sampled_from((1, 2, 3, 4)),
    window=st.sampled_from(("idle", *_WINDOWS)),
    pools=st.sampled_from(POOLS),
    retries=st.sampled_from((0, 2)),
    on_timeout=st.sampled_from(("fail", "requeue")),
)
_CANCEL = st.builds(Cancel, job=st.integers(0, 9), who=st.sampled_from(PEOPLE))
_REPORT = st.builds(
    Report,
    job=st.integers(0, 9),
    part=st.integers(0, 1),
    end=st.sampled_from((None, READY, READY, READY, End.CANCELLED, End.SUCCEEDED, *End)),
    lie=st.sampled_from(("", "", "", "", "", "host", "token", "attempt")),
)
_HOLD = st.builds(Hold, host=st.integers(0, 3), who=st.sampled_from(PEOPLE), is_cordon=st.booleans())
_BOOT = st.builds(
    Boot,
    host=st.integers(0, 4),
    boot=st.integers(1, 2),
    gpus=st.sampled_from((0, 0, 2, 4)),
    pool=st.sampled_from(("h100", "h100", "l40s")),
)
_SHARE = st.builds(
    Share,
    budget=st.sampled_from((*LEAVES, "org", "d")),
    weight=st.integers(0, 3),
    parent=st.sampled_from(("", "org", "a")),
)
_RULES = st.builds(Rules, number=st.integers(0, len(POLICIES) - 1))
_WAIT = st.builds(Wait, ms=st.sampled_from((1, SECOND, 10 * SECOND, 2 * MINUTE, 20 * MINUTE, HOUR)))
_TURN = st.builds(Turn, service=_SERVICES)
_CROSS = st.builds(Cross, service=_SERVICES, job=st.integers(0, 9))
_REST = st.builds(Rest)
_TABLE = (
    *(_REST,) * 5,
    *(_SUBMIT,) * 12,
    *(_REPORT,) * 12,
    *(_WAIT,) * 4,
    *(_CROSS,) * 4,
    *(_CANCEL, _TURN) * 2,
    *(_HOLD, _BOOT, _SHARE, _RULES, st.builds(Again)),
)
_STEPS: st.SearchStrategy[Step] = st.integers(0, len(_TABLE) - 1).flatmap(_TABLE.__getitem__)
"""By number, because `one_of` would give every kind of step the same weight."""


def stories(steps: int = 20) -> st.SearchStrategy[Story]:
    """Any story of that many steps or half as many more; the dullest step is a rest."""
    return st.builds(
        Story,
        hosts=st.lists(st.sampled_from((4, 4, 2)), min_size=1, max_size=4).map(tuple),
        steps=st.lists(_STEPS, min_size=steps, max_size=steps * 3 // 2).map(tuple),
    )


def play(story: Story, cell: Cell | None = None, at_rest: Callable[[Cell], None] | None = None) -> Cell:
    """The cell after the story, at rest. With `at_rest`, it rests after every step, and that looks on."""
    cell = cell or Cell()
    Player(cell, story, at_rest).run()
    return cell


class Player:
    """Tells a cell the steps of a story one by one."""

    def __init__(self, cell: Cell, story: Story, at_rest: Callable[[Cell], None] | None) -> None:
        self.cell = cell
        self.at_rest = at_rest
        self.story = story
        self.jobs: list[str] = []
        self.last: tuple[Said, str] | None = None
        self.crossing: tuple[str, int, bytes] | None = None

    def run(self) -> None:
        self._do(Rules(0))
        for number, gpus in enumerate(self.story.hosts, 1):
            pool = "l40s" if number == 4 else "h100"
            self._say(HostUp(incarnation="boot-1", inventory=inventory(number, gpus, pool, 2)), f"host-{number:03d}")
        for budget in LEAVES:
            self._say(ChangeBudget(budget=budget, weight=1), "lead")
            self._say(ChangeMember(budget=budget, account="*", role="member"), "lead")
        for step in self.story.steps:
            crossing, self.crossing = self.crossing, None
            self._do(step)
            self._land(crossing)
            if self.at_rest is not None:
                self.cell.settle()
                self.at_rest(self.cell)
        self._land(self.crossing)
        self.cell.settle()

    def _say(self, said: Said, who: str) -> None:
        self.last = (said, who)
        self.cell.say(said, who, settle=False)

    def _land(self, crossing: tuple[str, int, bytes] | None) -> None:
        """Append the record that was under way, unless another of its scope came first."""
        if crossing is None:
            return
        scope, fence, data = crossing
        if data and self.cell.world.scope_position(scope) == fence:
            self.cell.append(data)

    def _do(self, step: Step) -> None:
        cell = self.cell
        match step:
            case Submit():
                self.jobs.append(job_id(step.who, step.budget, f"r{step.name}"))
                self._say(_submission(step), step.who)
            case Cancel():
                self._say(CancelJob(job=self._job(step.job)), step.who)
            case Report():
                self._report(step)
            case Hold():
                host = f"host-{step.host + 1:03d}"
                self._say(CordonHost(host=host) if step.is_cordon else ReturnHost(host=host), step.who)
            case Boot():
                self._boot(step)
            case Share():
                self._say(ChangeBudget(budget=step.budget, weight=step.weight, parent=step.parent), "lead")
            case Rules():
                name = f"policy-{step.number}-{len(cell.records)}"
                self._say(ChangePolicy(name=name, policy=POLICIES[step.number]), "lead")
            case Wait():
                cell.at(cell.now_ms - T0 + step.ms)
            case Turn():
                cell.step(step.service)
            case Cross():
                scope = SCOPES[step.service]
                answers = self._ending(step.job) if step.service == "admission" else ()
                self.crossing = (scope, cell.world.scope_position(scope), cell.draft(step.service, answers))
            case Rest():
                cell.settle()
            case Again():
                if self.last is not None:
                    self._say(*self.last)

    def _job(self, number: int) -> str:
        return self.jobs[number % len(self.jobs)] if self.jobs else "job-nobody"

    def _report(self, step: Report) -> None:
        jobs = self.cell.world.jobs
        live = [job for job in jobs.values() if job.live] or [job for job in jobs.values() if job.attempts]
        if not live:
            return
        job = live[step.job % len(live)]
        attempt = job.attempts[0 if step.lie == "attempt" else -1]
        host = attempt.hosts[step.part % len(attempt.hosts)] if step.lie != "host" else "host-009"
        token = str(attempt.token) if step.lie != "token" else "1-1-0"
        if step.end == READY:
            at = Rendezvous(address=host, port=20_000 + len(self.cell.records)) if host == attempt.hosts[0] else None
            self._say(RunReady(attempt=attempt.id, token=token, rendezvous=at), host)
        elif step.end is None:
            self._say(RunStarted(attempt=attempt.id, token=token), host)
        else:
            end = End(step.end)
            code = {End.SUCCEEDED: 0, End.FAILED: 1}.get(end)
            self._say(RunGone(attempt=attempt.id, token=token, end=end, exit_code=code), host)

    def _ending(self, number: int) -> tuple[Answer, ...]:
        """The report that a part of some live attempt is gone."""
        live = [job for job in self.cell.world.jobs.values() if job.live]
        if not live:
            return ()
        job = live[number % len(live)]
        end = End.FAILED if number % 2 else End.CANCELLED
        return (self.cell.answer(self.cell.run_gone(job.id, end, 1), job.attempts[-1].hosts[-1]),)

    def _boot(self, step: Boot) -> None:
        name = f"host-{step.host + 1:03d}"
        known = self.cell.world.fleet.hosts.get(name)
        devices = inventory(step.host + 1, step.gpus or 4, step.pool, 2)
        if step.gpus == 0 and known is not None:
            devices = known.inventory
        self._say(HostUp(incarnation=f"boot-{step.boot}", inventory=devices), name)


def _submission(step: Submit) -> Said:
    fields: dict[str, object] = {
        "hosts": step.hosts,
        "gpus_per_host": 4 if step.hosts > 1 else step.gpus,
        "pools": step.pools,
        "max_retries": step.retries,
        "on_timeout": step.on_timeout,
    }
    fields |= {
        "idle": {"min_runtime_ms": 0},
        "short": {"min_runtime_ms": 15 * MINUTE},
        "long": {"min_runtime_ms": 2 * HOUR},
        "debug": {"lane": "debug", "min_runtime_ms": 5 * MINUTE, "timeout_ms": HOUR},
        "whole": {"is_resumable": False, "timeout_ms": 30 * MINUTE},
    }[step.window]
    said = submitted(f"r{step.name}", step.budget, **fields)
    body = f"{step.name}{step.hosts}{step.gpus}{_WINDOWS.index(step.window)}"
    return type(said)(budget=said.budget, request_id=said.request_id, digest=f"{body:0>64}", request=said.request)
