"""The clients in examples/, given what makes no job and no command: told in a line, before anybody is asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

STEP = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "a/b", "GITHUB_RUN_ID": "1", "GITHUB_RUN_ATTEMPT": "1"}
NOBODY = "nats://127.0.0.1:1"


def ran(script: str, folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *words],
        env={**kept, "FAIRLEASE_URL": NOBODY, **env},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("contract", "told"),
    [
        pytest.param(b"\xff\xfe", "is not written in UTF-8", id="bytes"),
        pytest.param(b"[" * 100_000, "is no JSON (", id="a bomb"),
        pytest.param(b"{a: [", "is no JSON (", id="half of a file"),
        pytest.param(b"", "job.json is no ", id="an empty file"),
        pytest.param(b"[1]", "is no contract", id="a list"),
        pytest.param(b"{}", "is no contract", id="no spec"),
        pytest.param(b'{"spec": 5}', "is no contract", id="a spec that is a number"),
        pytest.param(b'{"spec": {}}', "no budget to charge", id="no budget"),
        pytest.param(b'{"spec": {"budget": 5}}', "no budget to charge", id="a budget that is a number"),
        pytest.param(b'{"spec": {"budget": "a.>"}}', "no budget to charge", id="a budget that is a pattern"),
    ],
)
def test_what_is_no_contract_is_annotated_and_not_sent(tmp_path: Path, contract: bytes, told: str) -> None:
    (tmp_path / "job.json").write_bytes(contract)
    step = ran("ci/pipeline.py", tmp_path, "job.json", **STEP)
    assert (step.returncode, step.stderr) == (65, "")
    assert step.stdout.startswith("::error title=contract::job.json")
    assert told in step.stdout
    assert step.stdout.count("\n") == 1


def test_a_value_that_only_yaml_has_is_told(tmp_path: Path) -> None:
    """PyYAML makes a date of what looks like one, and JSON has none. A reader of that one file stands in for it."""
    (tmp_path / "job.yaml").write_text("spec: {budget: a, env: {DAY: 2026-11-30}}")
    (tmp_path / "yaml.py").write_text(
        "import datetime\n\nYAMLError = ValueError\n\ndef safe_load(text):\n"
        "    return {'spec': {'budget': 'a', 'env': {'DAY': datetime.date(2026, 11, 30)}}}\n"
    )
    step = ran("ci/pipeline.py", tmp_path, "job.yaml", PYTHONPATH=str(tmp_path), **STEP)
    assert (step.returncode, step.stderr) == (65, "")
    assert "date is not JSON serializable: write such values in quotes" in step.stdout


def test_a_contract_that_is_not_there_is_annotated(tmp_path: Path) -> None:
    step = ran("ci/pipeline.py", tmp_path, "job.json", **STEP)
    assert (step.returncode, step.stderr) == (65, "")
    assert step.stdout == "::error title=contract::job.json cannot be read: No such file or directory\n"


def test_a_step_outside_of_a_pipeline_says_what_it_misses(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"spec": {"budget": "a"}}')
    step = ran("ci/pipeline.py", tmp_path, "job.json")
    assert (step.returncode, step.stderr) == (65, "")
    assert step.stdout.startswith("error: contract: GITHUB_REPOSITORY is not set")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("Host 1",), "'Host 1' is no name of a host"),
        (("*",), "'*' is no name of a host"),
        (("host-1", "--work", "  "), "there is no command"),
        (("host-1", "--work", "echo 'half"), "is no command: No closing quotation"),
        (("host-1", "--check", "true"), "there is no command"),
        (("host-1", "--check", "=true"), "write NAME=COMMAND"),
        (("host-1", "--check", 'disk="'), "is no command: No closing quotation"),
    ],
)
def test_what_is_no_work_and_no_check_is_told_before_a_host_is_drained(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    bot = ran("bot/maintain.py", tmp_path, *words)
    assert bot.returncode == 2
    assert told in bot.stderr
    assert "Traceback" not in bot.stderr
