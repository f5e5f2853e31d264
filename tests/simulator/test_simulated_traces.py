"""Recorded workloads in virtual time: every format, every end, and what may be asked of them."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlease.cli.main import main
from fairlease.simulator.engine import T0
from fairlease.simulator.machines import SimulationWrong
from fairlease.simulator.runs import Simulation, play_trace
from fairlease.trace.reading import read_trace
from fairlease.trace.recorded import Outcome
from fairlease.trace.wishes import START_SLACK_MS, Wishes
from fairlease.trace.workload import Workload, prepare
from fairlease_schemas.job import Request
from fairlease_schemas.policy import Policy
from tests.simulator import naive_sim
from tests.trace.test_workload import recorded

DATA = Path(__file__).parents[1] / "data"
TRACES = [("tiny_philly_200.csv", 20), ("tiny_helios_200.csv", 60), ("muri_trace3.csv", 60)]
MINUTE = 60_000


def played(workload: Workload, seed: int = 1, mtbf_days: int = 0) -> Simulation:
    return play_trace(workload, policy="budget-window", seed=seed, mtbf_days=mtbf_days)[0]


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["simulate", *words, "-o", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["simulate", *words])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(("name", "hosts"), TRACES, ids=[name for name, _ in TRACES])
def test_jobs_of_every_format_end_as_they_were_recorded(name: str, hosts: int) -> None:
    trace = read_trace(DATA / name)
    workload = prepare(trace, hosts=hosts, gpus_per_host=8, limit=15, wishes=Wishes(is_apart=True))
    world = played(workload).engine.world
    assert {job.id: str(job.phase) for job in world.jobs.values()} == {t.job: str(t.outcome) for t in workload.tasks}
    assert {job.account for job in world.jobs.values()} == {task.account for task in workload.tasks}


@pytest.mark.parametrize(
    ("outcome", "ended_ms"),
    [
        pytest.param(Outcome.SUCCEEDED, 10 * MINUTE, id="a success at the end of its work"),
        pytest.param(Outcome.FAILED, 10 * MINUTE, id="a failure at its recorded time"),
        pytest.param(Outcome.CANCELLED, 10 * MINUTE + 5_000, id="a cancelled one once it is stopped"),
        pytest.param(Outcome.TIMED_OUT, 15 * MINUTE + START_SLACK_MS + 5_000, id="a late one at its timeout"),
    ],
)
def test_each_end_comes_when_it_should(outcome: Outcome, ended_ms: int) -> None:
    workload = prepare(recorded({"outcome": outcome, "arrive_ms": 0}), hosts=1, gpus_per_host=8)
    (job,) = played(workload).engine.world.jobs.values()
    assert (str(job.phase), job.ended_ms - T0) == (str(outcome), ended_ms)


@pytest.mark.parametrize(
    ("name", "plain", "limit", "wishes"),
    [
        pytest.param(
            "philly_jobs_82k.csv.gz",
            naive_sim.philly(DATA / "philly_jobs_82k.csv.gz", "2017-10-01", 10_000),
            10_000,
            Wishes(begin="2017-10-01"),
            id="the first ten thousand of October 2017",
        ),
        pytest.param(
            "muri_trace3.csv",
            naive_sim.muri(DATA / "muri_trace3.csv", 1_015),
            0,
            Wishes(runtime=Fraction("1.015")),
            id="all of Muri's, each running a little longer",
        ),
    ],
)
def test_the_workloads_whose_answers_are_known_are_those_of_the_plain_simulator(
    name: str, plain: list[naive_sim.Job], limit: int, wishes: Wishes
) -> None:
    workload = prepare(read_trace(DATA / name), hosts=64, gpus_per_host=8, limit=limit, wishes=wishes)
    tasks = [(task.arrive_ms, task.run_ms, task.request.hosts) for task in workload.tasks]
    assert tasks == [(job.submit_ms, job.duration_ms, -(-job.gpus // 8)) for job in plain]


def test_a_written_log_is_a_trace_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    words = ("--hosts", "22x8", "--limit", "30")
    first = report(capsys, "--trace", str(DATA / "tiny_helios_200.csv"), *words, "--log", str(log))
    again = report(capsys, "--trace", str(log), "--format", "log", *words)
    assert again["jobs"] == first["jobs"] == {"submitted": 30, "started": 30, "finished": 30}
    assert first["preemption"]["count"] == 0
    source = read_trace(DATA / "tiny_helios_200.csv").jobs[:30]
    own = read_trace(log)
    told = sorted((job.gpus, job.outcome, job.duration_ms) for job in own.jobs)
    stop_ms = {Outcome.CANCELLED: 5_000}
    assert told == sorted((job.gpus, job.outcome, job.duration_ms + stop_ms.get(job.outcome, 0)) for job in source)
    assert {node.budget: node.weight for node in own.budgets} == {"trace": 1, "team-vcvgl": 1, "team-vcvly": 1}


LONG = [{"gpus": 8, "duration_ms": 2_400 * MINUTE, "arrive_ms": n * MINUTE} for n in range(3)]


def faulty(seed: int, mtbf_days: int) -> tuple[str, int, int]:
    """(digest, attempts, jobs released) of three long jobs, each of which must succeed."""
    workload = prepare(recorded(*LONG), hosts=6, gpus_per_host=8, wishes=Wishes(checkpoint_ms=15 * MINUTE))
    run, owners = play_trace(workload, policy="budget-window", seed=seed, mtbf_days=mtbf_days)
    world = run.engine.world
    assert {str(job.phase) for job in world.jobs.values()} == {"succeeded"}
    return world.digest(), sum(len(job.attempts) for job in world.jobs.values()), owners.released


def test_hosts_of_a_trace_break_by_the_seed_and_all_work_is_done_all_the_same() -> None:
    calm, one, other = faulty(1, 0), faulty(1, 1), faulty(2, 1)
    assert calm[1:] == (3, 0)
    assert one[1] > 3
    assert len({calm[0], one[0], other[0]}) == 3
    assert faulty(1, 1) == one


def test_a_job_that_faults_brought_to_a_hold_is_released_by_its_owner_and_ends() -> None:
    assert faulty(2, 1)[2] == 3


def test_a_policy_of_a_log_that_is_refused_is_told_and_not_replaced_by_another() -> None:
    trace = msgspec.structs.replace(recorded({}), policy=("broken", Policy(debug_per_person=-1)))
    with pytest.raises(SimulationWrong, match=r"change-policy is refused, .* policy.debug_per_person -1"):
        played(prepare(trace, hosts=1, gpus_per_host=8))


def test_a_contract_of_a_log_that_its_last_policy_refuses_is_told_with_job_and_rule() -> None:
    asked = Request(
        hosts=1,
        gpus_per_host=8,
        pools=(),
        min_runtime_ms=99 * 60 * MINUTE,
        timeout_ms=200 * 60 * MINUTE,
        grace_ms=0,
        is_resumable=True,
    )
    workload = prepare(recorded({"asked": asked, "gpus": 8}), hosts=1, gpus_per_host=8)
    with pytest.raises(SimulationWrong, match=rf"{workload.tasks[0].job} of trace was refused: .* \(rule 1.4\)"):
        played(workload)


def test_every_rule_of_a_simulated_trace_is_told_with_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--limit", "20", "--from", "2017-10-17T00:10", "--load", "2", "--runtime-factor", "0.5")
    more = ("--weights", "gpu-hours", "--mtbf-days", "60", "--checkpoint", "30m")
    found = report(capsys, "--trace", str(DATA / "tiny_philly_200.csv"), "--hosts", "8x8", *words, *more)
    rules = {rule["rule"]: rule["count"] for rule in found["rules"]}
    assert rules.pop("jobs before the beginning are left out") + rules.pop("rows after the limit are not played") == 180
    assert rules == {
        "submission is a local wall clock, read without zones or summer time": 200,
        "the trace has no users": 200,
        "runtimes and limits are multiplied by 0.5": 20,
        "gaps between arrivals are divided by 2": 20,
        "teams are leaves with weights by their GPU-hours under the budget trace": 3,
        "windows are 15 min up to 8 GPUs, 30 min up to 64, 1 h above; all jobs are resumable": 20,
        "checkpoints fall every 30m of work": 20,
        "timeouts are the recorded limit, the window at least, and 30 s undivided": 20,
        "no outcome is recorded: every job succeeds": 20,
        "starting takes no time; who is told to leave and can be resumed saves all its work": 20,
        "each host breaks once in 60 days in the mean, drawn by the seed, and is back as in lab-1024": 8,
    }


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        pytest.param(["--days", "3"], 64, "--days is of a workload: a trace is played to its last end", id="days"),
        pytest.param(["--warm-up", "3"], 64, "--warm-up is of a workload", id="warm-up"),
        pytest.param(["--load", "0"], 64, "'0' is not a number from 0.001 to 1000", id="no load"),
        pytest.param(["--load", "nan"], 64, "'nan' is not a number from 0.001 to 1000", id="nan"),
        pytest.param(["--runtime-factor", "1e3"], 64, "'1e3' is not a number from", id="an exponent"),
        pytest.param(["--runtime-factor", "-1"], 64, "--runtime-factor", id="a negative factor"),
        pytest.param(["--from", "noon"], 64, "'noon' is no instant: write how long after the first", id="from"),
        pytest.param(["--format", "slurm"], 64, "--format", id="a format that is not known"),
        pytest.param(["--format", "muri"], 65, "begins a philly trace, not a muri one: say --format", id="another"),
        pytest.param(["--from", "2018-01-01"], 65, "is the last arrival, 1h54m55s after the first", id="too late"),
        pytest.param(["--hosts", "1x1"], 65, "column num_gpus: '4' does not fit on 1 x 1: name a larger", id="large"),
    ],
)
def test_what_cannot_be_asked_of_a_trace_is_told(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, expected: str
) -> None:
    found = refused(capsys, "--trace", str(DATA / "tiny_philly_200.csv"), *words)
    assert found[0] == code
    assert expected in found[1]


@pytest.mark.parametrize(
    "option", ["format=log", "from=1d", "runtime-factor=2", "load=2", "weights=equal", "mtbf-days=1"]
)
def test_what_is_of_a_trace_is_refused_for_a_workload(capsys: pytest.CaptureFixture[str], option: str) -> None:
    name, _, value = option.partition("=")
    found = refused(capsys, "--workload", "lab-1024", f"--{name}", value)
    assert (found[0], f"--{name} is of a trace" in found[1]) == (64, True)


def test_a_log_that_is_read_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, other = tmp_path / "own.jsonl", tmp_path / "link.jsonl"
    own.write_bytes((DATA.parent / "golden/gangs-begin-together.jsonl").read_bytes())
    other.symlink_to(own)
    before = own.read_bytes()
    code, told = refused(capsys, "--trace", str(own), "--hosts", "2x8", "--log", str(other))
    assert (code, "is the file that is read, and would be lost: name another" in told) == (64, True)
    assert own.read_bytes() == before
    report(capsys, "--trace", str(own), "--hosts", "2x8", "--log", str(tmp_path / "new.jsonl"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data/tiny_philly_200.csv", "row 129, column num_gpus: '4' does not fit on 1 x 2: name a larger cluster"),
        ("data/tiny_helios_200.csv", "row 10, column num_chips: '128' does not fit on 1 x 2: name a larger cluster"),
        ("data/muri_trace3.csv", "row 2, column num_gpu: '4' does not fit on 1 x 2: name a larger cluster"),
        ("golden/gangs-begin-together.jsonl", "row 13, column events: '16' does not fit on 1 x 2: name a larger"),
    ],
)
def test_a_job_larger_than_the_cluster_is_told_with_its_row(
    capsys: pytest.CaptureFixture[str], name: str, expected: str
) -> None:
    code, told = refused(capsys, "--trace", str(DATA.parent / name), "--hosts", "1x2")
    assert (code, expected in told) == (65, True), told
