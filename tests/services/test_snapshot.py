import errno
from pathlib import Path

import pytest

from fairlease.runtime.snapshot import Snapshot, SnapshotStore, fold_version


def _snapshot(position: int) -> Snapshot:
    return Snapshot(epoch=1, position=position, head=b"h" * 32, state=b"state\n%d\n\0" % position)


def _paths(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def test_the_newest_is_loaded_and_two_are_kept(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path, "v1")
    assert store.load() is None
    for position in (5, 10, 1_000_000):
        store.store(_snapshot(position))
    assert store.load() == _snapshot(1_000_000)
    assert len(_paths(tmp_path)) == 2


def test_a_disk_that_is_full_keeps_no_part_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be one more at each try, and the room is wanted for the log."""
    store = SnapshotStore(tmp_path, "v1")
    store.store(_snapshot(5))

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for position in (10, 20):
        with monkeypatch.context() as patch:
            patch.setattr("fairlease.runtime.snapshot.os.fsync", full)
            with pytest.raises(OSError, match="No space left"):
                store.store(_snapshot(position))
        assert [path.name for path in _paths(tmp_path)] == ["00000000000000000005.fold"]
    assert store.load() == _snapshot(5)


def test_what_a_crash_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000003.new").write_bytes(b"half of it")
    SnapshotStore(tmp_path, "v1").store(_snapshot(5))
    assert [path.name for path in _paths(tmp_path)] == ["00000000000000000005.fold"]


def test_a_snapshot_of_another_fold_is_thrown_away(tmp_path: Path) -> None:
    SnapshotStore(tmp_path, "v1").store(_snapshot(5))
    assert SnapshotStore(tmp_path, "v2").load() is None
    assert _paths(tmp_path) == []


@pytest.mark.parametrize("place", [0, 1, 20, 60, 150, 190, -30, -5, -1])
def test_any_flipped_bit_makes_the_older_one_win(tmp_path: Path, place: int) -> None:
    store = SnapshotStore(tmp_path, "v1")
    store.store(_snapshot(5))
    store.store(_snapshot(10))
    newest = _paths(tmp_path)[-1]
    data = bytearray(newest.read_bytes())
    data[place] ^= 1
    newest.write_bytes(data)
    assert store.load() == _snapshot(5)
    assert len(_paths(tmp_path)) == 1


@pytest.mark.parametrize("kept", [0, 1, 100, 300])
def test_a_snapshot_cut_short_is_none(tmp_path: Path, kept: int) -> None:
    store = SnapshotStore(tmp_path, "v1")
    store.store(_snapshot(5))
    path = _paths(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:kept][:-1])
    assert store.load() is None


@pytest.mark.parametrize("header", [b"5", b'"x"', b"[]", b"null", b"[" * 100_000, b"\xff", b'{"sha256": 1e999}'])
def test_what_is_no_header_is_thrown_away(tmp_path: Path, header: bytes) -> None:
    store = SnapshotStore(tmp_path, "v1")
    store.store(_snapshot(5))
    (tmp_path / "00000000000000000010.fold").write_bytes(header + b"\nstate")
    assert store.load() == _snapshot(5)
    assert len(_paths(tmp_path)) == 1


def test_half_of_a_write_is_never_seen(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path, "v1")
    store.store(_snapshot(5))
    (tmp_path / "00000000000000000010.new").write_bytes(b"half")
    assert store.load() == _snapshot(5)


def test_the_fold_version_is_that_of_the_sources() -> None:
    assert fold_version() == fold_version()
    assert len(fold_version()) == 64
