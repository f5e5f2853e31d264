"""Files that outlive a power cut: a small one replaced whole, of which readers find the old or the new, and names."""

import os
import secrets
from pathlib import Path


def replace(path: Path, text: str, mode: int = 0o600) -> None:
    """On disk before it has its name, and never readable by more than `mode` says; OSError leaves the old one."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def sync_names(directory: Path) -> None:
    """What stands in a directory, by its names, is on disk. OSError where the file system knows no such thing."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
