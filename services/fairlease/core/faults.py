"""What faults of hosts did to a job: on which hosts its attempts ended so, which are sound, what is left (7.7)."""

from collections.abc import Iterable
from itertools import takewhile

from fairlease.core.job import Attempt, Job
from fairlease.core.state import Promise, Reservation
from fairlease_schemas.ids import HostId, JobId
from fairlease_schemas.job import End
from fairlease_schemas.policy import Policy

MOST_AT_ONCE = 2
"""So many attempts in a row that nothing of ever started come without a backoff between them."""


def hosts_of(job: Job, since_ms: int) -> tuple[HostId, ...]:
    """The hosts whose faults ended attempts of the job after that instant, each once, by id."""
    ended = (attempt for attempt in job.attempts if attempt.end is End.FAULT and attempt.ended_ms > since_ms)
    return tuple(sorted({host for attempt in ended for host in faulty(attempt)}))


def faulty(attempt: Attempt) -> tuple[HostId, ...]:
    """The hosts of the attempt that said, or of which it was found, that a fault ended its part."""
    return tuple(part.host for part in attempt.gone if part.end is End.FAULT)


def sound(attempt: Attempt) -> tuple[HostId, ...]:
    """The other hosts of an attempt that a fault ended, in rank order: kept for the job for a while."""
    broken = faulty(attempt)
    return tuple(host for host in attempt.hosts if host not in broken)


def free_for(job: JobId, hosts: Iterable[HostId], owed: Iterable[Reservation | Promise]) -> tuple[HostId, ...]:
    """Those of the hosts that nobody else has been promised or is kept, in their order (5.6, 6.3)."""
    others = {host for one in owed if one.job != job for host in one.hosts}
    return tuple(host for host in hosts if host not in others)


def in_vain(job: Job) -> int:
    """How many of its last attempts in a row a fault ended before any part of them had started."""
    return len(tuple(takewhile(_is_in_vain, reversed(job.attempts))))


def _is_in_vain(attempt: Attempt) -> bool:
    return attempt.end is End.FAULT and not attempt.started


def backoff_ms(policy: Policy, job: Job, now_ms: int) -> int:
    """How long a job that a fault ended waits: not at all the first time, or when something of it had started.

    A host whose agent begins nothing says so at once, and would be given the job again at the same instant of the
    log, without end. From the second attempt in vain on the next comes a backoff after the grant of the last; it
    doubles as that of a retry does (1.8), and so a fault that took its time to show costs nothing more.
    """
    vain = in_vain(job)
    if vain < MOST_AT_ONCE:
        return 0
    pace_ms = min(policy.retry_backoff_ms << min(vain - MOST_AT_ONCE, 30), policy.retry_backoff_cap_ms)
    return max(0, job.attempts[-1].granted_ms + pace_ms - now_ms)


def rest_ms(job: Job, attempt: Attempt) -> int | None:
    """The window that a fault left of its ended attempt; 0 when it was past it, None where a whole one is due.

    A whole one has who was told to leave already, and what cannot go on from a checkpoint: it begins anew, and
    its window is its whole timeout (1.6). Idle work has none.
    """
    if attempt.end is not End.FAULT or attempt.ending is End.PREEMPTED:
        return None
    if not job.request.is_resumable or job.is_idle_work:
        return None
    left_ms = max(0, attempt.window_ms - (attempt.ended_ms - attempt.granted_ms))
    return None if left_ms == job.request.min_runtime_ms else left_ms
