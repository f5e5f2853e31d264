"""A bundle unpacked, as if it came from an enemy: whoever may submit may have made it by hand.

Only files, directories and links are taken, each path once, all below the directory. Links are made last, and
none through another, so that nothing is ever made through one, and then each must really lead inside. Entries and
bytes are counted before they are written; a tar without compression cannot grow, and sparse files are not understood.
No bit but read, write and execute is kept, and nothing is changed outside the directory.
"""

import os
import re
from pathlib import Path
from typing import Final

from fairlease.agent.tarball import DIRECTORY, LINK, Reading, TarEntry, TarWrong, entries
from fairlease_schemas.bundle import MAX_BUNDLE_BYTES, MAX_BUNDLE_FILES, MAX_NAME_BYTES

_COPY_BYTES: Final = 1024 * 1024
_MOST_PART_BYTES: Final = 255
"""What file systems take between two slashes."""
_MOST_WAY_CHARS: Final = 4_096
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class BundleRefused(Exception):
    """What came is no bundle that may be unpacked; the text says which entry, and why."""


def unpack(file: Reading, into: Path) -> None:
    """Unpacks a bundle into a new directory. BundleRefused and OSError leave it half made, for the caller to clear."""
    into.mkdir(mode=0o700)
    links: list[tuple[str, str]] = []
    seen: set[str] = set()
    size = 0
    try:
        for entry in entries(file):
            size += entry.size
            if len(seen) >= MAX_BUNDLE_FILES or size > MAX_BUNDLE_BYTES:
                raise BundleRefused(f"it has more than {MAX_BUNDLE_FILES} entries, or {MAX_BUNDLE_BYTES} bytes")
            _check(entry, seen)
            if entry.kind == LINK:
                links.append((entry.name, entry.target))
            else:
                _make(file, entry, into)
    except TarWrong as wrong:
        raise BundleRefused(str(wrong)) from wrong
    names = {name for name, _ in links}
    for name, target in links:  # before any is made: where a first one leads, a second would already be planted
        if not target or target.startswith("/"):
            raise _leads_out(name, target)
        if not names.isdisjoint(_above(name)):
            raise _has_no_place(name)
    for name, target in links:
        try:
            (into / name).symlink_to(target)
        except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
            raise _has_no_place(name) from error
    _check_ends(dict(links))


def _check(entry: TarEntry, seen: set[str]) -> None:
    """Whether a bundle may have this entry."""
    shown = repr(entry.name[:200])
    parts = entry.name.split("/")
    if {"", ".", ".."} & set(parts):
        raise BundleRefused(f"{shown} does not stay inside the bundle")
    if any(len(part.encode()) > _MOST_PART_BYTES for part in parts):
        raise BundleRefused(f"{shown} has a name that no file system takes")
    for text in (entry.name, entry.target):
        if _CONTROL.search(text) or len(text.encode()) > MAX_NAME_BYTES:
            raise BundleRefused(f"{shown} has a name that is too long, or holds control characters")
    if entry.name in seen:
        raise _has_no_place(entry.name)
    seen.add(entry.name)


def _make(file: Reading, entry: TarEntry, into: Path) -> None:
    """A directory, or a file with its bytes."""
    path = into / entry.name
    try:
        if entry.kind == DIRECTORY:
            path.mkdir(mode=0o755)
            return
        target = os.open(path, _NEW, 0o755 if entry.is_executable else 0o644)
    except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
        raise _has_no_place(entry.name) from error
    left = entry.size
    with os.fdopen(target, "wb") as written:
        while left:
            chunk = file.read(min(left, _COPY_BYTES))
            if not chunk:
                raise BundleRefused(f"{entry.name[:200]!r} is cut short")
            written.write(chunk)
            left -= len(chunk)


def _above(name: str) -> list[str]:
    """The paths of the directories that an entry lies in."""
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _check_ends(targets: dict[str, str]) -> None:
    """Refuses a link that leads out in the end, by way of others too, or round in a circle.

    By the paths alone, which is the same: all that is there was made here. Each link is followed once, whatever the
    others lead through it.
    """
    ends: dict[str, tuple[str, ...]] = {}
    for first, target in targets.items():
        ways = [] if first in ends else [_Way(first, target)]
        open_ways = {first}
        while ways:
            through = ways[-1].go(targets, ends)
            if through is None:
                way = ways.pop()
                ends[way.name] = tuple(way.at)
                open_ways.discard(way.name)
            elif through in open_ways:
                raise BundleRefused(f"{through[:200]!r} leads round in a circle, to {targets[through][:200]!r}")
            else:
                ways.append(_Way(through, targets[through]))
                open_ways.add(through)


class _Way:
    """The way that a link leads: where it is by now, from the root, and what is left of it, last part first."""

    def __init__(self, name: str, target: str) -> None:
        self.name = name
        self._target = target
        self.at = name.split("/")[:-1]
        self._left = target.split("/")[::-1]

    def go(self, targets: dict[str, str], ends: dict[str, tuple[str, ...]]) -> str | None:
        """Goes on to its end, and returns None; or up to a link whose own end is not known yet, and returns that."""
        while self._left:
            part = self._left.pop()
            if part == "..":
                if not self.at:
                    raise _leads_out(self.name, self._target)
                self.at.pop()
            elif part not in ("", "."):
                here = "/".join((*self.at, part))
                if len(here) > _MOST_WAY_CHARS:
                    raise BundleRefused(f"{self.name[:200]!r} leads further than any file system goes")
                if here in targets and here not in ends:
                    self._left.append(part)
                    return here
                self.at = list(ends.get(here, (*self.at, part)))
        return None


def _has_no_place(name: str) -> BundleRefused:
    return BundleRefused(f"{name[:200]!r} stands in it twice, or in no directory of it")


def _leads_out(name: str, target: str) -> BundleRefused:
    return BundleRefused(f"{name[:200]!r} is a link out of the bundle, to {target[:200]!r}")
