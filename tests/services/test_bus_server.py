import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairlease.runtime import bus_server
from fairlease.runtime.access import Access
from fairlease.runtime.connection import connect
from fairlease.runtime.errors import BusAway, ConfigWrong
from fairlease.runtime.settings import Settings, read_settings, url_in
from fairlease.runtime.whole_file import replace
from tests.services.bench import eventually


def test_a_restart_keeps_the_address(tmp_path: Path) -> None:
    first = bus_server.start(tmp_path, dies_with_parent=True)
    assert url_in(tmp_path) == first.url
    first.kill()
    second = bus_server.start(tmp_path, dies_with_parent=True)
    second.stop()
    assert second.url == first.url
    assert second.process.returncode == 0


def test_two_servers_never_share_a_store(tmp_path: Path) -> None:
    server = bus_server.start(tmp_path, dies_with_parent=True)
    with pytest.raises(ConfigWrong, match="already runs"):
        bus_server.start(tmp_path)
    server.stop()


def test_a_port_that_is_taken_is_told_with_the_way_out(tmp_path: Path) -> None:
    one = bus_server.start(tmp_path / "one", dies_with_parent=True)
    port = int(one.url.rpartition(":")[2])
    with pytest.raises(ConfigWrong, match=rf"port {port} is taken"):
        bus_server.start(tmp_path / "two", port=port)
    one.stop()


@pytest.mark.parametrize("port", ["99999", "0", "\N{SUPERSCRIPT TWO}", "9" * 5_000])
def test_an_address_without_a_port_that_can_be_is_replaced(tmp_path: Path, port: str) -> None:
    (tmp_path / "bus.json").write_text(json.dumps({"url": f"nats://127.0.0.1:{port}"}))
    server = bus_server.start(tmp_path, dies_with_parent=True)
    server.stop()
    assert url_in(tmp_path) == server.url != f"nats://127.0.0.1:{port}"


def test_a_server_whose_address_cannot_be_written_is_not_left_where_nobody_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: it would hold the store, and who keeps the cell would know of no server."""

    def full(path: Path, text: str) -> None:
        if path.name == "bus.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(bus_server, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            bus_server.start(tmp_path, dies_with_parent=True)
    bus_server.start(tmp_path, dies_with_parent=True).stop()


def test_why_a_server_left_is_said_of_this_start_and_not_of_an_older_one(tmp_path: Path) -> None:
    """A configuration that it does not take it tells on standard error, before it has a log."""
    (tmp_path / "bus.log").write_text("[1] [FTL] an older start failed over something else\n")
    with pytest.raises(ConfigWrong, match=r"left with code 1 \(nats-server: .*Parse error") as told:
        bus_server.start(tmp_path, access=Access("accounts {", "FL_LAB_LOG"))
    assert "older" not in str(told.value)


def test_every_acknowledgement_is_on_disk_and_nobody_listens_beside(tmp_path: Path) -> None:
    server = bus_server.start(tmp_path, dies_with_parent=True)
    config = (tmp_path / "bus.conf").read_text(encoding="utf-8")
    server.stop()
    assert "sync_interval: always" in config
    assert "127.0.0.1:" in config
    assert "http" not in config


def test_the_server_dies_with_its_parent_when_asked(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from fairlease.runtime import bus_server\n"
        "print(bus_server.start(pathlib.Path(sys.argv[1]), dies_with_parent=True).pid, flush=True)\n"
        "sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, env=_environment()) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    asyncio.run(eventually(lambda: not _is_alive(pid)))


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_settings_name_the_bus_that_runs_here(tmp_path: Path) -> None:
    server = bus_server.start(tmp_path, dies_with_parent=True)
    settings = read_settings("cli", {"FAIRLEASE_HOME": str(tmp_path)})
    client = await connect(settings, "cli", exit_on_close=False)
    assert client.is_connected
    await client.close()
    server.stop()


async def test_the_command_line_fails_fast_when_the_bus_is_away(tmp_path: Path) -> None:
    with pytest.raises(BusAway, match="fairlease up"):
        await connect("nats://127.0.0.1:1", "cli", exit_on_close=False)
    with pytest.raises(BusAway, match="FAIRLEASE_URL"):
        await connect(Settings(state_dir=tmp_path), "cli", exit_on_close=False)


@pytest.mark.parametrize("name", ["FAIRLEASE_CELL", "FAIRLEASE_REPLICA"])
def test_a_name_that_cannot_be_a_subject_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigWrong, match=name):
        read_settings("x", {"FAIRLEASE_HOME": str(tmp_path), name: "a.b"})
    with pytest.raises(ConfigWrong, match=name):
        read_settings("x", {"FAIRLEASE_HOME": str(tmp_path), name: "a*"})


@pytest.mark.parametrize(
    "data", [b"{}", b"[]", b"\xff", b"", b'{"url": "a', b"[" * 100_000, b'{"url": null}', b'{"url": 5}']
)
def test_a_broken_address_file_is_told(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bus.json").write_bytes(data)
    with pytest.raises(ConfigWrong, match=r"bus\.json"):
        read_settings("x", {"FAIRLEASE_HOME": str(tmp_path)})


def test_a_connection_closed_for_good_ends_a_daemon(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys; from fairlease.runtime.connection import Client, connect\n"
        "async def main():\n"
        "    client = await connect(sys.argv[1], 'daemon')\n"
        "    await Client.close(client)\n"
        "    await asyncio.sleep(30)\n"
        "asyncio.run(main())"
    )
    server = bus_server.start(tmp_path, dies_with_parent=True)
    done = subprocess.run([sys.executable, "-c", code, server.url], env=_environment(), timeout=20, check=False)
    server.stop()
    assert done.returncode == 3


def test_a_small_limit_of_open_files_is_told_and_kept_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bus_server.resource, "getrlimit", lambda _: (1_024, 4_096))
    server = bus_server.start(tmp_path, dies_with_parent=True)
    server.stop()
    assert "max_connections: 3072\n" in (tmp_path / "bus.conf").read_text()
    (told,) = caplog.messages
    assert told == (
        "the bus may hold 3072 connections and not 16384: this process may open 4096 files; for more of them raise the "
        "limit to 17408 (`ulimit -Hn`, or LimitNOFILE of the unit) and start again"
    )
