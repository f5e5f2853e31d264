"""`metrics`, `acct` and `cost` on a saved log that can be checked by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli import history
from fairlease.cli.exits import USAGE
from fairlease.cli.main import main
from fairlease.figures.wording import hours, percent, rough
from fairlease_schemas.commands import RecordEvaluation
from fairlease_schemas.evaluation import Outcome
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import End
from tests.core.bench import left, saved
from tests.dsl.cell import HOUR, MINUTE, SECOND, T0, Cell

ASKED = {
    *("policy", "seed", "hosts", "gpus", "days", "jobs", "availability", "occupancy", "impact", "progress"),
    *("fulfilment", "workload_digest", "wait", "completion", "preemption", "promises", "events", "decisions"),
    *("digest", "speed", "apiVersion", "kind"),
}
"""Keys that the simulator's report has (docs/outputs.md)."""


def story() -> Cell:
    """One host of eight for two hours: idle work gives way to a job for an hour, comes back, and succeeds.

    A second person's job fails at once, and a third waits for ever.
    """
    cell = Cell().hosts(1).budgets(a=1, org=1, org__b=1).policy(rank_period_ms=MINUTE)
    whole = {"gpus_per_host": 8, "timeout_ms": 24 * HOUR}
    idle = cell.submit("idle", "a", min_runtime_ms=0, evaluation="mmlu", **whole)
    cell.at(10 * SECOND).start(idle).at(10 * MINUTE)
    saved(cell, idle).at(20 * MINUTE)
    train = cell.submit("train", "b", who="bob", evaluation="mmlu", **whole)
    left(cell.at(20 * MINUTE + 30 * SECOND), idle)
    cell.start(train).at(80 * MINUTE + 30 * SECOND).gone(train)
    cell.at(81 * MINUTE + 30 * SECOND).start(idle).at(110 * MINUTE).gone(idle)
    fails = cell.submit("fails", "b", who="bob", **whole)
    cell.start(fails).at(120 * MINUTE).gone(fails, End.FAILED, 3)
    return cell


@pytest.fixture(scope="module")
def cell() -> Cell:
    return story()


