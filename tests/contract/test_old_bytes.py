"""Bytes that were written once are read for ever, and written again the same.

`old_bytes.jsonl` only grows: one line an example, `as` what it is and `is` its canonical bytes. When
this fails for a new tag, append an example of it; when it fails for an old line, the change is wrong.
"""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest

from fairlease_schemas import codec
from fairlease_schemas.commands import VERBS
from fairlease_schemas.cycle import Licence
from fairlease_schemas.envelope import Event, Record, Said
from fairlease_schemas.explain import Reply
from fairlease_schemas.job import End
from fairlease_schemas.orders import HostOrder
from fairlease_schemas.reasons import Reason
from fairlease_schemas.reports import KINDS

UNIONS: Final[dict[str, tuple[type[Any], ...]]] = {
    "event": get_args(Event),
    "said": get_args(Said),
    "command": tuple(VERBS.values()),
    "report": tuple(KINDS.values()),
    "order": (HostOrder,),
    "view": get_args(Reply),
    "record": (Record,),
}


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"kind": "as", "raw": "is"}):
    """One example."""

    kind: str
    raw: msgspec.Raw


LINES: Final = [
    msgspec.json.decode(line, type=Line)
    for line in (Path(__file__).parent / "old_bytes.jsonl").read_bytes().splitlines()
]


def values() -> Iterator[tuple[Line, Any]]:
    """Every example with the value it is read as."""
    for line in LINES:
        kind = UNIONS[line.kind]
        decoder: Any = msgspec.json.Decoder(kind[0] if len(kind) == 1 else _union(kind))
        yield line, decoder.decode(line.raw)


def _union(kinds: tuple[type[Any], ...]) -> Any:  # noqa: ANN401 - a union of types is no type
    union: Any = kinds[0]
    for kind in kinds[1:]:
        union |= kind
    return union


@pytest.mark.parametrize("kind", sorted(UNIONS))
def test_old_bytes_are_read_and_written_again_the_same(kind: str) -> None:
    for line, value in values():
        if line.kind == kind == "view":  # never stored: a later answer may say more, and nothing of the old less
            assert holds(msgspec.json.decode(codec.canonical(value)), msgspec.json.decode(line.raw))
        elif line.kind == kind:
            assert codec.canonical(value) == bytes(line.raw)


def holds(new: Any, old: Any) -> bool:  # noqa: ANN401 - anything that JSON can be
    """Whether everything that stood in the old value stands in the new one."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and holds(new[key], value) for key, value in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(holds, new, old))
    return bool(new == old)


@pytest.mark.parametrize("kind", sorted(UNIONS))
def test_every_tag_has_a_line(kind: str) -> None:
    found = {type(value) for line, value in values() if line.kind == kind}
    missing = [one.__name__ for one in UNIONS[kind] if one not in found]
    assert missing == [], f"append to old_bytes.jsonl an example, as {kind!r}"


@pytest.mark.parametrize("words", [Reason, End, Licence], ids=lambda words: words.__name__)
def test_every_word_of_the_log_has_a_line(words: type[StrEnum]) -> None:
    text = b"".join(bytes(line.raw) for line in LINES if line.kind == "event").decode()
    assert [str(word) for word in words if f'"{word}"' not in text] == []


def test_every_field_of_an_event_stands_in_some_line() -> None:
    """Also those that are left out at their defaults: a rename would go unseen otherwise."""
    texts = dict.fromkeys(UNIONS["event"], "")
    for line, value in values():
        if line.kind == "event":
            texts[type(value)] += bytes(line.raw).decode()
    missing = [
        f"{one.__name__}.{field.encode_name}"
        for one, text in texts.items()
        for field in msgspec.structs.fields(one)
        if f'"{field.encode_name}":' not in text
    ]
    assert missing == []


def test_the_ids_of_old_records_are_still_their_hashes() -> None:
    for line, value in values():
        if line.kind == "record":
            assert codec.sealed(value) == (value, bytes(line.raw))
            assert codec.read_record(bytes(line.raw)) == value
