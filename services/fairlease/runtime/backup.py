"""A backup: one file with a cell's streams as they were at one instant, and what says how to start it.

It is a gzipped tar. Its first member is `manifest.json`, which names every other by length and SHA-256 in their order;
so a file that was cut off, damaged or put together by somebody is refused before a byte of it is written anywhere. All
of it is read twice for that: once to judge it, once to write it, and the second time it is judged again.

Snapshots and logs of services are left out, because the log makes the former anew; so is what agents know of runs: a
restored cell is another life of its hosts, and what ran in the one before is requeued (7.7).
"""

import gzip
import hashlib
import io
import os
import re
import secrets
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import msgspec

from fairlease.runtime import plain_file
from fairlease.runtime.errors import ShellError
from fairlease.runtime.keys import KEYS
from fairlease.runtime.standstill import STORE
from fairlease.runtime.tls import TLS
from fairlease.runtime.whole_file import sync_names
from fairlease_schemas.codec import Unreadable, understood

FORM: Final = 1
"""Of the file; a reader refuses one that it does not know."""
CELL_FILE: Final = "cell.json"
"""What a cell is made of, as `fairlease up` remembers it."""
_MANIFEST: Final = "manifest.json"
_MOST_MANIFEST_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 20
_OVERHEAD: Final = 16 << 10
"""What a tar may need around a file, and at its end."""
_MODE: Final = 0o600
_KEY_MODE: Final = 0o400
_PART: Final = re.compile(r"[A-Za-z0-9$_.\-]{1,255}")
_LEVEL: Final = 1
"""Of compression: a log shrinks to a fifth by the quickest, and little more by the best."""


