"""Canonical bytes: one way to write each thing, and the same bytes everywhere."""

import hashlib

import msgspec
import pytest

from fairlease_schemas import codec
from fairlease_schemas.envelope import MAX_RECORD_BYTES, Address, Answer, Record, TimerFired
from fairlease_schemas.job import JobReleased

RECORD = Record(
    v=1,
    at_ms=5,
    by="admission",
    epoch=1,
    basis=7,
    policy="default",
    causes=(Address(1, 2, 3),),
    answers=(Answer(stream="s", seq=1, time_ms=5, who="ann", said=TimerFired(due_ms=5)),),
    events=(JobReleased(job="job-x"),),
)


def test_keys_are_sorted_and_nothing_is_spaced() -> None:
    assert codec.canonical({"b": [1, True, None], "a": "é"}) == '{"a":"é","b":[1,true,null]}'.encode()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (1.5, r"\$: float"),
        ({"a": [0, float("nan")]}, r"\$\.a\[1\]: float"),
        ({"a": "e\u0301"}, r"\$\.a: text is not in normal form C"),
        ({"e\u0301": 1}, r"\$: text is not in normal form C"),
        ([2**63], r"\$\[0\]: integer beyond 63 bits"),
        ({1: 2}, r"\$: key 1 is not text"),
        ({"a": {1, 2}}, r"\$\.a: set has no canonical form"),
        (b"x", r"\$: bytes has no canonical form"),
    ],
)
def test_what_has_no_one_form_is_refused_with_its_place(value: object, path: str) -> None:
    with pytest.raises(ValueError, match=path):
        codec.canonical(value)


def test_an_id_is_the_hash_of_the_record_without_it() -> None:
    record, data = codec.sealed(RECORD)
    before = data.replace(f'"id":"{record.id}",'.encode(), b"")
    assert record.id == hashlib.sha256(before).hexdigest()
    assert data.startswith(b'{"answers":[')


def test_sealing_again_changes_nothing() -> None:
    record, data = codec.sealed(RECORD)
    assert codec.sealed(record) == (record, data)
    assert codec.sealed(codec.read_record(data)) == (record, data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="no fields"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"[" * 100_000, id="depth without end"),
        pytest.param(codec.sealed(RECORD)[1][:-1], id="the end cut off"),
        pytest.param(codec.sealed(RECORD)[1].replace(b"job-released", b"job-unheard-of"), id="an unknown event"),
        pytest.param(codec.sealed(RECORD)[1].replace(b'"at_ms":5', b'"at_ms":5.0'), id="a float"),
        pytest.param(codec.sealed(RECORD)[1].replace(b'"v":1', b'"v":2'), id="a later version"),
        pytest.param(b" " * (MAX_RECORD_BYTES + 1), id="too much"),
    ],
)
def test_what_is_no_record_is_unreadable(data: bytes) -> None:
    with pytest.raises(codec.Unreadable):
        codec.read_record(data)


def test_a_later_writer_may_add_fields() -> None:
    data = codec.sealed(RECORD)[1].replace(b'"type":"job-released"', b'"type":"job-released","why":"x"')
    assert codec.read_record(data).events == RECORD.events


def test_a_struct_and_its_plain_data_have_the_same_bytes() -> None:
    record, data = codec.sealed(RECORD)
    assert codec.canonical(msgspec.to_builtins(record)) == data
