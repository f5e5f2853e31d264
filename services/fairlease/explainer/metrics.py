"""The cell's figures, as the explainer's fold has them: what stands now, and what happened since its start.

Counts begin when this replica is ready, so that a restart, which folds the log's tail anew, counts nothing twice.
Instants are log time. A budget's numbers are those that decide: GPU-time within the lookback.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import Metric

from fairlease.core.view import shares
from fairlease.core.world import World
from fairlease.runtime.metrics import WAIT_BOUNDS_S, Sample, counter, gauge, histogram
from fairlease_schemas.cycle import EvictionOrdered, GangGranted
from fairlease_schemas.envelope import Record
from fairlease_schemas.job import AttemptEnded

_CLASSES: Final = ("budgeted", "idle")
_MS: Final = 1_000


class Figures:
    """Counts of one replica. `count` is told of each record with the world behind it."""

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self._is_ready = is_ready
        self._events: Counter[str] = Counter()
        self._preemptions: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()
        self._lost_gpu_ms = 0
        self._waits = histogram(
            "queue_wait_seconds", "From a job's submission to its first grant.", WAIT_BOUNDS_S, "class"
        )

    def count(self, world: World, _position: int, record: Record) -> None:
        if not self._is_ready():
            return
        for event in record.events:
            self._events[str(event.__struct_config__.tag)] += 1
            if isinstance(event, GangGranted):
                job = world.jobs.get(event.job)
                if job is not None and event.number == 1:
                    self._waits.labels(_CLASSES[job.is_idle_work]).observe((world.log_time_ms - job.submitted_ms) / _MS)
            elif isinstance(event, EvictionOrdered):
                self._preemptions[str(event.licence)] += 1
                self._lost_gpu_ms += event.lost_gpu_ms
            elif isinstance(event, AttemptEnded):
                self._ends[str(event.end)] += 1

    def read(self, world: World) -> Iterator[Metric]:
        """Every figure of the cell."""
        yield from _standing(world)
        yield counter("events_total", "Events of the log, by kind.", *_by("kind", self._events))
        yield counter(
            "preemptions_total", "Attempts told to leave, by what allowed it.", *_by("cause", self._preemptions)
        )
        yield counter(
            "preempted_gpu_seconds_lost_total",
            "GPU-time since the last checkpoint of attempts told to leave.",
            Sample(self._lost_gpu_ms / _MS),
        )
        yield counter("attempts_ended_total", "Attempts that are over, by their end.", *_by("end", self._ends))
        yield from self._waits.collect()


def _by(label: str, counts: Counter[str]) -> list[Sample]:
    return [Sample(count, {label: key}) for key, count in sorted(counts.items())]


def _standing(world: World) -> Iterator[Metric]:
    """What stands now: jobs, GPUs, holds, reservations, promises, shares."""
    jobs: Counter[tuple[str, str]] = Counter(
        (str(job.phase), _CLASSES[job.is_idle_work]) for job in world.jobs.values()
    )
    yield gauge(
        "jobs",
        "Jobs, by where they are.",
        *(Sample(count, {"state": state, "class": kind}) for (state, kind), count in sorted(jobs.items())),
    )
    gpus: Counter[tuple[str, str]] = Counter()
    holds: Counter[str] = Counter()
    for host in world.fleet.hosts.values():
        pool, free = host.inventory.pool, len(world.fleet.free_gpus(host.id))
        gpus[pool, "allocated"] += host.gpus - free
        gpus[pool, "held" if host.holds else "idle"] += free
        holds.update(hold.kind for hold in host.holds)
    yield gauge(
        "gpus",
        "GPUs of registered hosts: allocated, idle, or free on a host that takes no new work.",
        *(Sample(count, {"pool": pool, "state": state}) for (pool, state), count in sorted(gpus.items())),
    )
    yield gauge("hosts", "Registered hosts.", Sample(len(world.fleet.hosts)))
    yield gauge("host_holds", "What keeps hosts from new work, by kind.", *_by("kind", holds))
    yield gauge("reservations", "Jobs that hosts are kept for.", Sample(len(world.reservations)))
    yield gauge("promises", "Promises of a start that stand.", Sample(len(world.promises)))
    rows = [(row, {"budget": row.budget, "pool": row.pool}) for row in shares(world).rows]
    yield gauge(
        "budget_entitled_gpu_seconds",
        "GPU-time that a budget is entitled to, within the lookback.",
        *(Sample(row.entitled_gpu_ms / _MS, labels) for row, labels in rows),
    )
    yield gauge(
        "budget_used_gpu_seconds",
        "GPU-time that a budget used, within the lookback.",
        *(Sample(row.used_gpu_ms / _MS, labels) for row, labels in rows),
    )
    yield gauge("budget_held_gpus", "GPUs that a budget holds now.", *(Sample(row.held_gpus, of) for row, of in rows))
    yield gauge(
        "budget_waiting_jobs", "Jobs of a budget that wait.", *(Sample(row.waiting_jobs, of) for row, of in rows)
    )
