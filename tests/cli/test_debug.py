"""The bundle for whoever helps: whole, without secrets, and never over a file that is there."""

import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlease.cli.exits import FAILED, OK
from fairlease_schemas.explain import HostsView, QueueView
from fairlease_schemas.subjects import SERVICES
from tests.cli.cell import AS_OF, Cell
from tests.cli.test_doctor import health

CANARY = "canary7c1e90b2d4"
ENV = {"STORE_PASSWORD": f"{CANARY} alone"}


@pytest.fixture
def watched(cell: Cell) -> Iterator[Cell]:
    cell.plan.health = {service: health(service) for service in SERVICES}
    cell.plan.replies["hosts"] = HostsView(rows=(), as_of=AS_OF)
    cell.plan.replies["queue"] = QueueView(rows=(), waiting=3, running=2, parked=1, as_of=AS_OF)
    logs = cell.home / "logs"
    logs.mkdir()
    (logs / "ranker-a.log").write_text(f"one\npassword={CANARY} two\nthree {CANARY} alone\n")
    (logs / "long.log").write_text("cut off\n" * 100_000 + "the end\n")
    (logs / "line.log").write_text("no end " * 100_000)
    (logs / "elsewhere.log").symlink_to("/etc/passwd")
    yield cell
    shutil.rmtree(logs)


def unpacked(where: Path) -> dict[str, bytes]:
    """The files of a bundle, without the directory they are in."""
    with tarfile.open(where) as tar:
        members = tar.getmembers()
        assert all(member.isfile() and member.name.startswith("cell/") for member in members)
        files = [(member.name.removeprefix("cell/"), tar.extractfile(member)) for member in members]
        return {name: file.read() for name, file in files if file is not None}


def test_a_bundle_holds_what_it_lists_and_no_secret(watched: Cell, tmp_path: Path) -> None:
    where = tmp_path / "cell.tar.gz"
    seen = watched.run("debug", "bundle", str(where), "--json", **ENV, FAIRLEASE_TRACES=f"http://h?token={CANARY}")
    assert seen.code == OK, seen.err
    files = unpacked(where)
    listed = json.loads(seen.out)
    assert {one["name"]: one["bytes"] for one in listed["files"]} == {name: len(data) for name, data in files.items()}
    assert {"manifest.json", "doctor.json", "streams.json", "logs/ranker-a.log", "logs/long.log"} <= files.keys()
    assert "logs/elsewhere.log" not in files
    hashes = {one["name"]: one["sha256"] for one in json.loads(files.pop("manifest.json"))["files"]}
    assert hashes == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert not [name for name, data in files.items() if CANARY.encode() in data]
    assert files["logs/ranker-a.log"] == b"one\npassword=[redacted] two\nthree [redacted]\n"
    assert where.stat().st_mode & 0o077 == 0


def test_a_bundle_says_how_the_cell_stands(watched: Cell, tmp_path: Path) -> None:
    watched.run("debug", "bundle", str(tmp_path / "cell.tar.gz"))
    files = unpacked(tmp_path / "cell.tar.gz")
    told = {name: json.loads(data) for name, data in files.items() if name.endswith(".json")}
    assert {key: told["queue.json"][key] for key in ("waiting", "running", "parked")} == {
        "waiting": 3,
        "running": 2,
        "parked": 1,
    }
    assert told["doctor.json"]["kind"] == "DoctorReport"
    assert told["health.json"]["ranker"]["position"] == 42
    assert "FL_LAB_LOG" in {stream["config"]["name"] for stream in told["streams.json"]}
    assert told["policy.json"].keys() == {"trouble"}, "what cannot be had says so"
    assert told["settings.json"]["variables"] == ["FAIRLEASE_HOME"]
    assert len(files["logs/long.log"]) <= 256 * 1024
    assert files["logs/long.log"].startswith(b"cut off\n")
    assert files["logs/long.log"].endswith(b"the end\n")
    assert files["logs/line.log"] == b"left out: its last line is longer than what is taken of a log\n"


def test_a_dead_cell_is_bundled_too(watched: Cell, tmp_path: Path) -> None:
    seen = watched.run("debug", "bundle", str(tmp_path / "cell.tar.gz"), FAIRLEASE_URL="nats://127.0.0.1:1")
    files = unpacked(tmp_path / "cell.tar.gz")
    assert (seen.code, "look through it" in seen.out) == (OK, True)
    assert "does not answer" in json.loads(files["bus.json"])["trouble"]
    assert "logs/ranker-a.log" in files


def test_a_file_that_is_there_is_not_written_over(watched: Cell, tmp_path: Path) -> None:
    where = tmp_path / "cell.tar.gz"
    where.write_bytes(b"mine")
    seen = watched.run("debug", "bundle", str(where))
    assert (seen.code, "it is there already" in seen.err, where.read_bytes()) == (FAILED, True, b"mine")


def test_a_place_that_is_not_there_is_named(watched: Cell, tmp_path: Path) -> None:
    seen = watched.run("debug", "bundle", str(tmp_path / "nowhere" / "cell.tar.gz"))
    assert (seen.code, "name a place that you may write to" in seen.err) == (FAILED, True)


def test_a_name_that_no_file_can_have_is_told(watched: Cell, tmp_path: Path) -> None:
    seen = watched.run("debug", "bundle", str(tmp_path / ("a" * 300)))
    assert seen.code == FAILED
    assert "cannot be written (File name too long)" in seen.err


def test_what_is_in_a_bundle_without_a_name_is_not_unpacked_over_the_root(watched: Cell, tmp_path: Path) -> None:
    watched.run("debug", "bundle", str(tmp_path / ".tar.gz"))
    with tarfile.open(tmp_path / ".tar.gz") as tar:
        assert {name.partition("/")[0] for name in tar.getnames()} == {"bundle"}
