"""A file that is there whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlease.runtime.durable import write_whole


def test_a_file_is_what_was_written_last_and_its_mode_is_kept_to(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    for text in ("one", "two \u00fc"):
        write_whole(path, text, mode=0o600)
        assert path.read_text(encoding="utf-8") == text
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_cannot_be_written_leaves_what_was_there_and_nothing_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "cell.json"
    path.write_text("as it was")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr({"fsync": os, "replace": Path}[step], step, refuse)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def told(*words: object) -> object:
            done.append(name)
            return call(*words)

        return told

    monkeypatch.setattr(os, "fsync", noted("fsync", os.fsync))
    monkeypatch.setattr(Path, "replace", noted("replace", Path.replace))
    write_whole(tmp_path / "cell.json", "x")
    assert done == ["fsync", "replace"]
