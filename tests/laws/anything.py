"""Arbitrary values of a message type, made from its fields: the smallest is the dullest."""

import types
import typing
from enum import Enum
from functools import cache

import msgspec
from hypothesis import strategies as st

from fairlease_schemas import codec

_INTS = st.integers(-(2**63) + 1, 2**63 - 1)
_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12).map(codec.nfc)


@cache
def anything(kind: typing.Any) -> st.SearchStrategy[typing.Any]:  # noqa: ANN401 - any type of the schemas
    """Values of a Struct, a union of them, an enum, a tuple, a dict, or a plain type."""
    if kind in (int, str, bool, type(None)):
        return {int: _INTS, str: _TEXT, bool: st.booleans(), type(None): st.none()}[kind]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return st.one_of(*(anything(one) for one in typing.get_args(kind)))
    if kind is typing.Any:
        return _INTS | _TEXT
    if kind is bytes:
        return st.binary(max_size=12)
    if typing.get_origin(kind) is dict:
        return st.dictionaries(_TEXT, anything(typing.get_args(kind)[1]), max_size=3)
    if typing.get_origin(kind) is tuple:
        first, *rest = typing.get_args(kind)
        if rest != [...]:
            return st.tuples(*map(anything, (first, *rest)))
        return st.lists(anything(first), max_size=3).map(tuple)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: anything(hints[field.name]) for field in msgspec.structs.fields(kind)})
