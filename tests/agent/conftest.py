"""Fixtures of the agent's tests: a bench, and the promise that no process outlives its test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.agent.bench import Bench, kill_all


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state directory; what runs in it is killed at the end."""
    path = tmp_path / "state"
    path.mkdir()
    yield path
    kill_all(path)


@pytest.fixture
async def bench(state: Path) -> AsyncIterator[Bench]:
    """An open host on a bus that is there."""
    bench = Bench(state).open()
    yield bench
    bench.close()
