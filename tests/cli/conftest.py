from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cell import Cell, Plan, cell_at


@pytest.fixture(scope="module")
def standing_cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    home: Path = tmp_path_factory.mktemp("cell") / "home"
    with cell_at(home) as cell:
        yield cell


@pytest.fixture
def cell(standing_cell: Cell) -> Cell:
    """The module's cell with a fresh plan."""
    standing_cell.plan = Plan()
    return standing_cell
