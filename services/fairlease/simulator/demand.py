"""People of the reference workload: each project keeps so much outstanding, and submits after a while of thinking.

At 0 and after each end of its own a project draws jobs while what it has outstanding is below its target. A drawn
job counts at once, so the last may overshoot. Idle work has a target of its own, and the same streams.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from fairlease.simulator.draws import POINTS, Stream
from fairlease.simulator.engine import Engine
from fairlease.simulator.machines import Machines, Work
from fairlease.simulator.rankers.plain import Priority
from fairlease.simulator.scenario import IDLE, JobClass, Scenario
from fairlease_schemas.envelope import Submitted
from fairlease_schemas.ids import BudgetId, JobId, job_id
from fairlease_schemas.job import Request
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
        self.cap = gang_cap(scenario, share, gpus)
        of_share = {
            False: Fraction(str(scenario.demand.outstanding_of_share)),
            True: Fraction(str(scenario.demand.idle_outstanding_of_share)),
        }
        self.target = {is_idle: part * share * gpus for is_idle, part in of_share.items()}
        self.outstanding = {False: 0, True: 0}
        self.drawn = 0


class ClosedLoop:
    """All projects. `over` must be told of every job that ended."""

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
        self._tables = tables
        self._projects = {name: _Project(name, share, scenario, gpus, seed) for name, share in shares(scenario).items()}
        self._owners: dict[JobId, tuple[_Project, bool, int]] = {}

    def begin(self) -> None:
        """The first fill: every project, spread evenly over the first minutes."""
        for project in self._projects.values():
            self._fill(project, is_first=True)

    def over(self, job: JobId) -> None:
        """The job ended: its project has room for another."""
        project, is_idle, gpus = self._owners.pop(job)
        project.outstanding[is_idle] -= gpus
        self._fill(project)

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
                number = project.drawn
                self._engine.at(self._engine.now_ms + after_ms, self._submission(project, drawn, number))

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
        """One job, and what it will do."""
        of = self._scenario.classes[drawn.of]
        who, request_id = f"{project.name}-p{drawn.person + 1}", f"{project.name}-{number}"
        job = job_id(who, project.name, request_id)
        self._owners[job] = (project, drawn.of == IDLE, drawn.gpus)
        work = Work(
            left_ms=drawn.duration_ms,
            startup_ms=of.startup_s * SECOND_MS,
            checkpoint_ms=of.checkpoint_min * MINUTE_MS,
            saves_permille=of.saves_on_notice_permille,
            is_resumable=of.resumable,
            priority=self._priority(drawn.priority),
        )
        self._machines.expect(job, work)
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
        said = Submitted(budget=project.name, request_id=request_id, digest=_NO_DIGEST, request=request)
        self._engine.say(said, who)


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
