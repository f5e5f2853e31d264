"""The window calendar: when each attempt may be asked to leave, and when a host can be free (6.1).

All windows have known ends, so the earliest time at which enough hosts can be free is arithmetic.
An exemption (5.7) counts as a window everywhere. Instants are log time.
"""

from collections.abc import Iterable

import msgspec

from fairlease.core.job import Attempt, Job
from fairlease_schemas.policy import Policy


class Departure(msgspec.Struct, frozen=True):
    """The latest instant at which an attempt can still be told to go, and how long it may then take."""

    end_ms: int
    grace_ms: int


def exempt_until_ms(policy: Policy, job: Job) -> int:
    """Until when the job may not be preempted again (5.7); 0 when it may.

    After `brake_count` preemptions within `brake_span_ms`: until that span after the first of them.
    Budgeted work only.
    """
    times = job.preemptions_ms[-policy.brake_count :] if policy.brake_count else ()
    if job.is_idle_work or not times or len(times) < policy.brake_count:
        return 0
    if times[-1] - times[0] > policy.brake_span_ms:
        return 0
    return times[0] + policy.brake_span_ms


def protected_until_ms(policy: Policy, job: Job, attempt: Attempt) -> int:
    """The end of the attempt's window or exemption, whichever is later. Idle work has neither."""
    return max(attempt.granted_ms + attempt.window_ms, exempt_until_ms(policy, job))


def protected_for_ms(policy: Policy, job: Job, now_ms: int) -> int:
    """How long an attempt granted now runs before it is asked to leave: its window, or the rest of an exemption.

    At least a millisecond: idle work that was told to leave for a promise could else come back at that instant,
    to be told again, for ever (5.6).
    """
    return max(1, job.window_ms, exempt_until_ms(policy, job) - now_ms)


def needs_ms(policy: Policy, job: Job, now_ms: int) -> int:
    """How long hosts are taken at most before the job can be gone: protection, grace and stop margin (6.3)."""
    return protected_for_ms(policy, job, now_ms) + job.request.grace_ms + policy.stop_margin_ms


def departure(policy: Policy, job: Job, attempt: Attempt, now_ms: int) -> Departure:
    """When the attempt will have to go: at the end of its protection, or of its timeout if that is sooner.

    One that was asked to stop already went from that instant.
    """
    if attempt.ending is not None:
        return Departure(attempt.ending_ms, attempt.grace_ms)
    timeout_ms = attempt.granted_ms + job.request.timeout_ms
    end_ms = min(protected_until_ms(policy, job, attempt), timeout_ms)
    return Departure(max(now_ms, end_ms), job.request.grace_ms)


def free_by_ms(policy: Policy, departures: Iterable[Departure], now_ms: int) -> int:
    """T of rule 6.1: the latest end there + the greatest grace + the stop margin; now when nothing is there."""
    latest_ms = grace_ms = -1
    for leaving in departures:
        latest_ms = max(latest_ms, leaving.end_ms)
        grace_ms = max(grace_ms, leaving.grace_ms)
    return now_ms if latest_ms < 0 else max(now_ms, latest_ms + grace_ms + policy.stop_margin_ms)
