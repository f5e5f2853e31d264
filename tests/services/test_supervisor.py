"""What keeps a cell alive outlives a machine that is short of something, and ends in bounded time."""

import asyncio
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from fairlease.runtime import supervisor as kept
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import Settings
from fairlease.runtime.supervisor import Part, Supervisor, service_parts
from fairlease_schemas.subjects import SERVICES
from tests.services.bench import eventually

RANKER = Part(name="ranker-a", arguments=("serve", "ranker"))


def _is_alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _cell(home: Path, *parts: Part, metrics_port: int | None = None, traces: str = "") -> Supervisor:
    return Supervisor(Settings(state_dir=home, metrics_port=metrics_port, traces=traces), list(parts))


@pytest.mark.asyncio
async def test_a_bus_that_cannot_be_started_for_a_while_is_started_when_it_can(tmp_path: Path) -> None:
    """As on a full disk: what it writes at its start has no room."""
    cell = _cell(tmp_path)
    try:
        await cell.start()
        first = cell.bus_pid
        (tmp_path / "bus.conf").unlink()
        (tmp_path / "bus.conf").mkdir()  # so that its configuration cannot be written
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: cell.restarts.get("bus", 0) >= 2)
        assert not _is_alive(cell.bus_pid)
        (tmp_path / "bus.conf").rmdir()
        await eventually(lambda: cell.bus_pid != first and _is_alive(cell.bus_pid))
        second = cell.bus_pid
        os.kill(second, signal.SIGKILL)
        await eventually(lambda: cell.bus_pid != second and _is_alive(cell.bus_pid), 20)
    finally:
        await cell.stop()


@pytest.mark.asyncio
async def test_a_part_whose_log_cannot_be_opened_is_started_when_it_can(tmp_path: Path) -> None:
    cell = _cell(tmp_path, RANKER)
    try:
        await cell.start()
        await eventually(lambda: cell.pid("ranker-a"))
        cell.logs.rename(tmp_path / "away")
        cell.logs.write_text("no directory")
        os.kill(cell.pid("ranker-a"), signal.SIGKILL)
        await eventually(lambda: cell.restarts.get("ranker-a"))
        await asyncio.sleep(kept.FIRST_WAIT_S * 3)  # it has been tried, and must not be given up
        assert not cell.pid("ranker-a")
        cell.logs.unlink()
        (tmp_path / "away").rename(cell.logs)
        await eventually(lambda: cell.pid("ranker-a"))
    finally:
        await cell.stop()


@pytest.mark.asyncio
async def test_parts_that_do_not_end_are_waited_for_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "STOP_LIMIT_S", 2.0)
    cell = _cell(tmp_path, *service_parts())
    try:
        await cell.start()
        await cell.wait_ready()
        pids = [cell.pid(f"{name}-a") for name in SERVICES]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    finally:
        began = time.monotonic()
        await cell.stop()
    took_s = time.monotonic() - began
    assert not any(map(_is_alive, pids))
    assert 2.0 <= took_s < 2.0 * 3, f"{len(pids)} that hang were waited for one after the other: {took_s:.1f} s"


@pytest.mark.asyncio
async def test_a_part_that_stays_down_ends_the_start_at_once_with_its_last_words(tmp_path: Path) -> None:
    """Nobody waits half a minute for what never comes, and nobody has to look for the reason."""
    cell = _cell(tmp_path, RANKER)
    (tmp_path / "keys").mkdir()
    try:
        await cell.start()
        await eventually(lambda: cell.pid("ranker-a"))
        key = tmp_path / "keys" / "service-ranker.key"
        key.unlink()
        key.write_text("no key")
        os.kill(cell.pid("ranker-a"), signal.SIGKILL)
        await eventually(lambda: cell.restarts.get("ranker-a"))
        async with asyncio.timeout(kept.READY_LIMIT_S / 2):
            with pytest.raises(ConfigWrong, match=r"ranker-a left with code 7 and stays down: .*is no key"):
                await cell.wait_ready()
    finally:
        await cell.stop()


@pytest.mark.parametrize(
    ("metrics_port", "traces", "told"),
    [(65_530, "", "FAIRLEASE_METRICS_PORT=65530: 7 parts"), (None, "nowhere", "FAIRLEASE_TRACES is neither")],
)
@pytest.mark.asyncio
async def test_what_every_part_would_refuse_is_refused_before_there_is_any(
    tmp_path: Path, metrics_port: int | None, traces: str, told: str
) -> None:
    cell = _cell(tmp_path, *service_parts(), metrics_port=metrics_port, traces=traces)
    with pytest.raises(ConfigWrong, match=told):
        await cell.start()
    await cell.stop()
    assert not os.listdir(tmp_path)  # noqa: PTH208 - a Path's own would be waiting in the loop's eyes


@pytest.mark.asyncio
async def test_a_port_that_the_environment_names_for_another_cell_is_none_of_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A demo beside a cell whose figures are watched: one port cannot be all its parts', and none would start."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("FAIRLEASE_METRICS_PORT", str(other.getsockname()[1]))
        cell = _cell(tmp_path, *service_parts())
        try:
            await cell.start()
            await cell.wait_ready()
        finally:
            await cell.stop()


@pytest.mark.asyncio
async def test_a_state_directory_that_is_made_is_nobody_elses(tmp_path: Path) -> None:
    """Keys have their own closed one; what jobs are and who runs them stands in the others."""
    cell = _cell(tmp_path / "cell")
    try:
        await cell.start()
        home, log = ((tmp_path / name).stat().st_mode & 0o777 for name in ("cell", "cell/bus.log"))
        assert (oct(home), oct(log)) == ("0o700", "0o600")
    finally:
        await cell.stop()


@pytest.mark.asyncio
async def test_the_last_port_that_all_parts_have_room_at_is_taken(tmp_path: Path) -> None:
    cell = _cell(tmp_path, *service_parts(), metrics_port=65_535 - len(SERVICES) + 1)
    try:
        await cell.start()
    finally:
        await cell.stop()
