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
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from fairlease_schemas.ids import JobId

_T = TypeVar("_T")
_STORE: Final = re.compile(r"store:(?P<name>[a-z0-9][a-z0-9_-]*)/(?P<path>[A-Za-z0-9._=+@:,/-]*)")

ASIDE_NOTE: Final = ".fairlease-set-aside"
"""In a directory that was set aside: why it lies there."""


class StoreRefused(Exception):
    """There is no such store here; the text says why, for the end's detail."""


def environment(uri: str | None, job: JobId, stores: Path, *, can_make: bool) -> dict[str, str]:
    """What a job is told of its checkpoints' place: the address, and the directory if it has one. OSError as usual."""
    if not uri:
        return {}
    told = {"FAIRLEASE_CHECKPOINT_URI": uri}
    if uri.startswith("store:"):
        told["FAIRLEASE_CHECKPOINT_DIR"] = str(_directory(uri, job, stores, can_make=can_make))
    return told


def _directory(uri: str, job: JobId, stores: Path, *, can_make: bool) -> Path:
    found = _STORE.fullmatch(uri)
    if found is None or ".." in found["path"].split("/"):
        raise StoreRefused(f"{uri[:80]!r} names no store: write store:NAME/PATH")
    store = stores / found["name"]
    if can_make:
        store.mkdir(parents=True, exist_ok=True)
    elif not store.is_dir():
        raise StoreRefused(f"store {found['name']} is not on this host: mount or link it at {store}")
    root = store.resolve()
    place = (root / found["path"].strip("/") / job).resolve()
    if not place.is_relative_to(root):  # by a link that a job may have left there
        raise StoreRefused(f"{uri[:80]!r} leads out of its store")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise StoreRefused(f"{uri[:80]!r}: {error.strerror}") from error
    return place


def set_aside(place: Path, number: int) -> Path | None:
    """Moves what earlier attempts left in a job's place beside it, once for attempt `number`; where it lies, or None.

    Nothing is deleted and nothing written over: the directory as it is gets another name, at one stroke. Every host of
    a gang does so and only the first has an effect, also when others come after its run has begun to save: the name
    is taken then, by a directory that is never empty. OSError as usual.
    """
    beside = place.with_name(f"{place.name}.before-a{number}")
    if not beside.exists():
        try:
            (place / ASIDE_NOTE).write_text(f"set aside before attempt {number}\n", encoding="ascii")
            place.rename(beside)
        except FileNotFoundError:
            pass  # another host of the gang has just done it, and not yet made the new one
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            (place / ASIDE_NOTE).unlink(missing_ok=True)  # the other's directory is new, and stays as it is
    place.mkdir(parents=True, exist_ok=True)
    return beside if beside.exists() else None


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
