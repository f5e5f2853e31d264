"""What this host ever began, noted where no run works: `<home>/begun/<attempt>`, one file an attempt.

A run directory is within its job's reach where both are one user's, and a job may spoil or remove it, or put
another in its place. So what was ordered, and which directory is the run's (its inode), stands here too; and here
lie the bytes that were reserved for the order to stop. Surprising: none of it is brought to disk. It has to
outlive agents; what it is held against, the processes of a run, outlives no power cut either.
"""

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from fairlease.agent import layout
from fairlease.agent.record import Facts
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.ids import AttemptId

_MAKING: Final = ".making-"
_STOP: Final = ".stop"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that was begun."""

    facts: Facts
    inode: int


class Begun:
    """The notes of one host. Nothing is kept in memory."""

    def __init__(self, home: Path) -> None:
        self._notes = home / "begun"
        self._runs = home / "runs"

    def open(self) -> list[AttemptId]:
        """Every attempt noted, by name; a note whose run never got its directory is removed. OSError as usual."""
        self._notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = []
        for path in sorted(self._notes.iterdir()):
            name = path.name.removeprefix(_MAKING)
            if path.name.startswith(_MAKING):
                if (note := self._read(path)) is None or not self._is_at(note):
                    with contextlib.suppress(OSError):
                        layout.make_way(str(path))
                    continue
                path.rename(self._notes / name)
            if not name.endswith((".new", _STOP)) and name not in found:
                found.append(name)
        for path in self._notes.glob(f"*{_STOP}"):
            if path.name.removesuffix(_STOP) not in found:
                layout.make_way(str(path))
        return found

    def prepare(self, facts: Facts, making: Path) -> None:
        """Notes an attempt whose directory gets its name next, and takes the bytes for its stop. OSError as usual."""
        (self._notes / f"{facts.attempt}{_STOP}").write_bytes(b" " * layout.RESERVED_BYTES)
        note = Note(facts=facts, inode=making.lstat().st_ino)
        layout.write_whole(str(self._making(facts.attempt)), msgspec.json.encode(note), is_durable=False)

    def keep(self, attempt: AttemptId) -> None:
        """Its directory has its name."""
        self._making(attempt).rename(self._notes / attempt)

    def get(self, attempt: AttemptId) -> Note | None:
        """What was noted; None for nothing, and for a note that cannot be read."""
        return self._read(self._notes / attempt)

    def has(self, attempt: AttemptId) -> bool:
        """Whether there is a note of it, readable or not."""
        return os.path.lexists(self._notes / attempt)

    def reserve(self, attempt: AttemptId) -> str:
        """The file with the bytes for its order to stop."""
        return str(self._notes / f"{attempt}{_STOP}")

    def has_its_directory(self, attempt: AttemptId) -> bool:
        """Whether the directory of this attempt is there, and the one that was noted."""
        note = self.get(attempt)
        return self._is_at(note) if note is not None else (self._runs / attempt).is_dir()

    def forget(self, attempt: AttemptId) -> None:
        """Nothing is noted of it any more. OSError as usual."""
        for path in (self._notes / attempt, self._making(attempt), self._notes / f"{attempt}{_STOP}"):
            layout.make_way(str(path))

    def _making(self, attempt: AttemptId) -> Path:
        return self._notes / f"{_MAKING}{attempt}"

    def _is_at(self, note: Note) -> bool:
        try:
            found = (self._runs / note.facts.attempt).lstat()
        except OSError:
            return False
        return (
            stat.S_ISDIR(found.st_mode)
            and found.st_ino == note.inode
            and os.access(self._runs / note.facts.attempt, os.R_OK | os.W_OK | os.X_OK)
        )

    def _read(self, path: Path) -> Note | None:
        try:
            return understood(layout.content(str(path)), Note)
        except (FileNotFoundError, layout.Spoiled, Unreadable):
            return None
