"""`fairlease up` where it cannot begin: an error for people, and nothing left running. Where it can: tests/live."""

import errno
from pathlib import Path

import pytest

from fairlease.cli.main import main
from fairlease.runtime import api, bus_server
from fairlease.runtime.errors import BusAway, ConfigWrong
from fairlease.runtime.supervisor import Supervisor


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        pytest.param(OSError(errno.ENOSPC, "No space left on device", "/there/bus.conf"), 69, "make room", id="full"),
        pytest.param(
            OSError(errno.EMFILE, "Too many open files"), 69, "/home: Too many open files", id="no file named"
        ),
        pytest.param(
            api.Refused(10_047, "STREAM.CREATE: insufficient storage"), 69, "insufficient", id="the bus refuses"
        ),
        pytest.param(BusAway("it is silent"), 69, "it is silent", id="the bus is silent"),
        pytest.param(ConfigWrong("it differs"), 7, "it differs", id="a file differs"),
    ],
)
def test_what_keeps_a_cell_from_starting_is_told_and_no_server_is_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    told: str,
) -> None:
    async def start(supervisor: Supervisor) -> None:
        supervisor._start_bus()
        raise error

    monkeypatch.setattr("fairlease.cli.up.configure", lambda _: None)
    monkeypatch.setattr(Supervisor, "start", start)
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "home"))
    assert main(["up", "--simulate-gpus", "1x1"]) == code
    said = capsys.readouterr().err
    assert (told in said, "Traceback" in said) == (True, False)
    bus_server.start(tmp_path / "home", dies_with_parent=True).stop()
