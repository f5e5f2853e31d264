import json
import os
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.main import main
from fairlease.core.metrics.integral import Period
from fairlease.replay.verify import verify
from fairlease.simulator.demand import gang_cap, shares
from fairlease.simulator.draws import Stream, tables
from fairlease.simulator.engine import T0
from fairlease.simulator.machines import SimulationWrong, Stopping, Work
from fairlease.simulator.quantiles import made
from fairlease.simulator.runs import Simulation, simulate_lab
from fairlease.simulator.scenario import lab_1024
from fairlease_schemas.commands import RequestDrain
from fairlease_schemas.envelope import Submitted
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import Request
from fairlease_schemas.units import HOUR_MS, MINUTE_MS, SECOND_MS

PHILLY = Path(__file__).parents[1] / "data" / "tiny_philly_200.csv"
PERIOD = Period(T0, T0 + 24 * HOUR_MS)


def cell(hosts: int) -> Simulation:
    run = Simulation("budget-window", 1, Stopping(stop_ms=5 * SECOND_MS, save_ms=60 * SECOND_MS), PERIOD, None)
    run.hosts(hosts, 8, "h100", 16)
    run.budget("a", 1)
    return run


def submit(run: Simulation, name: str, work: Work, hosts: int = 1, at_ms: int = 0) -> str:
    job = job_id("ann", "a", name)
    request = Request(
        hosts=hosts,
        gpus_per_host=8,
        pools=("h100",),
        min_runtime_ms=30 * MINUTE_MS,
        timeout_ms=20 * HOUR_MS,
        grace_ms=90 * SECOND_MS,
        is_resumable=True,
    )
    run.machines.expect(job, work)
    said = Submitted(budget="a", request_id=name, digest=f"{0:064x}", request=request)
    run.engine.at(T0 + at_ms, lambda: run.engine.say(said, "ann"))
    return job


def test_a_job_ends_its_start_and_its_work_after_its_grant() -> None:
    run = cell(2)
    job = submit(run, "one", Work(left_ms=HOUR_MS, startup_ms=2 * MINUTE_MS), hosts=2)
    run.engine.run(T0 + 24 * HOUR_MS)
    done = run.engine.world.jobs[job]
    assert (str(done.phase), done.ended_ms - T0) == ("succeeded", HOUR_MS + 2 * MINUTE_MS)


def test_what_is_free_at_an_instant_is_free_for_who_comes_at_it() -> None:
    run = cell(1)
    submit(run, "first", Work(left_ms=HOUR_MS, startup_ms=0))
    job = submit(run, "second", Work(left_ms=HOUR_MS, startup_ms=0), at_ms=HOUR_MS)
    run.engine.run(T0 + 24 * HOUR_MS)
    assert [a.granted_ms - T0 for a in run.engine.world.jobs[job].attempts] == [HOUR_MS]


def test_a_fault_loses_what_no_checkpoint_holds() -> None:
    run = cell(2)
    work = Work(left_ms=HOUR_MS, startup_ms=0, checkpoint_ms=15 * MINUTE_MS)
    job = submit(run, "one", work)
    run.engine.run(T0)
    broken = run.engine.world.jobs[job].attempts[0].hosts[0]
    run.engine.at(T0 + 40 * MINUTE_MS, lambda: run.machines.breaks(broken))
    run.engine.run(T0 + 24 * HOUR_MS)
    done = run.engine.world.jobs[job]
    again = done.attempts[-1]
    assert (len(done.attempts), str(done.phase)) == (2, "succeeded")
    assert again.hosts != (broken,)
    assert done.ended_ms - again.granted_ms == 30 * MINUTE_MS


def test_a_fault_while_it_saves_itself_loses_only_what_no_checkpoint_holds() -> None:
    run = cell(2)
    work = Work(left_ms=HOUR_MS, startup_ms=0, checkpoint_ms=15 * MINUTE_MS, saves_permille=1000)
    job = submit(run, "one", work)
    run.engine.run(T0)
    broken = run.engine.world.jobs[job].attempts[0].hosts[0]
    drain = RequestDrain(host=broken, not_before_ms=T0 + 40 * MINUTE_MS, reason="service")
    run.engine.at(T0 + MINUTE_MS, lambda: run.engine.say(drain, "keeper"))
    run.engine.at(T0 + 39 * MINUTE_MS, lambda: run.machines.breaks(broken))  # told 90 s before the start, saving for 60
    run.engine.run(T0 + 24 * HOUR_MS)
    first, second = run.engine.world.jobs[job].attempts
    assert (str(first.ending), first.ended_ms - T0) == ("preempted", 39 * MINUTE_MS)
    assert second.ended_ms - second.granted_ms == 30 * MINUTE_MS


