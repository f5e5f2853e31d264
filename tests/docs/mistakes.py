"""Files with the mistakes that a page shows, and what the code says of each: so that the page says the same."""

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import fairlease.simulator
from fairlease.simulator.workload_file import WorkloadWrong, scenario_of
from fairlease.trace.cells import TraceWrong
from fairlease.trace.reading import read_trace
from fairlease.trace.workload import prepare

WORKLOADS: Final = (
    ("hosts = 128", "hosts = 0"),
    ("org-a = { weight = 3", "org-a = { weight = 3, waight = 3"),
    ("mean_s = 390", "mean_s = 0"),
)
PHILLY: Final = "timestamp,duration,num_gpus,gpu_time,cluster"
MURI: Final = "job_id,num_gpu,submit_time,duration,interval"


@cache
def told() -> frozenset[str]:
    """The lines that people read about each of these files."""
    with tempfile.TemporaryDirectory() as place:
        return frozenset(
            line for text in (*_workloads(Path(place)), *_traces(Path(place))) for line in text.split("\n")
        )


def _workloads(place: Path) -> Iterator[str]:
    model = (Path(fairlease.simulator.__file__).parent / "lab-1024.toml").read_text(encoding="utf-8")
    path = place / "mine.toml"
    for right, wrong in WORKLOADS:
        assert right in model
        path.write_text(model.replace(right, wrong, 1), encoding="utf-8")
        try:
            scenario_of(path)
        except WorkloadWrong as error:
            yield str(error)


def _traces(place: Path) -> Iterator[str]:
    path = place / "trace.csv"
    for header, rows in (
        (PHILLY, [_philly(-5 if row == 7 else 60, 1) for row in range(2, 9)]),
        (MURI, [_muri(7 if row in (3, 9) else row + 10) for row in range(2, 10)]),
        (PHILLY, [_philly(60, 161 if row == 12 else 1) for row in range(2, 13)]),
    ):
        path.write_text("\n".join((header, *rows, "")), encoding="utf-8")
        try:
            prepare(read_trace(path), hosts=20, gpus_per_host=8)
        except TraceWrong as error:
            yield str(error)


def _philly(duration: int, gpus: int) -> str:
    return f"2017-10-01 00:00:00,{duration},{gpus},{duration * gpus},x"


def _muri(job: int) -> str:
    return f"{job},4,5000,60000,0"
