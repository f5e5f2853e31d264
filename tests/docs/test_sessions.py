"""Pages that are sessions, typed from their first line to their last by somebody who has nothing but the sources."""

from pathlib import Path

import pytest

from tests.docs.reader import reader
from tests.docs.session import SESSIONS, fences
from tests.house.tree import ROOT

FROM_NOTHING = "docs/tour.md"
"""The page that begins with an empty machine; the others say that the environment is there."""


@pytest.mark.long
@pytest.mark.parametrize("page", SESSIONS)
def test_a_page_is_what_its_reader_sees(tmp_path: Path, page: str) -> None:
    with reader(tmp_path) as somebody:
        if page != FROM_NOTHING:
            somebody.prepare()
        assert somebody.follow(ROOT / page) > 0


@pytest.mark.parametrize("page", SESSIONS)
def test_all_of_a_session_is_typed(page: str) -> None:
    sessions = [fence for fence in fences(ROOT / page) if fence.language == "console"]
    assert sessions
    assert [fence for fence in sessions if not fence.is_typed] == []
