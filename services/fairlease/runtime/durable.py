"""A file that is there whole or not at all, also after a power cut. Blocking and light."""

import os
import secrets
from pathlib import Path


def write_whole(path: Path, text: str, mode: int = 0o666) -> None:
    """Puts the text in the place of what the file held; on disk before it has its name.

    `mode` is a new file's, less the umask. Raises OSError, and leaves what was there.
    """
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
