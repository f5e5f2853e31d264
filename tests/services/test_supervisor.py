"""A supervisor whose own machine refuses it something: a start that failed is tried again, and said."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlease.runtime import bus_server, durable
from fairlease.runtime.settings import Settings
from fairlease.runtime.supervisor import Part, Supervisor
from tests.services.bench import eventually


class Refusing:
    """A call that the machine refuses for a while."""

    def __init__(self, call: Any, error: OSError, times: int) -> None:  # noqa: ANN401 - any function
        self.call, self.error, self.left = call, error, times

    def __call__(self, *words: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
        if self.left:
            self.left -= 1
            raise self.error
        return self.call(*words, **named)


FULL = OSError(errno.ENOSPC, "No space left on device")
BUSY = OSError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Supervisor]:
    """A cell of a bus and nothing else."""
    found = Supervisor(Settings(state_dir=tmp_path), [])
    await found.start()
    yield found
    await found.stop()


async def test_a_bus_that_could_not_be_started_is_started_once_there_is_room(
    kept: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = Refusing(bus_server.start, FULL, 2)
    monkeypatch.setattr(bus_server, "start", refused)
    before = kept.bus_pid
    assert kept._bus is not None
    kept._bus.kill()
    await eventually(lambda: kept.bus_pid != before and kept._bus is not None and kept._bus.is_running())
    assert refused.left == 0
    assert caplog.text.count("the bus cannot be started: [Errno 28] No space left on device; trying again") == 2


async def test_a_part_that_could_not_be_started_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = Refusing(asyncio.create_subprocess_exec, BUSY, 1)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    found = Supervisor(Settings(state_dir=tmp_path), [Part(name="ranker-a", arguments=("serve", "ranker"))])
    await found.start()
    try:
        await eventually(lambda: found.pid("ranker-a") > 0)
    finally:
        await found.stop()
    assert "ranker-a cannot be started: [Errno 11] Resource temporarily unavailable; trying again" in caplog.text


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


def test_a_server_whose_address_could_not_be_written_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_server, "write_whole", Refusing(durable.write_whole, FULL, 1))
    with pytest.raises(OSError, match="No space left"):
        bus_server.start(tmp_path, dies_with_parent=True)
    server = bus_server.start(tmp_path, dies_with_parent=True)  # nobody holds the lock
    server.stop()
