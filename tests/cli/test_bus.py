"""`fairlease bus`, as far as it needs no bus; with one: tests/live/test_cluster.py."""

from pathlib import Path

import pytest

from fairlease.cli.main import main
from fairlease.runtime import bus_server
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


def test_the_bus_of_the_file_is_declared_and_not_one_that_runs_on_this_machine(
    cell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator may have a small cell of their own; its streams are there, and say nothing of the others."""
    server = bus_server.start(tmp_path / "own", dies_with_parent=True)
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "own"))
    monkeypatch.delenv("FAIRLEASE_URL", raising=False)
    assert main(["bus", "declare", str(cell), "--wait", "1ms"]) == 69
    assert "nats://127.0.0.1:1 " in capsys.readouterr().err
    monkeypatch.setenv("FAIRLEASE_URL", server.url)
    assert main(["bus", "declare", str(cell), "--wait", "1ms"]) == 0, "whoever names another bus means it"
    server.stop()


def test_a_server_without_its_file_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bus", "serve", str(tmp_path / "bus-1.conf")]) == 7
    assert "write it with `fairlease bus write`" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [0, 1, -1])
def test_a_server_whose_file_was_cut_short_does_not_start(
    cell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: int
) -> None:
    """An empty file means to the server: listen everywhere, and ask nobody who they are."""
    assert main(["bus", "write", str(cell), "--out", str(tmp_path / "out")]) == 0
    conf = tmp_path / "out" / "bus-1.conf"
    lines = conf.read_text().splitlines(keepends=True)
    conf.write_text("".join(lines[:kept]))
    assert main(["bus", "serve", str(conf)]) == 7
    assert "leaves out the accounts" in capsys.readouterr().err


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
