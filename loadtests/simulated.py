"""How fast a month is simulated: a whole real trace, the reference workload, and the replay of its log.

Processor time of one process, as for the other decisions; a machine's other work does not count. The whole decision
path runs with its reasons and figures. The log of the reference workload is written once more for the replay, which
is measured record by record.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figure import Figure

from fairlease.replay.verify import verify
from fairlease.simulator.runs import simulate_lab, simulate_trace
from fairlease.trace.reading import read_trace
from fairlease.trace.wishes import Wishes
from fairlease.trace.workload import prepare
from fairlease_schemas.units import DAY_MS

TRACE = Path(__file__).parents[1] / "tests/data/philly_jobs_82k.csv.gz"
POLICY = "budget-window"
GPUS = 8


def simulated(load: dict[str, Any]) -> list[Figure]:
    """Jobs a second of the trace, seconds for the reference workload, its replay beside it, and the peak of memory."""
    recorded = read_trace(TRACE)
    apart = Wishes(is_apart=True, checkpoint_ms=0)
    workload = prepare(recorded, hosts=load["trace_hosts"], gpus_per_host=GPUS, limit=load["trace_jobs"], wishes=apart)
    trace_s, report = _timed(lambda: simulate_trace(recorded, workload, policy=POLICY, seed=load["seed"]))
    jobs = report["jobs"]["submitted"]
    facts = {"jobs": jobs, "records": report["decisions"], "cpu_s": round(trace_s, 1)}
    figures = [Figure("trace_jobs_per_s", round(jobs / trace_s), "1/s", facts)]
    lab_s, report = _timed(lambda: _lab(load, load["lab_days"]))
    facts = {"days": load["lab_days"], "records": report["decisions"], "hosts": load["lab_hosts"]}
    figures.append(Figure("lab_s_for_30_days", round(lab_s * 30 / load["lab_days"], 1), "s", facts))
    figures.append(Figure("replay_to_simulation_speed", *_replayed(load)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return [*figures, Figure("peak_rss_mib", round(peak, 1), "MiB")]


def _lab(load: dict[str, Any], days: float, log: Any = None) -> dict[str, Any]:  # noqa: ANN401 - a binary file or none
    measured_ms = round(days * DAY_MS)
    return simulate_lab(
        policy=POLICY, seed=load["seed"], hosts=load["lab_hosts"], measured_ms=measured_ms, warm_up_ms=0, log=log
    )


def _replayed(load: dict[str, Any]) -> tuple[float, str, dict[str, Any]]:
    """Records a second of the replay, over those of the simulation that wrote them."""
    with tempfile.TemporaryDirectory(prefix="fairlease-load-") as folder:
        path = Path(folder) / "lab.jsonl"
        with path.open("wb") as log:
            written_s, _ = _timed(lambda: _lab(load, load["replay_days"], log))
        with path.open("rb") as log:
            replayed_s, report = _timed(lambda: verify(enumerate(map(bytes.strip, log), 1)))
    if report.first is not None:
        sys.exit(f"the replay differs at position {report.first.position}: nothing was measured")
    facts = {"records": report.positions, "simulated_s": round(written_s, 1), "replayed_s": round(replayed_s, 1)}
    return round(written_s / replayed_s, 2), "x", facts


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    started_s = time.process_time()
    found = run()
    return time.process_time() - started_s, found
