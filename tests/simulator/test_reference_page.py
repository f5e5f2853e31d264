"""The tables of the reference workload are what the program writes of the comparisons that stand in the tree."""

import sys
from typing import Any

import pytest

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
