"""Chance, as whole numbers that are the same on every machine.

Draw k of a stream is the first 8 bytes, big-endian, of SHA-256("seed/stream/k"), modulo n. Streams know nothing of
each other, so what one part draws never moves what another does. Times come from quantile tables of 4,096 points,
made by quantiles.py and shipped as integers: no logarithm is taken at run time.
"""

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Final, TypeVar

import msgspec

POINTS: Final = 4_096
TABLES_FILE: Final = "quantiles.json"
_T = TypeVar("_T")


class Stream:
    """The draws of one stream, in order."""

    def __init__(self, seed: int, name: str) -> None:
        self._prefix = f"{seed}/{name}/"
        self._next = 0

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        raw = hashlib.sha256(f"{self._prefix}{self._next}".encode()).digest()
        self._next += 1
        return int.from_bytes(raw[:8]) % n

    def pick(self, choices: Sequence[_T]) -> _T:
        """One of these, drawn evenly."""
        return choices[self.below(len(choices))]


def tables() -> dict[str, tuple[int, ...]]:
    """The shipped quantile tables by name, in ms; point i is the (i + 0.5) / 4096 quantile."""
    raw = resources.files("fairlease.simulator").joinpath(TABLES_FILE).read_bytes()
    return msgspec.json.decode(raw, type=dict[str, tuple[int, ...]])
