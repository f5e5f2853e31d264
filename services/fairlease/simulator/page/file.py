"""Where a page goes: looked at before a long run begins, and written whole or not at all."""

import os
from pathlib import Path


def problem_of_place(path: str | None, *others: str | None) -> str:
    """Why no page can be written there; empty where one can, or none is wanted.

    `others` are the files that the same command reads or writes. A device is no file: a page would stand in its place.
    """
    if path is None:
        return ""
    place = Path(path)
    if place.is_dir():
        return f"--html {path}: is a folder: name a file in it"
    if place.exists() and not place.is_file():
        return f"--html {path}: is a device, and a page would take its place: name a file"
    if place.resolve() in [Path(other).resolve() for other in others if other]:
        return f"--html {path}: is a file of this command, and would be lost: name another"
    if not os.access(place.resolve().parent, os.W_OK):
        return f"--html {path}: no file can be written there: name one in a folder of yours"
    return ""


def put(path: str, page: str) -> None:
    """Write the page, in the place of what was there; OSError leaves that as it was, and a link stays one."""
    place = Path(path).resolve()
    beside = place.with_name(f".{place.name}.part")
    try:
        beside.write_text(page, encoding="utf-8")
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
