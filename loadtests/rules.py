"""What the rules cost: pure decision time of whole cycles, and of one verdict, on cells made in memory.

Processor time, not wall time: nothing is waited for, and a shared machine's other work does not count.
A cell is filled until nothing more fits, then a change is made and the three steps decide.
"""

import gc
import random
import time

from figure import Figure, spread_ms

from fairlease.core.deciders import RULES
from fairlease.core.decision import record_of
from fairlease_schemas import codec
from fairlease_schemas.cycle import EvictionOrdered, GangGranted
from fairlease_schemas.reasons import ReasonBegan, ReasonEnded
from tests.dsl.cell import Cell

LEAVES = 15
STEPS = ("ranker", "placement", "preemption")
MINUTE_MS = 60_000
_DECISIONS = (GangGranted, EvictionOrdered, ReasonBegan, ReasonEnded)


def rules(turns: int, seed: int) -> list[Figure]:
    """Cycles at two sizes, the verdict on a gang that cannot start, and how cost grows with hosts and queue."""
    small, middle = _full(128, 1_000, seed), _full(1_024, 10_000, seed)
    figures = [
        Figure("cycle_1000_on_128_ms", *_cycle(small, turns)),
        Figure("cycle_10000_on_1024_ms", *_cycle(middle, turns)),
        Figure("verdict_80_gpus_on_500_ms", *_verdict(turns, seed)),
    ]
    base_us = _grant_us(128, 1_000, seed)
    for hosts, queued in ((4_096, 1_000), (128, 100_000), (4_096, 100_000)):
        each_us = _grant_us(hosts, queued, seed)
        beside = {"us_each": round(each_us, 1), "us_each_on_128_with_1000": round(base_us, 1)}
        figures.append(Figure(f"decision_cost_{hosts}_{queued}_ratio", round(each_us / base_us, 2), "x", beside))
    return figures


def _cell(hosts: int, jobs: int, seed: int) -> Cell:
    """A cell with so many hosts of eight, and so many jobs of many kinds submitted, none tried yet."""
    chance = random.Random(seed)
    cell = Cell().budgets(**{f"p{leaf}": 1 + leaf % 4 for leaf in range(LEAVES)}).hosts(hosts)
    for number in range(jobs):
        cell.submit(
            f"r{number}",
            f"p{chance.randrange(LEAVES)}",
            settle=False,
            gpus_per_host=chance.choice((1, 2, 4, 8)),
            min_runtime_ms=chance.choice((0, 15, 30, 60, 120)) * MINUTE_MS,
            who=f"u{chance.randrange(20)}",
        )
    return cell


def _full(hosts: int, queued: int, seed: int) -> Cell:
    """The same, filled until a cycle grants nothing more."""
    cell = _cell(hosts, queued + hosts * 3, seed)
    while any(isinstance(event, GangGranted) for event in _one(cell)[1]):
        pass
    return cell


def _one(cell: Cell) -> tuple[int, list[object]]:
    """One whole cycle, as after a change: processor nanoseconds of the three steps, and what they decided."""
    cell.world.cycle.news_position = cell.world.position + 1
    total_ns, events = 0, []
    for step in STEPS:
        started_ns = time.process_time_ns()
        decision = RULES[step].decide(cell.world, ())
        total_ns += time.process_time_ns() - started_ns
        assert decision is not None, f"{step} has nothing to decide"
        record = cell.append(codec.sealed(record_of(cell.world, step, decision))[1])
        events.extend(record.events)
    return total_ns, events


def _cycle(cell: Cell, turns: int) -> tuple[float, str, dict[str, float]]:
    gc.collect()
    gc.disable()
    p50, p99 = spread_ms([_one(cell)[0] for _ in range(turns)])
    gc.enable()
    return p50, "ms", {"p99": p99, "classes": len(cell.world.line.classes), "running": len(cell.world.live)}


def _verdict(turns: int, seed: int) -> tuple[float, str, dict[str, float]]:
    """A gang of ten whole hosts asks on 500 full ones, all inside their windows: cannot, and why."""
    took_ns = []
    for turn in range(turns):
        chance = random.Random(seed + turn)
        cell = Cell().budgets(**{f"p{leaf}": 1 + leaf % 4 for leaf in range(LEAVES)}).hosts(500)
        for number in range(500):
            leaf = f"p{chance.randrange(LEAVES)}"
            cell.submit(f"r{number}", leaf, settle=False, gpus_per_host=8, min_runtime_ms=60 * MINUTE_MS)
        cell.settle()
        cell.now_ms += MINUTE_MS
        cell.submit("gang", "p3", settle=False, hosts=10, gpus_per_host=8, min_runtime_ms=60 * MINUTE_MS)
        total_ns, events = _one(cell)
        assert any(isinstance(event, ReasonBegan) for event in events), "the gang has no reason"
        took_ns.append(total_ns)
    p50, p99 = spread_ms(took_ns)
    return p50, "ms", {"p99": p99}


def _grant_us(hosts: int, queued: int, seed: int) -> float:
    """Processor microseconds of one decision while an empty cell fills: grants and reasons of its first cycles."""
    cell = _cell(hosts, queued, seed)
    gc.collect()
    gc.disable()
    took_ns = decisions = 0
    for _ in range(3):
        if cell.world.line.total:
            cycle_ns, events = _one(cell)
            took_ns += cycle_ns
            decisions += sum(isinstance(event, _DECISIONS) for event in events)
    gc.enable()
    return took_ns / 1_000 / max(decisions, 1)
