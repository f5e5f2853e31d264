"""A directory as a code bundle: the same bytes for the same files, whoever packs them, wherever and when.

Entries stand by path; owners and times are left out, of the permissions only whether a file may be run. A
link that leads out of the directory, and what is neither file, directory nor link, is refused: the job
would miss it. Empty directories are kept.
"""

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from fairlease.cli.exits import CONTRACT, CommandError, Finding
from fairlease.cli.ignoring import IGNORE_FILE, Ignoring
from fairlease.cli.output import refused
from fairlease.runtime import plain_file
from fairlease_schemas.bundle import MAX_BUNDLE_BYTES, MAX_BUNDLE_FILES, MAX_NAME_BYTES

_MIB: Final = 1024 * 1024
_SHRINK: Final = f"leave out what the job does not need, by a line in {IGNORE_FILE}"


class Packed(NamedTuple):
    """A bundle: its digest, `sha256:` and 64 digits, its bytes, and how many files, directories and links it has."""

    bundle: str
    data: bytes
    entries: int


class _Entry(NamedTuple):
    """Something to pack: its path in the bundle, where it stands, and what it is."""

    name: str
    path: Path
    mode: int


def pack(directory: str) -> Packed:
    """The bundle of a directory; CommandError 65 with the path and the limit for what cannot be one."""
    root = Path(directory)
    try:
        if not root.is_dir():
            raise _refused(f"{directory} is not a directory", "name the directory that holds the code")
        entries = _entries(root, directory)
        return _packed(entries, root)
    except (OSError, ValueError) as error:
        told = refused(error) if isinstance(error, OSError) else str(error)
        raise _refused(f"cannot pack {directory}: {told}", "mend it, and pack again") from error


def _refused(text: str, way_out: str, findings: tuple[Finding, ...] = ()) -> CommandError:
    return CommandError(CONTRACT, text, way_out=way_out, findings=findings)


def _too_large(shown: str, value: str, limit: str, entries: list[_Entry]) -> CommandError:
    """Beyond a limit, with the rule and the largest file that was looked at: leaving it out helps most."""
    files = ((entry.path.lstat().st_size, entry.name) for entry in entries if stat.S_ISREG(entry.mode))
    size, name = max(files, default=(0, ""))
    largest = f"the largest file is {name}, of {size / _MIB:.1f} MiB" if name else ""
    finding = Finding("bundle", rule="1.13", value=value, limit=f"at most {limit}", way_out=largest)
    return _refused(f"{shown} has more than {limit}, the limit of a bundle", _SHRINK, (finding,))


def _entries(root: Path, shown: str) -> list[_Entry]:
    """Everything to pack, by path; refused beyond the limits, before anything is read."""
    ignore_file = root / IGNORE_FILE
    lines = plain_file.text(ignore_file).splitlines() if ignore_file.is_file() else []
    found: list[_Entry] = []
    size = 0
    for entry in _walk(root, "", Ignoring(lines)):
        found.append(entry)
        size += entry.path.lstat().st_size if stat.S_ISREG(entry.mode) else 0
        if len(found) > MAX_BUNDLE_FILES:
            raise _too_large(shown, f"{len(found)} files or more", f"{MAX_BUNDLE_FILES} files", found)
        if size > MAX_BUNDLE_BYTES:
            raise _too_large(shown, f"{size / _MIB:.1f} MiB or more", f"{MAX_BUNDLE_BYTES // _MIB} MiB", found)
    found.sort(key=lambda entry: entry.name)
    return found


def _walk(root: Path, below: str, ignoring: Ignoring) -> Iterator[_Entry]:
    """What a directory holds, without following links."""
    with os.scandir(root / below) as items:
        for item in items:
            name = f"{below}/{item.name}" if below else item.name
            is_directory = item.is_dir(follow_symlinks=False)
            if ignoring.leaves_out(name, is_directory=is_directory):
                continue
            yield _Entry(name, Path(item.path), item.stat(follow_symlinks=False).st_mode)
            if is_directory:
                yield from _walk(root, name, ignoring)


def _packed(entries: list[_Entry], root: Path) -> Packed:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            info = _header(entry, root)
            if info.isreg():
                with entry.path.open("rb") as file:
                    info.size = os.fstat(file.fileno()).st_size
                    tar.addfile(info, file)
            else:
                tar.addfile(info)
            if written.tell() > MAX_BUNDLE_BYTES:
                break
    data = written.getvalue()
    if len(data) > MAX_BUNDLE_BYTES:
        raise _too_large(str(root), f"{len(data) / _MIB:.1f} MiB packed", f"{MAX_BUNDLE_BYTES // _MIB} MiB", entries)
    return Packed(f"sha256:{hashlib.sha256(data).hexdigest()}", data, len(entries))


def _header(entry: _Entry, root: Path) -> tarfile.TarInfo:
    """What is said of an entry; refused where it cannot be said, or leads out."""
    for text in (entry.name, str(entry.path.readlink()) if stat.S_ISLNK(entry.mode) else ""):
        if len(os.fsencode(text)) > MAX_NAME_BYTES:
            raise _refused(f"{entry.path}: its name is longer than {MAX_NAME_BYTES} bytes", "shorten it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _refused(f"{os.fsencode(entry.path)!r}: its name is not UTF-8", "rename it") from error
    info = tarfile.TarInfo(entry.name)
    if stat.S_ISDIR(entry.mode):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    elif stat.S_ISREG(entry.mode):
        info.mode = 0o755 if entry.mode & 0o111 else 0o644
    elif stat.S_ISLNK(entry.mode):
        info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, _inside(entry, root)
    else:
        raise _refused(f"{entry.path} is neither a file, a directory nor a link", _SHRINK)
    return info


def _inside(entry: _Entry, root: Path) -> str:
    """Where a link points, when that is inside the bundle."""
    target = os.readlink(entry.path)  # noqa: PTH115 - a Path would drop a slash or dot that the link has
    if target.startswith("/") or not entry.path.resolve().is_relative_to(root.resolve()):
        way_out = f"copy what it points to, or leave it out by a line in {IGNORE_FILE}"
        raise _refused(f"{entry.path} is a link to {target[:200]!r}, out of the directory", way_out)
    return target
