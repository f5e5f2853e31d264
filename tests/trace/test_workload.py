import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from fairlease.core.contract_rules import check, effective_request
from fairlease.core.metrics.waiting import WaitClass, wait_class
from fairlease.trace.cells import TraceWrong
from fairlease.trace.reading import read_trace
from fairlease.trace.recorded import Outcome, Recorded, RecordedJob
from fairlease.trace.stated import names
from fairlease.trace.wishes import START_SLACK_MS, Wishes
from fairlease.trace.workload import LONGEST_MS, Task, Workload, prepare
from fairlease_schemas.commands import ChangePolicy
from fairlease_schemas.contract import read_contract, scheduling_fields
from fairlease_schemas.ids import is_name
from fairlease_schemas.job import CommandRefused
from tests.dsl.cell import Cell

DATA = Path(__file__).parents[1] / "data"
HOUR = 3_600_000


def recorded(*jobs: dict[str, Any], has_outcomes: bool = True, zero_ms: int | None = None) -> Recorded:
    """A trace of these jobs, with honest defaults: one GPU for ten minutes, one after another."""
    rows = []
    for number, fields in enumerate(jobs, start=1):
        plain: dict[str, Any] = {
            "row": number + 1,
            "request_id": f"t-{number}",
            "team": "vcA",
            "user": "u1",
            "gpus": 1,
            "arrive_ms": number * 1_000,
            "duration_ms": 600_000,
            "limit_ms": 600_000,
            "outcome": Outcome.SUCCEEDED,
        }
        rows.append(RecordedJob(**plain | fields))
    return Recorded(
        file="t.csv",
        format="helios",
        has_outcomes=has_outcomes,
        gpus_column="num_chips",
        jobs=tuple(rows),
        rules=(),
        sha256="0" * 64,
        zero_ms=zero_ms,
    )


def _one(speed: float = 100, cut_s: float | None = None, **fields: object) -> Task:
    (task,) = prepare(recorded(fields), hosts=20, gpus_per_host=8, speed=speed, cut_s=cut_s).tasks
    return task


@pytest.mark.parametrize(
    ("gpus", "shape"),
    [
        pytest.param(1, (1, 1), id="one GPU"),
        pytest.param(8, (1, 8), id="a whole host"),
        pytest.param(9, (2, 8), id="a GPU more is a second host"),
        pytest.param(12, (2, 8), id="twelve are rounded up"),
        pytest.param(16, (2, 8), id="two whole hosts"),
        pytest.param(160, (20, 8), id="the whole cell"),
    ],
)
def test_gangs_are_whole_hosts_rounded_up(gpus: int, shape: tuple[int, int]) -> None:
    task = _one(gpus=gpus)
    assert (task.request.hosts, task.request.gpus_per_host) == shape


def test_a_job_larger_than_the_cell_is_told_with_its_row() -> None:
    with pytest.raises(TraceWrong) as wrong:
        prepare(recorded({}, {"gpus": 161}), hosts=20, gpus_per_host=8, speed=1)
    assert str(wrong.value) == (
        "t.csv: row 3, column num_chips: '161' does not fit on 20 x 8: name a larger cluster, or leave the row out"
    )


def test_a_job_after_the_limit_may_be_of_any_size() -> None:
    assert len(prepare(recorded({}, {"gpus": 161}), hosts=20, gpus_per_host=8, speed=1, limit=1).tasks) == 1


@pytest.mark.parametrize(
    ("fields", "speed", "cut_s", "expected"),
    [
        pytest.param({}, 100, None, ["/bin/sleep", "6.000"], id="a job sleeps for its time"),
        pytest.param({}, 100, 2.5, ["/bin/sleep", "2.500"], id="cut to the longest allowed"),
        pytest.param({}, 1, None, ["/bin/sleep", "600.000"], id="at the speed of the trace"),
        pytest.param({"duration_ms": 0}, 100, None, ["/bin/sleep", "0.001"], id="no time at all"),
        pytest.param(
            {"outcome": Outcome.FAILED}, 100, None, ["/bin/sh", "-c", "sleep 6.000; exit 1"], id="a failure exits 1"
        ),
        pytest.param(
            {"outcome": Outcome.CANCELLED}, 100, None, ["/bin/sleep", "66.000"], id="a cancel comes from outside"
        ),
        pytest.param({"outcome": Outcome.TIMED_OUT}, 100, None, ["/bin/sleep", "99.000"], id="a timeout too"),
    ],
)
def test_a_job_is_a_process_that_ends_as_recorded(
    fields: dict[str, Any], speed: float, cut_s: float | None, expected: list[str]
) -> None:
    assert list(_one(speed, cut_s, **fields).command()) == expected


