"""`bundle` and `submit --bundle`: the same bytes for the same files, within limits, on the bus once."""

import asyncio
import hashlib
import json
import os
import socket
import tarfile
from pathlib import Path

import msgspec
import pytest

from fairlease.cli import packing, upload
from fairlease.cli.exits import CONTRACT, LATER, OK, USAGE, CommandError
from fairlease.cli.ignoring import Ignoring
from fairlease.cli.packing import pack
from fairlease.runtime import api
from fairlease.runtime.connection import Connection, connect
from fairlease_schemas.bundle import PIECE_BYTES, BundleManifest
from tests.cli.cell import SUBJECTS, Cell
from tests.cli.test_submit import SUBMIT


def project(root: Path) -> Path:
    """A directory with a program, a module, and what is no code."""
    (root / "lib").mkdir(parents=True)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "lib" / "net.py").write_text("depth = 3\n")
    (root / "current").symlink_to("lib/net.py")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("[user]\n")
    (root / "out.log").write_text("noise\n")
    (root / ".fairleaseignore").write_text("# what it writes\n*.log\n")
    return root


def names(data: bytes, tmp_path: Path) -> list[str]:
    path = tmp_path / "packed.tar"
    path.write_bytes(data)
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_the_same_files_have_the_same_digest_wherever_and_whenever_they_are_packed(tmp_path: Path) -> None:
    # rule: 1.13
    one, two = project(tmp_path / "one"), project(tmp_path / "two")
    os.utime(two / "run.sh", (1, 1))
    (two / "lib").chmod(0o700)
    (two / "run.sh").chmod(0o711)
    (two / ".git" / "config").write_text("[core]\n")
    (two / "more.log").touch()
    packed = pack(str(one))
    assert packed == pack(str(two))
    assert packed.bundle == "sha256:" + hashlib.sha256(packed.data).hexdigest()
    assert packed.bundle == "sha256:0f4aa26a75a92ca60796caf548c23b59f1f325bb9d87aaea34255855f1d89fd3"
    assert names(packed.data, tmp_path) == [".fairleaseignore", "current", "lib", "lib/net.py", "run.sh"]
    (two / "lib" / "net.py").write_text("depth = 4\n")
    assert pack(str(two)).bundle != packed.bundle


def test_bundle_prints_the_digest_and_needs_no_cell(cell: Cell, tmp_path: Path) -> None:
    # rule: 1.13
    root = str(project(tmp_path / "one"))
    packed = pack(root)
    assert cell.run("bundle", root, FAIRLEASE_URL="nats://127.0.0.1:1") == (OK, f"{packed.bundle}\n", "")
    told = json.loads(cell.run("bundle", root, "--json").out)
    assert told == {
        "apiVersion": "fairlease/v1",
        "kind": "Bundle",
        "bundle": packed.bundle,
        "bytes": len(packed.data),
        "files": 5,
    }


@pytest.mark.parametrize(
    ("target", "why"),
    [("/etc/passwd", "out of the directory"), ("../secret", "out of the directory"), ("lib/../../x", "out of the")],
)
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str, why: str) -> None:
    root = project(tmp_path / "one")
    (root / "away").symlink_to(target)
    with pytest.raises(CommandError, match=why) as refused:
        pack(str(root))
    assert refused.value.code == CONTRACT
    (root / ".fairleaseignore").write_text("away\n*.log\n")
    pack(str(root))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    root = project(tmp_path / "one")
    os.mkfifo(root / "pipe")
    with pytest.raises(CommandError, match="pipe is neither a file, a directory nor a link"):
        pack(str(root))
    (root / "pipe").unlink()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.path.relpath(root / "socket"))
    with pytest.raises(CommandError, match="socket is neither"):
        pack(str(root))
    listening.close()


def test_a_name_that_is_not_text_is_refused(tmp_path: Path) -> None:
    root = project(tmp_path / "one")
    (root / os.fsdecode(b"\xff")).touch()
    with pytest.raises(CommandError, match="its name is not UTF-8"):
        pack(str(root))


def test_the_limits_are_told_with_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 1.13
    root = project(tmp_path / "one")
    with (root / "large").open("wb") as file:
        file.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(CommandError, match="more than 64 MiB, the limit of a bundle") as refused:
        pack(str(root))
    assert "a line in .fairleaseignore" in refused.value.way_out
    assert [finding.sentence() for finding in refused.value.findings] == [
        "bundle '64.0 MiB or more' (rule 1.13, at most 64 MiB): the largest file is large, of 64.0 MiB"
    ]
    (root / "large").write_bytes(b"")
    monkeypatch.setattr(packing, "MAX_BUNDLE_FILES", 5)
    with pytest.raises(CommandError, match="more than 5 files, the limit of a bundle"):
        pack(str(root))


