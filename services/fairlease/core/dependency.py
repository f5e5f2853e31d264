"""Jobs that wait for other jobs (1.11): what lets them go, and an index of those that may go now.

A job can only name jobs and arrays that exist already, so that nothing ever waits in a circle. An array
is over when all of its jobs are. Of one with `parallel`, so many jobs are open at a time, in the order of
their indexes; open is what competes or runs, so that a held job gives its place away. The index can be
made again from the jobs; admission acts on it.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum

from fairlease.core.job import Job, Phase
from fairlease_schemas.ids import JobId, job_id
from fairlease_schemas.job import After, Problem

Named = Callable[[JobId], list[Job]]
"""The job of that name, or the jobs of the array of that name; empty when there is neither."""

_CLOSED = frozenset((Phase.DEPENDENT, Phase.HELD))


class Fate(StrEnum):
    """What the jobs it names mean for a job: it may go, must wait on, or can never start."""

    MET = "met"
    OPEN = "open"
    DOOMED = "doomed"


def fate_of(after: Iterable[After], named: Named) -> tuple[Fate, JobId]:
    """What the jobs that must be over first come to, with the first one that says so.

    1. doomed by the first that ended otherwise than it had to;
    2. open because of the first that is not over;
    3. met.
    """
    waits_for = ""
    for one in after:
        jobs = named(one.job)
        lost = _lost(one, jobs)
        if lost is not None:
            return Fate.DOOMED, lost.id
        if not jobs or not all(job.is_terminal for job in jobs):
            waits_for = waits_for or one.job
    return (Fate.OPEN, waits_for) if waits_for else (Fate.MET, "")


def _lost(one: After, jobs: list[Job]) -> Job | None:
    """The first of the jobs that is over without the success that was asked for."""
    if one.when != "ok":
        return None
    return next((job for job in jobs if job.is_terminal and job.phase is not Phase.SUCCEEDED), None)


def array_of(job: Job) -> JobId:
    """The name of the array that the job is one of, as its submitter knows it; empty when it is none."""
    if job.request.array is None:
        return ""
    return job_id(job.account, job.budget, job.request_id.rpartition("/")[0])


def places_of(job: Job) -> int:
    """How many jobs of its array may be open at a time; 0 for all of them."""
    return job.request.array.parallel if job.request.array is not None else 0


def is_open(job: Job) -> bool:
    """Whether the job takes one of its array's places: it competes or runs."""
    return job.phase not in _CLOSED and not job.is_terminal


def problems_of(after: Iterable[After], named: Named) -> list[Problem]:
    """What is wrong with the jobs that a submission names."""
    problems = []
    for place, one in enumerate(after):
        jobs = named(one.job)
        lost = _lost(one, jobs)
        if not jobs:
            limit, way_out = "a job or array that was admitted", "submit it first"
        elif lost is not None:
            limit, way_out = f"{lost.id} has {lost.phase} already", "write when: any, or leave it out"
        else:
            continue
        problems.append(
            Problem(field=f"spec.after.{place}.job", rule="1.11", value=one.job, limit=limit, way_out=way_out)
        )
    return problems


class Dependents:
    """Who waits for whom."""

    def __init__(self, jobs: Mapping[JobId, Job]) -> None:
        self._jobs = jobs
        self._after: dict[JobId, list[JobId]] = {}
        self._arrays: dict[JobId, list[JobId]] = {}
        self._ready: set[JobId] = set()
        for job in sorted(jobs.values(), key=lambda job: job.admitted):
            self.admitted(job)
        for job in jobs.values():
            if job.phase is Phase.DEPENDENT and not places_of(job):
                self._note(job, may_go=True)
        for array in self._arrays:
            self._look_at_array(array)

    @property
    def ready(self) -> AbstractSet[JobId]:
        """The jobs on which admission has something to say, in no order."""
        return self._ready

    def named(self, name: JobId) -> list[Job]:
        """The job of that name, or the jobs of that array by their indexes."""
        job = self._jobs.get(name)
        return [job] if job is not None else [self._jobs[member] for member in self._arrays.get(name, ())]

    def admitted(self, job: Job) -> None:
        """A job was admitted; what it waits for was open a moment ago."""
        if job.request.array is not None:
            self._arrays.setdefault(array_of(job), []).append(job.id)
        if job.phase is Phase.DEPENDENT or job.phase is Phase.HELD:
            for one in job.request.after:
                self._after.setdefault(one.job, []).append(job.id)

    def changed(self, job: Job) -> None:
        """The job went into another phase: look at it, at its array, and at those that wait for either."""
        self._look(job)
        if not job.is_terminal:
            return
        array = array_of(job)
        for name in [*self._after.pop(job.id, ()), *self._after.get(array, ())]:
            self._look(self._jobs[name])
        if array in self._after and all(one.is_terminal for one in self.named(array)):
            del self._after[array]

    def _look(self, job: Job) -> None:
        if places_of(job):
            self._look_at_array(array_of(job))
        else:
            self._note(job, may_go=True)

    def _look_at_array(self, name: JobId) -> None:
        """As many of the array's waiting jobs may go as places are free, the lowest indexes first."""
        members = self.named(name)
        parallel = places_of(members[0])
        if parallel:
            places = parallel - sum(map(is_open, members))
            for job in members:
                places -= self._note(job, may_go=places > 0)

    def _note(self, job: Job, *, may_go: bool) -> bool:
        """Put the job on the list or take it off; whether it is let go."""
        fate = fate_of(job.request.after, self.named)[0] if job.phase is Phase.DEPENDENT else Fate.OPEN
        is_met = fate is Fate.MET and may_go
        if is_met or fate is Fate.DOOMED:
            self._ready.add(job.id)
        else:
            self._ready.discard(job.id)
        return is_met
