"""Pipelines and bots as they are written for users: examples/ci and examples/bot against a cell, on the bus alone."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fairlease.runtime.keys import key_path
from fairlease.runtime.settings import url_in
from tests.docs.session import fences
from tests.house.tree import ROOT
from tests.live.cell import Cell, cell_at
from tests.live.court import LIMIT_S, eventually
from tests.live.desk import Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_REPOSITORY": "vision/train",
    "GITHUB_RUN_ID": "4711",
    "GITHUB_RUN_ATTEMPT": "1",
    "GITHUB_JOB": "evaluate",
    "GITHUB_ACTION": "__fairlease",
}
GITLAB = {"GITLAB_CI": "true", "CI_PROJECT_PATH": "vision/train", "CI_PIPELINE_ID": "12", "CI_JOB_ID": "7"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cell]:
    async with cell_at(tmp_path_factory.mktemp("pipelines") / "cell") as cell:
        yield cell


class Ran:
    """A step of a pipeline, as its system would run it."""

    def __init__(self, code: int, out: str, folder: Path) -> None:
        self.code, self.out = code, out
        self.outputs = _pairs(folder / "output")
        self.dotenv = _pairs(folder / "fairlease.env")
        self.summary = (folder / "summary").read_text() if (folder / "summary").exists() else ""


def _pairs(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split("=", 1) for line in lines)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def env_of(cell: Cell, system: dict[str, str], folder: Path) -> dict[str, str]:
    """What the runner gives the step: nothing of ours but where the cell is, who asks, and his key."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    files = {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "summary")}
    ours = {"FAIRLEASE_ACCOUNT": "ci", "FAIRLEASE_CREDS": str(key_path(cell.home, "client-ci"))}
    return {**kept, **files, **ours, "FAIRLEASE_URL": url_in(cell.home), **system}


def made(cell: Cell, folder: Path, job: Job) -> Path:
    """The folder, with this job's contract in it."""
    folder.mkdir(exist_ok=True)
    (folder / "job.json").write_text(json.dumps(cell.body(job)["contract"]))
    return folder


async def spawned(cell: Cell, folder: Path, script: str, system: dict[str, str], *words: str) -> Any:  # noqa: ANN401 - a process
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / script),
        *words,
        env=env_of(cell, system, folder),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def step(cell: Cell, folder: Path, job: Job, system: dict[str, str], *words: str) -> Ran:
    """The step with this job for its contract; it has an end of its own, and the cell's journal knows of it."""
    child = await spawned(cell, made(cell, folder, job), "ci/pipeline.py", system, "job.json", *words)
    out, _ = await asyncio.wait_for(child.communicate(), LIMIT_S)
    return Ran(child.returncode, out.decode(), folder)


def job(attempt: str = "1", script: str = "exit 0", **fields: Any) -> Job:  # noqa: ANN401 - fields by name
    """What the step of GITHUB submits, by the request id that it makes."""
    name = f"github/vision/train/4711/{attempt}/evaluate/__fairlease"
    return Job(name, script=script, account="ci", **fields)


async def test_the_program_on_the_page_for_clients_gets_the_answer_that_the_page_shows(
    cell: Cell, tmp_path: Path
) -> None:
    page = ROOT / "docs/clients.md"
    (program,) = [fence.body for fence in fences(page) if fence.language == "python"]
    (tmp_path / "program.py").write_text(program)
    child = await spawned(cell, tmp_path, str(tmp_path / "program.py"), {})
    out, _ = await asyncio.wait_for(child.communicate(), LIMIT_S)
    assert child.returncode == 0, out.decode()
    assert f"it prints `{out.decode().strip()}`" in page.read_text()


