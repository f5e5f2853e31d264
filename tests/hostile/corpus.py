"""The files of hostile input, and what each entry may cost.

An entry is a line of JSON: `name`, `verdict` (`refused` or `accepted`), what is said of it, and the input itself. As
`value` it is plain JSON. As `parts` it is a list of pieces, joined: text as it is, `{"hex": "ff"}` bytes,
`{"repeat": "x", "times": 9}` the same again and again, and `{"count": "k{}", "times": 9}` with the number in it.
"""

import json
import time
import tracemalloc
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.hostile.counted import Bill

T = TypeVar("T")
Entry = dict[str, Any]

HERE = Path(__file__).parent
MOST_CPU_S = 0.050
MOST_BYTES = 20 * 1024 * 1024
_TRIES = 4


def entries(name: str) -> list[Entry]:
    """The entries of one file, in its order."""
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def made(entry: Entry) -> bytes:
    """The bytes that the parts of an entry describe; lone halves of surrogate pairs as they are."""
    return b"".join(map(_part, entry["parts"]))


def _part(part: str | dict[str, Any]) -> bytes:
    if isinstance(part, str):
        return part.encode("utf-8", "surrogatepass")
    if "hex" in part:
        return bytes.fromhex(part["hex"])
    if "repeat" in part:
        return _part(part["repeat"]) * part["times"]
    text: str = part["count"]
    return "".join(text.replace("{}", str(number)) for number in range(part["times"])).encode()


def cost(
    call: Callable[[], T], most_s: float = MOST_CPU_S, *, is_traced: bool = True, bill: Bill, name: str
) -> tuple[T, list[str]]:
    """What the call gives, and what it cost too much: processor time, or memory at its peak. All goes on the bill.

    The quickest of a few tries counts, because a shared machine may only ever be slower than the code is.
    """
    for _ in range(_TRIES):
        began_s = time.thread_time()
        found = call()
        took_s = time.thread_time() - began_s
        if took_s < most_s:
            break
    told = [f"took {took_s * 1000:.0f} ms"] if took_s >= most_s else []
    if not is_traced:
        bill.add(name, took_s, 0)
        return found, told
    tracemalloc.start()
    try:
        call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    bill.add(name, took_s, peak)
    return found, told + ([f"took {peak >> 20} MiB"] if peak >= MOST_BYTES else [])


_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")


def hidden_in(text: str) -> set[str]:
    """Characters that a terminal or a log may obey: controls but the line's end, lone halves, marks of direction."""
    return {
        f"U+{ord(letter):04X}"
        for letter in text
        if letter != "\n" and (unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in _DIRECTIONS)
    }
