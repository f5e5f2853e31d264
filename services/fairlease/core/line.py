"""The line: who waits, by budget and by class of equal requests, in order of first submission.

An index over the waiting jobs: it can be made again from them. A class holds requests that no cycle
can tell apart (decisions.md 4.4), so that a leaf with ten thousand like jobs is one entry to a rank.
"""

from bisect import bisect_left, insort

from fairlease.core.job import Job
from fairlease_schemas.codec import digest
from fairlease_schemas.envelope import Address
from fairlease_schemas.ids import BudgetId, JobId
from fairlease_schemas.job import Request

Member = tuple[Address, JobId]


def class_key(job: Job) -> str:
    """The name of the job's class: all that placement and ranking read of a request, in words.

    In the debug lane the account belongs to it, because the lane counts by person (3.1). What is asked of
    the hosts may be long and stands there as a digest. What a fault left of a window is no whole one (7.7).
    """
    request = job.request
    pools = "+".join(job.pools)
    lane = f"/{request.lane}:{job.account}" if request.lane else ""
    shape = f"{request.hosts}x{request.gpus_per_host}"
    rest = "" if job.rest_ms is None else f"/rest-{job.rest_ms}ms"
    return f"{job.budget}/{pools}/{shape}/{request.min_runtime_ms}ms{rest}{lane}{_needs(request)}"


def _needs(request: Request) -> str:
    """CPU, memory, disk and constraints (1.2, 1.3) in few letters; nothing where nothing is asked."""
    sizes = [request.cpu_per_host, request.memory_per_host_mib, request.disk_per_host_mib]
    if not any(sizes) and request.constraints is None:
        return ""
    wanted = request.constraints
    asked = [wanted.gpu_models, wanted.min_gpu_memory_mib, wanted.labels, wanted.is_same_block] if wanted else []
    return f"/needs-{digest([sizes, asked])[:12]}"


class WaitingClass:
    """Equal requests, first submission first. `sample` is one of them, for the fields they share."""

    __slots__ = ("key", "members", "sample")

    def __init__(self, key: str, sample: Job) -> None:
        self.key = key
        self.sample = sample
        self.members: list[Member] = []

    @property
    def head(self) -> Member:
        """The first submitted."""
        return self.members[0]


class Line:
    """All waiting classes by key, and how many jobs wait per budget."""

    def __init__(self) -> None:
        self.classes: dict[str, WaitingClass] = {}
        self.waiting: dict[BudgetId, int] = {}
        self.total = 0

    def add(self, job: Job) -> None:
        """The job waits from now on, at the place of its admission."""
        key = class_key(job)
        waiting = self.classes.get(key)
        if waiting is None:
            waiting = self.classes[key] = WaitingClass(key, job)
        member = (job.admitted, job.id)
        if waiting.members and waiting.members[-1] > member:
            insort(waiting.members, member)
        else:
            waiting.members.append(member)
        self.waiting[job.budget] = self.waiting.get(job.budget, 0) + 1
        self.total += 1

    def remove(self, job: Job) -> None:
        """The job no longer waits; nothing happens when it did not."""
        key = class_key(job)
        waiting = self.classes.get(key)
        if waiting is None:
            return
        member = (job.admitted, job.id)
        index = bisect_left(waiting.members, member)
        if index == len(waiting.members) or waiting.members[index] != member:
            return
        del waiting.members[index]
        self.waiting[job.budget] -= 1
        self.total -= 1
        if not waiting.members:
            del self.classes[key]

    def in_order(self) -> list[WaitingClass]:
        """Classes by the first submission in each."""
        return sorted(self.classes.values(), key=lambda waiting: waiting.head)
