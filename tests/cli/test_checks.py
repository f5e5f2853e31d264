"""`host return --check`: checks as they are typed, and as they are sent (7.4)."""

import time

import pytest

from fairlease.cli.exits import OK, USAGE
from tests.cli.cell import Cell


def test_checks_are_sent_with_the_return_as_made_just_now(cell: Cell) -> None:
    # rule: 7.4
    before_ms = time.time_ns() // 1_000_000
    seen = cell.run("host", "return", "host-1", "--check", "memory=0:all well: 8/8", "--check", "nccl=2")
    assert (seen.code, seen.out) == (OK, "returning host-1: accepted\n")
    ((command, body),) = cell.plan.commands
    assert (command, body["host"]) == ("local/return-host", "host-1")
    made_ms = {check.pop("at_ms") for check in body["checks"]}
    assert body["checks"] == [{"name": "memory", "code": 0, "output": "all well: 8/8"}, {"name": "nccl", "code": 2}]
    assert all(before_ms <= at_ms <= time.time_ns() // 1_000_000 for at_ms in made_ms)


def test_of_a_long_text_the_end_is_kept(cell: Cell) -> None:
    # rule: 7.4
    cell.run("host", "return", "host-1", "--check", f"memory=1:{'x' * 300}end")
    (check,) = cell.plan.commands[0][1]["checks"]
    assert (len(check["output"]), check["output"][-4:]) == (200, "xend")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("memory", "'memory' is not NAME=CODE[:TEXT] with a code from 0 to 3", id="no code"),
        pytest.param("memory=4", "'memory=4' is not NAME=CODE[:TEXT] with a code from 0 to 3", id="another code"),
        pytest.param("memory=ok", "'memory=ok' is not NAME=CODE[:TEXT] with a code from 0 to 3", id="a word"),
        pytest.param("Memory=0", "Memory", id="no name"),
        pytest.param("memory=0:AKIA" + "ABCDEFGHIJKLMNOP", "looks like an AWS access key", id="a secret"),
    ],
)
def test_what_is_no_check_is_64_and_nothing_is_sent(cell: Cell, text: str, told: str) -> None:
    # rule: 7.4
    seen = cell.run("host", "return", "host-1", "--check", text)
    assert seen.code == USAGE
    assert told in seen.err
    assert cell.plan.commands == []
