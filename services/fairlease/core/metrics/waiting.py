"""How long jobs waited: by class of size, from submission to grant and from grant to running (M3).

The slow, right model is this one: each job's life is read off its attempts, and sorted. Surprising: a
stillborn attempt (log.md L3) is no grant, because it never held anything; its job was cancelled while
it waited and counts so. Refused submissions made no job and so count nowhere. All instants are log
time; lengths are milliseconds, slowdowns permille.

Promises belong here too: how many were made, and what became of each. The judgement of a promise that a
grant used up is the world's own.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from fairlease.core.job import Attempt, Job
from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.quantile import Spread, spread
from fairlease.core.state import Promise, Used, use_of
from fairlease_schemas.cycle import PromiseEnd
from fairlease_schemas.ids import JobId
from fairlease_schemas.job import End, Request
from fairlease_schemas.units import HOUR_MS, MINUTE_MS

SMALL_GPUS = 8
MEDIUM_GPUS = 64
GANG_GPUS = 128
ALL, GANGS = "all", "gangs_128"


class WaitClass(StrEnum):
    """What a job is counted under: each under exactly one, in the order in which they are tried."""

    IDLE = "idle"
    DEBUG = "debug"
    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


class DebugBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as debug work. A log whose time runs faster than its people's has bounds of its own."""

    max_window_ms: int = 15 * MINUTE_MS
    max_gpus: int = 8
    max_timeout_ms: int = HOUR_MS


