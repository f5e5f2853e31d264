"""The numbers of a policy as people write them: read for `policy set`, `whatif` and `explore` by these rules alone.

A length may have its unit. Bounds of windows are written `8:15m-4h/64:15m-8h/*:15m-12h`: gangs up to so many GPUs,
their shortest and their longest window, `*` for all that are larger. What a file has as a number or a table stays so.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fairlease.cli.exits import CONTRACT, CommandError, Finding
from fairlease.core.policy_rules import policy_problems
from fairlease_schemas.policy import Policy, WindowBound
from fairlease_schemas.units import MAX_LENGTH_MS, format_length, parse_length_ms

_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Policy)}
_NAMES: Final = "`fairlease policy show` names every number"
_WAY_OUT: Final = "write it as `fairlease policy show -o yaml` does"
_LENGTH: Final = "write for example 90s, 15m or 7d"
_BOUNDS: Final = "write for example 8:15m-4h/*:15m-12h: GPUs at most, the shortest and the longest window"
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_TRUTHS: Final = {"true": True, "false": False}
_ALL_GPUS: Final = 1 << 30


def policy_of(numbers: Mapping[str, Any]) -> Policy:
    """The policy of these numbers, defaults for what is left out; CommandError 65 names what is wrong."""
    asked = {name: number_of(name, value) for name, value in numbers.items()}
    # Of what is said as the default is, nothing is sent: the log keeps what differs.
    return Policy(**{name: value for name, value in asked.items() if value != _FIELDS[name].default})


def number_of(name: str, value: Any) -> Any:  # noqa: ANN401 - one value as it was written, and as the policy has it
    """The value of one number as the policy has it; CommandError 65 for no such number, and for a value of no use."""
    field = _FIELDS.get(name)
    if field is None:
        raise CommandError(CONTRACT, f"policy.{name[:80]}: there is no such number", way_out=_NAMES)
    try:
        return msgspec.convert(_plain(name, value, field.type), field.type)
    except msgspec.ValidationError as error:
        raise CommandError(CONTRACT, f"policy.{name}: {error}", way_out=_WAY_OUT) from error


def _plain(name: str, value: Any, kind: Any) -> Any:  # noqa: ANN401 - one value of a file, and a field's type
    """The value without the ways of people: lengths in milliseconds, text that is a number or a truth as such."""
    if not isinstance(value, str) or kind is str:
        return value
    if kind is bool:
        return _TRUTHS.get(value, value)
    if kind is not int:
        return _bounds(value) if name == "window_bounds" else value
    if _WHOLE.fullmatch(value):
        return int(value)
    if name.endswith("_ms"):
        try:
            return parse_length_ms(value)
        except ValueError as error:
            raise CommandError(CONTRACT, f"policy.{name}: {error}", way_out=_LENGTH) from error
    raise CommandError(CONTRACT, f"policy.{name}: {value[:40]!r} is no whole number", way_out=_WAY_OUT)


def _bounds(text: str) -> list[dict[str, int]]:
    found = []
    for part in text.split("/"):
        gpus, _, lengths = part.partition(":")
        shortest, dash, longest = lengths.partition("-")
        if not dash or not (gpus == "*" or (_WHOLE.fullmatch(gpus))):
            raise CommandError(CONTRACT, f"policy.window_bounds: {part[:40]!r} is no bound", way_out=_BOUNDS)
        try:
            found.append(
                {
                    "up_to_gpus": _ALL_GPUS if gpus == "*" else int(gpus),
                    "shortest_ms": parse_length_ms(shortest),
                    "longest_ms": parse_length_ms(longest),
                }
            )
        except ValueError as error:
            raise CommandError(CONTRACT, f"policy.window_bounds: {error}", way_out=_BOUNDS) from error
    return found


def written(name: str, value: Any) -> str:  # noqa: ANN401 - the value of one number as the policy has it
    """The number as people write it, which `number_of` reads back; a list of plain texts is only shown so."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        # A length that no contract can say is told as the policy has it: it could not be read back.
        return format_length(value) if name.endswith("_ms") and 0 <= value <= MAX_LENGTH_MS else str(value)
    return value if isinstance(value, str) else "/".join(map(_part, value))


def _part(told: Any) -> str:  # noqa: ANN401 - one of a list of the policy, or as JSON has it
    if isinstance(told, str):
        return told
    part = msgspec.convert(told, WindowBound, from_attributes=True)
    gpus = "*" if part.up_to_gpus == _ALL_GPUS else part.up_to_gpus
    return f"{gpus}:{format_length(part.shortest_ms)}-{format_length(part.longest_ms)}"


def judge(policy: Policy, whose: str = "") -> None:
    """CommandError 65 with every problem of a policy that no cell can be run by; `whose` says which of several."""
    problems = policy_problems(policy)
    if problems:
        told = [Finding(one.field, one.rule, one.value, one.limit, one.way_out) for one in problems]
        raise CommandError(CONTRACT, f"no cell can be run by this policy{whose}", findings=told)
