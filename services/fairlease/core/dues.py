"""Dues: when admission must look at a job again although nothing arrives, as an index over the jobs.

It can be made again from them. An entry is never taken back: one that is no longer its job's due is passed over.
"""

from collections.abc import Mapping
from heapq import heappop, heappush

from fairlease.core.job import Job, due_ms
from fairlease_schemas.ids import JobId

NEVER_MS = 1 << 62


class Dues:
    """Time-outs and ends of backoffs, by instant and job id."""

    def __init__(self, jobs: Mapping[JobId, Job]) -> None:
        self._jobs = jobs
        self._heap: list[tuple[int, JobId]] = []

    def arm(self, job: Job) -> None:
        """The job's due is this from now on, if it has one."""
        at_ms = due_ms(job)
        if at_ms is not None:
            heappush(self._heap, (at_ms, job.id))

    def until(self, now_ms: int) -> list[JobId]:
        """Jobs with a time-out or the end of a backoff at or before `now_ms`, by due time then id."""
        if self.next_ms() > now_ms:
            return []
        due = sorted(entry for entry in self._heap if entry[0] <= now_ms)
        return list(dict.fromkeys(job for at_ms, job in due if self._is_due(at_ms, job)))

    def next_ms(self) -> int:
        """The earliest such instant; beyond all log time when there is none."""
        while self._heap and not self._is_due(*self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER_MS

    def _is_due(self, at_ms: int, job: JobId) -> bool:
        return due_ms(self._jobs[job]) == at_ms
