"""A cell's own log as a trace: what was asked for, how long it ran, and how it ended."""

from itertools import pairwise
from pathlib import Path

import pytest

from fairlease.trace.cells import TraceWrong
from fairlease.trace.reading import read_trace
from fairlease.trace.recorded import Outcome
from fairlease.trace.wishes import Wishes
from fairlease.trace.workload import prepare
from tests.trace.test_reading import read, rules, wrong

GOLDEN = Path(__file__).parents[1] / "golden"
GANGS = GOLDEN / "gangs-begin-together.jsonl"


def test_our_own_log_tells_what_was_asked_for_and_how_long_it_ran() -> None:
    trace = read_trace(GANGS)
    (job,) = trace.jobs
    assert (trace.format, trace.has_outcomes) == ("log", True)
    assert (job.row, job.request_id, job.team, job.user) == (13, "job-2pw25kbuu4hosbsq63db", "a", "ann")
    assert (job.gpus, job.arrive_ms, job.duration_ms, job.outcome) == (16, 0, 480_000, Outcome.SUCCEEDED)
    assert job.asked is not None
    assert job.limit_ms == job.asked.timeout_ms
    assert rules(trace) == {
        "jobs that were not over when the log ends are left out": 1,
        "jobs that ended without having run are left out": 2,
        "a duration is the time in which all parts of the job's attempts ran, also what was lost": 1,
    }


def test_every_job_of_every_golden_log_is_read_or_counted() -> None:
    met = 0
    for path in sorted(GOLDEN.glob("*.jsonl")):
        admitted = path.read_text().count('"type":"job-admitted"')
        try:
            trace = read_trace(path)
        except TraceWrong as empty:
            assert "without a job to run" in str(empty)  # noqa: PT017 - which logs are empty is not the point
            continue
        left_out = sum(rule.count for rule in trace.rules if rule.rule.endswith("left out"))
        assert len(trace.jobs) + left_out == admitted, path.name
        met += len(trace.jobs)
    assert met >= 20


def test_parents_of_a_tree_come_before_their_children_in_every_golden_log() -> None:
    for path in sorted(GOLDEN.glob("*.jsonl")):
        try:
            trace = read_trace(path)
        except TraceWrong:
            continue
        seen = {""}
        for node in trace.budgets:
            assert node.parent in seen, path.name
            seen.add(node.budget)
        assert {job.team for job in trace.jobs} <= seen


def test_nothing_is_added_to_a_log_contracts_budgets_people_and_policy_are_its_own() -> None:
    trace = read_trace(GANGS)
    workload = prepare(trace, hosts=2, gpus_per_host=8, wishes=Wishes(is_apart=True, checkpoint_ms=900_000))
    (task,) = workload.tasks
    (job,) = trace.jobs
    assert job.asked is not None
    assert trace.policy is not None
    asked = task.request
    assert (task.budget, task.account, task.run_ms) == ("a", "ann", 480_000)
    assert (asked.hosts, asked.gpus_per_host) == (2, 8)
    assert (asked.min_runtime_ms, asked.timeout_ms) == (job.asked.min_runtime_ms, job.asked.timeout_ms)
    assert (asked.grace_ms, asked.checkpoint_interval_ms) == (job.asked.grace_ms, job.asked.checkpoint_interval_ms)
    assert workload.policy == trace.policy[1]
    assert [(node.budget, node.weight) for node in workload.budgets] == [
        (node.budget, node.weight) for node in trace.budgets
    ]


def test_a_log_that_was_cut_or_joined_is_refused(tmp_path: Path) -> None:
    lines = GANGS.read_bytes().splitlines(keepends=True)
    assert "is not begun by an earlier record: the log was cut" in wrong(tmp_path, b"".join(lines[14:]))[0]
    assert "is admitted by an earlier record: two logs" in wrong(tmp_path, b"".join(lines + lines))[0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda lines: [b"{}\n"], "row 1: '{}' is no record of a log", id="no record"),
        pytest.param(lambda lines: [*lines, lines[-1][:40]], "is no record of a log", id="a torn last line"),
        pytest.param(lambda lines: [*lines[:3], b"\n", *lines[3:]], "row 4: is no record of a log", id="a blank line"),
        pytest.param(lambda lines: [*lines, b"job_id,user\n"], "'job_id,user' is no record", id="a table behind it"),
        pytest.param(lambda lines: lines[:5], "begins a file without a job to run: name another", id="no job"),
        pytest.param(lambda lines: [b"[" * 100_000, *lines], "row 1: ", id="brackets without end"),
    ],
)
def test_a_log_that_is_none_is_told_with_its_row(tmp_path: Path, change: object, expected: str) -> None:
    assert callable(change)
    lines = change(GANGS.read_bytes().splitlines(keepends=True))
    assert expected in wrong(tmp_path, b"".join(lines))[0]


@pytest.mark.parametrize(("at_ms", "way_out"), [(-5, "is it in microseconds"), (10**18, "is it in microseconds")])
def test_an_instant_outside_the_calendar_is_told(tmp_path: Path, at_ms: int, way_out: str) -> None:
    first = GANGS.read_bytes().splitlines(keepends=True)[0]
    before, _, after = first.partition(b'"at_ms":')
    digits = after[: len(after) - len(after.lstrip(b"-0123456789"))]
    changed = before + b'"at_ms":%d' % at_ms + after.removeprefix(digits)
    told = wrong(tmp_path, changed + b"".join(GANGS.read_bytes().splitlines(keepends=True)[1:]))
    assert f"row 1, column at_ms: '{at_ms}' is not between 1970 and 2100" in told[0]
    assert way_out in told[0]


def test_a_log_with_the_line_ends_of_another_system_is_the_same_trace(tmp_path: Path) -> None:
    raw = GANGS.read_bytes()
    assert read(tmp_path, raw.replace(b"\n", b"\r\n")).jobs == read_trace(GANGS).jobs


def test_jobs_come_by_their_submission(tmp_path: Path) -> None:
    for path in sorted(GOLDEN.glob("*.jsonl")):
        try:
            jobs = read_trace(path).jobs
        except TraceWrong:
            continue
        assert jobs[0].arrive_ms == 0
        assert all(one.arrive_ms <= other.arrive_ms for one, other in pairwise(jobs))
