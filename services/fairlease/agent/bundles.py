"""Bundles as a host has them: fetched once by account and digest, kept packed, unpacked for each attempt anew.

Surprising: the cache holds the packed bytes, not the unpacked files. Every attempt gets files of its own and
may do with them what it likes, and each time they are unpacked their digest is computed again, so what a job
did to the cache, if it could, is found and fetched anew. The least recently used go first, never one in use.
A cached bundle serves the account that uploaded it alone: to know a digest is no right to read the code.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import BinaryIO, Final

from fairlease.agent.contracts import PATIENCE_S, patiently
from fairlease.agent.record import clear
from fairlease.agent.stores import aside
from fairlease.agent.unpacking import BundleRefused, unpack
from fairlease_schemas.bundle import (
    MANIFEST_PIECE,
    MAX_BUNDLE_BYTES,
    PIECE_BYTES,
    BundleManifest,
    hex_of,
)
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.ids import AccountId, is_name

Piece = Callable[[AccountId, str, int], Awaitable[bytes | None]]
"""A piece of a bundle by account, digest (64 digits) and number; None when there is none, BusAway when nobody says."""

CACHE_BYTES: Final = 1024 * 1024 * 1024
_AT_ONCE: Final = 4
"""Bundles unpacked at a time, so that a hundred starts do not fight over one disk."""
_COPY_BYTES: Final = 1024 * 1024
_PARTIAL: Final = ".partial"


class Bundles:
    """The bundles of one host, in `directory`."""

    def __init__(
        self, directory: Path, piece: Piece, *, patience_s: float = PATIENCE_S, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._directory = directory
        self._piece = piece
        self._patience_s = patience_s
        self._cache_bytes = cache_bytes
        self._used: Counter[Path] = Counter()
        self._locks: dict[Path, asyncio.Lock] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)

    def open(self) -> None:
        """Removes what an earlier agent had fetched half."""
        for path in self._directory.glob(f"*{_PARTIAL}"):
            path.unlink(missing_ok=True)

    async def put(self, account: AccountId, bundle: str, into: Path) -> None:
        """Unpacks a bundle of the account into a new directory.

        BundleRefused when there is none, or it is not what its digest says, or nothing that may be unpacked;
        OSError when the disk refuses. Either may leave `into` half made.
        """
        try:
            digest = hex_of(bundle)
        except ValueError as error:
            raise BundleRefused(str(error)) from error
        if not is_name(account):
            raise BundleRefused("the order names no account whose bundle it could be")
        kept = self._directory / f"{account}.{digest}.tar"
        self._used[kept] += 1
        try:
            async with self._locks.setdefault(kept, asyncio.Lock()):
                if not await self._unpacked(kept, digest, into):
                    await self._fetch(account, digest, kept)
                    if not await self._unpacked(kept, digest, into):
                        kept.unlink(missing_ok=True)
                        raise BundleRefused("what the bus keeps under it has another digest")
        finally:
            self._used[kept] -= 1
            if not self._used[kept]:
                del self._used[kept], self._locks[kept]
        self._make_room()

    async def _unpacked(self, kept: Path, digest: str, into: Path) -> bool:
        """Whether the cached bytes were there and true, and are unpacked now."""
        async with self._room:
            work = asyncio.ensure_future(aside(lambda: _unpack(kept, digest, into)))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                work.add_done_callback(lambda done: _clear_after(done, into))
                raise

    async def _fetch(self, account: AccountId, digest: str, kept: Path) -> None:
        """Brings the bundle into the cache, its bytes counted and not believed yet."""
        manifest = await self._manifest(account, digest)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = kept.with_name(kept.name + _PARTIAL)
        left = manifest.size
        try:
            with partial.open("wb") as file:
                for number in range(1, manifest.pieces + 1):
                    data = await self._asked(account, digest, number)
                    of = f"piece {number} of {manifest.pieces}"
                    if data is None:
                        raise BundleRefused(f"{of} is missing on the bus; submit it again")
                    if len(data) != min(left, PIECE_BYTES):
                        raise BundleRefused(f"{of} has {len(data)} bytes, which cannot be")
                    await aside(lambda written=data: file.write(written))  # type: ignore[misc]  # mypy knows no default of a lambda
                    left -= len(data)
            partial.rename(kept)
        finally:
            partial.unlink(missing_ok=True)

    async def _manifest(self, account: AccountId, digest: str) -> BundleManifest:
        data = await self._asked(account, digest, MANIFEST_PIECE)
        if data is None:
            raise BundleRefused(f"account {account} has no such bundle on the bus; submit it again")
        try:
            found = understood(data, BundleManifest)
        except Unreadable as error:
            raise BundleRefused(f"its manifest cannot be read: {error}") from error
        if not 0 < found.size <= MAX_BUNDLE_BYTES or found.pieces != -(-found.size // PIECE_BYTES):
            raise BundleRefused(f"its manifest says {found.size} bytes, the limit is {MAX_BUNDLE_BYTES}")
        return found

    async def _asked(self, account: AccountId, digest: str, number: int) -> bytes | None:
        return await patiently(lambda: self._piece(account, digest, number), self._patience_s)

    def _make_room(self) -> None:
        """Lets the least recently used go until the rest fits, what is being fetched now among it."""
        found = []
        for path in (*self._directory.glob("*.tar"), *self._directory.glob(f"*{_PARTIAL}")):
            with contextlib.suppress(FileNotFoundError):
                found.append((path.stat().st_mtime_ns, path.name, path.stat().st_size, path))
        total = sum(size for _, _, size, _ in found)
        for _, _, size, path in sorted(found):
            if total <= self._cache_bytes:
                return
            if path not in self._used and not path.name.endswith(_PARTIAL):
                path.unlink(missing_ok=True)
                total -= size


class _Watched:
    """A file read to its end while its digest is made."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self._digest.update(data)
        return data

    def hexdigest(self) -> str:
        """Of all that was read and is left to read."""
        while self.read(_COPY_BYTES):
            pass
        return self._digest.hexdigest()


def _unpack(kept: Path, digest: str, into: Path) -> bool:
    """Unpacks what is kept, and says whether it was there and had this digest; `into` is gone when not.

    The digest is of the very bytes that were unpacked, so nothing can change in between.
    """
    shutil.rmtree(into, ignore_errors=True)
    try:
        file = kept.open("rb")
    except FileNotFoundError:
        return False
    with file:
        watched = _Watched(file)
        refused: BundleRefused | None = None
        try:
            unpack(watched, into)
        except BundleRefused as error:
            refused = error
        is_true = watched.hexdigest() == digest
    if is_true:
        os.utime(kept)
        if refused is not None:
            raise refused
        return True
    shutil.rmtree(into, ignore_errors=True)
    return False


def _clear_after(work: "asyncio.Future[bool]", into: Path) -> None:
    """Nobody waits for it any more: its answer is heard, and what it made is removed."""
    if not work.cancelled():
        work.exception()
    clear(into)
