"""The tour, typed from its first line to its last by somebody who has nothing but the sources."""

from pathlib import Path

import pytest

from tests.docs.reader import reader
from tests.docs.session import fences
from tests.house.tree import ROOT

PAGE = ROOT / "docs" / "tour.md"


@pytest.mark.long
def test_the_tour_is_what_a_newcomer_sees(tmp_path: Path) -> None:
    with reader(tmp_path) as somebody:
        somebody.follow(PAGE)


def test_all_of_the_tour_is_typed() -> None:
    assert [fence for fence in fences(PAGE) if not fence.is_typed] == []
