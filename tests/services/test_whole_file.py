"""A file that is replaced whole, or not at all."""

import errno
from pathlib import Path

import pytest

from fairlease.runtime.whole_file import replace


def test_what_is_replaced_is_there_whole_and_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    replace(path, "old")
    replace(path, "new \N{SNOWMAN}")
    assert path.read_text(encoding="utf-8") == "new \N{SNOWMAN}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_one_and_nothing_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it has the name it is on disk: a power cut never leaves an empty file under it."""
    path = tmp_path / "cell.json"
    replace(path, "old")

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fairlease.runtime.whole_file.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
