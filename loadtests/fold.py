"""How fast a log is folded: decode and apply, records as they come."""

import gc
import random
import time

from figure import Figure

from fairlease.core.metrics.integral import Period
from fairlease.core.metrics.meter import Meter
from fairlease.core.world import World
from fairlease_schemas.codec import read_record
from fairlease_schemas.commands import CancelJob
from fairlease_schemas.ids import JobId
from fairlease_schemas.job import End
from fairlease_schemas.units import DAY_MS
from tests.dsl.cell import Cell

TIMES = 5
LEAVES = 8
MINUTE_MS = 60_000


def fold(jobs: int, seed: int) -> list[Figure]:
    """Events a second of processor time, the fastest of five folds; the collector is off, as in a service."""
    records = rich_log(jobs, seed)
    events = sum(len(read_record(data).events) for data in records)
    size = sum(map(len, records))
    gc.collect()
    gc.disable()
    best_s = min(_folded_s(records) for _ in range(TIMES))
    metered_s = min(_metered_s(records) for _ in range(TIMES))
    gc.enable()
    facts = {"events": events, "records": len(records), "bytes_per_record": size // len(records)}
    return [
        Figure("fold_events_per_s", round(events / best_s), "1/s", facts),
        Figure("metered_fold_ratio", round(metered_s / best_s, 2), "ratio", {"events": events}),
    ]


def _folded_s(records: list[bytes]) -> float:
    world = World()
    started_s = time.process_time()  # of this process alone: it waits for nothing but the processor
    for position, data in enumerate(records, start=1):
        world.apply(read_record(data), position)
    return time.process_time() - started_s


def _metered_s(records: list[bytes]) -> float:
    """The same with all figures of the whole log metered."""
    last_ms = read_record(records[-1]).at_ms
    world, meter = World(), Meter(Period(last_ms - DAY_MS, last_ms))
    started_s = time.process_time()
    for position, data in enumerate(records, start=1):
        record = read_record(data)
        world.apply(record, position)
        meter.take(world, record)
    return time.process_time() - started_s


def rich_log(jobs: int, seed: int) -> list[bytes]:
    """A log with everything in it: gangs, idle work, evictions, retries, cancels, failures, a line that waits."""
    chance = random.Random(seed)
    cell = Cell().hosts(16).budgets(org=1, **{f"org__leaf_{leaf}": 1 + leaf % 3 for leaf in range(LEAVES)})
    mine: list[JobId] = []
    now_ms = 0
    for number in range(jobs):
        now_ms += chance.randrange(500, 20_000)
        cell.at(now_ms)
        mine.append(_submitted(cell, chance, number))
        while len(mine) > 40 or (mine and chance.random() < 0.4):
            _go_on(cell, chance, mine.pop(chance.randrange(len(mine))))
    return cell.records


def _submitted(cell: Cell, chance: random.Random, number: int) -> JobId:
    hosts, gpus = chance.choice(((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8)))
    window_ms = chance.choice((0, 15, 30, 60)) * MINUTE_MS
    return cell.submit(
        f"rich-{number}",
        f"leaf-{chance.randrange(LEAVES)}",
        who=chance.choice(("ann", "bob", "cyd")),
        hosts=hosts,
        gpus_per_host=gpus,
        min_runtime_ms=window_ms,
        timeout_ms=max(2 * window_ms, 60 * MINUTE_MS),
        max_retries=chance.choice((0, 0, 2)),
    )


def _go_on(cell: Cell, chance: random.Random, job: JobId) -> None:
    """What happens to a job next, as its agents and its owner would have it."""
    found = cell.world.jobs[job]
    if found.is_terminal:
        return
    if found.live is None or chance.random() < 0.1:
        cell.say(CancelJob(job=job), found.account)
        found = cell.world.jobs[job]
    if found.live is None:
        return
    if not found.live.started:
        cell.start(job)
    if cell.world.jobs[job].live is not None:
        is_asked = found.live.ending is not None
        end = End.CANCELLED if is_asked else chance.choice((End.SUCCEEDED, End.SUCCEEDED, End.FAILED))
        cell.gone(job, end, {End.SUCCEEDED: 0, End.FAILED: 1}.get(end))
