"""The tables of the reference workload are what the program writes of the comparisons that stand in the tree."""

import re
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from fairlease.cli.numbers import policy_of
from fairlease.simulator.lab_numbers import lab_numbers
from fairlease.trace.stated import QUIET_PERIOD_MS
from tests.house.tree import ROOT


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a module of loadtests
    monkeypatch.syspath_prepend(str(ROOT / "loadtests"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    import reference

    return reference


def test_both_pages_say_what_was_played(program: Any) -> None:  # noqa: ANN401 - as above
    told = program.tables()
    for path, names in program.PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert program.written(page, names, told) == page, path.name
        assert all(table in page for table in (told[name] for name in names))


def test_a_page_without_its_lines_is_told_so(program: Any) -> None:  # noqa: ANN401 - as above
    with pytest.raises(ValueError, match="has lost the lines"):
        program.written("# A page\n", ("reference",), program.tables())


def test_the_page_names_the_numbers_that_its_figures_are_by() -> None:
    page = (ROOT / "docs/policy.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"--set ([a-z_]+)=(\S+)", page))
    assert replace(policy_of(said), quiet_period_ms=QUIET_PERIOD_MS) == lab_numbers(128)