async def test_a_step_submits_waits_records_the_outcome_and_runs_again_without_harm(cell: Cell, tmp_path: Path) -> None:
    # rule: 1.12
    first = job()
    cell.jobs[first.id] = first
    for folder, came in (("one", "accepted"), ("two", "repeated")):
        ran = await step(cell, tmp_path / folder, first, GITHUB, "--evaluation", "mmlu")
        assert ran.code == 0, ran.out
        assert f"{first.id} {came}" in ran.out
        assert ran.outputs == {"job": first.id, "state": "succeeded", "exit_code": "0", "outcome": "passed"}
        assert "| outcome | `passed` |" in ran.summary
        assert "::error" not in ran.out
    await cell.journal.read()
    recorded = cell.journal.events("evaluation-recorded")
    assert [(one["evaluation"], one["outcome"], one["job"]) for one in recorded] == [("mmlu", "passed", first.id)]
    await cell.judge()


async def test_a_new_attempt_is_a_new_job_and_a_failure_is_annotated(cell: Cell, tmp_path: Path) -> None:
    second = job("2", script="exit 3", end="job-failed", code=3)
    cell.jobs[second.id] = second
    system = GITHUB | {"GITHUB_RUN_ATTEMPT": "2"}
    ran = await step(cell, tmp_path / "fails", second, system, "--evaluation", "mmlu")
    assert ran.code == 3, ran.out
    assert ran.outputs == {"job": second.id, "state": "failed", "exit_code": "3", "outcome": "failed"}
    assert f"::error title={second.id} failed::it ended as failed, code 3" in ran.out
    await cell.journal.read()
    assert cell.journal.events("evaluation-recorded")[-1]["outcome"] == "failed"
    await cell.judge()


async def test_a_refused_contract_is_one_annotation_for_each_problem(cell: Cell, tmp_path: Path) -> None:
    refused = job("3", budget="team-none")
    ran = await step(cell, tmp_path / "refused", refused, GITHUB | {"GITHUB_RUN_ATTEMPT": "3"})
    assert ran.code == 200, ran.out
    errors = [line for line in ran.out.splitlines() if line.startswith("::error title=")]
    assert errors, ran.out
    assert all("(rule " in line for line in errors)
    assert ran.outputs == {"job": "", "state": "refused", "exit_code": "200", "outcome": ""}


async def test_gitlab_gets_a_dotenv_report(cell: Cell, tmp_path: Path) -> None:
    mine = Job("gitlab/vision/train/12/7", account="ci")
    cell.jobs[mine.id] = mine
    ran = await step(cell, tmp_path / "gitlab", mine, GITLAB)
    assert ran.code == 0, ran.out
    expected = {"JOB": mine.id, "STATE": "succeeded", "EXIT_CODE": "0", "OUTCOME": ""}
    assert ran.dotenv == {f"FAIRLEASE_{key}": value for key, value in expected.items()}


async def test_a_pipeline_that_is_cancelled_cancels_its_job(cell: Cell, tmp_path: Path) -> None:
    long = job("4", script="exec sleep 600", end="job-cancelled")
    cell.jobs[long.id] = long
    folder = made(cell, tmp_path / "cancelled", long)
    child = await spawned(cell, folder, "ci/pipeline.py", GITHUB | {"GITHUB_RUN_ATTEMPT": "4"}, "job.json")
    await cell.event(long.id, "attempt-started")
    child.send_signal(signal.SIGTERM)
    out, _ = await asyncio.wait_for(child.communicate(), LIMIT_S)
    assert child.returncode == 130, out.decode()
    await cell.event(long.id, "job-cancelled")
    await cell.over()
    await cell.judge()


async def test_without_a_cell_the_step_says_so(tmp_path: Path, cell: Cell) -> None:
    (tmp_path / "job.json").write_text(json.dumps(cell.body(job("5"))["contract"]))
    child = await spawned(
        cell, tmp_path, "ci/pipeline.py", GITHUB | {"FAIRLEASE_URL": "nats://127.0.0.1:1"}, "job.json"
    )
    out, _ = await asyncio.wait_for(child.communicate(), LIMIT_S)
    assert (child.returncode, "::error title=fairlease::no bus at" in out.decode()) == (69, True), out.decode()


