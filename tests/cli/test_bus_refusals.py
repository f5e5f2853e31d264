"""`fairlease bus`, where the machine or the bus says no."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.main import main
from fairlease.runtime import api, bus_server, streams
from fairlease.runtime.settings import OWN_SERVER
from tests.cli.test_bus import cell

__all__ = ["cell"]


def test_a_server_program_of_another_machine_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "nats-server"
    program.write_bytes(b"\x7fELF of nothing")
    program.chmod(0o755)
    (tmp_path / "bus-1.conf").write_text('include "accounts.conf"\n')
    monkeypatch.setenv(OWN_SERVER, str(program))
    assert main(["bus", "serve", str(tmp_path / "bus-1.conf")]) == 7
    assert f"{program}: cannot be started (Exec format error); install" in capsys.readouterr().err


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[api.Refused]]:
    """A bus that refuses to make streams, once for each of these, and then makes them."""
    server = bus_server.start(tmp_path / "bus", dies_with_parent=True)
    declare, left = streams.declare, list[api.Refused]()

    async def refused(*words: Any, **named: Any) -> list[str]:  # noqa: ANN401 - what declare takes
        if left:
            raise left.pop(0)
        return await declare(*words, **named)

    monkeypatch.setattr(streams, "declare", refused)
    monkeypatch.setenv("FAIRLEASE_URL", server.url)
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "nobody"))
    yield left
    server.stop()


def test_servers_that_have_not_all_found_each_other_are_asked_again(
    cell: Path, refusing: list[api.Refused], capsys: pytest.CaptureFixture[str]
) -> None:
    refusing += [api.Refused(api.NO_PEERS, "STREAM.CREATE.FL_LAB_LOG: no suitable peers for placement")] * 2
    assert main(["bus", "declare", str(cell), "--wait", "30s"]) == 0
    assert (refusing, "made FL_LAB_LOG" in capsys.readouterr().out) == ([], True)


def test_another_refusal_is_told_at_once(
    cell: Path, refusing: list[api.Refused], capsys: pytest.CaptureFixture[str]
) -> None:
    refusing += [api.Refused(10_052, "STREAM.CREATE.FL_LAB_LOG: bad stream")] * 2
    assert main(["bus", "declare", str(cell), "--wait", "30s"]) == 7
    assert (len(refusing), "FL_LAB_LOG: bad stream" in capsys.readouterr().err) == (1, True)
