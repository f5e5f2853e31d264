"""The Helios format as cut by `mini-compute-simulator` (Hu et al., SC 2021); lines with `#` are comments.

`submit_time` is in microseconds, all other times in seconds. Whoever converts such a file easily writes
milliseconds instead, which makes the same arrivals a thousand times denser; that is caught by what it
would mean, because no single number looks wrong.
"""

import math
from collections.abc import Sequence
from typing import Final

from fairlease.trace.recorded import Outcome, RecordedJob
from fairlease.trace.table import MAX_GPUS, Problem, Row

NAME: Final = "helios"
COLUMNS: Final = (
    *("job_id", "user", "tenant", "submit_time", "num_chips", "num_nodes"),
    *("duration_s", "walltime_limit_s", "final_status"),
)
GPUS_COLUMN: Final = "num_chips"
HAS_OUTCOMES: Final = True
OUTCOMES: Final = {
    "COMPLETED": Outcome.SUCCEEDED,
    "FAILED": Outcome.FAILED,
    "NODE_FAIL": Outcome.FAILED,
    "CANCELED": Outcome.CANCELLED,
}
LIKELY_LOAD: Final = 100
"""No real cluster is asked for a hundred times itself over a whole trace."""
_LATEST_US: Final = 4_102_444_800_000_000  # the year 2100
_WHOLE_SECOND_MS: Final = 1_000


def read_row(row: Row, _number: int) -> RecordedJob:
    """One row; the id is the trace's own, and told again by `repeated` where it is not the first."""
    status = row.text("final_status")
    if status and status not in OUTCOMES:
        row.complain("final_status", f"is none of {', '.join(OUTCOMES)}")
    submit_us = row.whole("submit_time", _LATEST_US)
    if submit_us % 1_000:
        row.complain("submit_time", "is no whole millisecond in microseconds: is it in seconds or milliseconds?")
    row.whole("num_nodes", MAX_GPUS)
    job = row.whole("job_id", 10**18)
    duration_ms = row.seconds_ms("duration_s")
    return RecordedJob(
        line=row.line,
        request_id=f"helios-{job}",
        team=row.text("tenant"),
        user=row.text("user"),
        gpus=row.whole("num_chips", MAX_GPUS),
        arrive_ms=submit_us // 1_000,
        duration_ms=duration_ms,
        limit_ms=max(duration_ms, row.seconds_ms("walltime_limit_s")),
        outcome=OUTCOMES.get(status, Outcome.SUCCEEDED),
    )


def repeated(jobs: Sequence[RecordedJob]) -> list[Problem]:
    """Every row whose id an earlier row has."""
    first: dict[str, int] = {}
    problems = []
    for job in jobs:
        line = first.setdefault(job.request_id, job.line)
        if line != job.line:
            name = job.request_id.partition("-")[2]
            problems.append(Problem(job.line, "job_id", name, f"stands in line {line} already"))
    return problems


def implausible(jobs: Sequence[RecordedJob], cluster_gpus: int) -> list[Problem]:
    """Whether submission times look like milliseconds (or seconds) written where microseconds belong.

    Two things together: read as microseconds they are no whole seconds, which the source's all are; and
    the jobs then ask for over a hundred times the cluster between the first arrival and the last.
    """
    if len(jobs) < 2:
        return []
    first_ms = jobs[0].arrive_ms
    step_ms = math.gcd(*(job.arrive_ms - first_ms for job in jobs))
    span_ms = jobs[-1].arrive_ms - first_ms
    asked_gpu_ms = sum(job.duration_ms * job.gpus for job in jobs)
    if step_ms % _WHOLE_SECOND_MS == 0 or asked_gpu_ms <= LIKELY_LOAD * span_ms * cluster_gpus:
        return []
    load = asked_gpu_ms // (span_ms * cluster_gpus)
    text = f"read as microseconds, the arrivals ask for {load} times the cluster: is submit_time in milliseconds?"
    return [Problem(jobs[0].line, "submit_time", "", text)]