@pytest.mark.parametrize(
    ("fields", "window_ms", "timeout_ms"),
    [
        pytest.param({}, 9_000, 9_000, id="a short job is protected for its window, and may run as long"),
        pytest.param({"limit_ms": 2 * HOUR}, 9_000, 72_000, id="a longer limit stands"),
        pytest.param({"gpus": 16, "limit_ms": 2 * HOUR}, 18_000, 72_000, id="30 min for a medium gang"),
        pytest.param({"gpus": 128, "limit_ms": 2 * HOUR}, 36_000, 72_000, id="an hour for a large one"),
    ],
)
def test_windows_go_by_size_and_limits_have_room_for_starting(
    fields: dict[str, Any], window_ms: int, timeout_ms: int
) -> None:
    task = _one(**fields)
    assert (task.request.min_runtime_ms, task.request.timeout_ms) == (window_ms, timeout_ms + START_SLACK_MS)


def test_teams_become_leaves_of_equal_weight_whatever_they_are_called() -> None:
    teams = ("11cb48", "vcvGl", "VCVGL", "vc vgl", "-", "é")
    workload = prepare(recorded(*({"team": team} for team in teams)), hosts=1, gpus_per_host=8, speed=1)
    by_team = dict(zip(teams, (task.budget for task in workload.tasks), strict=True))
    assert by_team == {
        "11cb48": "team-11cb48",
        "VCVGL": "team-vcvgl",
        "vcvGl": "team-vcvgl-2",
        "vc vgl": "team-vc-vgl",
        "-": "team-unnamed",
        "é": "team-unnamed-2",
    }
    root, *leaves = workload.budgets
    assert (root.budget, root.weight, root.parent) == ("trace", 1, None)
    assert [(node.budget, node.weight, node.parent) for node in leaves] == [
        (name, 1, "trace") for name in sorted(by_team.values())
    ]


@pytest.mark.parametrize(
    ("speed", "name"), [(1, "trace-1"), (2000, "trace-2000"), (0.5, "trace-0-5"), (1_000_000, "trace-1000000")]
)
def test_the_policy_is_named_for_the_speed(speed: float, name: str) -> None:
    assert prepare(recorded({}), hosts=1, gpus_per_host=8, speed=speed).policy_name == name


def test_every_rule_that_met_something_is_stated_with_its_count() -> None:
    jobs = (
        {"gpus": 12, "duration_ms": HOUR},
        {"outcome": Outcome.FAILED, "user": "u2"},
        {"outcome": Outcome.CANCELLED},
        {"gpus": 16},
        {},
    )
    workload = prepare(recorded(*jobs), hosts=2, gpus_per_host=8, speed=100, cut_s=10, limit=4)
    assert [(rule.count, rule.rule) for rule in workload.rules] == [
        (1, "rows after the limit are not played"),
        (4, "arrivals and lengths of time are divided by 100"),
        (1, "jobs that would run longer than 10 s are cut to it"),
        (2, "users are not told apart: the account trace submits for all"),
        (1, "teams are leaves of equal weight under the budget trace"),
        (2, "jobs above one host are gangs of whole hosts"),
        (1, "gangs are rounded up to whole hosts"),
        (4, "windows are 15 min up to 8 GPUs, 30 min up to 64, 1 h above; all jobs are resumable"),
        (1, "limits below the recorded length are raised to it"),
        (4, "timeouts are the recorded limit, the window at least, and 30 s undivided"),
        (1, "jobs that failed (their nodes too) leave with 1 after their recorded time"),
        (1, "jobs that were cancelled are cancelled by a command after their time of running"),
    ]


