"""Where a page goes: looked at before a long run begins, and written whole or not at all."""

import os
from pathlib import Path


def problem_of_place(path: str | None) -> str:
    """Why no page can be written there; empty where one can, or none is wanted."""
    if path is None:
        return ""
    place = Path(path)
    if place.is_dir():
        return f"--html {path}: is a folder: name a file in it"
    if not os.access(place.resolve().parent, os.W_OK):
        return f"--html {path}: no file can be written there: name one in a folder of yours"
    return ""


def put(path: str, page: str) -> None:
    """Write the page, in the place of what was there; OSError leaves that as it was."""
    place = Path(path)
    beside = place.with_name(f".{place.name}.part")
    try:
        beside.write_text(page, encoding="utf-8")
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
