"""Progress: what became of GPU-time that was held: kept, lost and why, or nobody knows yet (M1).

The slow model cuts every attempt's time into pieces once the whole story is known. This one cuts an attempt when
it ends and keeps one number for each job with a checkpoint nobody has gone on from yet. Surprising: time up to a
checkpoint is not kept when the checkpoint is confirmed but when a later attempt runs on from it, or when the
attempt succeeds; a job that is cancelled before that, or begins anew beside it (8.3), has kept nothing of it.
"""

from enum import StrEnum

import msgspec

from fairlease.core.job import Attempt, Job
from fairlease.core.metrics.integral import Period
from fairlease_schemas.ids import JobId
from fairlease_schemas.job import End

FAILURES = frozenset((End.FAILED, End.TIMED_OUT, End.START_FAILED, End.RESUME_REFUSED))
"""Ends that are the job's own doing."""


class Fate(StrEnum):
    """What became of a piece of held time; the figures name it so, with its unit."""

    KEPT = "kept"
    STOPPED = "stopped"
    FAILED = "failed"
    RESTART = "restart"
    ABANDONED = "abandoned"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """GPU-time of the period whose fate is known; all but `kept_gpu_ms` are lost.

    Stopped: since the last checkpoint of attempts that were told to leave or met a fault; failed: the same of
    attempts that failed; restart: from grant to running of attempts after the first that ran; abandoned: in a
    checkpoint that nobody went on from.
    """

    kept_gpu_ms: int = 0
    stopped_gpu_ms: int = 0
    failed_gpu_ms: int = 0
    restart_gpu_ms: int = 0
    abandoned_gpu_ms: int = 0

    @property
    def known_gpu_ms(self) -> int:
        return self.kept_gpu_ms + self.stopped_gpu_ms + self.failed_gpu_ms + self.restart_gpu_ms + self.abandoned_gpu_ms


class Cut(msgspec.Struct, frozen=True):
    """An ended attempt's instants: restart up to `works_ms`, work in a checkpoint up to `saved_ms`, the rest after."""

    granted_ms: int
    works_ms: int
    saved_ms: int
    ended_ms: int


def has_run_before(job: Job, place: int = -1) -> bool:
    """Whether an attempt before the one at `place` (the last) ran: then its time until it runs is a restart."""
    last = place if place >= 0 else len(job.attempts) - 1
    return any(job.attempts[earlier].started_ms is not None for earlier in range(last - 1, -1, -1))


def cut_of(job: Job, place: int = -1) -> Cut:
    """The pieces of the job's attempt at `place` (the last), which is over."""
    attempt = job.attempts[place]
    works_ms = attempt.granted_ms
    if has_run_before(job, place):
        works_ms = attempt.ended_ms if attempt.started_ms is None else attempt.started_ms
    saved_ms = works_ms
    if attempt.end is End.SUCCEEDED:
        saved_ms = attempt.ended_ms
    elif job.request.is_resumable:
        saved_ms = min(max(works_ms, attempt.checkpoint_ms), attempt.ended_ms)
    return Cut(attempt.granted_ms, works_ms, saved_ms, attempt.ended_ms)


def is_set_aside(job: Job, place: int) -> bool:
    """Whether what the job's attempt at `place` saved was set aside: the job began anew since, or is to (8.3)."""
    is_yet_to_begin = job.is_clean and not job.attempts[-1].is_clean
    return is_yet_to_begin or any(later.is_clean for later in job.attempts[place + 1 :])


class Fates:
    """Sums by fate, and what each job has in a checkpoint that waits for its fate."""

    def __init__(self, period: Period) -> None:
        self._period = period
        self._sums = dict.fromkeys(Fate, 0)
        self._saved: dict[JobId, int] = {}

    def attempt_runs(self, job: JobId) -> None:
        """Every part of a later attempt runs: what was saved before is kept."""
        self._settle(job, Fate.KEPT)

    def attempt_ended(self, job: Job, attempt: Attempt, cut: Cut) -> None:
        """The job's last attempt is over, and its pieces are these; not for one that held nothing (stillborn)."""
        gpus, length_ms = attempt.gpus, self._period.length_ms
        self._sums[Fate.RESTART] += gpus * length_ms(cut.granted_ms, cut.works_ms)
        saved = gpus * length_ms(cut.works_ms, cut.saved_ms)
        if attempt.end is End.SUCCEEDED:
            self._settle(job.id, Fate.KEPT)  # it went on from there, though nobody said that it runs
            self._sums[Fate.KEPT] += saved
            return
        fate = Fate.FAILED if attempt.end in FAILURES else Fate.STOPPED
        self._sums[fate] += gpus * length_ms(cut.saved_ms, cut.ended_ms)
        if saved:
            self._saved[job.id] = self._saved.get(job.id, 0) + saved

    def set_aside(self, job: JobId) -> None:
        """The job is to begin anew, beside what it has saved (8.3)."""
        self._settle(job, Fate.ABANDONED)

    def job_over(self, job: JobId) -> None:
        """Nobody will go on from what it saved."""
        self._settle(job, Fate.ABANDONED)

    def _settle(self, job: JobId, fate: Fate) -> None:
        self._sums[fate] += self._saved.pop(job, 0)

    def result(self) -> Progress:
        return Progress(**{f"{fate}_gpu_ms": amount for fate, amount in self._sums.items()})
