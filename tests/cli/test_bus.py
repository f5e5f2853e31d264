"""`fairlease bus`, as far as it needs no bus; with one: tests/live/test_cluster.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.main import main
from fairlease.runtime import api, bus_server, streams
from fairlease.runtime.settings import OWN_SERVER

CELL = '[[servers]]\nname = "bus-1"\nhost = "127.0.0.1"\nport = {port}\n[bus]\nstore = "{store}"\n'


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    path = tmp_path / "cell.toml"
    path.write_text(CELL.format(port=1, store=tmp_path))
    return path


def test_what_was_written_is_told_and_where_clients_go(
    cell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["bus", "write", str(cell), "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(out / "bus-1.conf"),
        f"keys in {out}/keys: give each process its own file alone (FAIRLEASE_CREDS)",
        "FAIRLEASE_URL=nats://127.0.0.1:1",
    ]


def test_a_file_that_is_no_cell_ends_in_seven_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "cell.toml").write_text("cell = 1\n")
    assert main(["bus", "write", str(tmp_path / "cell.toml"), "--out", str(tmp_path / "out")]) == 7
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_written_is_told(
    cell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("a file")
    assert main(["bus", "write", str(cell), "--out", str(tmp_path / "out")]) == 7
    assert "name another directory with --out" in capsys.readouterr().err


def test_declaring_without_a_bus_ends_in_sixty_nine(
    cell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("FAIRLEASE_URL", raising=False)
    assert main(["bus", "declare", str(cell), "--wait", "1ms"]) == 69
    assert "start the servers of the bus" in capsys.readouterr().err


def test_a_server_without_its_file_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bus", "serve", str(tmp_path / "bus-1.conf")]) == 7
    assert "write it with `fairlease bus write`" in capsys.readouterr().err


def test_a_server_program_that_is_none_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(OWN_SERVER, "nats-server")
    assert main(["bus", "serve", str(tmp_path / "bus-1.conf")]) == 7
    assert "is not the absolute path of a program" in capsys.readouterr().err


def test_an_address_among_several_that_is_none_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEASE_URL", "nats://a:4222,nats://:x")
    assert main(["queue"]) == 69
    assert "several servers with commas" in capsys.readouterr().err


def test_a_server_program_of_another_machine_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "nats-server"
    program.write_bytes(b"\x7fELF of nothing")
    program.chmod(0o755)
    (tmp_path / "bus-1.conf").touch()
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
