"""The order inside a leaf (3.2): `fifo` by first submission, `least-attained`, or `smallest`.

A preempted job keeps its first submission's place in all three; the other two only put something
before it: its GPUs x window, and `least-attained` the GPU-time the job has held so far before that, so that of those
which have not begun the smallest comes first. Ties go by submission.
"""

from typing import Any, Final

from fairlease.core.job import Job
from fairlease.core.world import World
from fairlease_schemas.ids import JobId

FIFO: Final = "fifo"

Place = Any
"""What sorts: an address, or numbers and an address; one kind within a leaf."""


def members_in_order(world: World, key: str, now_ms: int) -> list[tuple[Place, JobId]]:
    """The jobs of a class that wait now, in the order of their leaf, or in the policy's where it asks for none."""
    waiting = world.line.classes.get(key)
    if waiting is None:
        return []
    order, size = _order(world, waiting.sample), waiting.sample.gpus * waiting.sample.window_ms
    if order == "least-attained":
        jobs = world.jobs
        return sorted(
            ((attained_gpu_ms(jobs[name], now_ms), size, admitted), name) for admitted, name in waiting.members
        )
    if order == "smallest":
        return [((size, admitted), name) for admitted, name in waiting.members]
    return waiting.members


def _order(world: World, job: Job) -> str:
    """The order of the job's leaf; idle work goes by submission everywhere."""
    if job.is_idle_work:
        return FIFO
    node = world.tree.nodes.get(job.budget)
    order = node.order if node is not None else FIFO
    return world.policy.leaf_order if order == FIFO and world.policy is not None else order


def members_by_submission(world: World, key: str) -> list[tuple[Place, JobId]]:
    """The jobs of a class that wait now, first submission first; not to be written to."""
    waiting = world.line.classes.get(key)
    return waiting.members if waiting is not None else []


def attained_gpu_ms(job: Job, now_ms: int) -> int:
    """GPU-time that the job's attempts have held so far."""
    return sum(attempt.held_gpu_ms(now_ms) for attempt in job.attempts)
