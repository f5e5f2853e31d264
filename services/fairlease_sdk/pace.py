"""How far the attempt is, for people who look: a file that is written over, at most once a second."""

from __future__ import annotations

import os
import time

from fairlease_sdk import place

EVERY_MS = 1_000
_last_ms: int | None = None


def progress(step: int, total: int | None = None, **figures: float) -> None:
    """Says that training has reached `step`, of `total` where that is known, with any figures such as `loss`.

    Cheap enough for every step: what comes within a second of the last is dropped, but for the end
    (`step` at `total`). Nothing is saved by it and no decision reads it. A full disk is no error.
    """
    global _last_ms  # noqa: PLW0603 - one process has one progress
    directory = place.said_directory()
    now_ms = time.monotonic_ns() // 1_000_000
    is_end = total is not None and step >= total
    if not directory or (_last_ms is not None and now_ms - _last_ms < EVERY_MS and not is_end):
        return
    _last_ms = now_ms
    said = {"step": int(step), "total": total, "figures": {name: float(value) for name, value in figures.items()}}
    try:
        place.write_whole(os.path.join(directory, "progress.json"), place.encoded(said), is_durable=False)
    except OSError:
        return
