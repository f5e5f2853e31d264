"""A slow, plain simulator that shares nothing with the product: what the fast one has to agree with.

Jobs and hosts are lists, time is whole milliseconds, and at each instant at which something happens everything is
looked at anew. The rules are those of the known answers in tests/data/README.md: at one instant releases come before
arrivals; a job of up to one host goes to the fullest host that has room (best fit), a larger one to whole empty
hosts, rounded up; `fifo` and `sjf` are strict (nobody passes a head that does not fit) and never stop a job; `srtf`
and `srsf` hand all GPUs out anew at each instant, by what is left, at no cost, and pass who does not fit.
"""

import csv
import gzip
import heapq
from bisect import insort
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

Key = tuple[int, int, int]


class Job(NamedTuple):
    """One job of a trace; `number` is its place in the order of arrival."""

    number: int
    submit_ms: int
    duration_ms: int
    gpus: int


class Outcome(NamedTuple):
    """When a job first started and when it ended."""

    job: Job
    start_ms: int
    end_ms: int


class Answer(NamedTuple):
    """The figures that are published, in seconds."""

    mean_completion: float
    mean_wait: float
    wait_p50: float
    wait_p90: float
    wait_p99: float
    makespan: float


def philly(path: Path, from_day: str, limit: int) -> list[Job]:
    """The first `limit` jobs submitted from that day on, rows of one second in the order of the file."""
    with gzip.open(path, "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["timestamp"] >= from_day]
    rows.sort(key=lambda row: row["timestamp"])
    rows = rows[:limit]
    zero = datetime.fromisoformat(rows[0]["timestamp"])
    return [
        Job(
            number,
            round((datetime.fromisoformat(row["timestamp"]) - zero).total_seconds()) * 1000,
            round(float(row["duration"]) * 1000),
            int(row["num_gpus"]),
        )
        for number, row in enumerate(rows)
    ]


def muri(path: Path, stretch_permille: int) -> list[Job]:
    """All jobs of a trace in milliseconds, each running for `stretch_permille` of its time."""
    with path.open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["submit_time"]))
    return [
        Job(n, int(row["submit_time"]), int(row["duration"]) * stretch_permille // 1000, int(row["num_gpu"]))
        for n, row in enumerate(rows)
    ]


def muri_cluster(path: Path) -> tuple[int, int]:
    """(hosts, GPUs on each) of a cluster as Muri writes it."""
    with path.open() as file:
        row = next(csv.DictReader(file))
    return int(row["num_switch"]) * int(row["num_node_p_switch"]), int(row["num_gpu_p_node"])


def place(free: list[int], size: int, gpus: int) -> list[tuple[int, int]] | None:
    """(host, GPUs) for a job of so many GPUs, or None. The first host wins among equals."""
    if gpus <= size:
        fits = [(left, host) for host, left in enumerate(free) if left >= gpus]
        return [(min(fits)[1], gpus)] if fits else None
    need = -(-gpus // size)
    empty = [host for host, left in enumerate(free) if left == size][:need]
    return [(host, size) for host in empty] if len(empty) == need else None


def _take(free: list[int], parts: list[tuple[int, int]], sign: int) -> None:
    for host, gpus in parts:
        free[host] += sign * gpus


def fifo_key(job: Job) -> Key:
    """By arrival."""
    return (job.submit_ms, job.number, 0)


def sjf_key(job: Job) -> Key:
    """By the whole duration, then arrival."""
    return (job.duration_ms, job.submit_ms, job.number)


def strict(jobs: list[Job], hosts: int, size: int, key: Callable[[Job], Key]) -> list[Outcome]:
    """Run to the end: the head of the queue waits until it fits, and all wait behind it."""
    free = [size] * hosts
    arriving = sorted(jobs, key=fifo_key)[::-1]
    waiting: list[tuple[Key, Job]] = []
    running: list[tuple[int, int, list[tuple[int, int]]]] = []
    done: list[Outcome] = []
    while arriving or running or waiting:
        now = min([end_ms for end_ms, _, _ in running[:1]] + [job.submit_ms for job in arriving[-1:]])
        while running and running[0][0] == now:
            _take(free, heapq.heappop(running)[2], 1)
        while arriving and arriving[-1].submit_ms == now:
            job = arriving.pop()
            insort(waiting, (key(job), job))
        while waiting and (parts := place(free, size, waiting[0][1].gpus)):
            job = waiting.pop(0)[1]
            _take(free, parts, -1)
            heapq.heappush(running, (now + job.duration_ms, job.number, parts))
            done.append(Outcome(job, now, now + job.duration_ms))
    return done


def srtf_key(job: Job, left_ms: int) -> Key:
    """By what is left to run, then arrival."""
    return (left_ms, job.submit_ms, job.number)


def srsf_key(job: Job, left_ms: int) -> Key:
    """By what is left to run times GPUs, then arrival."""
    return (left_ms * job.gpus, job.submit_ms, job.number)


def preemptive(jobs: list[Job], hosts: int, size: int, key: Callable[[Job, int], Key]) -> list[Outcome]:
    """Run to the end, all GPUs handed out anew at each arrival and each end; who does not fit is passed."""
    arriving = sorted(jobs, key=fifo_key)[::-1]
    left: dict[Job, int] = {}
    started: dict[Job, int] = {}
    chosen: list[Job] = []
    done: list[Outcome] = []
    now = 0
    while arriving or left:
        ends = [now + left[job] for job in chosen]
        until = min(ends + [job.submit_ms for job in arriving[-1:]])
        for job in chosen:
            left[job] -= until - now
        now = until
        for job in [job for job in chosen if not left[job]]:
            done.append(Outcome(job, started[job], now))
            del left[job]
        while arriving and arriving[-1].submit_ms == now:
            job = arriving.pop()
            left[job] = job.duration_ms
        free = [size] * hosts
        chosen = []
        for job in sorted(left, key=lambda job: key(job, left[job])):
            if sum(free) and (parts := place(free, size, job.gpus)):
                _take(free, parts, -1)
                chosen.append(job)
                started.setdefault(job, now)
    return done


def answer(done: list[Outcome]) -> Answer:
    """The figures of a run; a percentile is the value at the nearest rank from below."""
    waits = sorted(one.start_ms - one.job.submit_ms for one in done)
    total = len(done)
    return Answer(
        mean_completion=sum(one.end_ms - one.job.submit_ms for one in done) / total / 1000,
        mean_wait=sum(waits) / total / 1000,
        wait_p50=waits[total * 50 // 100] / 1000,
        wait_p90=waits[total * 90 // 100] / 1000,
        wait_p99=waits[total * 99 // 100] / 1000,
        makespan=(max(one.end_ms for one in done) - min(one.job.submit_ms for one in done)) / 1000,
    )
