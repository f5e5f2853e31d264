"""Snapshots: a fold put on disk so that a start need not read the whole log (log.md L5).

A snapshot is a cache and nothing more: anything about it that does not verify throws it away, and the
log is folded from its start. It belongs to one version of the fold, which is the hash of the sources
that make it; there is no reading of older ones. A file is one line of JSON and then the state.
"""

import contextlib
import hashlib
import importlib.util
import json
import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from fairlease.runtime.whole_file import sync_names

log = logging.getLogger("fairlease.snapshot")

KEPT: Final = 2
_FRESH: Final = ".new"
_SUFFIX: Final = ".fold"
_SOURCES: Final = ("fairlease.core", "fairlease_schemas")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The fold at `position`; `head` is the SHA-256 of the record there, so that its place is known again."""

    epoch: int
    position: int
    head: bytes
    state: bytes


class SnapshotStore:
    """The snapshots of one replica, in its own directory; `fold_version` is that of the running code."""

    def __init__(self, directory: Path, fold_version: str) -> None:
        self._directory = directory
        self._version = fold_version

    def load(self) -> Snapshot | None:
        """The newest snapshot that verifies and is of this fold version; every other is deleted.

        None when there is none: fold from the start of the log.
        """
        for path in self._paths():
            try:
                return self._read(path)
            except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                log.warning("snapshot %s is thrown away: %s", path.name, error)
                with contextlib.suppress(OSError):
                    path.unlink()
        return None

    def store(self, snapshot: Snapshot) -> None:
        """Writes it so that a crash leaves the old ones or all of it; keeps the newest two.

        Raises OSError when the disk does not take it: the caller goes on without.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        header = {
            "epoch": snapshot.epoch,
            "position": snapshot.position,
            "fold_version": self._version,
            "head": snapshot.head.hex(),
        }
        line = json.dumps({**header, "sha256": _digest(header, snapshot.state)}).encode() + b"\n"
        path = self._directory / f"{snapshot.position:020d}{_SUFFIX}"
        for left in self._directory.glob(f"*{_FRESH}"):  # by a crash
            left.unlink(missing_ok=True)
        fresh = path.with_suffix(_FRESH)
        try:
            with fresh.open("wb") as file:
                file.write(line)
                file.write(snapshot.state)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)  # a part of one would keep the room that a full disk wants
        sync_names(self._directory)
        for old in self._paths()[KEPT:]:
            old.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        """Newest first."""
        return sorted(self._directory.glob(f"*{_SUFFIX}"), reverse=True)

    def _read(self, path: Path) -> Snapshot:
        line, _, state = path.read_bytes().partition(b"\n")
        header = json.loads(line)
        if not isinstance(header, dict):
            raise TypeError("its first line is no header")
        claimed = header.pop("sha256")
        if header["fold_version"] != self._version:
            raise ValueError(f"it is of fold version {str(header['fold_version'])[:12]}")
        if claimed != _digest(header, state):
            raise ValueError("its digest does not match")
        head = bytes.fromhex(header["head"])
        return Snapshot(epoch=int(header["epoch"]), position=int(header["position"]), head=head, state=state)


def fold_version() -> str:
    """SHA-256, in hex, over the names and sources of everything that makes the fold.

    That is all of core and of the schemas: finer would save a few folds and could miss a change.
    """
    digest = hashlib.sha256()
    for package in _SOURCES:
        spec = importlib.util.find_spec(package)
        for root in sorted((spec.submodule_search_locations or ()) if spec else ()):
            for path in sorted(Path(root).rglob("*.py")):
                digest.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _digest(header: dict[str, object], state: bytes) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + b"\n" + state).hexdigest()
