"""Canonical bytes: the one way to write a record, an order or a contract body.

JSON with sorted keys, integers only, NFC text, no spaces: parse and write give the same bytes, so a
digest means the same on every machine. Reading is msgspec; what it cannot read raises `Unreadable`.
"""

import hashlib
import unicodedata
from typing import Any, Final, TypeVar

import msgspec

from fairlease_schemas.envelope import MAX_RECORD_BYTES, RECORD_VERSION, Record

_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_RECORDS: Final = msgspec.json.Decoder(Record)
_MAX_SAFE: Final = 2**63 - 1
_T = TypeVar("_T")


class Unreadable(ValueError):
    """Bytes that are not what they should be; the text names the field and what was expected."""


def canonical(value: object) -> bytes:
    """The canonical bytes of a Struct or of plain JSON data without floats.

    Raises ValueError for a float, a NaN, text that is not NFC, or an integer beyond 63 bits in plain data.
    """
    if not isinstance(value, msgspec.Struct):
        _refuse_loose(value, "$")
    return _ENCODER.encode(value)


def digest(value: object) -> str:
    """SHA-256, in hex, of the canonical bytes."""
    return hashlib.sha256(canonical(value)).hexdigest()


def sealed(record: Record) -> tuple[Record, bytes]:
    """The record with its id, and its canonical bytes.

    The bytes of a record begin `{"answers":…` and `id` stands between `events` and `policy`; the id
    is taken over the record written with no `id` key at all.
    """
    body = msgspec.to_builtins(record)
    body.pop("id", None)
    record_id = hashlib.sha256(_ENCODER.encode(body)).hexdigest()
    body["id"] = record_id
    return msgspec.structs.replace(record, id=record_id), _ENCODER.encode(body)


def read_record(data: bytes) -> Record:
    """A record from its bytes; Unreadable for anything a present or past version did not write."""
    if len(data) > MAX_RECORD_BYTES:
        raise Unreadable(f"record of {len(data)} bytes is above the limit of {MAX_RECORD_BYTES}")
    try:
        record = _RECORDS.decode(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not a record: {error}") from error
    if record.v != RECORD_VERSION:
        raise Unreadable(f"record version {record.v} is not {RECORD_VERSION}: run a newer Fairlease")
    return record


def understood(data: bytes, kind: type[_T]) -> _T:
    """The value of that type in JSON that others wrote; Unreadable for all that is none, brackets without end too."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def nfc(text: str) -> str:
    """Text in the normal form C that canonical bytes require."""
    return unicodedata.normalize("NFC", text)


def _refuse_loose(value: Any, path: str) -> None:  # noqa: ANN401 - any JSON value is what this inspects
    """Refuse, with its path, what canonical JSON cannot hold."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, str):
        if not unicodedata.is_normalized("NFC", value):
            raise ValueError(f"{path}: text is not in normal form C")
        return
    if isinstance(value, int):
        if not -_MAX_SAFE <= value <= _MAX_SAFE:
            raise ValueError(f"{path}: integer beyond 63 bits")
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{path}: key {key!r} is not text")
            _refuse_loose(key, path)
            _refuse_loose(item, f"{path}.{key}")
        return
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_loose(item, f"{path}[{index}]")
        return
    raise ValueError(f"{path}: {type(value).__name__} has no canonical form; decisions use integers and text")