def test_where_no_outcome_is_recorded_it_is_said() -> None:
    rules = prepare(recorded({}, has_outcomes=False), hosts=1, gpus_per_host=8, speed=1).rules
    assert rules[-1].rule == "no outcome is recorded: every job succeeds"


def _cell_of(workload: Workload) -> Cell:
    """A cell set up as the player does it."""
    cell = Cell().hosts(workload.hosts, workload.gpus_per_host)
    cell.say(ChangePolicy(name=workload.policy_name, policy=workload.policy), "trace")
    for node in workload.budgets:
        cell.say(node, "trace")
    assert cell.events(CommandRefused) == []
    return cell


@pytest.mark.parametrize("speed", [1, 2000, 1_000_000], ids=lambda speed: f"speed {speed}")
@pytest.mark.parametrize("name", ["tiny_philly_200.csv", "tiny_helios_200.csv", "muri_trace3.csv"])
def test_every_contract_of_the_real_traces_is_one_that_admission_takes(name: str, speed: float) -> None:
    workload = prepare(read_trace(DATA / name), hosts=22, gpus_per_host=8, speed=speed, cut_s=3, limit=200)
    cell = _cell_of(workload)
    for task in workload.tasks:
        contract, problems = read_contract(task.contract())
        assert contract is not None, problems
        request = effective_request(cell.world, workload.policy, scheduling_fields(contract))
        problems, _ = check(cell.world, workload.policy, "trace", task.budget, request, cell.now_ms)
        assert problems == ()


def test_classes_of_waiting_do_not_depend_on_the_speed() -> None:
    trace = read_trace(DATA / "tiny_helios_200.csv")

    def classes(speed: float) -> list[WaitClass]:
        workload = prepare(trace, hosts=22, gpus_per_host=8, speed=speed)
        contracts = (read_contract(task.contract())[0] for task in workload.tasks)
        return [wait_class(scheduling_fields(c), workload.debug) for c in contracts if c is not None]

    assert len(classes(1)) == len(trace.jobs)
    assert classes(1) == classes(2000)
    assert set(classes(1)) == {WaitClass.DEBUG, WaitClass.SMALL, WaitClass.MEDIUM, WaitClass.LARGE}


# what may be asked of it ---------------------------------------------------------------------------------
def _asked(wishes: Wishes, *jobs: dict[str, Any], zero_ms: int | None = None) -> Workload:
    return prepare(recorded(*jobs, zero_ms=zero_ms), hosts=20, gpus_per_host=8, wishes=wishes)


def _stated(workload: Workload) -> dict[str, int]:
    return {rule.rule: rule.count for rule in workload.rules}


DAYS = [{"arrive_ms": day * 24 * HOUR} for day in range(4)]
OCTOBER_1ST = 1_506_816_000_000


@pytest.mark.parametrize(
    ("begin", "kept"),
    [
        pytest.param("", 4, id="all of it"),
        pytest.param("1d", 3, id="a length after the first arrival, and what arrives at its end"),
        pytest.param("1d1s", 2, id="a second later"),
        pytest.param("2017-10-02", 3, id="a day"),
        pytest.param("2017-10-02T00:00:01", 2, id="a date and time"),
        pytest.param("2017-10-02T02:00:01+02:00", 2, id="the same instant elsewhere"),
        pytest.param("2010-01-01", 4, id="long before"),
    ],
)
def test_a_trace_begins_where_it_is_told_to_and_counts_from_there(begin: str, kept: int) -> None:
    workload = _asked(Wishes(begin=begin), *DAYS, zero_ms=OCTOBER_1ST)
    assert [task.arrive_ms for task in workload.tasks] == [day * 24 * HOUR for day in range(kept)]
    assert _stated(workload).get("jobs before the beginning are left out", 0) == 4 - kept


@pytest.mark.parametrize(
    ("begin", "zero_ms", "expected"),
    [
        pytest.param("4d", None, "row 5: is the last arrival, 3d after the first: begin earlier than '4d'", id="late"),
        pytest.param("2017-10-05", OCTOBER_1ST, "row 5: is the last arrival", id="a late date"),
        pytest.param("2017-10-01", None, "without dates, so it has no '2017-10-01': write a length", id="no dates"),
    ],
)
def test_a_beginning_that_no_job_comes_after_is_refused(begin: str, zero_ms: int | None, expected: str) -> None:
    with pytest.raises(TraceWrong, match=re.escape(expected)):
        _asked(Wishes(begin=begin), *DAYS, zero_ms=zero_ms)


