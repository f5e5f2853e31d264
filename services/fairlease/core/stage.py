"""The stage: jobs as they stand after the events that an admission record has gathered so far.

Messages of one record are decided one after another on it, so that a second message sees what the
first did; the world itself is written by the fold alone. What ends or begins one of admission's own
reasons (9.3) is said here, because every way into and out of such a wait passes it.
"""

from fairlease.core import job as jobs
from fairlease.core.dependency import Fate, array_of, fate_of, is_open, places_of
from fairlease.core.job import Job, Phase
from fairlease.core.membership import EVERYBODY, leads_of
from fairlease.core.outcome import Recorded, evolve
from fairlease.core.world import World
from fairlease_schemas.envelope import Address, Event
from fairlease_schemas.evaluation import EvaluationRecorded
from fairlease_schemas.ids import AccountId, BudgetId, JobId
from fairlease_schemas.job import JobAdmitted, JobCancelled
from fairlease_schemas.policy import Policy
from fairlease_schemas.reasons import Evidence, Reason, ReasonBegan, ReasonEnded

REASON_OF = {
    Phase.BACKOFF: Reason.RETRY_BACKOFF,
    Phase.DEPENDENT: Reason.DEPENDENCY,
    Phase.HELD: Reason.JOB_HELD,
}
"""Why a job that does not compete waits, by its phase."""


class Stage:
    """The jobs as they stand after the events that this record has gathered so far."""

    def __init__(self, world: World, policy: Policy, now_ms: int) -> None:
        self.world = world
        self.policy = policy
        self.now_ms = now_ms
        self.events: list[Event] = []
        self.causes: set[Address] = set()
        self._touched: dict[JobId, Job] = {}
        self._arrays: dict[JobId, list[JobId]] = {}
        self._outcomes: dict[tuple[str, BudgetId], Recorded] = {}

    def job(self, name: JobId) -> Job | None:
        return self._touched.get(name) or self.world.jobs.get(name)

    def named(self, name: JobId) -> list[Job]:
        """The job of that name, or the jobs of that array by their indexes; empty when there is neither."""
        job = self.job(name)
        if job is not None:
            return [job]
        members = self._arrays.get(name) or [member.id for member in self.world.dependents.named(name)]
        return [one for one in map(self.job, members) if one is not None]

    def admit(self, event: JobAdmitted) -> None:
        address = Address(self.world.epoch, self.world.position + 1, len(self.events))
        job = self._touched[event.job] = jobs.begin(event, address, self.now_ms)
        if event.request.array is not None:
            self._arrays.setdefault(array_of(job), []).append(job.id)
        self.events.append(event)

    def emit(self, job: Job, event: jobs.JobEvent) -> Job:
        """Record the event and stage what it makes of the job."""
        self.events.append(event)
        if job.id in self.world.jobs:
            self.causes.add(job.admitted)
            if job.live is not None:
                self.causes.add(job.live.token)
        changed = self._touched[job.id] = jobs.evolve(job, event, self.now_ms)
        return changed

    def evaluated(self, evaluation: str) -> dict[BudgetId, JobId]:
        """By budget a job that names the evaluation, also one that this record admits."""
        fresh = {job.budget: job.id for job in self._touched.values() if job.request.evaluation == evaluation}
        return {**fresh, **self.world.evaluations.first_jobs(evaluation)}

    def outcome(self, evaluation: str, budget: BudgetId) -> Recorded | None:
        """The newest outcome of the evaluation there, also one of this record."""
        fresh = self._outcomes.get((evaluation, budget))
        return fresh or self.world.evaluations.outcomes(evaluation).get(budget)

    def record(self, event: EvaluationRecorded, job: JobId) -> None:
        """Record the outcome of an evaluation that this job names."""
        before = self.outcome(event.evaluation, event.budget)
        self._outcomes[event.evaluation, event.budget] = evolve(before, event, self.now_ms)
        self.events.append(event)
        if job in self.world.jobs:
            self.causes.add(self.world.jobs[job].admitted)

    def begin_reason(self, job: JobId, code: Reason, evidence: Evidence) -> None:
        """From now on the job waits for this."""
        self.events.append(ReasonBegan(subject=job, code=code, evidence=evidence))

    def end_reason(self, job: Job) -> None:
        """The job no longer waits for what its phase says, if it did."""
        code = REASON_OF.get(job.phase)
        if code is not None:
            self.events.append(ReasonEnded(subject=job.id, code=code))

    # who may, and who waits for whom ------------------------------------------------------------------
    def is_master(self, account: AccountId, job: Job) -> bool:
        """Whether the account may end, hold and release the job: its owner, or a lead of its budget."""
        return account == job.account or self.is_lead(account, job)

    def is_lead(self, account: AccountId, job: Job) -> bool:
        """Whether the account was made a lead of the job's budget, or of one above it."""
        leads = leads_of(self.world.tree, self.world.members, job.budget)
        return account in leads or EVERYBODY in leads

    def waits_for(self, job: Job) -> tuple[Fate, JobId]:
        """What the job waits for: the jobs it names, then a place in its array; with the job that says so."""
        fate, why = fate_of(job.request.after, self.named)
        places = places_of(job)
        if fate is not Fate.MET or not places:
            return fate, why
        taken = [other.id for other in self.named(array_of(job)) if other.id != job.id and is_open(other)]
        return (Fate.MET, "") if len(taken) < places else (Fate.OPEN, taken[0])

    def doom(self, job: Job, cause: JobId) -> None:
        """The job can never start: the job `cause` did not end as it had to (1.11)."""
        self.end_reason(job)
        other = self.job(cause)
        if other is not None and cause in self.world.jobs:
            self.causes.add(other.admitted)
        self.emit(job, JobCancelled(job=job.id, account=job.account, reason=Reason.DEPENDENCY, cause=cause))
