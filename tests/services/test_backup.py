"""A backup holds a cell as it was at one instant; a file that is not whole is refused before anything is written."""

import asyncio
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlease.cli.exits import FAILED, OK
from fairlease.cli.main import main
from fairlease.runtime import backup, bus_server, certificates, keys, standstill, streams, tls
from fairlease.runtime.access import access
from fairlease.runtime.backup import BadBackup, Manifest, Member
from fairlease.runtime.bus_server import BusServer
from fairlease.runtime.connection import connect
from fairlease.runtime.permissions import Plan, identities
from fairlease.runtime.standstill import CannotCopy
from fairlease_schemas.subjects import SERVICES, Subjects
from tests.house.tree import ROOT
from tests.services.bench import command, eventually, record, store

SUBJECTS = Subjects("lab")
RECORDS = 3


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BusServer]:
    """The bus of a cell whose log has three records."""
    for name in [name for name in os.environ if name.startswith("FAIRLEASE_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    monkeypatch.setenv("FAIRLEASE_HOME", str(home))
    known = access(home, SUBJECTS, identities(Plan(cell="lab", accounts=("local",))))
    bus = bus_server.start(home, access=known, dies_with_parent=True)
    try:
        asyncio.run(_filled(home, bus.url))
        yield bus
    finally:
        bus.kill()


@pytest.fixture
def home(bus: BusServer) -> Path:
    """Its state directory."""
    return bus.home


async def _filled(home: Path, url: str) -> None:
    """Three records, and as many commands that wait."""
    for who in (keys.DEPLOYER, keys.service_name("ledger"), keys.client_name("local")):
        client = await connect(url, "test", key=keys.make(home, who), exit_on_close=False)
        try:
            if who == keys.DEPLOYER:
                await streams.declare(client, SUBJECTS, ("local",))
            for number in range(RECORDS):
                if who == keys.client_name("local"):
                    await command(client, SUBJECTS, f"job-{number}")
                elif who != keys.DEPLOYER:
                    await store(client, SUBJECTS.log("ledger", "ledger"), record(basis=number, at_ms=number + 1))
        finally:
            await client.close()


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def _made(home: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Path:
    where = home.parent / "cell.backup"
    code, _, err = _said(capsys, "backup", str(where), *more)
    assert code == OK, err
    return where


# made --------------------------------------------------------------------------------------------------------------
def test_a_backup_of_a_running_cell_is_one_closed_file_that_names_the_end_of_its_log(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = home.parent / "cell.backup"
    code, out, err = _said(capsys, "backup", str(where), "-o", "json")
    assert code == OK, err
    said, manifest = json.loads(out), backup.judge(where)
    assert (said["log_position"], manifest.log_position) == (RECORDS, RECORDS)
    assert manifest.log_sha256 == hashlib.sha256(record(basis=RECORDS - 1, at_ms=RECORDS)).hexdigest()
    assert where.stat().st_mode & 0o777 == 0o600
    assert said["bytes"] == where.stat().st_size
    assert sorted(path.name for path in home.parent.iterdir()) == ["cell.backup", "home"], "something is left beside it"


def test_no_key_is_in_it_unless_somebody_asks(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = _made(home, capsys)
    seeds = [json.loads(path.read_text())["seed"].encode() for path in (home / "keys").glob("*.key")]
    assert len(seeds) == len(SERVICES) + len(("local", keys.DEPLOYER, keys.AUDIT))
    unpacked = gzip.decompress(plain.read_bytes())
    assert not [seed for seed in seeds if seed in unpacked]
    plain.unlink()
    whole = gzip.decompress(_made(home, capsys, "--with-keys").read_bytes())
    assert all(seed in whole for seed in seeds)


def test_a_file_that_is_there_is_never_written_over(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = home.parent / "cell.backup"
    where.write_text("mine")
    code, _, err = _said(capsys, "backup", str(where))
    assert code == FAILED
    assert "it is there already" in err
    assert where.read_text() == "mine"


def test_a_directory_without_a_cell_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "none"))
    code, _, err = _said(capsys, "backup", str(tmp_path / "cell.backup"))
    assert code == FAILED
    assert "has no cell" in err
    assert list(tmp_path.iterdir()) == []


def _damage(home: Path, stream: str) -> None:
    """A bit of a stream's only block is another one; a bus that starts on it leaves out what stands from there on."""
    (block,) = (home / "jetstream/jetstream").glob(f"*/streams/{stream}/msgs/*.blk")
    with block.open("r+b") as file:
        data = bytearray(file.read())
        data[len(data) // 2] ^= 1
        file.seek(0)
        file.write(data)


@pytest.mark.parametrize(
    ("stream", "is_running"), [("FL_LAB_LOG", True), ("FL_LAB_LOG", False), ("FL_LAB_INBOX_local", True)]
)
def test_a_stream_that_is_damaged_on_disk_is_no_backup(
    bus: BusServer, home: Path, capsys: pytest.CaptureFixture[str], stream: str, *, is_running: bool
) -> None:
    if not is_running:
        bus.kill()
        folded = home / "lab/ledger-a" / f"{RECORDS:020d}.fold"
        folded.parent.mkdir(parents=True)
        folded.touch()
    _damage(home, stream)
    code, _, err = _said(capsys, "backup", str(home.parent / "cell.backup"))
    assert code == FAILED
    assert f"stream {stream} goes to {RECORDS}, and what was copied of it to" in err
    assert list(home.parent.iterdir()) == [home]


def test_a_cell_that_is_stopped_can_be_backed_up_too(
    bus: BusServer, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bus.kill()
    assert backup.judge(_made(home, capsys)).log_position == RECORDS


# the bus meanwhile -------------------------------------------------------------------------------------------------
def _states(pid: int) -> set[str]:
    return {path.read_text().rpartition(") ")[2][0] for path in Path(f"/proc/{pid}/task").glob("*/stat")}


def test_the_bus_goes_on_when_who_copies_it_is_killed_while_it_stands_still(bus: BusServer) -> None:
    code = (
        "import sys, time; from fairlease.runtime import standstill\n"
        "with standstill._halted(int(sys.argv[1])):\n    print('still', flush=True); time.sleep(600)"
    )
    paths = os.pathsep.join(str(ROOT / name) for name in ("services", "schemas"))
    with subprocess.Popen(
        [sys.executable, "-c", code, str(bus.pid)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    ) as copying:
        assert copying.stdout is not None
        assert copying.stdout.readline() == b"still\n"
        assert _states(bus.pid) == {"T"}
        copying.kill()
    asyncio.run(eventually(lambda: not _states(bus.pid) & {"T"}))


def test_what_changes_between_two_looks_is_copied_again_and_what_went_goes(tmp_path: Path) -> None:
    source, to = tmp_path / "store", tmp_path / "copy"
    (source / "a/b").mkdir(parents=True)
    to.mkdir()
    for name in ("kept", "changed", "a/b/gone"):
        (source / name).write_text("before")
        os.utime(source / name, (1, 1))
    seen: dict[Path, standstill.Seen] = {}
    assert standstill._pass(source, to, seen) == 3 * len("before")
    (source / "changed").write_text("behind")
    shutil.rmtree(source / "a")
    (source / "new").write_text("new")
    assert standstill._pass(source, to, seen) == len("behind") + len("new")
    assert {path.name: path.read_text() for path in to.iterdir()} == {
        "kept": "before",
        "changed": "behind",
        "new": "new",
    }


def test_a_bus_of_which_nobody_knows_the_process_is_left_alone(home: Path, tmp_path: Path) -> None:
    (home / "bus.json").write_text(json.dumps({"url": "nats://127.0.0.1:1", "pid": os.getpid()}))
    with pytest.raises(CannotCopy, match="does not say which process it is"):
        standstill.copy(home, tmp_path / "copy")


# taken up ----------------------------------------------------------------------------------------------------------
def test_a_restored_cell_is_the_cell_in_another_life(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = _made(home, capsys, "--with-keys")
    there = home.parent / "again"
    there.mkdir()  # an empty one makes way
    monkeypatch.setenv("FAIRLEASE_HOME", str(there))
    code, out, err = _said(capsys, "restore", str(where))
    assert code == OK, err
    assert f"log to position 1-{RECORDS}" in out
    assert sorted(path.name for path in there.iterdir()) == ["agent", "jetstream", "keys"]
    assert (there / "keys/audit.key").read_text() == (home / "keys/audit.key").read_text()
    assert {path.stat().st_mode & 0o777 for path in (there / "keys").iterdir()} == {0o400}
    assert not [path for path in there.rglob("*") if path.stat().st_mode & 0o077]
    life = (there / "agent/life").read_text()
    shutil.rmtree(there)
    assert _said(capsys, "restore", str(where))[0] == OK
    assert (there / "agent/life").read_text() != life


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_a_directory_with_anything_in_it_is_left_alone(
    home: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    where = _made(home, capsys)
    before = sorted(home.rglob("*"))
    code, _, err = _said(capsys, "restore", str(where), *words)
    assert code == FAILED
    assert "is not empty" in err
    assert sorted(home.rglob("*")) == before


def test_a_backup_of_another_cell_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = _made(home, capsys)
    monkeypatch.setenv("FAIRLEASE_HOME", str(home.parent / "again"))
    monkeypatch.setenv("FAIRLEASE_CELL", "other")
    code, _, err = _said(capsys, "restore", str(where))
    assert code == FAILED
    assert "FAIRLEASE_CELL=lab" in err


def test_a_cells_certificates_go_with_its_keys(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = certificates.make(home)
    before = {name: (made.directory / name).read_bytes() for name in tls.FILES}
    assert not any(member.name.startswith("tls/") for member in backup.judge(_made(home, capsys)).files)
    (home.parent / "cell.backup").unlink()
    where = _made(home, capsys, "--with-keys")
    again = home.parent / "again"
    monkeypatch.setenv("FAIRLEASE_HOME", str(again))
    assert _said(capsys, "restore", str(where))[0] == OK
    assert {name: (again / "tls" / name).read_bytes() for name in tls.FILES} == before
    assert {(again / "tls" / name).stat().st_mode & 0o077 for name in tls.FILES} == {0}


def test_a_backup_that_is_not_there_is_told_with_what_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "home"))
    code, out, err = _said(capsys, "restore", str(tmp_path / "cell.backup"))
    assert (code, out) == (FAILED, "")
    assert "cell.backup: No such file or directory" in err
    assert "name a file that `fairlease backup` wrote" in err


@pytest.mark.parametrize("words", [(), ("--dry-run",)], ids=["in earnest", "dry"])
@pytest.mark.parametrize("lie", [{"log_position": 900}, {"log_sha256": "ab" * 32}], ids=["further", "of another"])
def test_figures_that_a_manifest_makes_up_are_not_told(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lie: dict[str, Any],
    words: tuple[str, ...],
) -> None:
    # given: a backup with another manifest, of the same files
    where, again = _made(home, capsys), home.parent / "again"
    state = home.parent / "state"
    manifest = backup.restore(where, state)
    forged = home.parent / "forged.backup"
    backup.write(forged, msgspec.structs.replace(manifest, **lie), state)
    # when
    monkeypatch.setenv("FAIRLEASE_HOME", str(again))
    code, out, err = _said(capsys, "restore", str(forged), *words)
    # then
    assert (code, out) == (FAILED, "")
    assert f"its log ends at position {RECORDS}" in err
    assert "its manifest says" in err
    assert not again.exists()


def _flipped(data: bytes) -> bytes:
    plain = bytearray(gzip.decompress(data))
    at = plain.index(b"FL_LAB_LOG", len(plain) // 2)
    plain[at] ^= 1
    return gzip.compress(bytes(plain))


def _written(place: Path) -> Path:
    """A backup that is whole, of a store that no server ever saw."""
    state = place / "state"
    (state / "jetstream").mkdir(parents=True)
    (state / "jetstream/1.blk").write_bytes(b"FL_LAB_LOG " * 1_000)
    files = backup.members_of(state)
    manifest = Manifest(
        form=1, cell="lab", release="", made_at_ms=1, log_position=1, log_sha256="", has_keys=False, files=files
    )
    backup.write(place / "cell.backup", manifest, state)
    shutil.rmtree(state)
    return place / "cell.backup"


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "no archive": lambda _: b"# a page\n" * 1_000,
    "cut off in its manifest": lambda data: data[:100],
    "cut off in the middle": lambda data: data[: len(data) // 2],
    "cut off by a byte": lambda data: data[:-1],
    "a bit of the packed bytes flipped": lambda data: data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :],
    "a bit of a stream flipped": _flipped,
    "something behind its end": lambda data: data + b"more",
    "another archive behind its end": lambda data: data + gzip.compress(b"more"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_is_not_whole_is_refused_and_nothing_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
) -> None:
    where = _written(tmp_path)
    where.write_bytes(damage(where.read_bytes()))
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "again"))
    code, out, err = _said(capsys, "restore", str(where))
    assert (code, out) == (FAILED, "")
    assert err.startswith(f"fairlease: {where}: ")
    assert "take another backup" in err
    assert list(tmp_path.iterdir()) == [where]


def _archive(where: Path, manifest: dict[str, object], *members: tarfile.TarInfo) -> Path:
    """A file as somebody would forge it: any manifest, any members, each of zeros."""
    head = json.dumps(manifest).encode()
    entry = tarfile.TarInfo("manifest.json")
    entry.size = len(head)
    with tarfile.open(where, "w:gz") as tar:
        tar.addfile(entry, io.BytesIO(head))
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)) if member.isreg() else None)
    return where


def _manifest(*names: str, size: int = 1, **changes: object) -> dict[str, object]:
    digest = hashlib.sha256(bytes(size)).hexdigest()
    files = [{"name": name, "bytes": size, "sha256": digest} for name in names]
    plain = {"form": 1, "cell": "lab", "release": "", "made_at_ms": 0, "log_position": 0, "log_sha256": ""}
    return {**plain, "has_keys": False, "files": files, **changes}


def _member(name: str, size: int = 1, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname = size, kind, link
    return entry


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "jetstream/../../x", "jetstream", "keys", "x", "agent/life", "jetstream//x", "jetstream/a b"],
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    where = _archive(tmp_path / "b", _manifest(name), _member(name))
    with pytest.raises(BadBackup, match="is no file of a cell"):
        backup.restore(where, tmp_path / "to")
    assert [path.name for path in tmp_path.rglob("*")] == ["b", "to"] or not list((tmp_path / "to").iterdir())


def test_links_other_members_and_more_of_them_than_were_named_are_refused(tmp_path: Path) -> None:
    named = "jetstream/x"
    for number, members in enumerate(
        (
            [_member(named, 0, tarfile.SYMTYPE, "/etc/passwd")],
            [_member(named, 0, tarfile.LNKTYPE, "manifest.json")],
            [_member("jetstream/y")],
            [_member(named, 2)],
            [_member(named), _member("jetstream/y")],
            [],
        )
    ):
        where = _archive(tmp_path / f"b{number}", _manifest(named), *members)
        with pytest.raises(BadBackup):
            backup.judge(where)
    assert backup.judge(_archive(tmp_path / "good", _manifest(named), _member(named))).files[0].name == named


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (_manifest("jetstream/x", form=2), "form 2"),
        (_manifest("jetstream/x", "jetstream/x"), "twice"),
        ({"form": 1}, "cannot be read"),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(tmp_path: Path, manifest: dict[str, object], why: str) -> None:
    with pytest.raises(BadBackup, match=why):
        backup.judge(_archive(tmp_path / "b", manifest, _member("jetstream/x"), _member("jetstream/x")))


def test_a_few_bytes_that_unpack_to_very_many_are_refused(tmp_path: Path) -> None:
    """Given a header of a gigabyte, when it is read, then no more of it is than a manifest may have"""
    where = tmp_path / "bomb"
    entry = tarfile.TarInfo("manifest.json")
    entry.size, entry.type = 1 << 30, tarfile.XHDTYPE
    with gzip.open(where, "wb", compresslevel=1) as out:
        out.write(entry.tobuf())
        for _ in range(1 << 10):
            out.write(bytes(1 << 20))
    with pytest.raises(BadBackup, match="more than its manifest says"):
        backup.judge(where)


def test_what_is_written_is_read_again_as_it_was(tmp_path: Path) -> None:
    state = tmp_path / "state"
    long = "jetstream/" + "/".join(["d" * 100] * 4) + "/1.blk"
    for name, data in (("cell.json", b"{}"), (long, bytes(range(256)) * 10_000), ("jetstream/empty", b"")):
        path = state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    files = backup.members_of(state)
    assert [member.name for member in files] == sorted(["cell.json", long, "jetstream/empty"])
    assert files[0] == Member(name="cell.json", bytes=2, sha256=hashlib.sha256(b"{}").hexdigest())
    manifest = Manifest(
        form=1, cell="lab", release="", made_at_ms=1, log_position=0, log_sha256="", has_keys=False, files=files
    )
    backup.write(tmp_path / "b", manifest, state)
    assert backup.restore(tmp_path / "b", tmp_path / "to") == manifest
    assert backup.members_of(tmp_path / "to") == files
    with pytest.raises(FileExistsError):
        backup.write(tmp_path / "b", manifest, state)