REAL_TIME = DebugBounds()


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """What one job waited so far. A field is absent where the job has not come to that.

    `startup_ms` is from its first grant until every part ran. `pending_ms` is all the time in which
    it held nothing and was not over. `slowdown_permille` is (pending + held) over useful work, the
    running time of the attempt that succeeded.
    """

    job: JobId
    wait_class: WaitClass
    gpus: int
    wait_ms: int
    pending_ms: int
    held_ms: int
    startup_ms: int | None
    slowdown_permille: int | None


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The figures by group: `all` (all but idle), each wait class, and `gangs_128` (of `all`, from 128 GPUs on)."""

    wait: dict[str, Spread]
    startup: dict[str, Spread]
    pending: dict[str, Spread]
    slowdown: dict[str, Spread]


def wait_class(request: Request, bounds: DebugBounds = REAL_TIME) -> WaitClass:
    """The class a request is counted under: idle, debug, else by its GPUs."""
    gpus = request.hosts * request.gpus_per_host
    if request.min_runtime_ms == 0:
        return WaitClass.IDLE
    is_short = request.min_runtime_ms <= bounds.max_window_ms and request.timeout_ms <= bounds.max_timeout_ms
    if is_short and gpus <= bounds.max_gpus:
        return WaitClass.DEBUG
    if gpus <= SMALL_GPUS:
        return WaitClass.SMALL
    return WaitClass.MEDIUM if gpus <= MEDIUM_GPUS else WaitClass.LARGE


def life(job: Job, now_ms: int, bounds: DebugBounds = REAL_TIME) -> Life:
    """What the job waited by `now_ms`; one that is over waits no longer.

    pending = gaps between submission, grants, releases and the end; held = from each grant to its release.
    """
    until_ms = job.ended_ms if job.is_terminal else now_ms
    attempts = [attempt for attempt in job.attempts if not attempt.is_stillborn]
    pending_ms = held_ms = 0
    free_since_ms = job.submitted_ms
    for attempt in attempts:
        released_ms = attempt.ended_ms if attempt.is_over else until_ms
        pending_ms += attempt.granted_ms - free_since_ms
        held_ms += released_ms - attempt.granted_ms
        free_since_ms = released_ms
    pending_ms += until_ms - free_since_ms
    useful_ms = _useful_ms(attempts)
    return Life(
        job=job.id,
        wait_class=wait_class(job.request, bounds),
        gpus=job.gpus,
        wait_ms=(attempts[0].granted_ms if attempts else until_ms) - job.submitted_ms,
        pending_ms=pending_ms,
        held_ms=held_ms,
        startup_ms=_startup_ms(attempts),
        slowdown_permille=(pending_ms + held_ms) * 1000 // useful_ms if useful_ms else None,
    )


def grouped(lives: Iterable[Life]) -> dict[str, list[Life]]:
    """The lives by group, in the order of Waiting; every group is there, empty or not."""
    groups: dict[str, list[Life]] = {name: [] for name in (ALL, *WaitClass, GANGS)}
    for one in lives:
        groups[one.wait_class].append(one)
        if one.wait_class is not WaitClass.IDLE:
            groups[ALL].append(one)
            if one.gpus >= GANG_GPUS:
                groups[GANGS].append(one)
    return groups


def waiting(lives: Iterable[Life]) -> Waiting:
    """The figures over these lives: of a whole fold, or of any period, budget, pool or person chosen by the caller."""
    groups = grouped(lives)
    return Waiting(
        wait={name: spread(one.wait_ms for one in group) for name, group in groups.items()},
        startup={name: _spread_known(one.startup_ms for one in group) for name, group in groups.items()},
        pending={name: spread(one.pending_ms for one in group) for name, group in groups.items()},
        slowdown={name: _spread_known(one.slowdown_permille for one in group) for name, group in groups.items()},
    )


def _spread_known(values: Iterable[int | None]) -> Spread:
    return spread(value for value in values if value is not None)


def _startup_ms(attempts: list[Attempt]) -> int | None:
    if not attempts or attempts[0].started_ms is None:
        return None
    return attempts[0].started_ms - attempts[0].granted_ms


def _useful_ms(attempts: list[Attempt]) -> int:
    """Running time of the attempt that succeeded; from its grant when its start was never told. 0 without success."""
    if not attempts or attempts[-1].end is not End.SUCCEEDED:
        return 0
    last = attempts[-1]
    return last.ended_ms - (last.granted_ms if last.started_ms is None else last.started_ms)


class Promised(msgspec.Struct, frozen=True, kw_only=True):
    """What became of promises in the period (6.4); `voided` by the event that did it, by name."""

    made: int = 0
    kept: int = 0
    earlier: int = 0
    broken: int = 0
    voided: dict[str, int] = {}


class Promises:
    """Counts promises as they are made, used up and ended."""

    def __init__(self) -> None:
        self._standing: dict[JobId, Promise] = {}
        self._counts = {"made": 0, "kept": 0, "earlier": 0, "broken": 0}
        self._voided: dict[str, int] = {}

    def made(self, promise: Promise, *, is_counted: bool) -> None:
        """A promise stands, in the place of any that the job had."""
        self._standing[promise.job] = promise
        self._counts["made"] += is_counted

    def used(self, job: JobId, now_ms: int, closed_ms: int, stop_margin_ms: int, *, is_counted: bool) -> None:
        """A grant uses the job's promise up, if it has one: kept by its start, else broken, or void after an outage."""
        promise = self._standing.pop(job, None)
        if promise is None or not is_counted:
            return
        match use_of(promise, now_ms, closed_ms, stop_margin_ms):
            case Used.KEPT:
                self._counts["kept"] += 1
            case Used.VOIDED:
                self._void(PromiseEnd.OUTAGE)
            case Used.BROKEN:
                self._counts["broken"] += 1

    def ended(self, job: JobId, why: PromiseEnd, *, is_counted: bool) -> None:
        """The promise is over without its use."""
        if self._standing.pop(job, None) is None or not is_counted:
            return
        if why is PromiseEnd.EARLIER:
            self._counts["earlier"] += 1
        elif why is PromiseEnd.BROKEN:
            self._counts["broken"] += 1
        else:
            self._void(why)

    def _void(self, why: PromiseEnd) -> None:
        self._voided[str(why)] = self._voided.get(str(why), 0) + 1

    def result(self) -> Promised:
        return Promised(**self._counts, voided=dict(sorted(self._voided.items())))


def waited_in(period: Period, job: Job) -> bool:
    """Whether the job's waits are counted: those of jobs submitted in the period."""
    return period.holds(job.submitted_ms)