@pytest.fixture
def log(cell: Cell, tmp_path: Path) -> str:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(data + b"\n" for data in cell.records))
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:  # noqa: ANN401 - JSON data
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_report_has_the_simulators_keys_and_the_figures_of_the_log(
    log: str, cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    report = printed(capsys, "metrics", "--log", log)
    assert report.keys() >= ASKED
    assert (report["kind"], report["seed"], report["workload_digest"]) == ("MetricsReport", None, None)
    assert (report["hosts"], report["gpus"], report["days"]) == (1, 8, 0.0833)
    assert report["jobs"] == {"submitted": 3, "started": 3, "finished": 3}
    assert (report["availability"], report["occupancy"]) == (1.0, 1.0)
    # 16 GPU-h: of 60 + 10 min budgeted, `b` is entitled to half of 120 min; idle work is no impact.
    assert report["impact"] == 0.5
    # Lost: 10.5 min since the checkpoint, 1 min until it ran again, the 10 min that failed, of 120.
    assert report["progress"] == pytest.approx((120 - 10.5 - 1 - 10) / 120, abs=1e-6)
    assert report["preemption"] == {
        "count": 1,
        "lost_gpu_h": 1.4,
        "restart_gpu_h": 0.133333,
        "overhead": 0.095833,
        "window_breaks": 0,
        "loops": 0,
        "turns": 0,
        "by_reason": {"claim": {"under-share": 1}},
    }
    assert report["promises"]["broken"] == 0
    assert report["fulfilment"]["by_budget"] == {"b": 1.0}
    assert report["wait"]["small"] == {"p50_s": 0.0, "p90_s": 30.0, "p99_s": 30.0, "mean_s": 15.0}
    assert report["completion"] == {"mean_s": 3_610.0, "p99_s": 6_600.0, "makespan_s": 7_200.0}
    assert (report["decisions"], report["digest"]) == (len(cell.records), cell.world.digest())
    assert report["as_of"] == {"epoch": 1, "position": len(cell.records), "log_time_ms": T0 + 2 * HOUR}
    assert (report["clock"], report["operations"]["decision"]["p99_s"]) == ("log", 0.0)


def test_the_same_log_gives_the_same_report_but_for_how_fast_it_was_read(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (printed(capsys, "metrics", "--log", log) for _ in range(2))
    assert first.pop("speed").keys() == second.pop("speed").keys()
    assert first == second


def test_a_period_and_a_scope_have_figures_of_their_own(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    last_hour = printed(capsys, "metrics", "--log", log, "--since", "1h")
    assert (last_hour["gpu_hours"]["installed"], last_hour["jobs"]["submitted"]) == (8.0, 1)
    assert last_hour["period"] == {"since_ms": T0 + HOUR, "until_ms": T0 + 2 * HOUR}
    first_hour = printed(capsys, "metrics", "--log", log, "--until", "2023-11-14T23:13:20")
    assert (first_hour["period"]["until_ms"], first_hour["gpu_hours"]["held_budgeted"]) == (T0 + HOUR, 5.266667)
    mine = printed(capsys, "metrics", "--log", log, "--person", "bob")
    assert (mine["jobs"]["submitted"], mine["gpu_hours"]["held"], mine["scope"]) == (2, 9.333333, {"person": "bob"})
    below = printed(capsys, "metrics", "--log", log, "--budget", "org")
    assert below["gpu_hours"]["held"] == 9.333333
    name = job_id("ann", "a", "idle")
    one = printed(capsys, "metrics", "--log", log, "--job", f"{name}-a2")
    assert (one["jobs"]["submitted"], one["gpu_hours"]["held"], one["scope"]) == (1, 6.666667, {"job": name})


def test_a_price_of_a_pool_that_is_not_there_is_told_with_those_that_are(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", "--log", log, "--price", "h100=2", "--price", "foo=1"]) == USAGE
    assert capsys.readouterr().err == "fairlease: a price for foo, which is no pool of the log\n  pools: h100\n"


def test_the_figures_as_a_person_reads_them(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--log", log, "--pool", "h100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2023-11-14 22:13:20 to 2023-11-15 00:13:20 UTC, 2.0h, pool h100; 1 host, 8 GPUs, ")
    assert main(["metrics", "--log", log, "--since", "5s"]) == 0
    assert " UTC, 5.0s; 1 host" in capsys.readouterr().out
    assert lines[2:9] == [
        "LEVEL               GPU-H  OF THE ONE ABOVE  LOST ON THE WAY",
        "installed            16.0",
        "schedulable          16.0           100.0 %",
        "held                 16.0           100.0 %",
        "within entitlement    8.0            50.0 %  1.3 beyond entitlement, 6.7 idle work",
        "kept, of all held    13.1            82.0 %  1.4 since a checkpoint, 1.3 failed, 0.1 restarts",
        "used by devices         -                 -  from telemetry, not measured yet",
    ]
    # `b` wanted 8 for 70.5 min and is entitled to 4.
    assert "b              9.3        4.7     100.0 %       100.0 %" in lines
    assert (
        "preemptions  1: 1.4 GPU-h lost, 0.1 to run again, 9.5 % of what was held; 0 turns, 0 loops, 0 broken windows"
        in lines
    )
    assert "resumes      1 of 1" in lines


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        pytest.param(percent(0.95), "95.0 %", id="a ratio in per cent"),
        pytest.param(percent(0.9499), "94.9 %", id="never rounded up to a limit"),
        pytest.param(percent(None), "-", id="nothing to divide"),
        pytest.param(hours(0.01), "<0.1", id="a little is not nothing"),
        pytest.param(hours(0.0), "0.0", id="nothing is"),
        pytest.param(hours(0.15), "0.2", id="halves up, as on every screen"),
        pytest.param(hours(0.25), "0.3", id="halves up, whatever a float makes of them"),
        pytest.param(hours(12_345.67), "12,345.7", id="many hours"),
        pytest.param(rough(59.94), "59.9s", id="seconds"),
        pytest.param(rough(90), "1.5m", id="minutes"),
        pytest.param(rough(86_400 * 2.5), "2.5d", id="days"),
    ],
)
def test_numbers_are_written_as(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        pytest.param("metrics --budget nobody", 1, "the log knows no budget nobody", id="an unknown budget"),
        pytest.param("metrics --pool a100", 1, "it knows: h100", id="an unknown pool says which there are"),
        pytest.param("cost --person eve", 1, "the log knows no person eve", id="an unknown person"),
        pytest.param("metrics --since 1h --until 2h", 64, "the period is empty", id="since after until"),
        pytest.param("cost --until 0001-01-01T00:00:00+14:00", 64, "the period is empty", id="before all calendars"),
        pytest.param("metrics --since 2027-01-01", 64, "choose --since before --until", id="a period to come"),
        pytest.param(
            "metrics --job job-aaaaaaaaaaaaaaaaaaaa", 1, "the log knows no job", id="figures of an unknown job"
        ),
        pytest.param("acct job-aaaaaaaaaaaaaaaaaaaa", 1, "the log knows no job", id="an unknown job"),
        pytest.param("cost --prices nowhere.toml", 64, "write lines such as h100 = 2.50", id="no such prices"),
    ],
)
def test_what_cannot_be_told_says_why_and_what_to_do(
    words: str, code: int, told: str, log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), "--log", log]) == code
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(b"", "the log holds no record", id="an empty log"),
        pytest.param(b"nothing\n", "line 1 of the log is no record", id="no log at all"),
        pytest.param(b'{"at_ms":5,"v":1}\n', "line 1 of the log is no record", id="half a record"),
    ],
)
def test_what_is_no_log_is_refused(text: bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(text)
    assert main(["metrics", "--log", str(path), "--json"]) == 1
    assert told in json.loads(capsys.readouterr().err)["text"]


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        pytest.param(lambda records: records[-12:], 1, id="without its beginning"),
        pytest.param(lambda records: records[1:], 1, id="without its first record"),
        pytest.param(lambda records: records[::-1], 1, id="turned round"),
        pytest.param(lambda records: records * 2, None, id="twice"),
        pytest.param(lambda records: [*records, records[-1]], None, id="with its last record twice"),
    ],
)
@pytest.mark.parametrize("verb", ["metrics", "cost"])
def test_a_log_that_is_not_one_from_its_beginning_to_its_end_does_not_fold(
    verb: str,
    spoil: Callable[[list[bytes]], list[bytes]],
    line: int | None,
    cell: Cell,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(data + b"\n" for data in spoil(cell.records)))
    assert main([verb, "--log", str(path)]) == 1
    told = capsys.readouterr().err
    assert f"line {line or len(cell.records) + 1} of the log does not follow from those before it" in told
    assert "from its first record on" in told


