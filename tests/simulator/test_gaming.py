"""Projects whose people do not play fair: each strategy does in the log what it says; figures tell its worth."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fairlease.simulator.engine import T0
from fairlease.simulator.gaming import LATE_MS, handed_in
from fairlease.simulator.machines import Work
from fairlease.simulator.runs import simulate_lab
from fairlease_schemas.job import Request
from fairlease_schemas.policy import Policy
from fairlease_schemas.units import HOUR_MS, MINUTE_MS, SECOND_MS

Data = dict[str, Any]
PLAYER = "a2"
EASY: Data = {
    "class": {
        "debug": {"count_permille": 0},
        "ordinary": {"count_permille": 1000, "gpus": [8, 16], "window_min": [30], "duration": {"median_h": 1.5}},
        "large": {"count_permille": 0},
        "very-large": {"count_permille": 0},
        "not-resumable": {"count_permille": 0},
    },
}
"""Work of one or two hosts that lasts longer than its window, so that every strategy has something to do."""


def request(**changes: Any) -> Request:  # noqa: ANN401 - a field of a request
    asked = {
        "hosts": 4,
        "gpus_per_host": 8,
        "pools": ("h100",),
        "min_runtime_ms": HOUR_MS,
        "timeout_ms": 400 * HOUR_MS,
        "grace_ms": 90 * SECOND_MS,
        "is_resumable": True,
        **changes,
    }
    return Request(**asked)


WORK = Work(left_ms=3 * HOUR_MS, startup_ms=120 * SECOND_MS)


def lied(strategy: str, **changes: Any) -> list[Request]:  # noqa: ANN401 - as above
    return [asked for asked, _ in handed_in(strategy, Policy(), request(**changes), WORK)]


def test_a_gang_is_split_into_jobs_of_one_host_with_the_same_work_in_all() -> None:
    parts = handed_in("splits", Policy(), request(min_runtime_ms=8 * HOUR_MS), WORK)
    assert [(asked.hosts, asked.gpus_per_host, asked.min_runtime_ms) for asked, _ in parts] == [(1, 8, 4 * HOUR_MS)] * 4
    assert [work.left_ms for _, work in parts] == [WORK.left_ms] * 4
    assert len({id(work) for _, work in parts}) == 4  # each has its own to do
    assert lied("splits", hosts=1) == [request(hosts=1)]


@pytest.mark.parametrize(
    ("strategy", "hosts", "timeout_ms", "window_ms"),
    [
        pytest.param("long-windows", 1, 400 * HOUR_MS, 4 * HOUR_MS, id="the longest of a small gang"),
        pytest.param("long-windows", 4, 400 * HOUR_MS, 8 * HOUR_MS, id="the longest of a larger one"),
        pytest.param("long-windows", 4, 2 * HOUR_MS, 2 * HOUR_MS, id="never above the timeout"),
        pytest.param("short-windows", 4, 400 * HOUR_MS, 15 * MINUTE_MS, id="the shortest"),
    ],
)
def test_windows_are_lied_about_within_the_bounds_of_the_policy(
    strategy: str, hosts: int, timeout_ms: int, window_ms: int
) -> None:
    asked = lied(strategy, hosts=hosts, timeout_ms=timeout_ms)
    assert asked == [request(hosts=hosts, timeout_ms=timeout_ms, min_runtime_ms=window_ms)]


def test_what_fits_the_debug_lane_is_handed_in_there_and_what_does_not_is_left() -> None:
    assert lied("debug-lane") == [request()]
    (asked,) = lied("debug-lane", hosts=1)
    assert (asked.lane, asked.min_runtime_ms, asked.timeout_ms, asked.on_timeout) == (
        "debug",
        15 * MINUTE_MS,
        HOUR_MS,
        "requeue",
    )


@pytest.mark.parametrize(
    "honest",
    [
        pytest.param({"min_runtime_ms": 0}, id="idle work"),
        pytest.param({"lane": "debug", "hosts": 1}, id="honest debug work"),
        pytest.param({"is_resumable": False, "hosts": 1}, id="what cannot be resumed"),
    ],
)
@pytest.mark.parametrize("strategy", ["splits", "long-windows", "short-windows", "debug-lane"])
def test_what_cannot_be_lied_about_is_left_as_it_is(strategy: str, honest: Data) -> None:
    assert lied(strategy, **honest) == [request(**honest)]


# in the log ------------------------------------------------------------------------------------------
def events_of(log: Path, budget: str) -> list[tuple[int, Data]]:
    """The events of the budget's jobs and their attempts, each with its instant."""
    records = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    events = [(record["at_ms"], event) for record in records for event in record["events"]]
    mine = {event["job"] for _, event in events if event["type"] == "job-admitted" and event["budget"] == budget}
    return [(at_ms, event) for at_ms, event in events if job_of_event(event) in mine]


def job_of_event(event: Data) -> str:
    found: str = event.get("job") or event.get("attempt", "").rpartition("-a")[0]
    return found


