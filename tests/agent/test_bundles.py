"""Code bundles on a host: fetched once, believed by digest, unpacked as if from an enemy, private to an attempt."""

import io
import tarfile
import threading
from pathlib import Path

import msgspec
import pytest

from fairlease.agent import unpacking
from fairlease.agent.unpacking import BundleRefused, unpack
from fairlease.cli.packing import pack
from fairlease_schemas.bundle import MAX_BUNDLE_FILES, PIECE_BYTES
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import RunGone, RunStarted
from tests.agent.bench import Bench, keeper_of, shell, until

SAYS = "echo here > said; cat code/train.txt; ls -l run.sh | cut -c1-10; readlink alias; echo $FAIRLEASE_SOURCE"
Item = tuple[str, bytes, bytes | str]


def tar_of(*items: Item) -> bytes:
    """A tar made by hand: of each entry its name, its kind, and its bytes or where it points."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, content in items:
            info = tarfile.TarInfo(name)
            info.type = kind
            if isinstance(content, str):
                info.linkname = content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return written.getvalue()


def code(tmp_path: Path) -> bytes:
    """What the command line packs of a small project."""
    root = tmp_path / "project"
    (root / "code").mkdir(parents=True)
    (root / "code" / "train.txt").write_text("the code\n")
    (root / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "run.sh").chmod(0o4775)
    (root / "alias").symlink_to("code/train.txt")
    return pack(str(root)).data


def with_code(bench: Bench, name: str, script: str, data: bytes, **more: str) -> RunOrder:
    bundle = bench.upload("ada", data)
    return bench.part(name, shell(script), source={"bundle": bundle}, **more)  # type: ignore[arg-type]  # words of a part


@pytest.mark.asyncio
async def test_a_job_finds_the_code_of_its_bundle_where_it_works(bench: Bench, tmp_path: Path) -> None:
    # rule: 1.13
    part = with_code(bench, "a", SAYS, code(tmp_path))
    bench.order(part)
    assert (await bench.gone(part)).end == End.SUCCEEDED
    bundle = pack(str(tmp_path / "project")).bundle
    assert bench.log(part) == f"the code\n-rwxr-xr-x\ncode/train.txt\n{bundle}\n"
    assert (bench.directory(part).path / "work" / "said").read_text() == "here\n"


@pytest.mark.asyncio
async def test_every_attempt_has_files_of_its_own_and_the_bus_is_asked_once(bench: Bench, tmp_path: Path) -> None:
    # rule: 1.13
    data = code(tmp_path)
    spoils = with_code(bench, "a", "echo spoilt > code/train.txt; rm run.sh", data)
    bench.order(spoils)
    await bench.gone(spoils)
    reads = with_code(bench, "b", "cat code/train.txt; ls", data)
    bench.order(reads)
    await bench.gone(reads)
    assert bench.log(reads) == "the code\nalias\ncode\nrun.sh\n"
    assert [number for _, _, number in bench.asked] == [0, 1]


@pytest.mark.asyncio
async def test_twenty_attempts_at_once_fetch_it_once(bench: Bench, tmp_path: Path) -> None:
    data = code(tmp_path)
    parts = [with_code(bench, f"n{n}", "cat code/train.txt", data) for n in range(20)]
    bench.order(*parts)
    for part in parts:
        assert (await bench.gone(part)).end == End.SUCCEEDED
    assert [number for _, _, number in bench.asked] == [0, 1]


@pytest.mark.asyncio
async def test_what_somebody_did_to_the_cache_is_found_and_fetched_anew(bench: Bench, tmp_path: Path) -> None:
    data = code(tmp_path)
    first = with_code(bench, "a", "true", data)
    bench.order(first)
    await bench.gone(first)
    (kept,) = (bench.home / "bundles").glob("*.tar")
    kept.write_bytes(kept.read_bytes().replace(b"the code", b"evilcode"))
    second = with_code(bench, "b", "cat code/train.txt", data)
    bench.order(second)
    assert (await bench.gone(second)).end == End.SUCCEEDED
    assert bench.log(second) == "the code\n"


@pytest.mark.asyncio
async def test_the_least_recently_used_bundles_leave_a_full_cache(bench: Bench, tmp_path: Path) -> None:
    bench.cache_bytes = 25_000  # two bundles of one record each
    bench.restart()
    for name, text in (("a", "1"), ("b", "2"), ("a2", "1"), ("c", "3")):
        part = with_code(bench, name, "cat it", tar_of(("it", b"0", text.encode())))
        bench.order(part)
        assert (await bench.gone(part)).end == End.SUCCEEDED
    kept = {path.read_bytes()[512:513] for path in (bench.home / "bundles").glob("*.tar")}
    assert kept == {b"1", b"3"}


@pytest.mark.asyncio
async def test_a_bundle_of_another_account_is_none(bench: Bench, tmp_path: Path) -> None:
    # rule: 1.13
    data = code(tmp_path)
    hers = with_code(bench, "a", "true", data)
    bench.order(hers)
    await bench.gone(hers)
    bench.patience_s = 0
    bench.restart()
    his = with_code(bench, "b", "true", data, account="bob")
    bench.order(his)
    gone = await bench.gone(his)
    bundle = pack(str(tmp_path / "project")).bundle
    why = f"bundle {bundle}: account bob has no such bundle on the bus; submit it again"
    assert (gone.end, gone.detail) == (End.START_FAILED, why)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("number", "data", "why"),
    [
        pytest.param(0, None, "account ada has no such bundle on the bus; submit it again", id="no bundle"),
        pytest.param(0, b"{", "its manifest cannot be read", id="a manifest that is none"),
        pytest.param(0, b'{"size":1,"pieces":257}', "its manifest says 1 bytes", id="a manifest that cannot be"),
        pytest.param(0, b'{"size":67108865,"pieces":257}', "67108865 bytes, the limit is 67108864", id="too large"),
        pytest.param(2, None, "piece 2 of 2 is missing on the bus; submit it again", id="a piece is missing"),
        pytest.param(2, b"x", "piece 2 of 2 has 1 bytes, which cannot be", id="a piece is short"),
        pytest.param(1, b"x" * PIECE_BYTES, "what the bus keeps under it has another digest", id="other bytes"),
    ],
)
async def test_a_damaged_bundle_is_a_start_that_failed_and_says_how(
    bench: Bench, number: int, data: bytes | None, why: str
) -> None:
    # rule: 1.13
    bench.patience_s = 0
    bench.restart()
    part = with_code(bench, "a", "true", tar_of(("big", b"0", b"y" * PIECE_BYTES)))
    digest = next(digest for _, digest, _ in bench.pieces)
    if data is None:
        del bench.pieces["ada", digest, number]
    else:
        bench.pieces["ada", digest, number] = data
    bench.order(part)
    gone = await bench.gone(part)
    assert gone.end == End.START_FAILED
    assert gone.detail.startswith(f"bundle sha256:{digest}: ")
    assert why in gone.detail
    assert bench.of(part, RunStarted) == []
    await until(lambda: not list((bench.home / "code").iterdir()), "nothing of it is left")


@pytest.mark.asyncio
async def test_while_a_bundle_is_waited_for_other_runs_begin_and_the_lease_is_renewed(bench: Bench) -> None:
    part = with_code(bench, "a", "cat it", tar_of(("it", b"0", b"came")))
    pieces, bench.pieces = bench.pieces, {}
    other = bench.part("b", ("echo", "other"), gpus=(1,))
    bench.order(part, other)
    await bench.gone(other)
    assert bench.of(part, RunGone) == []
    bench.renew()
    bench.pieces = pieces
    await bench.gone(part)
    assert bench.log(part) == "came"


@pytest.mark.asyncio
async def test_an_attempt_that_is_called_off_leaves_no_code_behind(bench: Bench) -> None:
    bench.has_lease = False
    bench.restart()
    bench.host.lease.renewed(0, 0)
    part = with_code(bench, "a", "true", tar_of(("it", b"0", b"came")))
    bench.order(part)
    await until(lambda: list((bench.home / "code").glob("*/it")), "the code is there, and no lease to start it by")
    bench.order()
    await until(lambda: not list((bench.home / "code").iterdir()), "the code is gone")


@pytest.mark.asyncio
async def test_code_of_an_attempt_called_off_while_its_address_is_asked_for_is_cleared(
    bench: Bench,
) -> None:
    leave = threading.Event()
    bench.close()
    bench._options["address"] = lambda: str(leave.wait(60))
    bench.restart()
    part = msgspec.structs.replace(with_code(bench, "a", "true", tar_of(("it", b"0", b"came"))), is_go=False)
    try:
        bench.order(part)
        await until(lambda: list((bench.home / "code").glob("*/it")), "the code is there, the address is not")
        await until(lambda: not bench.host._sources._bundles._used, "and all of it")
        bench.order()
        await until(lambda: not list((bench.home / "code").iterdir()), "the code is gone")
    finally:
        leave.set()


@pytest.mark.asyncio
async def test_an_agent_that_leaves_clears_the_code_of_what_has_not_begun(bench: Bench) -> None:
    bench.has_lease = False
    bench.restart()
    bench.host.lease.renewed(0, 0)
    part = with_code(bench, "a", "true", tar_of(("it", b"0", b"came")))
    bench.order(part)
    await until(lambda: part.attempt in bench.host._learned, "it could start, and has no lease")
    bench.close()
    await until(lambda: not list((bench.home / "code").iterdir()), "the code is gone")


@pytest.mark.asyncio
async def test_half_a_bundle_is_never_left_in_the_cache(bench: Bench) -> None:
    part = with_code(bench, "a", "true", tar_of(("big", b"0", b"y" * PIECE_BYTES)))
    (last,) = (key for key in bench.pieces if key[2] == 2)
    missing = bench.pieces.pop(last)
    partials = (bench.home / "bundles").glob
    bench.order(part)
    await until(lambda: list(partials("*.partial")), "one piece of two is there")
    bench.order()
    await until(lambda: not list((bench.home / "bundles").iterdir()), "it was called off")
    bench.order(part)
    await until(lambda: list(partials("*.partial")), "again")
    bench.pieces[last] = missing[:-1]
    assert (await bench.gone(part)).end == End.START_FAILED
    assert list((bench.home / "bundles").iterdir()) == []
    stale = bench.home / "bundles" / "ada.0.tar.partial"
    stale.write_bytes(b"x")
    bench.restart()
    assert not stale.exists(), "an agent that was killed amid a fetch"


@pytest.mark.asyncio
async def test_what_is_being_fetched_counts_for_the_room_of_the_cache(bench: Bench) -> None:
    bench.cache_bytes = 25_000  # two bundles of one record each
    bench.restart()
    kept = with_code(bench, "a", "cat it", tar_of(("it", b"0", b"1")))
    bench.order(kept)
    assert (await bench.gone(kept)).end == End.SUCCEEDED
    (bench.home / "bundles" / "ada.0.tar.partial").write_bytes(bytes(10_240))
    other = with_code(bench, "b", "cat it", tar_of(("it", b"0", b"2")))
    bench.order(other)
    assert (await bench.gone(other)).end == End.SUCCEEDED
    found = sorted((path.suffix, path.read_bytes()[512:513]) for path in (bench.home / "bundles").iterdir())
    assert found == [(".partial", b"\0"), (".tar", b"2")]


@pytest.mark.asyncio
async def test_an_agent_that_was_killed_while_it_brought_code_brings_it_again(bench: Bench) -> None:
    part = with_code(bench, "a", "cat it; ls", tar_of(("it", b"0", b"came\n")))
    half = bench.home / "code" / f"{part.attempt}.1"
    half.mkdir(parents=True)
    (half / "old").touch()
    bench.restart()
    bench.order(part)
    await bench.gone(part)
    assert bench.log(part) == "came\nit\n"


@pytest.mark.asyncio
async def test_an_adopted_run_keeps_its_code(bench: Bench) -> None:
    part = with_code(
        bench, "a", "echo ready; while [ ! -e ../end ]; do sleep 0.01; done; cat it", tar_of(("it", b"0", b"x"))
    )
    bench.order(part)
    await bench.printed(part, "ready")
    keeper = keeper_of(bench.directory(part))
    bench.restart()
    assert keeper_of(bench.directory(part)) == keeper
    (bench.directory(part).path / "end").touch()
    await bench.gone(part)
    assert bench.log(part) == "ready\nx"


# what is unpacked --------------------------------------------------------------------------------------------
def test_what_the_command_line_packs_is_unpacked_as_it_was(tmp_path: Path) -> None:
    root = tmp_path / "project"
    deep = root / ("d" * 60) / ("e" * 60) / "f\u00e9"
    deep.mkdir(parents=True)
    (deep / "long.txt").write_bytes(b"x" * 1_000)
    (deep / "up").symlink_to("../" * 3 + "short")
    (root / "short").write_bytes(b"")
    (root / "empty").mkdir()
    into = tmp_path / "into"
    unpack(io.BytesIO(pack(str(root)).data), into)
    shown = sorted((path.relative_to(into).as_posix(), path.is_dir(), path.is_symlink()) for path in into.rglob("*"))
    assert shown == sorted(
        (path.relative_to(root).as_posix(), path.is_dir(), path.is_symlink()) for path in root.rglob("*")
    )
    there = into / deep.relative_to(root)
    assert (there / "long.txt").read_bytes() == b"x" * 1_000
    assert (there / "up").resolve() == into / "short"
    assert pack(str(into)).bundle == pack(str(root)).bundle


EVIL = [
    pytest.param([("/etc/x", b"0", b"")], "does not stay inside", id="an absolute path"),
    pytest.param([("../x", b"0", b"")], "does not stay inside", id="a path that leads up"),
    pytest.param([("a", b"5", b""), ("a/../../x", b"0", b"")], "does not stay inside", id="a path up from within"),
    pytest.param([("a", b"2", "/etc")], "link out of the bundle", id="a link to an absolute path"),
    pytest.param([("a", b"2", "..")], "link out of the bundle", id="a link that leads up"),
    pytest.param([("a", b"2", ""), ("b", b"0", b"")], "link out of the bundle", id="a link to nothing"),
    pytest.param([("a", b"2", "."), ("a/x", b"0", b"")], "twice, or in no directory", id="a file through a link"),
    pytest.param(
        [("x", b"5", b""), ("x/up", b"2", ".."), ("x/out", b"2", "up/..")],
        "link out of",
        id="a link out by way of another",
    ),
    pytest.param(
        [("a", b"2", "../outside"), ("a/planted", b"2", "evil")],
        "twice, or in no directory",
        id="a link through a link",
    ),
    pytest.param(
        [("a/planted", b"2", "evil"), ("a", b"2", "../outside")],
        "twice, or in no directory",
        id="a link before its way",
    ),
    pytest.param(
        [("d", b"5", b""), ("d/a", b"2", "../../outside"), ("d/a/x", b"2", "y")], "in no directory", id="a deep one"
    ),
    pytest.param([("a", b"2", "b"), ("b", b"2", "a")], "round in a circle", id="links in a circle"),
    pytest.param(
        [("d", b"5", b""), ("d/e", b"2", ".."), ("x", b"2", "d/e/..")],
        "link out of",
        id="a link up from where one leads",
    ),
    pytest.param(
        [("a", b"2", "b/c"), ("b", b"2", "a/c"), ("c", b"2", "a")],
        "round in a circle",
        id="links in a circle with more",
    ),
    pytest.param(
        [("a0", b"2", "d" * 200), *((f"a{n}", b"2", f"a{n - 1}/" + "d" * 200) for n in range(1, 30))],
        "further than any file system goes",
        id="links that lead ever deeper",
    ),
    pytest.param([("a", b"1", "b")], "neither a file", id="a hard link"),
    pytest.param([("a", b"3", b"")], "neither a file", id="a device"),
    pytest.param([("a", b"6", b"")], "neither a file", id="a pipe"),
    pytest.param([("a", b"0", b"1"), ("a", b"0", b"2")], "twice", id="a file twice"),
    pytest.param([("a/b", b"0", b"")], "in no directory of it", id="a file in no directory"),
    pytest.param([("a\nb", b"0", b"")], "control characters", id="a name over two lines"),
    pytest.param([("n" * 256, b"0", b"")], "no file system takes", id="a name too long for a file system"),
    pytest.param([("n/" * 600, b"0", b"")], "does not stay inside|too long", id="a path too long"),
]


@pytest.mark.parametrize(("items", "why"), EVIL)
def test_an_evil_bundle_is_refused_and_nothing_stands_outside(tmp_path: Path, items: list[Item], why: str) -> None:
    # rule: 1.13
    into = tmp_path / "here" / "into"
    outside = into.with_name("outside")
    outside.mkdir(parents=True)
    with pytest.raises(BundleRefused, match=why):
        unpack(io.BytesIO(tar_of(*items)), into)
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    assert sorted(path.name for path in into.parent.iterdir()) == ["into", "outside"]
    assert list(outside.iterdir()) == []


def test_where_many_links_lead_through_each_other_each_is_followed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule: 1.13
    steps: list[str] = []
    go = unpacking._Way.go

    def counted(way: unpacking._Way, targets: dict[str, str], ends: dict[str, tuple[str, ...]]) -> str | None:
        steps.append(way.name)
        return go(way, targets, ends)

    monkeypatch.setattr(unpacking._Way, "go", counted)
    chain: list[Item] = [(f"a{n}", b"2", f"./a{n - 1}") for n in range(2_000, 0, -1)]
    unpack(io.BytesIO(tar_of(*chain, ("a0", b"0", b"x"))), tmp_path / "into")
    assert (tmp_path / "into/a3").read_bytes() == b"x"
    assert len(steps) <= 2 * len(chain)


def test_no_more_than_the_permissions_of_a_file_is_kept(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        info = tarfile.TarInfo("a")
        info.mode = 0o6755
        tar.addfile(info)
    data.seek(0)
    unpack(data, tmp_path / "into")
    assert (tmp_path / "into" / "a").stat().st_mode & 0o7022 == 0


def test_more_entries_than_a_bundle_may_have_are_counted_before_they_are_made(tmp_path: Path) -> None:
    many = io.BytesIO()
    for number in range(MAX_BUNDLE_FILES + 1):
        info = tarfile.TarInfo(f"f{number}")
        many.write(info.tobuf(tarfile.USTAR_FORMAT))
    many.write(bytes(1024))
    many.seek(0)
    with pytest.raises(BundleRefused, match="more than 20000 entries"):
        unpack(many, tmp_path / "into")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "cut short", id="nothing"),
        pytest.param(b"\x1f\x8b" + bytes(1022), "no octal number", id="something compressed"),
        pytest.param(tar_of(("a", b"0", b"x" * 2_000))[:1_500], "cut short", id="cut in a file"),
        pytest.param(tar_of(("a", b"0", b""))[:512], "cut short", id="without an end"),
        pytest.param(
            tar_of(("a", b"0", b"")).replace(b"0000000\x000", b"0000000\x001", 1), "checksum|octal", id="a wrong sum"
        ),
    ],
)
def test_what_is_no_whole_tar_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(BundleRefused, match=why):
        unpack(io.BytesIO(data), tmp_path / "into")


@pytest.mark.parametrize(
    "record",
    [
        b"30 GNU.sparse.realsize=1000000\n",
        b"999999999 path=x\n",
        b"x path=y\n",
        b"8 path=\n\n",
        b"12 size=4711\n",
        b"00 =" * 100,
    ],
)
def test_a_long_name_that_says_more_than_a_name_is_refused(tmp_path: Path, record: bytes) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = b"x", len(record)
    data = info.tobuf(tarfile.USTAR_FORMAT) + record.ljust(512, b"\0") + tar_of(("a", b"0", b""))
    with pytest.raises(BundleRefused, match=r"long name|header says"):
        unpack(io.BytesIO(data), tmp_path / "into")