def test_a_directory_that_is_none_is_65_and_named(cell: Cell, tmp_path: Path) -> None:
    seen = cell.run(*SUBMIT, "--bundle", str(tmp_path / "nowhere"), "--", "true")
    assert (seen.code, "nowhere is not a directory" in seen.err) == (CONTRACT, True)
    assert cell.plan.commands == []


@pytest.mark.parametrize(
    ("lines", "left_out", "kept"),
    [
        pytest.param("*.log", ["a.log", "d/e/a.log"], ["a.log2", "log"], id="a pattern without a slash fits anywhere"),
        pytest.param("/a", ["a"], ["d/a"], id="one with a slash is tied to the top"),
        pytest.param("d/*.py", ["d/a.py"], ["d/e/a.py", "x/d/a.py"], id="a star stops at a slash"),
        pytest.param("**/out", ["out", "a/out", "a/b/out"], ["outer"], id="two stars above"),
        pytest.param("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["z", "a/bz"], id="two stars between"),
        pytest.param("a/**", ["a/b", "a/b/c"], ["a"], id="two stars below"),
        pytest.param("[a-c]?.x", ["b1.x"], ["d1.x", "b.x", "b/.x"], id="sets and question marks"),
        pytest.param("[!a]b", ["xb"], ["ab", "/b"], id="a set of what not"),
        pytest.param("*\n!keep", ["a", "b"], ["keep"], id="a later line takes back"),
        pytest.param("\\#x\n\\!y\n#z\n\n", ["#x", "!y"], ["z", "#z"], id="comments and what only looks like one"),
        pytest.param("a.b+(c)", ["a.b+(c)"], ["axb+(c)"], id="letters of regular expressions are letters"),
        pytest.param("", [".git", "d/.git"], [".gitignore"], id="the repository itself"),
    ],
)
def test_the_lines_mean_what_they_mean_to_git(lines: str, left_out: list[str], kept: list[str]) -> None:
    ignoring = Ignoring(lines.split("\n"))
    assert [path for path in left_out if not ignoring.leaves_out(path, is_directory=False)] == []
    assert [path for path in kept if ignoring.leaves_out(path, is_directory=False)] == []


def test_a_slash_at_the_end_means_directories(tmp_path: Path) -> None:
    ignoring = Ignoring(["build/"])
    assert ignoring.leaves_out("a/build", is_directory=True)
    assert not ignoring.leaves_out("a/build", is_directory=False)


def test_a_line_that_is_no_pattern_is_told(tmp_path: Path) -> None:
    root = project(tmp_path / "one")
    (root / ".fairleaseignore").write_text("[z-a]\n")
    with pytest.raises(CommandError, match=r"'\[z-a\]' is no pattern"):
        pack(str(root))


# on the bus ---------------------------------------------------------------------------------------------------
async def stored(client: Connection, account: str) -> dict[str, list[bytes]]:
    """Every bundle of an account: its digest and its pieces in order, the manifest first."""
    info = await client.jsm().stream_info(SUBJECTS.bundles_stream, subjects_filter=SUBJECTS.bundle(account, "*", "*"))
    found: dict[str, dict[int, bytes]] = {}
    for subject in info.state.subjects or {}:
        *_, digest, piece, _ = subject.split(".")
        message = await client.jsm().get_last_msg(SUBJECTS.bundles_stream, subject)
        found.setdefault(digest, {})[int(piece)] = message.data or b""
    return {digest: [pieces[number] for number in sorted(pieces)] for digest, pieces in found.items()}


def on_the_bus(cell: Cell, account: str = "local") -> tuple[dict[str, list[bytes]], int]:
    """The bundles of an account, and how many messages the stream ever took."""

    async def look() -> tuple[dict[str, list[bytes]], int]:
        client = await connect(cell.url, "look", exit_on_close=False)
        try:
            last = (await client.jsm().stream_info(SUBJECTS.bundles_stream)).state.last_seq
            return await stored(client, account), last
        finally:
            await client.close()

    return asyncio.run(look())


def test_submit_uploads_the_code_once_and_names_its_digest(cell: Cell, tmp_path: Path) -> None:
    # rule: 1.13
    root = project(tmp_path / "one")
    (root / "weights").write_bytes(os.urandom(PIECE_BYTES + 5))
    packed = pack(str(root))
    _, before = on_the_bus(cell)
    seen = cell.run(*SUBMIT, "--bundle", str(root), "--", "./run.sh")
    assert (seen.code, f"uploaded {packed.bundle}: {len(packed.data)} bytes, 6 files" in seen.err) == (OK, True)
    assert cell.plan.commands[-1][1]["contract"]["spec"]["source"] == {"bundle": packed.bundle}
    found, after = on_the_bus(cell)
    manifest, *pieces = found[packed.bundle.removeprefix("sha256:")]
    assert msgspec.json.decode(manifest, type=BundleManifest) == BundleManifest(
        size=len(packed.data), pieces=len(pieces)
    )
    assert b"".join(pieces) == packed.data
    assert after - before == 1 + len(pieces)
    again = cell.run(*SUBMIT, "--bundle", str(root), "--", "./run.sh")
    assert (again.code, again.err) == (OK, "")
    assert on_the_bus(cell)[1] == after


def test_another_account_has_a_copy_of_its_own(cell: Cell, tmp_path: Path) -> None:
    root = str(project(tmp_path / "one"))
    cell.run(*SUBMIT, "--bundle", root, "--", "true")
    seen = cell.run(*SUBMIT, "--account", "ci", "--bundle", root, "--", "true")
    assert "uploaded" in seen.err
    assert pack(root).bundle.removeprefix("sha256:") in on_the_bus(cell, "ci")[0]


def test_an_upload_that_was_broken_off_is_begun_again(cell: Cell, tmp_path: Path) -> None:
    root = str(project(tmp_path / "broken"))
    (tmp_path / "broken" / "only-here").touch()
    digest = pack(root).bundle.removeprefix("sha256:")

    async def half() -> None:
        client = await connect(cell.url, "half", exit_on_close=False)
        await client.request(SUBJECTS.bundle("local", digest, 1), b"not all of it", timeout=3)
        await client.close()

    asyncio.run(half())
    assert cell.run(*SUBMIT, "--bundle", root, "--", "true").code == OK
    assert on_the_bus(cell)[0][digest][1:] == [pack(root).data]


def test_a_bundle_that_has_had_half_of_its_time_is_uploaded_again(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule: 1.13
    root = str(project(tmp_path / "old"))
    (tmp_path / "old" / "of-old").touch()
    assert "uploaded" in cell.run(*SUBMIT, "--bundle", root, "--", "true").err
    before = on_the_bus(cell)
    monkeypatch.setattr(upload, "FRESH_DAYS", 0)
    assert "uploaded" in cell.run(*SUBMIT, "--bundle", root, "--", "true").err
    after = on_the_bus(cell)
    assert (after[0], after[1] - before[1]) == (before[0], 2)


def test_a_bus_that_has_no_room_is_75_and_nothing_is_submitted(cell: Cell, tmp_path: Path) -> None:
    async def limited(size: int) -> None:
        client = await connect(cell.url, "limit", exit_on_close=False)
        config = (await api.request(client, f"STREAM.INFO.{SUBJECTS.bundles_stream}"))["config"]
        await api.request(client, f"STREAM.UPDATE.{SUBJECTS.bundles_stream}", {**config, "max_bytes": size})
        await client.close()

    root = project(tmp_path / "large")
    (root / "weights").write_bytes(os.urandom(3 * PIECE_BYTES))
    commands = len(cell.plan.commands)
    asyncio.run(limited(2 * PIECE_BYTES))
    seen = cell.run(*SUBMIT, "--bundle", str(root), "--", "true")
    asyncio.run(limited(1 << 30))
    assert (seen.code, "the bus did not take piece" in seen.err) == (LATER, True)
    assert len(cell.plan.commands) == commands
    assert cell.run(*SUBMIT, "--bundle", str(root), "--", "true").code == OK


@pytest.mark.parametrize("way", [("submit", "--dry-run"), ("plan",)])
def test_what_only_looks_uploads_nothing(cell: Cell, tmp_path: Path, way: tuple[str, ...]) -> None:
    # rule: 1.13
    root = project(tmp_path / "one")
    (root / "never-uploaded").touch()
    before = on_the_bus(cell)
    seen = cell.run(
        *way, "--budget", "team-a", "--min-runtime", "15m", "--timeout", "1h", "--bundle", str(root), "--", "x"
    )
    assert seen.code != CONTRACT
    if way[0] == "submit":
        assert pack(str(root)).bundle in seen.out
    assert on_the_bus(cell) == before


def test_a_bundle_beside_another_source_is_64(cell: Cell, tmp_path: Path) -> None:
    root = str(project(tmp_path / "one"))
    seen = cell.run(*SUBMIT, "--bundle", root, "--source-bundle", "sha256:" + "a" * 64, "--", "true")
    assert (seen.code, "--bundle is the whole source of a job" in seen.err) == (USAGE, True)