Played = Callable[[str], tuple[Data, list[tuple[int, Data]]]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Half a day of 8 hosts with this strategy, played once: the report, and what the log says of the player's jobs."""
    folder = tmp_path_factory.mktemp("games")
    return cache(lambda strategy: play(folder / f"{strategy or 'fair'}.jsonl", strategy))


def play(path: Path, strategy: str) -> tuple[Data, list[tuple[int, Data]]]:
    over = {**EASY, "game": {PLAYER: strategy}} if strategy else EASY
    with path.open("wb") as log:
        report = simulate_lab(
            policy="budget-window", seed=5, hosts=8, measured_ms=12 * HOUR_MS, warm_up_ms=0, log=log, over=over
        )
    return report, events_of(path, PLAYER)


def of(events: list[tuple[int, Data]], kind: str) -> list[Data]:
    return [event for _, event in events if event["type"] == kind]


def test_nobody_plays_in_the_reference_workload_and_the_same_game_is_the_same_run(
    played: Played, tmp_path: Path
) -> None:
    fair, events = played("")
    assert of(events, "job-cancelled") == []
    first, second = played("splits")[0], play(tmp_path / "again.jsonl", "splits")[0]
    assert first["digest"] == second["digest"] != fair["digest"]
    assert first["workload_digest"] != fair["workload_digest"]
    assert {"rule": "a project's people do not play fair, as the workload says", "count": 1} in first["rules"]


def test_delays_hand_in_the_same_later(played: Played) -> None:
    _, fair = played("")
    _, late = played("delays")
    first = [
        [(at, e["job"], e["request"]) for at, e in told if e["type"] == "job-admitted"][:3] for told in (fair, late)
    ]
    assert [(at + LATE_MS, job, asked) for at, job, asked in first[0]] == first[1]


def test_splits_leave_no_gang_of_several_hosts(played: Played) -> None:
    fair, split = (played(name)[1] for name in ("", "splits"))
    assert max(event["request"]["hosts"] for event in of(fair, "job-admitted")) == 2
    assert {event["request"]["hosts"] for event in of(split, "job-admitted")} == {1}


def test_resubmits_cancel_at_the_window_s_end_and_after_half_an_hour_and_lose_no_work(played: Played) -> None:
    report, events = played("resubmits")
    admitted = {event["job"]: (at, event) for at, event in events if event["type"] == "job-admitted"}
    granted = {event["job"]: at for at, event in events if event["type"] == "gang-granted"}
    ran, waited = [], []
    for at, event in events:
        if event["type"] == "attempt-ending" and event["end"] == "cancelled":
            job = event["attempt"].rpartition("-a")[0]
            ran.append(at - granted[job] - admitted[job][1]["request"]["min_runtime_ms"])
        elif event["type"] == "job-cancelled" and event["job"] not in granted:
            waited.append(at - admitted[event["job"]][0])
    assert ran
    assert set(ran) == {0}  # at the very end of its window
    assert set(waited) <= {30 * MINUTE_MS}
    again = [event for _, event in admitted.values() if "-again-" in event["request_id"]]
    assert len(again) == len(of(events, "job-cancelled")) > 0
    assert report["useful_gpu_h"][PLAYER] > 0


def test_squatters_hold_gpus_beyond_their_work_until_somebody_needs_them(played: Played) -> None:
    fair, _ = played("")
    squat, events = played("squats")
    assert of(events, "job-succeeded") == []  # nobody leaves by himself
    evicted = {event["attempt"].rpartition("-a")[0] for event in of(events, "eviction-ordered")}
    cancelled = {event["job"] for event in of(events, "job-cancelled")}
    assert cancelled
    assert cancelled <= evicted  # and whoever has done his work is not seen again once he was told to leave
    held, useful = squat["fulfilment"]["held_gpu_h"][PLAYER], squat["useful_gpu_h"][PLAYER]
    assert held - useful > fair["fulfilment"]["held_gpu_h"][PLAYER] - fair["useful_gpu_h"][PLAYER]


def test_lies_stand_in_what_is_handed_in(played: Played) -> None:
    for strategy, window_ms in (("long-windows", {4 * HOUR_MS, 8 * HOUR_MS}), ("short-windows", {15 * MINUTE_MS})):
        _, events = played(strategy)
        asked = [event["request"]["min_runtime_ms"] for event in of(events, "job-admitted")]
        assert {window for window in asked if window} == window_ms, strategy
    _, events = played("debug-lane")
    lanes = {(event["request"].get("lane", ""), event["request"]["hosts"]) for event in of(events, "job-admitted")}
    assert ("debug", 1) in lanes
    assert ("debug", 2) not in lanes
    assert of(events, "job-requeued")  # an hour is over, and the work is not


def test_useful_work_is_the_time_between_start_and_end_where_nothing_is_lost(tmp_path: Path) -> None:
    """Room for everybody and no fault: the log's own starts and ends say the same to the millisecond."""
    over = {**EASY, "demand": {"outstanding_of_share": 0.1, "idle_outstanding_of_share": 0}}
    over["cluster"] = {"host_mtbf_days": 1_000_000}
    path, span_ms = tmp_path / "log.jsonl", 4 * HOUR_MS
    with path.open("wb") as log:
        report = simulate_lab(
            policy="budget-window", seed=1, hosts=40, measured_ms=span_ms, warm_up_ms=0, log=log, over=over
        )
    assert report["preemption"]["count"] == 0
    until_ms, done_gpu_ms = T0 + span_ms, 0
    events = events_of(path, "a1")
    gpus = {job["job"]: job["request"]["hosts"] * job["request"]["gpus_per_host"] for job in of(events, "job-admitted")}
    ended = {event["attempt"]: at for at, event in events if event["type"] == "attempt-ended"}
    began = {event["attempt"]: at for at, event in events if event["type"] == "attempt-started"}
    for name, at in began.items():
        done_gpu_ms += gpus[name.rpartition("-a")[0]] * (ended.get(name, until_ms) - at)
    assert len(began) > len(ended) > 0  # of those that are over and of those that are not
    assert report["useful_gpu_h"]["a1"] == round(done_gpu_ms / HOUR_MS, 6)
