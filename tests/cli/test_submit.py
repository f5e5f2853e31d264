import json
import signal
from pathlib import Path

import msgspec
import pytest

from fairlease.cli.exits import INTERRUPTED, LATER, OK, REFUSED
from fairlease_schemas.ids import job_id
from fairlease_schemas.job import Advice, Problem
from tests.cli.cell import Cell, Life, attempt_view, eventually, job_view
from tests.cli.test_submission import GOOD

OPTIONS = ["--budget", "team-a", "--min-runtime", "15m", "--timeout", "1h"]
SUBMIT = ("submit", *OPTIONS, "--request-id", "r-1")
JOB = job_id("local", "team-a", "r-1")
RUNS = (Life("granted"), Life("running"))


def test_submit_prints_the_job_id_alone(cell: Cell, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD, encoding="utf-8")
    seen = cell.run("submit", str(path), "--request-id", "r-1")
    assert seen == (OK, f"{JOB}\n", "")
    ((command, body),) = cell.plan.commands
    assert (command, body["request_id"]) == ("local/submit-job", "r-1")
    assert body["contract"]["spec"]["min_runtime"] == "1h30m"


def test_submit_without_a_file_sends_what_the_options_say(cell: Cell) -> None:
    assert cell.run(*SUBMIT, "--env", "A=1", "--", "python", "t.py", "--json").out == f"{JOB}\n"
    spec = cell.plan.commands[0][1]["contract"]["spec"]
    assert (spec["command"], spec["env"]) == (["python", "t.py", "--json"], {"A": "1"})


def test_the_answer_is_data_for_a_program(cell: Cell) -> None:
    told = json.loads(cell.run(*SUBMIT, "--json", "--", "true").out)
    assert (told["kind"], told["job"], told["outcome"]) == ("Answer", JOB, "accepted")
    assert cell.run(*SUBMIT, "-o", "name", "--", "true").out == f"{JOB}\n"


def test_a_dry_run_sends_nothing(cell: Cell) -> None:
    assert cell.run(*SUBMIT, "--dry-run", "-o", "name", "--", "true").out == f"{JOB}\n"
    assert cell.plan.commands == []


def test_advice_is_told_beside_the_id(cell: Cell) -> None:
    cell.plan.advice = (Advice(field="spec.min_runtime", rule="1.18", text="a shorter window starts sooner"),)
    seen = cell.run(*SUBMIT, "--", "true")
    assert seen == (OK, f"{JOB}\n", "advice: spec.min_runtime: a shorter window starts sooner (rule 1.18)\n")


def test_advice_has_one_form_as_data_whichever_command_it_comes_with(cell: Cell) -> None:
    cell.plan.advice = (Advice(field="spec.min_runtime", rule="1.18", text="a shorter window starts sooner"),)
    told = [
        cell.run(*words).err for words in ((*SUBMIT, "-o", "json", "--", "true"), ("job", "hold", JOB, "-o", "json"))
    ]
    facts = {"kind": "Advice", "field": "spec.min_runtime", "rule": "1.18", "text": "a shorter window starts sooner"}
    assert [json.loads(line) for line in told] == [facts, facts]
    assert cell.run(*SUBMIT, "--quiet", "--", "true").err == ""


def test_a_refused_job_is_200_with_rule_and_numbers(cell: Cell) -> None:
    cell.plan.outcome = "refused"
    cell.plan.problems = (
        Problem(field="spec.min_runtime", rule="1.4", value="5h", limit="<= 4h", way_out="ask for less"),
    )
    for words in ((), ("--wait",)):
        seen = cell.run(*SUBMIT, *words, "--", "true")
        assert (seen.code, seen.out) == (REFUSED, "")
        assert "spec.min_runtime '5h' (rule 1.4, <= 4h): ask for less" in seen.err
    told = cell.run(*SUBMIT, "--wait", "--json", "--", "true")
    assert json.loads(told.out)["outcome"] == "refused"
    assert json.loads(told.err)["exit_code"] == REFUSED


def test_no_answer_is_75_and_says_how_to_ask_again(cell: Cell) -> None:
    cell.plan.is_mute = True
    seen = cell.run(*SUBMIT, "--answer-timeout", "200ms", "--", "true")
    assert (seen.code, seen.out) == (LATER, "")
    assert f"--request-id r-1: the same id and contract is the same job, {JOB}" in seen.err
    told = json.loads(cell.run(*SUBMIT, "--answer-timeout", "200ms", "--json", "--", "true").err)
    assert (told["job"], told["request_id"]) == (JOB, "r-1")


