"""JSON that means one thing: what a sender wrote, or an error that says why it cannot be that.

The surprising choice: the standard library reads here, because duplicate keys, NaN and endless
integers must be told to the sender, and msgspec takes the last key without a word.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from fairlease_schemas.credential import kind_of

_MAX_DIGITS: Final = 18
_MAX_DEPTH: Final = 20
_HIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class Loose(ValueError):
    """JSON that is not strict enough to mean one thing."""


def strict_json(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """JSON with no duplicate keys, NaN, infinities, integers over 18 digits, or nesting over 20 levels.

    Raises Loose, or ValueError from the parser, saying which; RecursionError for a bomb of brackets.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise Loose("begins with a byte order mark: remove it")
    value = json.loads(
        data.decode("utf-8"),
        object_pairs_hook=_unique,
        parse_constant=_no_constant,
        parse_int=_short_int,
    )
    _shallow(value, _MAX_DEPTH)
    return value


def plain_text(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Raises Loose for text, of a key too, that holds a control character or one that turns text round."""
    for path, text in _texts(value, "$"):
        found = _HIDDEN.search(text)
        if found is not None:
            raise Loose(f"{path}: character U+{ord(found.group()):04X} is not allowed in text: remove it")


def no_credential(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Raises Loose for text, of a key too, that looks like a secret: nothing is ever taken out of the log (1.13)."""
    for path, text in _texts(value, "$"):
        kind = kind_of(text)
        if kind:
            raise Loose(f"{path}: this looks like {kind}, and the log would keep it (rule 1.13): leave it out")


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON value
    """Every text with the path where it stands; a key stands where its object does."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key, path)
            yield from _texts(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # it gives None
        raise Loose(f"key {twice[:40]!r} stands there twice: write it once")
    return found


def _no_constant(text: str) -> Any:  # noqa: ANN401 - never returns
    raise Loose(f"{text} is not a number here: write an integer")


def _short_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise Loose(f"an integer of {len(text)} digits is too large: {_MAX_DIGITS} are allowed")
    return int(text)


def _shallow(value: Any, left: int) -> None:  # noqa: ANN401 - any JSON value
    if left == 0:
        raise Loose(f"nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _shallow(item, left - 1)