def test_a_fault_of_one_host_stops_the_whole_gang() -> None:
    run = cell(3)
    job = submit(run, "gang", Work(left_ms=HOUR_MS, startup_ms=0, checkpoint_ms=15 * MINUTE_MS), hosts=2)
    run.engine.run(T0)
    broken = run.engine.world.jobs[job].attempts[0].hosts[1]
    run.engine.at(T0 + 40 * MINUTE_MS, lambda: run.machines.breaks(broken))
    run.engine.run(T0 + 24 * HOUR_MS)
    first, second = run.engine.world.jobs[job].attempts
    assert first.ended_ms - T0 == 40 * MINUTE_MS + 5 * SECOND_MS
    assert second.ended_ms - second.granted_ms == 30 * MINUTE_MS


def test_a_refused_job_ends_the_simulation_with_its_name() -> None:
    run = cell(1)
    job = submit(run, "large", Work(left_ms=HOUR_MS, startup_ms=0), hosts=2)
    with pytest.raises(SimulationWrong, match=job):
        run.engine.run(T0 + HOUR_MS)


def test_draws_are_those_of_the_workload_s_formula() -> None:
    stream = Stream(7, "fault/host-0001")
    # The first 8 bytes of SHA-256("7/fault/host-0001/0") and of ".../1", written down once.
    assert [stream.below(1000), stream.below(1000)] == [976, 464]


def test_the_shipped_tables_are_those_that_the_file_describes() -> None:
    again = made(lab_1024())
    shipped = tables()
    assert list(shipped) == list(again)
    for name, points in shipped.items():
        assert len(points) == 4096
        assert points == tuple(again[name]), name


def test_shares_and_gang_caps_are_those_of_the_tree() -> None:
    found = shares(lab_1024())
    assert sum(found.values()) == 1
    assert found["a1"] == Fraction(3, 7) * Fraction(4, 11)
    assert [gang_cap(lab_1024(), found[name], 1024) for name in ("a1", "a5", "c5")] == [512, 128, 64]
    assert gang_cap(lab_1024(), found["c5"], 8) == 8


def lab(tmp_path: Path, seed: int, hash_seed: str = "0", *more: str) -> dict[str, Any]:
    words: Sequence[str] = ("--workload", "lab-1024", "--hosts", "4x8", "--days", "0.1", "--warm-up", "0.02")
    done = subprocess.run(
        [sys.executable, "-m", "fairlease", "simulate", *words, "--seed", str(seed), "-o", "json", *more],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_one_seed_gives_one_digest_under_any_hash_seed(tmp_path: Path) -> None:
    first, again, other = lab(tmp_path, 1), lab(tmp_path, 1, "4711"), lab(tmp_path, 2)
    for report in (first, again):
        report.pop("speed")
    assert first == again
    assert other["digest"] != first["digest"]


def test_a_written_log_replays_without_a_divergence_and_ends_in_the_reported_digest(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    report = lab(tmp_path, 3, "0", "--log", str(log))
    verdict = verify(enumerate(log.read_bytes().splitlines(), start=1))
    assert (verdict.divergences, verdict.first) == (0, None)
    assert verdict.digest == report["digest"]
    assert verdict.positions > 500
    assert report["jobs"]["finished"] > 0


def test_the_log_costs_nothing_of_the_result(tmp_path: Path) -> None:
    assert lab(tmp_path, 3)["digest"] == lab(tmp_path, 3, "0", "--log", str(tmp_path / "log"))["digest"]


def test_every_job_of_a_trace_comes_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--trace", str(PHILLY), "--hosts", "64x8", "--limit", "40", "-o", "json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["jobs"] == {"submitted": 40, "started": 40, "finished": 40}
    assert (report["wait"]["all"]["p99_s"], report["preemption"]["count"]) == (0.0, 0)
    assert {"rule": "no outcome is recorded: every job succeeds", "count": 40} in report["rules"]


def test_a_trace_is_played_by_the_policy_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--trace", str(PHILLY), "--hosts", "1x8", "--limit", "12", "-o", "json", "--policy"]
    reports = []
    for policy in ("fifo", "sjf"):
        assert main([*words, policy]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert [report["policy"] for report in reports] == ["fifo", "sjf"]
    assert reports[1]["wait"]["all"]["mean_s"] < reports[0]["wait"]["all"]["mean_s"]


def test_a_wrong_cell_of_a_trace_is_told_with_its_line_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-01 00:00:00,-3,1,-3,x\n")
    assert main(["simulate", "--trace", str(wrong), "--hosts", "1x8"]) == 65
    assert "row 2, column duration: '-3' is negative" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--workload", "lab-1024", "--limit", "3"],
        ["--workload", "lab-1024", "--hosts", "4x4"],
        ["--trace", "x.csv", "--days", "3"],
        ["--workload", "lab-1024", "--policy", "best"],
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str]) -> None:
    assert main(["simulate", *words]) == 64


@pytest.mark.long
def test_a_day_of_the_reference_workload_on_eight_hosts_breaks_no_window_and_no_promise() -> None:
    report = simulate_lab(policy="budget-window", seed=1, hosts=8, measured_ms=24 * HOUR_MS)
    assert report["preemption"]["window_breaks"] == 0
    assert report["promises"]["broken"] == 0
    assert report["jobs"]["finished"] > 30
    assert report["occupancy"] > 0.9
