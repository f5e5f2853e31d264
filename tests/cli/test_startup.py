import subprocess
import sys

import pytest

from tests.cli.cell import Cell
from tests.house.tree import ROOT

HEAVY = ("faststream", "pydantic", "opentelemetry", "ruamel", "click", "rich")
LOOK = """
import sys
from fairlease.cli.main import main
code = main({words!r})
print("|", code, ",".join(sorted({{name.partition(".")[0] for name in sys.modules}})), file=sys.stderr)
"""


def loaded(words: list[str], env: dict[str, str]) -> set[str]:
    """The packages a command has loaded when it is over."""
    seen = subprocess.run(
        [sys.executable, "-c", LOOK.format(words=words)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return set(seen.stderr.rpartition("|")[2].split()[1].split(","))


@pytest.mark.parametrize(
    "words",
    [
        ["queue"],
        ["queue", "--json"],
        ["why", "job-x"],
        ["shares"],
        ["hosts"],
        ["job", "show", "job-x"],
        ["job", "cancel", "job-x"],
        ["host", "cordon", "host-1"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_a_question_loads_nothing_heavy(cell: Cell, words: list[str]) -> None:
    found = loaded(words, cell.env())
    assert found.isdisjoint(HEAVY)
    assert "nats" in found


def test_help_loads_neither_the_bus_nor_msgspec(cell: Cell) -> None:
    found = loaded(["submit", "--help"], cell.env())
    assert found.isdisjoint((*HEAVY, "nats", "msgspec", "asyncio", "ssl"))


def test_a_dry_run_needs_no_bus(cell: Cell) -> None:
    words = ["submit", "--dry-run", "--json", "--budget", "a", "--min-runtime", "0s", "--timeout", "1h", "--", "true"]
    found = loaded(words, cell.env())
    assert "pydantic" in found
    assert found.isdisjoint(("nats", "faststream", "opentelemetry"))


def test_the_package_runs_as_a_module(cell: Cell) -> None:
    seen = subprocess.run(
        [sys.executable, "-m", "fairlease", "--help"],
        env=cell.env(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout.startswith("usage: fairlease ")
