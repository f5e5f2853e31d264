"""What this machine takes for the least that the chain is made of, in the same run as the figures."""

import os
import subprocess
import sys
import time
from pathlib import Path

from figure import Figure, spread_ms


def yardsticks(folder: Path) -> list[Figure]:
    """A bare interpreter from start to end, and one append of a kibibyte that is on disk when it returns."""
    interpreter, worst = spread_ms([_interpreter_ns() for _ in range(10)])
    append, slow = spread_ms(_append_ns(folder / "yardstick", 200))
    return [
        Figure("yardstick_interpreter_ms", interpreter, "ms", {"p99": worst}),
        Figure("yardstick_fsync_append_ms", append, "ms", {"p99": slow}),
    ]


def _interpreter_ns() -> int:
    started_ns = time.perf_counter_ns()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter_ns() - started_ns


def _append_ns(path: Path, count: int) -> list[int]:
    found = []
    with path.open("ab", buffering=0) as file:
        for _ in range(count):
            started_ns = time.perf_counter_ns()
            file.write(b"\0" * 1024)
            os.fsync(file.fileno())
            found.append(time.perf_counter_ns() - started_ns)
    path.unlink()
    return found
