"""People of the reference workload: each project keeps so much outstanding, and submits after a while of thinking.

At 0 and after each end of its own a project draws jobs while what it has outstanding is below its target. A drawn
job counts at once, so the last may overshoot. Idle work has a target of its own, and the same streams. Targets follow
the weights of budgets. Projects whose people do not play fair draw as all others do; gaming.py says what they hand in.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from fairlease.core.job import Phase
from fairlease.simulator.draws import POINTS, Stream
from fairlease.simulator.engine import Engine
from fairlease.simulator.gaming import DELAYS, LATE_MS, RESUBMITS, Resubmitter, handed_in
from fairlease.simulator.machines import Machines, Work
from fairlease.simulator.rankers.plain import Priority
from fairlease.simulator.scenario import IDLE, JobClass, Scenario
from fairlease_schemas.envelope import Submitted
from fairlease_schemas.ids import AccountId, BudgetId, JobId, job_id
from fairlease_schemas.job import Request
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import HOUR_MS, MINUTE_MS, SECOND_MS

FIRST_FILL_MS: Final = 10 * MINUTE_MS
GRACE_MS: Final = 90 * SECOND_MS
SMALLEST_GANG_CAP: Final = 8
_NO_DIGEST: Final = f"{0:064x}"


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its project drew it."""

    of: str
    gpus: int
    window_ms: int
    duration_ms: int
    person: int
    priority: int


def shares(scenario: Scenario) -> dict[BudgetId, Fraction]:
    """What each project is due of the whole cluster, in the order of the file."""
    whole = sum(org.weight for org in scenario.budgets.values())
    return {
        project: Fraction(org.weight, whole) * Fraction(weight, sum(org.projects.values()))
        for org in scenario.budgets.values()
        for project, weight in org.projects.items()
    }


def gang_cap(scenario: Scenario, share: Fraction, gpus: int) -> int:
    """The largest power of two that is at most so many times the share, and 8 at least."""
    most = int(scenario.demand.gang_cap_of_share * share * gpus)
    return max(SMALLEST_GANG_CAP, 1 << (most.bit_length() - 1) if most else 0)


class _Project:
    """One project: its streams, its targets, and what is outstanding by kind of work."""

    def __init__(self, name: BudgetId, share: Fraction, scenario: Scenario, gpus: int, seed: int) -> None:
        self.name = name
        self.jobs = Stream(seed, f"workload/{name}")
        self.think = Stream(seed, f"think/{name}")
        self.strategy = scenario.game.get(name, "")
        self.late_ms = LATE_MS if self.strategy == DELAYS else 0
        self.outstanding = {False: 0, True: 0}
        self.drawn = self.handed_again = 0
        self.due(share, scenario, gpus)

    def due(self, share: Fraction, scenario: Scenario, gpus: int) -> None:
        """What it wants is measured by this share from now on."""
        self.cap = gang_cap(scenario, share, gpus)
        of_share = {
            False: Fraction(str(scenario.demand.outstanding_of_share)),
            True: Fraction(str(scenario.demand.idle_outstanding_of_share)),
        }
        self.target = {is_idle: part * share * gpus for is_idle, part in of_share.items()}


class _Owned(NamedTuple):
    """A job that was handed in: whose, and what of it counts as outstanding."""

    project: _Project
    is_idle: bool
    gpus: int
    who: AccountId
    request: Request


