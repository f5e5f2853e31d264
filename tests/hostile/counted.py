"""What was fed to whom, at the end of a test run: a line for each corpus, and one for all readers that were fuzzed.

A test tells it through `record_property`, which reaches the summary also from the processes of xdist.
"""

from collections.abc import Iterable, Iterator
from typing import Any

CORPUS, FUZZED = "corpus", "fuzzed"


class Bill:
    """The dearest entry of a corpus, in processor time and in memory at its peak."""

    def __init__(self) -> None:
        self._ms, self._kib = (0.0, "none"), (0, "none")

    def add(self, name: str, took_s: float, peak_bytes: int) -> None:
        self._ms = max(self._ms, (took_s * 1_000, name))
        self._kib = max(self._kib, (peak_bytes >> 10, name))

    def told(self) -> str:
        (took_ms, slowest), (peak_kib, largest) = self._ms, self._kib
        return f"at most {took_ms:.1f} ms ({slowest}) and {peak_kib} KiB ({largest})"


def summary(properties: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """The lines of the summary, of all that tests recorded."""
    fuzzed = []
    for name, value in properties:
        if name == CORPUS:
            yield value
        elif name == FUZZED:
            fuzzed.append(value)
    if fuzzed:
        slowest_ms, slowest = max((one["slowest_ms"], one["reader"]) for one in fuzzed)
        inputs, refused = (sum(one[key] for one in fuzzed) for key in ("inputs", "refused"))
        yield (
            f"{inputs} inputs to {len({one['reader'] for one in fuzzed})} readers, {refused} refused by exception, "
            f"at most {slowest_ms:.1f} ms ({slowest})"
        )
