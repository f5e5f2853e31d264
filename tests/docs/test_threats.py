"""The table of threats says which test shows what stops each: the tests are there, and what has none says why."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.tree import ROOT, report, write

PAGE = ROOT / "docs" / "security.md"
COUNT = 28
"""How many threats are looked at; one more is one more row, and none is dropped without a word."""
_COLUMNS = 6
_NAME = re.compile(r"`([\w/]+\.py)::(\w+)`")


class Row(NamedTuple):
    """One threat; `tests` are files below tests/ with the name of a function, `gap` what is not covered."""

    number: str
    threat: str
    stops: str
    tests: list[tuple[str, str]]
    gap: str


def rows_of(page: str) -> list[Row]:
    """The rows of the table under `## Threats`."""
    section = page.partition("\n## Threats\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| # ")]
    found = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert len(cells) == _COLUMNS, f"{len(cells)} columns: {line}"
        number, _, threat, stops, shown, gap = cells
        tests = _NAME.findall(shown)
        assert shown == (", ".join(f"`{file}::{name}`" for file, name in tests) or "-"), f"row {number}: {shown}"
        found.append(Row(number, threat, stops, tests, gap.removesuffix(" |")))
    return found


def wrong_with(rows: list[Row], tests: Path) -> list[str]:
    """What the table says that is not so: a test that is not there or is skipped, a row with neither test nor gap."""
    findings = []
    for row in rows:
        if not row.tests and row.gap == "-":
            findings.append(f"row {row.number}: names no test, and says nothing of what is not covered")
        if row.tests and row.stops == "-":
            findings.append(f"row {row.number}: names tests, and nothing that they show")
        for file, name in row.tests:
            if name not in _tests_in(tests / file):
                findings.append(f"row {row.number}: {file} has no test {name} that runs")
    return findings


def _tests_in(path: Path) -> set[str]:
    """The names of the tests that this file has and does not skip; none of a file that is not there."""
    if not path.is_file():
        return set()
    return {
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not any(re.search(r"\bskip|\bxfail", ast.unparse(mark)) for mark in node.decorator_list)
    }


def test_each_threat_has_a_test_that_is_there_or_says_what_is_not_covered() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    assert [row.number for row in rows] == [str(number) for number in range(1, COUNT + 1)]
    assert len({row.threat for row in rows}) == COUNT
    report(wrong_with(rows, ROOT / "tests"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("| 1 | x | y | z | `a/test_a.py::test_there` | - |", []),
        ("| 1 | x | y | - | - | nobody has looked |", []),
        ("| 1 | x | y | z | - | - |", ["row 1: names no test, and says nothing of what is not covered"]),
        ("| 1 | x | y | - | `a/test_a.py::test_there` | - |", ["row 1: names tests, and nothing that they show"]),
        ("| 1 | x | y | z | `a/test_a.py::test_gone` | - |", ["row 1: a/test_a.py has no test test_gone that runs"]),
        ("| 1 | x | y | z | `a/test_a.py::test_off` | - |", ["row 1: a/test_a.py has no test test_off that runs"]),
        ("| 1 | x | y | z | `a/test_b.py::test_there` | - |", ["row 1: a/test_b.py has no test test_there that runs"]),
    ],
)
def test_a_row_that_shows_nothing_is_found(line: str, said: list[str], tmp_path: Path) -> None:
    body = "def test_there(): ...\n\n@pytest.mark.skip\ndef test_off(): ...\n\ndef help_there(): ...\n"
    write(tmp_path, "a/test_a.py", body)
    page = f"\n## Threats\n\n| # | who | threat | what stops it | shown by | not covered |\n|---|\n{line}\n\n## More\n"
    assert wrong_with(rows_of(page), tmp_path) == said