def test_no_bus_and_no_log_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEASE_URL", "nats://127.0.0.1:9")
    assert main(["metrics"]) == 69
    told = capsys.readouterr().err
    assert "does not answer" in told
    assert "--log FILE" in told


def test_an_instant_is_a_length_before_the_end_or_a_time_of_utc() -> None:
    assert history.instant("1h30m", T0) == T0 - 90 * MINUTE
    assert history.instant("2023-11-14T22:13:20", 0) == history.instant("2023-11-14T23:13:20+01:00", 0) == T0
    assert history.clock(T0) == "2023-11-14 22:13:20"
    assert history.clock(-(10**15)) == "0001-01-01 00:00:00"
    assert history.clock(10**15) == "9999-12-31 23:59:59"


# acct ----------------------------------------------------------------------------------------------------
def test_every_attempt_has_a_row_with_what_it_held_was_charged_and_lost(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    view = printed(capsys, "acct", "--log", log)
    rows = [
        (
            row["account"],
            row["number"],
            row["end"],
            row["exit_code"],
            *(row[key] for key in view["total"] if key in row),
        )
        for row in view["rows"]
    ]
    assert rows == [
        ("ann", 1, "preempted", None, 2.733333, 0.0, 1.4),
        ("bob", 1, "succeeded", 0, 8.0, 8.0, 0.0),
        ("ann", 2, "succeeded", 0, 3.933333, 0.0, 0.133333),
        ("bob", 1, "failed", 3, 1.333333, 1.333333, 1.333333),
    ]
    assert view["total"] == {"attempts": 4, "held_gpu_h": 16.0, "charged_gpu_h": 9.333333, "lost_gpu_h": 2.866667}
    first = view["rows"][0]
    assert (first["granted_ms"], first["started_ms"]) == (T0, T0 + 10 * SECOND)
    assert (first["state"], first["hosts"], first["evaluation"]) == ("succeeded", ["host-001"], "mmlu")


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        pytest.param("--person bob", ["succeeded", "failed"], id="of a person"),
        pytest.param("--budget org", ["succeeded", "failed"], id="of a budget with all below it"),
        pytest.param("--state failed", ["failed"], id="of jobs in a state"),
        pytest.param("--since 30m", ["succeeded", "failed"], id="that held something in the period"),
        pytest.param("--until 80m", ["preempted", None], id="up to an instant, as it was then"),
        pytest.param("--state waiting", [], id="of nobody"),
    ],
)
def test_only_rows_that_were_asked_for(
    words: str, ends: list[str | None], log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    view = printed(capsys, "acct", "--log", log, *words.split())
    assert [row["end"] for row in view["rows"]] == ends


def test_the_rows_as_a_person_reads_them(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acct", "--log", log, "--person", "bob"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:] for line in lines[1:4]] == [
        ["1", "b", "8", "2023-11-14", "22:33:50", "2023-11-14", "23:33:50", "succeeded", "0", "8.0", "8.0", "0.0"],
        ["1", "b", "8", "2023-11-15", "00:03:20", "2023-11-15", "00:13:20", "failed", "3", "1.3", "1.3", "1.3"],
        ["2", "9.3", "9.3", "1.3"],
    ]


# cost ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("by", "rows"),
    [
        pytest.param("budget", [("b", 23.333333, 23.333333), ("a", 16.666666, 16.666666)], id="by budget"),
        pytest.param("person", [("bob", 23.333333, 23.333333), ("ann", 16.666666, 16.666666)], id="by person"),
        pytest.param("evaluation", [("mmlu", 36.666666, 18.333333)], id="by evaluation, also what was lost on the way"),
        pytest.param("pool", [("h100", 40.0, 20.0)], id="by pool"),
    ],
)
def test_costs_are_told_by_and_per_success(
    by: str, rows: list[tuple[str, float, float]], log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    view = printed(capsys, "cost", "--log", log, "--by", by, "--price", "h100=2.5")
    assert [(row["key"], row["money"], row["money_per_success"]) for row in view["rows"]] == rows
    assert view["prices"] == {"h100": 2.5}
    assert view["total"]["money"] == pytest.approx(sum(money for _, money, _ in rows), abs=1e-5)
    assert all(("outcome" in row) == (by == "evaluation") for row in view["rows"])


def test_prices_come_from_a_file_and_the_command_line_goes_first(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("h100 = 2.500001\nl40s = 1\n")
    view = printed(capsys, "cost", "--log", log, "--prices", str(prices))
    assert view["prices"] == {"h100": 2.500001, "l40s": 1.0}
    view = printed(capsys, "cost", "--log", log, "--prices", str(prices), "--price", "h100=3")
    assert view["total"]["money"] == 48.0


def test_without_prices_the_table_says_how_to_give_them(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--log", log, "--by", "evaluation"]) == 0
    out = capsys.readouterr().out
    assert "--price POOL=USD" in out
    assert "no evaluation was passed" in out
    assert "COST" not in out


def test_what_a_passed_evaluation_cost_is_told_with_those_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # rule: 1.12
    cell = story()
    fails = cell.submit("gsm", "a", gpus_per_host=8, evaluation="gsm")
    cell.start(fails).at(130 * MINUTE).gone(fails, End.FAILED, 3)
    cell.say(RecordEvaluation(request_id="e1", evaluation="mmlu", outcome=Outcome.PASSED, budget="b"))
    cell.say(RecordEvaluation(request_id="e2", evaluation="gsm", outcome=Outcome.FAILED))
    path = tmp_path / "judged.jsonl"
    path.write_bytes(b"".join(data + b"\n" for data in cell.records))
    view = printed(capsys, "cost", "--log", str(path), "--by", "evaluation", "--price", "h100=3")
    assert {row["key"]: row["outcome"] for row in view["rows"]} == {"mmlu": "passed", "gsm": "failed"}
    total = view["total"]
    assert total["passed"] == 1
    assert (total["gpu_h_per_pass"], total["money_per_pass"]) == (total["held_gpu_h"], total["money"])
    assert main(["cost", "--log", str(path), "--by", "evaluation", "--price", "h100=3"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[-1] for line in out.splitlines()[:3]] == ["OUTCOME", "passed", "failed"]
    assert out.splitlines()[3].startswith("total")
    assert out.splitlines()[3].endswith("1 passed")
    assert "a passed evaluation cost 16.0 GPU-h and 48.00, failures and all" in out