@pytest.mark.parametrize(
    ("last", "code", "words"),
    [
        pytest.param(Life("succeeded", "succeeded", 0), 0, "succeeded", id="success"),
        pytest.param(Life("failed", "failed", 7), 7, "failed: exit code 7", id="the job's own code"),
        pytest.param(Life("failed", "failed", 139), 139, "exit code 139", id="a signal"),
        pytest.param(Life("cancelled", "cancelled", 0), 201, "cancelled", id="cancelled although it left with 0"),
        pytest.param(Life("timed-out", "timed-out", 143), 202, "timed-out", id="timed out"),
        pytest.param(Life("failed", "preempted", 143), 203, "preempted and not resumable", id="preempted"),
        pytest.param(Life("failed", "lost"), 204, "lost by a fault", id="lost"),
        pytest.param(Life("failed", "start-failed"), 206, "could not be started", id="start failed"),
    ],
)
def test_wait_leaves_with_the_code_of_the_end(cell: Cell, last: Life, code: int, words: str) -> None:
    cell.plan.life = (*RUNS, last)
    seen = cell.run(*SUBMIT, "--wait", "--", "true")
    assert (seen.code, seen.out) == (code, f"{JOB}\n")
    *steps, end = seen.err.splitlines()
    assert steps[-1] == f"{JOB} running on host-1"
    assert end.startswith(f"{JOB} {last.state}")
    assert words in end


def test_wait_gives_the_view_to_a_program_and_progress_as_lines(cell: Cell) -> None:
    cell.plan.life = (*RUNS, Life("failed", "failed", 3))
    seen = cell.run(*SUBMIT, "--wait", "--json", "--", "true")
    told = json.loads(seen.out)
    assert (seen.code, told["kind"], told["state"], told["exit_code"]) == (3, "Job", "failed", 3)
    lines = [json.loads(line) for line in seen.err.splitlines()]
    assert [line.get("state") for line in lines][-2:] == ["running", "failed"]
    assert (lines[-1]["kind"], lines[-1]["exit_code"]) == ("JobState", 3)


def test_quiet_still_says_the_state(cell: Cell) -> None:
    cell.plan.life = (*RUNS, Life("failed", "failed", 3))
    assert cell.run(*SUBMIT, "--wait", "-q", "--", "true").err == f"{JOB} failed: exit code 3\n"


def test_wait_hears_of_an_end_the_feed_lost(cell: Cell) -> None:
    cell.plan.life = (Life("running", is_told=False), Life("succeeded", "succeeded", 0, is_told=False))
    assert cell.run(*SUBMIT, "--wait", "--", "true").code == OK


def test_a_repeated_submission_waits_for_the_job_there_is(cell: Cell) -> None:
    cell.plan.life = (Life("running"), Life("failed", "failed", 5))
    assert cell.run(*SUBMIT, "--wait", "--", "true").code == 5
    cell.plan.outcome, cell.plan.life = "repeated", ()
    seen = cell.run(*SUBMIT, "--wait", "--", "true")
    assert (seen.code, "was submitted before" in seen.err) == (5, True)


def test_a_job_that_does_not_start_in_time_is_207_and_goes_on_waiting(cell: Cell) -> None:
    cell.plan.life = (Life("backoff"),)
    seen = cell.run(*SUBMIT, "--wait", "--start-timeout", "300ms", "--", "true")
    assert (seen.code, f"fairlease job cancel {JOB}" in seen.err) == (207, True)
    assert [command for command, _ in cell.plan.commands] == ["local/submit-job"]


def test_a_start_timeout_does_not_end_a_job_that_runs(cell: Cell) -> None:
    cell.plan.outcome, cell.plan.jobs = "repeated", {JOB: job_view(JOB, state="running")}
    cell.plan.life = (Life("succeeded", "succeeded", 0, pause_s=0.5),)
    assert cell.run(*SUBMIT, "--wait", "--start-timeout", "100ms", "--", "true").code == OK


def test_follow_prints_the_jobs_log_and_nothing_else(cell: Cell) -> None:
    cell.plan.log = {"host-1": "".join(f"step {number}\n" for number in range(9))}
    cell.plan.life = (*RUNS, Life("succeeded", "succeeded", 0, pause_s=0.3))
    seen = cell.run(*SUBMIT, "--follow", "--", "true")
    assert (seen.code, seen.out) == (OK, cell.plan.log["host-1"])
    assert seen.err.endswith(f"{JOB} succeeded\n")


def test_an_interrupted_wait_is_130_and_the_job_goes_on(cell: Cell) -> None:
    cell.plan.life = (Life("running"),)
    with cell.start(*SUBMIT, "--wait", "--", "true") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{JOB}\n"
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=10)
        finally:
            process.kill()  # one that does not heed it fails this test, and must not hold up the others
    assert process.returncode == INTERRUPTED
    assert f"{JOB} goes on without this command" in err
    assert "Traceback" not in err
    assert eventually(lambda: cell.plan.jobs[JOB].state == "running")


