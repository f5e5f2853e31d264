"""Words that several stories of the core share: who runs since when, who claims, and what came of it."""

from fairlease_schemas.commands import ChangeBudget
from fairlease_schemas.cycle import EvictionOrdered, GangGranted, Licence, PromiseMade, ReservationMade
from fairlease_schemas.ids import attempt_id
from fairlease_schemas.job import End
from fairlease_schemas.reasons import Reason
from fairlease_schemas.reports import CheckpointDone
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell

WHOLE = tuple(range(8))
GRACE, MARGIN, SLACK = 30 * SECOND, 30 * SECOND, 60 * SECOND
"""Of `request` and of the default policy."""
DEBUG = {"lane": "debug", "min_runtime_ms": 10 * MINUTE, "timeout_ms": HOUR}
LONG = {"timeout_ms": 24 * HOUR}


def cell(hosts: int = 1, **numbers: object) -> Cell:
    """Hosts of eight and two leaves of equal weight; numbers are the policy's, with a cycle a minute."""
    return Cell().hosts(hosts).budgets(a=1, b=1).policy(**({"rank_period_ms": MINUTE} | numbers))


def whole(here: Cell, name: str, budget: str = "a", **fields: object) -> str:
    """A job for one whole host that runs for a day if it may; its id."""
    return here.submit(name, budget, **({"gpus_per_host": 8} | LONG | fields))


def idle(here: Cell, name: str, gpus: int = 8, **fields: object) -> str:
    """Idle work."""
    return here.submit(name, **({"gpus_per_host": gpus, "min_runtime_ms": 0} | LONG | fields))


def change(here: Cell, budget: str, **fields: object) -> Cell:
    """A leaf's order or caps; its weight stays 1."""
    here.say(ChangeBudget(budget=budget, **({"weight": 1} | fields)), "lead")  # type: ignore[arg-type] # fields by name
    return here


def saved(here: Cell, job: str, *, step: int = 0, is_bound: bool = False) -> Cell:
    """The first host of the job's live attempt reports a checkpoint."""
    attempt = here.world.jobs[job].attempts[-1]
    said = CheckpointDone(attempt=attempt.id, token=str(attempt.token), step=step, is_bound=is_bound)
    here.step("admission", (here.answer(said, attempt.hosts[0], "FL_LAB_REPORTS"),))
    here.settle()
    return here


def left(here: Cell, job: str) -> Cell:
    """A job that was told to leave is gone from all its hosts."""
    return here.gone(job, End.CANCELLED, 143)


def evicted(
    job: str,
    claim: str,
    lost_gpu_ms: int = 0,
    licence: Licence = Licence.UNDER_SHARE,
    *,
    grace_ms: int = GRACE,
    number: int = 1,
) -> EvictionOrdered:
    return EvictionOrdered(
        attempt=attempt_id(job, number), claim=claim, licence=licence, grace_ms=grace_ms, lost_gpu_ms=lost_gpu_ms
    )


def kept(claim: str, *hosts: int, for_ms: int = GRACE + MARGIN + SLACK) -> ReservationMade:
    return ReservationMade(job=claim, pool="h100", hosts=names(*hosts), for_ms=for_ms)


def promised(
    claim: str, *hosts: int, latest_ms: int, grace_ms: int = GRACE, licence: Licence = Licence.UNDER_SHARE
) -> PromiseMade:
    """A promise made at once whose latest end is so far away: T of rule 6.1."""
    return PromiseMade(
        job=claim,
        pool="h100",
        hosts=names(*hosts),
        start_in_ms=latest_ms + grace_ms + MARGIN,
        latest_in_ms=latest_ms,
        grace_ms=grace_ms,
        licence=licence,
    )


def names(*hosts: int) -> tuple[str, ...]:
    return tuple(f"host-{n:03d}" for n in hosts)


def evictions(here: Cell) -> list[EvictionOrdered]:
    return [event for event in here.events(EvictionOrdered) if isinstance(event, EvictionOrdered)]


def victims(here: Cell) -> list[str]:
    """Who was told to leave so far, in order."""
    return [event.attempt.rpartition("-a")[0] for event in evictions(here)]


def grants(here: Cell) -> list[str]:
    """Who was granted so far, in order."""
    return [event.job for event in here.events(GangGranted) if isinstance(event, GangGranted)]


def promises(here: Cell) -> dict[str, tuple[tuple[str, ...], int]]:
    """By claim the hosts and the start of every promise that stands, the start in time of the cell."""
    return {job: (promise.hosts, promise.start_ms - T0) for job, promise in here.world.promises.items()}


def reasons(here: Cell) -> dict[str, Reason]:
    """By class why it is not placed."""
    return {subject: reason.code for subject, reason in here.world.reasons_of("placement").items()}


def hosts_of(here: Cell, job: str) -> tuple[str, ...]:
    """Where the job's last attempt is or was."""
    return here.world.jobs[job].attempts[-1].hosts
