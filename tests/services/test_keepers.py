"""Who keeps the parts of a cell: an end by a mistake of ours is said, and a stop waits for nobody who is deaf."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlease.runtime.settings import Settings
from fairlease.runtime.supervisor import Part, Supervisor
from tests.services.bench import eventually


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Supervisor]:
    """A cell of a bus and nothing else."""
    found = Supervisor(Settings(state_dir=tmp_path), [])
    await found.start()
    yield found
    await found.stop()


async def test_who_keeps_nothing_any_more_says_so(
    kept: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def wrong(_part: Part) -> None:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(kept, "_spawn", wrong)
    kept._start_keeper("ranker-a", kept._keep(Part(name="ranker-a", arguments=("serve", "ranker"))))
    await eventually(lambda: "nobody keeps ranker-a any more" in caplog.text)


async def test_a_keeper_whose_library_loses_a_cancellation_holds_up_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `asyncio.wait_for` of Python 3.11 may, by which the bus's client waits."""
    lost: list[str] = []

    async def deaf(_: Supervisor) -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append("one")

    monkeypatch.setattr(Supervisor, "_watch_log", deaf)
    found = Supervisor(Settings(state_dir=tmp_path), [])
    await found.start()
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await found.stop()
    assert lost == ["one"]