def test_a_wait_survives_a_restart_of_the_bus(cell: Cell) -> None:
    cell.plan.life = (Life("running", pause_s=0.1),)
    with cell.start(*SUBMIT, "--wait", "--", "true") as process:
        assert eventually(lambda: JOB in cell.plan.jobs and cell.plan.jobs[JOB].state == "running")
        cell.restart_bus()
        cell.finish(JOB, Life("failed", "failed", 9))
        process.communicate(timeout=15)
    assert process.returncode == 9


def test_the_cell_is_told_nothing_before_the_contract_holds(cell: Cell) -> None:
    seen = cell.run("submit", *OPTIONS, "--hosts", "99999", "--", "true")
    assert (seen.code, cell.plan.commands) == (65, [])


@pytest.mark.parametrize(
    ("options", "field", "asked"),
    [
        pytest.param(["--image", "ghcr.io/lab/train:7"], "spec.image", "image", id="an image"),
        pytest.param(["--secret", "KEY=secret:wandb"], "spec.secrets", "secrets", id="a secret"),
        pytest.param(
            ["--image", "train", "--secret", "KEY=secret:wandb"],
            "spec.image",
            "image and secrets",
            id="an image and a secret",
        ),
    ],
)
@pytest.mark.parametrize("way", [[], ["--dry-run"]])
def test_what_no_agent_can_give_is_told_at_once(
    cell: Cell, way: list[str], options: list[str], field: str, asked: str
) -> None:
    seen = cell.run(*SUBMIT, *options, *way, "--", "true")
    assert seen.code == OK
    assert f"advice: {field}: no agent of this release gives {asked}: the job would be" in seen.err
    assert cell.run(*SUBMIT, *options, *way, "-q", "--", "true").err in (
        "",
        f"this would be {JOB}; nothing was submitted\n",
    )


def test_a_start_that_failed_says_why(cell: Cell) -> None:
    attempt = msgspec.structs.replace(
        attempt_view(JOB, ("host-1",)), end="start-failed", detail="no such program: trian"
    )
    view = job_view(JOB, state="failed", end="start-failed", attempts=(attempt,))
    cell.plan.outcome, cell.plan.jobs = "repeated", {JOB: view}
    seen = cell.run(*SUBMIT, "--wait", "--", "true")
    assert (seen.code, seen.err.splitlines()[-1]) == (
        206,
        f"{JOB} failed: could not be started: no such program: trian",
    )


def test_a_job_that_was_cancelled_for_another_names_it(cell: Cell) -> None:
    other = "job-" + "d" * 20
    cell.plan.outcome = "repeated"
    cell.plan.jobs = {JOB: job_view(JOB, state="cancelled", end="cancelled", cancelled_for=other)}
    seen = cell.run(*SUBMIT, "--wait", "-q", "--", "true")
    assert (seen.code, seen.err) == (201, f"{JOB} cancelled: {other}, which it waited for, did not end well\n")


def test_a_time_out_is_told_once(cell: Cell) -> None:
    cell.plan.life = (*RUNS, Life("timed-out", "timed-out"))
    assert cell.run(*SUBMIT, "--wait", "-q", "--", "true").err == f"{JOB} timed-out\n"


ARRAY = [job_id("local", "team-a", f"r-1/{index}") for index in range(3)]


def test_an_array_prints_the_ids_of_its_jobs(cell: Cell) -> None:
    seen = cell.run(*SUBMIT, "--array", "3%2", "--", "true")
    assert (seen.code, seen.out.split()) == (OK, ARRAY)
    assert cell.plan.commands[0][1]["contract"]["spec"]["array"] == {"count": 3, "parallel": 2}


def test_waiting_for_an_array_is_waiting_for_all_of_it_and_the_first_failure_is_its_code(cell: Cell) -> None:
    cell.plan.life = (Life("running"), Life("failed", "failed", 3))
    seen = cell.run(*SUBMIT, "--array", "3", "--wait", "--", "true")
    assert (seen.code, seen.out.split()) == (3, ARRAY)
    assert sum(f"{job} failed: exit code 3" in seen.err for job in ARRAY) == 3


def test_an_array_has_no_one_log_to_follow(cell: Cell) -> None:
    seen = cell.run(*SUBMIT, "--array", "3", "--follow", "--", "true")
    assert (seen.code, "--wait" in seen.err, cell.plan.commands) == (64, True, [])
