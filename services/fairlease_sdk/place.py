"""Where the attempt's files are, by its environment, and how one is written so that nobody reads half of it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # `collections.abc` takes longer to load than all the rest
    from collections.abc import Mapping

PREEMPT_FILE, SAID_DIR, CHECKPOINT_DIR = "FAIRLEASE_PREEMPT_FILE", "FAIRLEASE_SAID_DIR", "FAIRLEASE_CHECKPOINT_DIR"


def said_directory() -> str:
    """Where the agent looks for what this attempt says; empty outside Fairlease."""
    return os.environ.get(SAID_DIR, "")


def is_speaker() -> bool:
    """Whether this is the rank that speaks for the gang: rank 0, and who has no rank."""
    return os.environ.get("FAIRLEASE_RANK", "0") == "0"


def encoded(said: Mapping[str, object]) -> bytes:
    """A mapping as JSON: the same mapping, the same bytes."""
    import json  # noqa: PLC0415 - most of the time that all of this takes to load, and most steps say nothing

    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def read(path: str) -> dict[str, object]:
    """The JSON object in a file; ValueError when there is another thing in it, OSError as usual."""
    import json  # noqa: PLC0415 - as above

    with open(path, "rb") as file:
        found = json.load(file)
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def write_whole(path: str, data: bytes, *, is_durable: bool) -> None:
    """Writes beside it and renames, so that a reader finds all or none; durable: also after a power cut."""
    new = f"{path}.{os.getpid()}.new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        while data:
            data = data[os.write(fd, data) :]
        if is_durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(new, path)
    if is_durable:
        sync(os.path.dirname(path) or ".")


def sync(path: str) -> None:
    """Brings a file, or the names in a directory, to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