class BadBackup(ShellError):
    """The file is no backup that can be restored; the text says what is wrong with it."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the state directory, by its path below it."""

    name: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup is of. `log_position` is the last record of its log, `log_sha256` the SHA-256 of that record."""

    form: int
    cell: str
    release: str
    made_at_ms: int
    log_position: int
    log_sha256: str
    has_keys: bool
    files: tuple[Member, ...]


def members_of(state: Path) -> tuple[Member, ...]:
    """Every file below a directory, by its path, in the order in which a backup has them."""
    found = []
    for path in sorted(state.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found.append(Member(name=path.relative_to(state).as_posix(), bytes=path.stat().st_size, sha256=digest))
    return tuple(found)


def write(where: Path, manifest: Manifest, state: Path) -> int:
    """Makes the new file `where` of what lies below `state`; its length.

    All of it or nothing, on disk when this returns, readable by us alone. FileExistsError where something has its
    name, OSError as usual.
    """
    fresh = where.with_name(f".{where.name}.{secrets.token_hex(4)}.new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE), "wb") as out:
            with (
                gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
            ):
                head = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
                _add(tar, _MANIFEST, len(head), io.BytesIO(head))
                for member in manifest.files:
                    with (state / member.name).open("rb") as file:
                        _add(tar, member.name, member.bytes, file)
            out.flush()
            os.fsync(out.fileno())
        where.hardlink_to(fresh)
    finally:
        fresh.unlink(missing_ok=True)
    _sync(where.parent)
    return where.stat().st_size


def judge(where: Path) -> Manifest:
    """Reads all of a backup and writes nothing; BadBackup when it is not whole, OSError when it cannot be read."""
    return _walk(where, None)


def restore(where: Path, to: Path) -> Manifest:
    """Writes what a backup holds below the directory `to`, which is new; BadBackup and OSError as `judge`.

    On disk when this returns; where it raises, what was written so far is the caller's to remove.
    """
    to.mkdir(mode=0o700)
    manifest = _walk(where, to)
    for place, _, _ in os.walk(to, topdown=False):
        _sync(Path(place))
    return manifest


def _add(tar: tarfile.TarFile, name: str, size: int, file: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, _MODE
    tar.addfile(entry, file)


def _walk(where: Path, to: Path | None) -> Manifest:
    """The manifest, once every byte behind it was found to be as it says; each file is written where `to` is."""
    with plain_file.opened(where) as packed, _told(where):
        plain = _Bounded(gzip.GzipFile(fileobj=packed))
        with tarfile.open(fileobj=plain, mode="r|") as tar:  # type: ignore[call-overload]  # it reads, and no more
            manifest = _manifest(tar)
            plain.left += sum(member.bytes + _OVERHEAD for member in manifest.files)
            for member in manifest.files:
                entry = tar.next()
                if entry is None:
                    raise BadBackup(f"it ends before {member.name}")
                file = tar.extractfile(entry) if entry.isreg() else None
                if file is None or (entry.name, entry.size) != (member.name, member.bytes):
                    raise BadBackup(f"{entry.name[:200]!r} stands where its manifest has {member.name}")
                _take(member, file, None if to is None else to / member.name)
            if tar.next() is not None:
                raise BadBackup("it holds more than its manifest says")
        while rest := plain.read(_CHUNK):
            if rest.strip(b"\0"):
                raise BadBackup("something was added behind its end")
    return manifest


class _Bounded:
    """What was unpacked, as far as a backup may go on: a few bytes can unpack to any number of them."""

    def __init__(self, plain: gzip.GzipFile) -> None:
        self._plain = plain
        self.left = _MOST_MANIFEST_BYTES + _OVERHEAD

    def read(self, size: int) -> bytes:
        data = self._plain.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise BadBackup("it unpacks to more than its manifest says")
        return data


@contextmanager
def _told(where: Path) -> Iterator[None]:
    """What is wrong with a file, in our words, whoever found it."""
    try:
        yield
    except BadBackup as bad:
        raise BadBackup(f"{where}: {bad}; take another backup") from None
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise BadBackup(f"{where}: it is damaged or was cut off ({error}); take another backup") from error


def _manifest(tar: tarfile.TarFile) -> Manifest:
    entry = tar.next()
    file = tar.extractfile(entry) if entry is not None and entry.isreg() else None
    if entry is None or file is None or entry.name != _MANIFEST or entry.size > _MOST_MANIFEST_BYTES:
        raise BadBackup(f"it does not begin with {_MANIFEST}, so it is no backup of a cell")
    try:
        manifest = understood(file.read(), Manifest)
    except Unreadable as error:
        raise BadBackup(f"its {_MANIFEST} cannot be read: {error}") from error
    if manifest.form != FORM:
        raise BadBackup(
            f"it is of form {manifest.form}, and this release reads {FORM}: restore it with its own release"
        )
    names = [member.name for member in manifest.files]
    for name in names:
        parts = name.split("/")
        is_ours = name == CELL_FILE or (len(parts) > 1 and parts[0] in (STORE, KEYS, TLS))
        if not is_ours or any(_PART.fullmatch(part) is None or part in (".", "..") for part in parts):
            raise BadBackup(f"{name[:200]!r} is no file of a cell")
    if len(set(names)) != len(names):
        raise BadBackup("it names a file twice")
    return manifest


def _take(member: Member, file: IO[bytes], to: Path | None) -> None:
    """Reads the member's bytes, and writes them where `to` is; BadBackup when they are not those of its digest."""
    digest = hashlib.sha256()
    out = None if to is None else _made(to, _KEY_MODE if member.name.startswith(f"{KEYS}/") else _MODE)
    try:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            if out is not None:
                out.write(chunk)
        if out is not None:
            out.flush()
            os.fsync(out.fileno())
    finally:
        if out is not None:
            out.close()
    if digest.hexdigest() != member.sha256:
        raise BadBackup(f"{member.name} is damaged: its SHA-256 is not the one of the manifest")


def _made(path: Path, mode: int) -> IO[bytes]:
    missing = [place for place in path.parents if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o700)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb")


def _sync(directory: Path) -> None:
    """What stands in a directory, by its names, is on disk."""
    with suppress(OSError):  # some file systems have no such thing
        sync_names(directory)
