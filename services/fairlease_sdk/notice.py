"""The notice: whether this attempt was asked to stop, why, and how long it still has.

The agent writes the file before it sends any signal, so asking now and then is enough; a script
needs no handler. Asking costs one look at the file system, a few microseconds.
"""

from __future__ import annotations

import os
import time

from fairlease_sdk import place


def preempted() -> bool:
    """Whether this attempt was asked to stop: by a preemption, a drain, its time limit or a cancel.

    Save, say `checkpoint_done`, and leave: exit 0 only when all the work is done.
    """
    path = os.environ.get(place.PREEMPT_FILE, "")
    return bool(path) and os.path.exists(path)


def stop_reason() -> str:
    """Why it was asked to stop, in a word or two; empty while it was not."""
    notice = _read()
    return str(notice.get("reason", "")) if notice is not None else ""


def grace_left_ms() -> int | None:
    """Milliseconds until the TERM, 0 when it is due; None while nobody asked it to stop."""
    notice = _read()
    if notice is None:
        return None
    now_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    term_at_ms = notice.get("term_at_ms")
    return max(term_at_ms - now_ms, 0) if isinstance(term_at_ms, int) else 0


def _read() -> dict[str, object] | None:
    try:
        return place.read(os.environ.get(place.PREEMPT_FILE, ""))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}  # an empty file, or somebody else's: asked to stop, and no more is known