@pytest.mark.parametrize("creds", ["", "/nowhere/ci.key", "{home}/keys/deployer.key"])
async def test_without_the_accounts_key_the_step_does_nothing(tmp_path: Path, cell: Cell, creds: str) -> None:
    mine = job("6")
    (tmp_path / "job.json").write_text(json.dumps(cell.body(mine)["contract"]))
    system = GITHUB | {"GITHUB_RUN_ATTEMPT": "6", "FAIRLEASE_CREDS": creds.format(home=cell.home)}
    child = await spawned(cell, tmp_path, "ci/pipeline.py", system, "job.json")
    out, _ = await asyncio.wait_for(child.communicate(), LIMIT_S)
    assert child.returncode == 69, out.decode()
    await cell.journal.read()
    assert mine.id not in cell.journal.admitted


async def test_a_bot_empties_a_host_under_a_job_and_gives_it_back_with_its_checks(cell: Cell, tmp_path: Path) -> None:
    # rule: 7.4
    runs = await cell.submit(Job("in-the-way", hosts=4, gpus=8, script="sleep 2", account="ci"))
    await cell.event(runs, "attempt-started")
    child = await spawned(
        cell,
        tmp_path,
        "bot/maintain.py",
        {},
        "host-002",
        "--work",
        f"touch {tmp_path}/worked-{{host}}",
        "--check",
        "memory=echo {host} is well",
    )
    out, _ = await asyncio.wait_for(child.communicate(), LIMIT_S)
    assert child.returncode == 0, out.decode()
    assert [line.split(": ")[1] for line in out.decode().splitlines()][-2:] == ["empty", "returned"]
    assert _names(tmp_path) == ["worked-host-002"]
    await cell.journal.read()
    (back,) = [one for one in cell.journal.events("host-hold-cleared") if one["host"] == "host-002"]
    assert [(one["name"], one["code"], one["output"]) for one in back["checks"]] == [("memory", 0, "host-002 is well")]
    await eventually(cell.is_taking_work, "the host takes work again")
    await cell.over()
    await cell.judge()


async def test_a_bot_says_of_which_host_the_cell_knows_nothing(cell: Cell, tmp_path: Path) -> None:
    child = await spawned(cell, tmp_path, "bot/maintain.py", {}, "host-404", "--check", "memory=true")
    out, _ = await asyncio.wait_for(child.communicate(), LIMIT_S)
    assert (child.returncode, "refused" in out.decode()) == (1, True)


async def test_a_check_that_cannot_be_started_keeps_the_host_out_and_says_why(cell: Cell, tmp_path: Path) -> None:
    """A typo in a check is no crash with the host drained: it is unknown, and the cell does not take the host back."""
    words = ("host-002", "--check", "disk=/no/such/check {host}")
    bot = await spawned(cell, tmp_path, "bot/maintain.py", {}, *words)
    out, _ = await asyncio.wait_for(bot.communicate(), LIMIT_S)
    assert bot.returncode == 1, out.decode()
    assert "host-002: stays out: " in out.decode()
    assert "Traceback" not in out.decode()
    bot = await spawned(cell, tmp_path, "bot/maintain.py", {}, "host-002", "--check", "disk=true")
    out, _ = await asyncio.wait_for(bot.communicate(), LIMIT_S)
    assert (bot.returncode, out.decode().splitlines()[-1]) == (0, "host-002: returned"), out.decode()


async def test_a_key_that_may_not_submit_is_told_with_the_words_of_the_bus(cell: Cell, tmp_path: Path) -> None:
    folder = made(cell, tmp_path / "step", job("9"))
    of_another = GITHUB | {"FAIRLEASE_CREDS": str(key_path(cell.home, "audit"))}
    child = await spawned(cell, folder, "ci/pipeline.py", of_another, "job.json")
    out, _ = await asyncio.wait_for(child.communicate(), LIMIT_S)
    assert child.returncode == 69, out.decode()
    (line,) = out.decode().splitlines()
    assert "the bus refuses the command: " in line
    assert "permissions violation for publish" in line
