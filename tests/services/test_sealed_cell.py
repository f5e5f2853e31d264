"""A supervisor that keeps a sealed bus: certificates are renewed before they end, and spoiled ones are not served."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairlease.runtime import certificates, keys, supervisor
from fairlease.runtime.connection import connect
from fairlease.runtime.errors import BusAway
from fairlease.runtime.settings import Settings
from fairlease.runtime.supervisor import Supervisor
from tests.services.bench import eventually


async def _days_left(cell: Supervisor) -> int:
    """Of the certificate that the bus shows to who comes now."""
    key = keys.make(cell.settings.state_dir, "client-local")
    client = await connect(cell.reach, "test", key=key, exit_on_close=False)
    ends_s = client.certificate_ends_s
    await client.close()
    assert ends_s is not None
    return round((ends_s - datetime.now(UTC).timestamp()) / 86_400)


@pytest.fixture
async def renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervisor]:
    """A bus and nothing else, started with 20 days left, that has read the renewed certificate."""
    monkeypatch.setattr(supervisor, "WATCH_S", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "SERVER_DAYS", 20)
        certificates.make(tmp_path)
    # What this environment says of other cells is nothing to this one.
    cell = Supervisor(Settings(state_dir=tmp_path, ca=os.devnull), [], is_sealed=True)
    try:
        await cell.start()
        await eventually(lambda: "Reloaded server configuration" in (tmp_path / "bus.log").read_text(), 20)
        yield cell
    finally:
        await cell.stop()


async def test_a_certificate_that_ends_soon_is_renewed_under_a_running_cell(renewed: Supervisor) -> None:
    assert await _days_left(renewed) == 396
    assert renewed.restarts == {}


async def test_a_spoiled_certificate_is_told_and_not_served(
    renewed: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    (renewed.settings.state_dir / "tls/server.key").write_bytes(b"")
    await eventually(lambda: any("keeps the certificates that it has" in line for line in caplog.messages))
    assert await _days_left(renewed) == 396


async def test_a_bus_that_cannot_be_started_again_says_why_until_it_can(
    renewed: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    path = renewed.settings.state_dir / "tls/server.key"
    key = path.read_bytes()
    path.write_bytes(b"")
    os.kill(renewed.bus_pid, signal.SIGKILL)
    await eventually(lambda: any("the bus cannot be started, trying on: " in line for line in caplog.messages), 20)
    path.write_bytes(key)
    async with asyncio.timeout(30):
        while True:
            try:
                assert await _days_left(renewed) == 396
                break
            except BusAway:
                await asyncio.sleep(0.1)
