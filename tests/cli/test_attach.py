"""What `submit --interactive` and `job attach` say before anybody is attached; and the keys that detach."""

import json
import select
import signal
import subprocess
import sys

import pytest

from fairlease.cli.console import Keys
from fairlease.cli.exits import CONTRACT, FAILED, OK, USAGE
from tests.cli.cell import Cell, attempt_view, job_view

JOB = "job-" + "l" * 20
INTERACTIVE = ("submit", "--interactive", "--budget", "team-a", "--request-id", "r-1", "--dry-run", "--json")


def written(cell: Cell, *words: str, **env: str) -> dict[str, object]:
    """The spec that these words would submit."""
    seen = cell.run(*INTERACTIVE, *words, **env)
    assert seen.code == OK, seen.err
    spec: dict[str, object] = json.loads(seen.out)["contract"]["spec"]
    return spec


def test_what_nobody_said_is_a_gpu_for_a_quarter_of_an_hour_and_a_shell(cell: Cell) -> None:
    # rule: 1.17
    spec = written(cell, SHELL="/bin/zsh")
    named = ("lane", "gpus_per_host", "hosts", "min_runtime", "timeout", "terminal", "command")
    assert {name: spec[name] for name in named} == {
        "lane": "debug",
        "gpus_per_host": 1,
        "hosts": 1,
        "min_runtime": "15m",
        "timeout": "15m",
        "terminal": True,
        "command": ["/bin/zsh", "-i"],
    }
    assert written(cell, SHELL="")["command"] == ["/bin/sh", "-i"]


def test_what_was_said_stands(cell: Cell) -> None:
    spec = written(cell, "--gpus", "4", "--min-runtime", "5m", "--timeout", "30m", "--", "python3")
    assert (spec["gpus_per_host"], spec["min_runtime"], spec["timeout"]) == (4, "5m", "30m")
    assert spec["command"] == ["python3"]


def test_a_contract_without_a_terminal_does_not_mention_one(cell: Cell) -> None:
    words = ("submit", "--budget", "team-a", "--min-runtime", "15m", "--timeout", "1h", "--dry-run", "--json")
    told = json.loads(cell.run(*words, "--request-id", "r-1", "--", "true").out)
    assert "terminal" not in told["contract"]["spec"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(("--hosts", "2"), "one host", id="a gang"),
        pytest.param(("--array", "2"), "one job", id="an array"),
    ],
)
def test_a_terminal_that_cannot_be_is_65(cell: Cell, words: tuple[str, ...], why: str) -> None:
    # rule: 1.17
    seen = cell.run("submit", "--interactive", "--budget", "team-a", *words)
    assert (seen.code, "spec.terminal" in seen.err, why in seen.err) == (CONTRACT, True, True)
    assert cell.plan.commands == []


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "--interactive", "--budget", "b", "--wait"),
        ("submit", "--interactive", "--budget", "b", "--follow"),
        ("submit", "--interactive", "--budget", "b", "-o", "json"),
        ("job", "attach", JOB, "--json"),
    ],
)
def test_what_does_not_go_with_a_terminal_is_64(cell: Cell, words: tuple[str, ...]) -> None:
    assert cell.run(*words).code == USAGE
    assert cell.plan.commands == []


def test_a_job_that_is_over_is_attached_to_no_more(cell: Cell) -> None:
    cell.plan.jobs[JOB] = job_view(JOB, state="failed", attempts=(attempt_view(JOB, ("host-1",)),))
    seen = cell.run("job", "attach", JOB)
    assert (seen.code, f"{JOB} is over: it failed" in seen.err) == (FAILED, True)


@pytest.mark.parametrize(
    ("typed", "passed", "is_detached"),
    [
        pytest.param([b"ls\r"], b"ls\r", False, id="keys are the job's"),
        pytest.param([b"a\x1dd"], b"a", True, id="the prefix and d detach"),
        pytest.param([b"a\x1d", b"d"], b"a", True, id="also when they come apart"),
        pytest.param([b"\x1d\x1d"], b"\x1d", False, id="the prefix twice is the key itself"),
        pytest.param([b"\x1dx"], b"\x1dx", False, id="before another key it is itself"),
        pytest.param([b"d\x1d", b"\x1d", b"d"], b"d\x1dd", False, id="a d after two of them is a d"),
        pytest.param([b"\x03\x04\x1a"], b"\x03\x04\x1a", False, id="what interrupts, ends and halts is the job's"),
    ],
)
def test_two_keys_detach(typed: list[bytes], passed: bytes, *, is_detached: bool) -> None:
    # rule: 1.17
    keys = Keys()
    found = [keys.feed(data) for data in typed]
    assert b"".join(data for data, _ in found) == passed
    assert found[-1][1] is is_detached


SHOWS = """
import asyncio, signal, sys
from fairlease.cli.console import Console

async def show():
    console = Console(is_read_only=True)
    with console.ended_by(signal.SIGTERM, signal.SIGHUP):
        console.tell("ready")
        await console.show(b"x" * (1 << 20))

try:
    asyncio.run(show())
except asyncio.CancelledError:
    sys.exit(7)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_whose_output_nobody_reads_ends_when_it_is_told_to(number: signal.Signals) -> None:
    # rule: 1.17
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SHOWS], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stderr.readline() == b"ready\n"
        waiting = select.poll()
        waiting.register(command.stdout, select.POLLIN)
        assert waiting.poll(30_000), "it has begun to write, and nobody reads"
        command.send_signal(number)
        try:
            assert command.wait(timeout=30) == 7
        finally:
            command.kill()