class ClosedLoop:
    """All projects. `over` must be told of every job that ended, `follow` of every record."""

    def __init__(
        self,
        engine: Engine,
        machines: Machines,
        scenario: Scenario,
        gpus: int,
        seed: int,
        tables: Mapping[str, Sequence[int]],
    ) -> None:
        self._engine = engine
        self._machines = machines
        self._scenario = scenario
        self._gpus = gpus
        self._tables = tables
        self._projects = {name: _Project(name, share, scenario, gpus, seed) for name, share in shares(scenario).items()}
        self._owned: dict[JobId, _Owned] = {}
        self._again: dict[JobId, Work] = {}
        self._resubmitter = Resubmitter(engine, machines, self._will_come_again)
        self.follow = self._resubmitter.follow
        machines.on_done = self._done

    def begin(self) -> None:
        """The first fill: every project, spread evenly over the first minutes."""
        for project in self._projects.values():
            self._fill(project, is_first=True)

    def over(self, job: JobId) -> None:
        """The job ended: its project has room for another, or hands in the same once more."""
        owned, work = self._owned.pop(job), self._again.pop(job, None)
        project = owned.project
        if work is not None and self._engine.world.jobs[job].phase is Phase.CANCELLED:
            project.handed_again += 1
            self._hand_in(owned, f"{project.name}-again-{project.handed_again}", work)
            return
        project.outstanding[owned.is_idle] -= owned.gpus
        self._fill(project)

    def reweighed(self, scenario: Scenario) -> None:
        """The weights are those of this workload now, and what projects want is measured by them."""
        for name, share in shares(scenario).items():
            project = self._projects[name]
            project.due(share, scenario, self._gpus)
            self._fill(project)

    def _done(self, job: JobId) -> None:
        """Its work is done, and it stays: whoever did that goes on with other work."""
        owned = self._owned[job]
        self._owned[job] = owned._replace(gpus=0)
        owned.project.outstanding[owned.is_idle] -= owned.gpus
        self._fill(owned.project)

    def _will_come_again(self, job: JobId) -> None:
        """The job is about to be cancelled; what it has still to do will be handed in as another."""
        work, left_ms = self._machines.work(job), self._machines.left_ms(job)
        self._again[job] = msgspec.structs.replace(work, left_ms=left_ms, whole_ms=left_ms)

    def _fill(self, project: _Project, *, is_first: bool = False) -> None:
        for is_idle in (False, True):
            while project.outstanding[is_idle] < project.target[is_idle]:
                drawn = self._draw(project, is_idle=is_idle)
                project.outstanding[is_idle] += drawn.gpus
                if is_first:
                    after_ms = project.think.below(FIRST_FILL_MS)
                else:
                    after_ms = self._tables["think"][project.think.below(POINTS)]
                project.drawn += 1
                at_ms = self._engine.now_ms + after_ms + project.late_ms
                self._engine.at(at_ms, self._submission(project, drawn, project.drawn))

    def _draw(self, project: _Project, *, is_idle: bool) -> Drawn:
        """In the order of the file: class, GPUs, window, duration, person, priority."""
        stream = project.jobs
        name = IDLE if is_idle else self._class(stream.below(1000))
        of = self._scenario.classes[name]
        gpus = min(stream.pick(of.gpus), project.cap)
        window_ms = stream.pick(of.window_min) * MINUTE_MS
        duration_ms = clamped(of, self._tables[name][stream.below(POINTS)])
        person = stream.below(self._scenario.demand.people_per_project)
        return Drawn(
            of=name,
            gpus=gpus,
            window_ms=window_ms,
            duration_ms=duration_ms,
            person=person,
            priority=stream.below(1000),
        )

    def _class(self, draw: int) -> str:
        for name, of in self._scenario.classes.items():
            draw -= of.count_permille
            if draw < 0:
                return name
        raise AssertionError("the classes of a workload are 1000 permille together")

    def _priority(self, draw: int) -> Priority:
        """What the owner says of the job, for policies that ask."""
        parts = self._scenario.priority
        if draw < parts.high_permille:
            return Priority.HIGH
        return Priority.NORMAL if draw < parts.high_permille + parts.normal_permille else Priority.LOW

    def _submission(self, project: _Project, drawn: Drawn, number: int) -> "_Submission":
        return _Submission(self, project, drawn, number)

    def submit(self, project: _Project, drawn: Drawn, number: int) -> None:
        """One job, and what it will do; or what its people hand in instead of it."""
        of = self._scenario.classes[drawn.of]
        who, request_id = f"{project.name}-p{drawn.person + 1}", f"{project.name}-{number}"
        work = Work(
            left_ms=drawn.duration_ms,
            startup_ms=of.startup_s * SECOND_MS,
            checkpoint_ms=of.checkpoint_min * MINUTE_MS,
            saves_permille=of.saves_on_notice_permille,
            is_resumable=of.resumable,
            priority=self._priority(drawn.priority),
        )
        per_host = self._scenario.cluster.gpus_per_host
        request = Request(
            hosts=max(1, drawn.gpus // per_host),
            gpus_per_host=min(drawn.gpus, per_host),
            pools=(self._scenario.cluster.pool,),
            min_runtime_ms=drawn.window_ms,
            timeout_ms=of.timeout_min * MINUTE_MS + of.timeout_h * HOUR_MS,
            grace_ms=GRACE_MS,
            is_resumable=of.resumable,
            lane=of.lane,
            checkpoint_interval_ms=of.checkpoint_min * MINUTE_MS,
        )
        policy = self._engine.world.policy or Policy()
        parts = handed_in(project.strategy, policy, request, work) if project.strategy else [(request, work)]
        for place, (asked, to_do) in enumerate(parts):
            name = request_id if len(parts) == 1 else f"{request_id}-{place + 1}"
            owned = _Owned(project, drawn.of == IDLE, asked.hosts * asked.gpus_per_host, who, asked)
            self._hand_in(owned, name, to_do)

    def _hand_in(self, owned: _Owned, request_id: str, work: Work) -> None:
        project, request = owned.project, owned.request
        job = job_id(owned.who, project.name, request_id)
        self._owned[job] = owned
        self._machines.expect(job, work)
        said = Submitted(budget=project.name, request_id=request_id, digest=_NO_DIGEST, request=request)
        self._engine.say(said, owned.who)
        if project.strategy == RESUBMITS and request.min_runtime_ms and request.is_resumable:
            self._resubmitter.handed_in(job)


class _Submission:
    """A drawn job whose person is still thinking."""

    __slots__ = ("_drawn", "_loop", "_number", "_project")

    def __init__(self, loop: ClosedLoop, project: _Project, drawn: Drawn, number: int) -> None:
        self._loop, self._project, self._drawn, self._number = loop, project, drawn, number

    def __call__(self) -> None:
        self._loop.submit(self._project, self._drawn, self._number)


def clamped(of: JobClass, drawn_ms: int) -> int:
    """The length within the bounds of its class: bounds clamp, they never draw again."""
    duration = of.duration
    most_ms = duration.max_s * SECOND_MS or duration.max_h * HOUR_MS
    return max(duration.min_s * SECOND_MS, min(drawn_ms, most_ms))
