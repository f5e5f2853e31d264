"""What the machine refuses is told in a line: rights, room, names that are too long, files that somebody closed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairlease.cli.exits import FAILED, OK
from fairlease.runtime.errors import EXIT_CONFIG
from tests.cli.cell import Cell


def up(cell: Cell, **env: str) -> subprocess.CompletedProcess[str]:
    """`fairlease up` that cannot begin; it is a process, because it makes the process's log its own."""
    words = [sys.executable, "-m", "fairlease", "up"]
    return subprocess.run(words, env=cell.env(**env), capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"FAIRLEASE_CELL": "A B"}, "FAIRLEASE_CELL='A B' is not a name"),
        ({"FAIRLEASE_HOME": "~nobody-of-that-name/cell"}, "write an absolute path"),
        ({"FAIRLEASE_HOME": "/proc/version/cell"}, "/proc/version/cell/bus.json: cannot be read (Not a directory)"),
        ({"FAIRLEASE_HOME": "/proc/cell"}, "/proc/cell: No such file or directory"),
        ({"FAIRLEASE_METRICS_PORT": "65535"}, "name one up to 65529, or 0"),
        ({"FAIRLEASE_TRACES": "file:relative"}, "write file:/PATH or http://HOST:PORT"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_cell_that_cannot_begin_says_why_in_a_line(
    cell: Cell, tmp_path: Path, env: dict[str, str], told: str
) -> None:
    ran = up(cell, **{"FAIRLEASE_HOME": str(tmp_path / "home"), **env})
    assert ran.returncode == EXIT_CONFIG, ran.stderr
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ({"accounts": []}, "accounts: there is none"),
        ({"accounts": ["local", "a b"]}, "'a b' is not a name"),
        ({"bots": ["*"]}, "'*' is not a name"),
        ({"agents": [["..", ["h"]]]}, "'..' is not a name"),
        ({"agents": [["a", ["h.h"]]]}, "'h.h' is not a name"),
    ],
)
def test_what_was_written_into_the_cells_memory_by_hand_is_held_to_the_rules(
    cell: Cell, tmp_path: Path, kept: dict[str, object], told: str
) -> None:
    """Else the bus would not start, and nobody would say of what."""
    (tmp_path / "cell.json").write_text(json.dumps(kept))
    ran = up(cell, FAIRLEASE_HOME=str(tmp_path))
    assert ran.returncode == EXIT_CONFIG, ran.stderr
    assert f"cell.json: {told}" in ran.stderr
    assert not (tmp_path / "bus.conf").exists()


def shell(cell: Cell, line: str) -> subprocess.CompletedProcess[str]:
    """A line of a shell, in which `fairlease` is the command."""
    line = line.replace("fairlease", f"{sys.executable} -m fairlease")
    return subprocess.run(["sh", "-c", line], env=cell.env(), capture_output=True, text=True, check=False, timeout=60)


def test_an_answer_that_finds_no_room_is_told_and_no_trace_of_ours(cell: Cell, tmp_path: Path) -> None:
    ran = shell(cell, f"fairlease bundle {tmp_path} > /dev/full")
    assert ran.returncode == FAILED
    assert ran.stderr.splitlines()[0] == "fairlease: No space left on device"
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_files_that_the_starter_closed_lead_nowhere_and_change_nothing(cell: Cell, tmp_path: Path, closed: str) -> None:
    ran = shell(cell, f"fairlease bundle {tmp_path} {closed}")
    assert (ran.returncode, ran.stderr) == (OK, "")


def test_an_error_is_not_told_on_standard_output_for_want_of_another(cell: Cell) -> None:
    ran = shell(cell, "fairlease no-such-command 2>&-")
    assert (ran.returncode, ran.stdout) == (64, "")


def test_a_state_directory_that_is_none_does_not_end_the_doctor(cell: Cell) -> None:
    seen = cell.run("doctor", "--json", FAIRLEASE_HOME="/proc/version/cell", FAIRLEASE_URL=cell.url)
    checks = {check["name"]: check for check in json.loads(seen.out)["checks"]}
    assert checks["bus"]["is_ok"]
    long = cell.run("doctor", "--json", FAIRLEASE_HOME="/" + "a" * 300, FAIRLEASE_URL=cell.url)
    checks = {check["name"]: check for check in json.loads(long.out)["checks"]}
    assert not checks["disk"]["is_ok"]
    assert "File name too long" in checks["disk"]["found"]
    assert "set FAIRLEASE_HOME" in checks["disk"]["mend"]
