"""Where checkpoints go on this machine: `store:NAME/PATH` of a contract as a directory of the job's own.

A store is a directory `<state>/stores/NAME` that every host of the pool sees under that name, a mount
or a link; there each job has its place, the same for all its attempts. On simulated hosts one machine
plays all of them, so a store that is missing is made; on real ones it is refused, because a directory
that only this host sees would lose the work at the first move. Other places (s3, gs, az) are the
job's own business: it gets the address.
"""

import asyncio
import contextlib
import errno
import os
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from fairlease.agent.identity import ENTER, User, let_in
from fairlease_schemas.ids import JobId

_T = TypeVar("_T")
_STORE: Final = re.compile(r"store:(?P<name>[a-z0-9][a-z0-9_-]*)/(?P<path>[A-Za-z0-9._=+@:,/-]*)")

ASIDE_NOTE: Final = ".fairlease-set-aside"
"""In a directory that was set aside: why it lies there."""


class StoreRefused(Exception):
    """There is no such store here; the text says why, for the end's detail."""


_FOR_GOOD: Final = (
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
    errno.EINVAL,
)
"""What a store refuses because of the place that was asked for: it will refuse it always."""


def refusal(uri: str | None, error: OSError) -> StoreRefused | None:
    """Why a place for checkpoints can never be had; None where the store may only be away for a while."""
    if error.errno not in _FOR_GOOD:
        return None
    return StoreRefused(f"{(uri or '')[:80]!r}: {error.strerror}: name another place, or mend this one")


def environment(
    uri: str | None, job: JobId, stores: Path, *, can_make: bool, owner: User | None = None, clean_for: int = 0
) -> dict[str, str]:
    """What a job is told of its checkpoints' place: the address, and the directory if it has one. OSError as usual.

    With `owner` the directory is his. With `clean_for`, the number of an attempt that begins anew, what is there is
    set aside first.
    """
    if not uri:
        return {}
    told = {"FAIRLEASE_CHECKPOINT_URI": uri}
    if uri.startswith("store:"):
        try:
            place = _directory(uri, job, stores, can_make=can_make, owner=owner, clean_for=clean_for)
        except RuntimeError as error:  # what a path says that leads round in a circle
            raise StoreRefused(f"{uri[:80]!r}: {error}") from error
        told["FAIRLEASE_CHECKPOINT_DIR"] = str(place)
    return told


def _directory(uri: str, job: JobId, stores: Path, *, can_make: bool, owner: User | None, clean_for: int) -> Path:
    found = _STORE.fullmatch(uri)
    if found is None or ".." in found["path"].split("/"):
        raise StoreRefused(f"{uri[:80]!r} names no store: write store:NAME/PATH")
    store = stores / found["name"]
    if can_make:
        is_new = not store.exists()
        store.mkdir(parents=True, exist_ok=True)
        if is_new and owner is not None:
            let_in(store)
    elif not store.is_dir():
        raise StoreRefused(f"store {found['name']} is not on this host: mount or link it at {store}")
    root = store.resolve()
    if owner is not None:
        return _given(uri, root, (*found["path"].split("/"), job), owner, clean_for)
    place = (root / found["path"].strip("/") / job).resolve()
    if not place.is_relative_to(root):  # by a link that a job may have left there
        raise StoreRefused(f"{uri[:80]!r} leads out of its store")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise StoreRefused(f"{uri[:80]!r}: {error.strerror}") from error
    if clean_for:
        set_aside(place, clean_for)
    return place


def _given(uri: str, root: Path, names: Iterable[str], owner: User, clean_for: int) -> Path:
    """The directory below the store that is this user's, made as we are root, step by step from its parent.

    A user may change what lies in his own directories while we look: no step follows a link, none leads through
    what is another user's, and rights are given to what was opened, not to what has its name.
    """
    place, steps = root, [name for name in names if name not in ("", ".")]
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth, name in enumerate(steps, 1):
            is_last = depth == len(steps)
            if is_last and clean_for:
                _move_aside(name, at, clean_for)
            is_new = _made(name, at)
            step = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at, place = step, place / name
            found = os.fstat(at)
            if found.st_uid not in (os.geteuid(), owner.uid):
                raise StoreRefused(f"{uri[:80]!r}: {place.name} there is another user's, not {owner.name}'s")
            if is_new and not is_last:
                os.fchmod(at, ENTER)
            if is_last and (found.st_uid, found.st_gid) != (owner.uid, owner.gid):
                os.fchown(at, owner.uid, owner.gid)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise StoreRefused(f"{uri[:80]!r}: {error.strerror}") from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise StoreRefused(f"{uri[:80]!r} leads through a link, which is not followed") from error
    finally:
        os.close(at)
    return place


def _made(name: str, parent: int) -> bool:
    """Makes a directory for its owner alone; False when there is something of that name already."""
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def set_aside(place: Path, number: int) -> Path | None:
    """Moves what earlier attempts left in a job's place beside it, once for attempt `number`; where it lies, or None.

    Nothing is deleted and nothing written over: the directory as it is gets another name, at one stroke. Every host of
    a gang does so and only the first has an effect, also when others come after its run has begun to save: the name
    is taken then, by a directory that is never empty. OSError as usual.
    """
    parent = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _move_aside(place.name, parent, number)
    finally:
        os.close(parent)
    place.mkdir(exist_ok=True)
    beside = place.with_name(_beside(place.name, number))
    return beside if beside.exists() else None


def _beside(name: str, number: int) -> str:
    return f"{name}.before-a{number}"


def _move_aside(name: str, parent: int, number: int) -> None:
    """Gives the directory another name beside it, through no link: what is in it may be a user's, and we be root."""
    beside = _beside(name, number)
    try:
        at = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except FileNotFoundError:
        return  # another host of the gang has just done it, and not yet made the new one
    try:
        if _is_there(beside, parent):
            return
        _note(at, number)  # in what was there before: of a new one the old name was taken first
        os.rename(name, beside, src_dir_fd=parent, dst_dir_fd=parent)
    except FileNotFoundError:
        pass  # the same, a moment later
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise  # else the other host was faster, and its directory is new
    finally:
        os.close(at)


def _is_there(name: str, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _note(directory: int, number: int) -> None:
    """Says in the directory why it lies there; whatever has the note's name already will do."""
    options = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(ASIDE_NOTE, options, 0o644, dir_fd=directory)
    except FileExistsError:
        return
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(f"set aside before attempt {number}\n")


async def aside(call: Callable[[], _T]) -> _T:
    """The call's answer, made in a thread of its own: a store that hangs holds up one run, not the host.

    Not a worker of the loop's, which an agent that leaves would wait for.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def work() -> None:
        try:
            found = call()
        except Exception as error:  # noqa: BLE001 - whatever it was is raised again where the answer is awaited
            tell(answer.set_exception, error)
        else:
            tell(answer.set_result, found)

    def tell(set_it: Callable[[_T], None] | Callable[[BaseException], None], what: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: answer.done() or set_it(what))  # type: ignore[arg-type]  # each is called with its own kind

    threading.Thread(target=work, daemon=True).start()
    return await answer