def test_the_limit_counts_from_the_beginning() -> None:
    trace = recorded(*DAYS)
    workload = prepare(trace, hosts=1, gpus_per_host=8, limit=2, wishes=Wishes(begin="1d"))
    assert [task.request_id for task in workload.tasks] == ["t-2", "t-3"]
    assert _stated(workload)["rows after the limit are not played"] == 1


def test_runtimes_and_limits_are_multiplied_exactly_and_rounded_down() -> None:
    workload = _asked(Wishes(runtime=Fraction("1.015")), {"duration_ms": 1_000_001, "limit_ms": 2_000_000})
    (task,) = workload.tasks
    assert (task.run_ms, task.request.timeout_ms) == (1_015_001, 2_030_000 + START_SLACK_MS)
    assert _stated(workload)["runtimes and limits are multiplied by 1.015"] == 1


def test_a_job_is_never_shortened_to_nothing() -> None:
    assert _asked(Wishes(runtime=Fraction("0.001")), {"duration_ms": 5}).tasks[0].run_ms == 1


def test_a_load_moves_arrivals_together_and_leaves_work_as_it_is() -> None:
    workload = _asked(Wishes(load=Fraction("1.5")), *({"arrive_ms": at} for at in (0, 1_000, 4_001)))
    assert [task.arrive_ms for task in workload.tasks] == [0, 666, 2_667]
    assert {task.run_ms for task in workload.tasks} == {600_000}
    assert _stated(workload)["gaps between arrivals are divided by 1.5"] == 3


def test_a_load_that_spreads_a_trace_over_centuries_is_refused() -> None:
    jobs = ({}, {"arrive_ms": LONGEST_MS // 1000 + 1})
    assert len(_asked(Wishes(), *jobs).tasks) == 2
    with pytest.raises(TraceWrong, match=r"row 3: arrives more than 3660 days after the first: raise --load"):
        _asked(Wishes(load=Fraction("0.001")), *jobs)


def test_weights_by_gpu_hours_are_permille_of_them_all_and_never_nothing() -> None:
    jobs = (
        {"team": "a", "gpus": 8, "duration_ms": 6 * HOUR},
        {"team": "b", "gpus": 1, "duration_ms": 16 * HOUR},
        {"team": "c", "duration_ms": 1},
    )
    workload = _asked(Wishes(weights="gpu-hours"), *jobs)
    assert [(node.budget, node.weight) for node in workload.budgets] == [
        ("trace", 1),
        ("team-a", 749),
        ("team-b", 249),
        ("team-c", 1),
    ]
    assert _stated(workload)["teams are leaves with weights by their GPU-hours under the budget trace"] == 3


def test_users_told_apart_are_accounts_of_their_own() -> None:
    jobs = ({"user": "uA"}, {"user": "ua"}, {"user": ""}, {"user": "uA"})
    workload = _asked(Wishes(is_apart=True), *jobs)
    assert [task.account for task in workload.tasks] == ["user-ua", "user-ua-2", "trace", "user-ua"]
    assert len({task.job for task in workload.tasks}) == 4
    assert _stated(workload)["each user submits by an account of the same name"] == 2


@pytest.mark.parametrize(("interval_ms", "told"), [(0, 0), (900_000, 1)])
def test_checkpoints_are_added_where_somebody_says_so(interval_ms: int, told: int) -> None:
    workload = _asked(Wishes(checkpoint_ms=interval_ms), {})
    assert workload.tasks[0].request.checkpoint_interval_ms == interval_ms
    assert _stated(workload).get("checkpoints fall every 15m of work", 0) == told


def test_names_are_within_what_an_account_or_a_budget_may_be_called() -> None:
    texts = [f"{'A b' * 40}{n}" for n in range(3)]
    found = names("user", texts, "unnamed")
    assert len(set(found.values())) == 3
    assert all(is_name(name) for name in found.values())
