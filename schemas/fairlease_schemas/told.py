"""What is told of a contract that cannot be read: what was expected, in words, and a way out.

The library that checks a contract knows its own words (tuples, dictionaries, patterns); whoever wrote YAML
knows lists, mappings and names. A key that nobody knows is told with the one that was probably meant.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final, get_args

from fairlease_schemas import terms
from fairlease_schemas.ids import JOB_PATTERN, NAME_PATTERN
from fairlease_schemas.terms import UNITS, Strict

UNKNOWN_KEY: Final = "unknown key: remove it, or look its name up in the contract reference"
REQUIRED: Final = "required: write it"
_EXAMPLES: Final = {
    "apiVersion": "fairlease/v1",
    "kind": "Job",
    "budget": "vision; `fairlease shares` lists those that there are",
    "min_runtime": "30m, in which nobody may take its GPUs, or 0s for idle work",
    "timeout": "2h, after which an attempt is ended",
    "count": "8",
    "job": "job- and 20 letters and digits",
}
"""What may stand where something has to."""
_LEAST_LIKENESS: Final = 0.6

_A_LIST: Final = "write a list, for example [{}]"
_LISTS: Final = {
    "pools": "h100",
    "command": "python, train.py",
    "gpu_model": "H100, H200",
    "after": "{{job: job-…, when: ok}}",
}
"""An example of what stands in each list."""

_SAYS: Final = {
    "int_type": "write a whole number, without quotes",
    "bool_type": "write true or false",
    "string_type": "write text, in quotes where it looks like a number or a word of YAML",
    "dict_type": "write a mapping, for example {NAME: value}",
    "model_type": "write a mapping of keys and values",
}
"""By the type of the error."""

PATTERNS_SAY: Final = {
    NAME_PATTERN: "write 1 to 63 of a-z 0-9 - and begin and end with a letter or a digit",
    terms.LABEL_PATTERN: "write 1 to 63 of a-z 0-9 . _ / - and begin and end with a letter or a digit",
    JOB_PATTERN: "write a job's id: job- and 20 letters and digits",
    terms.REPO_PATTERN: "write where the repository is: https://HOST/PATH, ssh://HOST/PATH or git@HOST:PATH",
    terms.COMMIT_PATTERN: "write the whole id of the commit, 40 or 64 of 0-9 a-f; branches move",
    terms.BUNDLE_PATTERN: "write sha256: and the 64 hexadecimal digits of the bundle's digest",
}
"""What is told instead of a regular expression; the contract's own patterns stand beside it."""


def way_out(error: dict[str, Any], root: type[Strict], patterns: dict[str, str]) -> str:
    """What to write instead of what one error of the library found wrong; `patterns` are told of by these words."""
    kind, context, path = error["type"], error.get("ctx", {}), tuple(error["loc"])
    match kind:
        case "extra_forbidden":
            return _unknown(root, path)
        case "missing":
            example = _EXAMPLES.get(str(path[-1]), "")
            return f"{REQUIRED}, for example {example}" if example else REQUIRED
        case "string_pattern_mismatch":
            return (PATTERNS_SAY | patterns).get(str(context.get("pattern")), "write it as the contract reference says")
        case "literal_error":
            return f"write {plain(context['expected'])}"
        case "tuple_type":
            return _A_LIST.format(_LISTS.get(str(path[-1]), "…").replace("{{", "{").replace("}}", "}"))
        case "greater_than_equal" | "less_than_equal":
            return _bound(context, str(path[-1]))
        case "too_short" | "too_long" | "string_too_short" | "string_too_long":
            return _size(error, context)
        case _:
            return _SAYS.get(kind, str(error["msg"]).removeprefix("Value error, "))


def plain(expected: object) -> str:
    """A choice of values without the quotes of a program."""
    return re.sub(r"'([^']*)'", r"\1", str(expected))


def _bound(context: dict[str, Any], key: str) -> str:
    is_least = "ge" in context
    if UNITS.get(key) == "_mib":
        return "write an amount of memory from 1Mi on" if is_least else "write less memory"
    return (
        f"write a whole number, {context['ge']} or more" if is_least else f"write a whole number up to {context['le']}"
    )


def _size(error: dict[str, Any], context: dict[str, Any]) -> str:
    """How long a text, a list or a mapping may be."""
    is_text = isinstance(error.get("input"), str)
    is_least = "min_length" in context
    number = context["min_length"] if is_least else context["max_length"]
    noun = ("character" if is_text else "entry") if number == 1 else ("characters" if is_text else "entries")
    return f"write at {'least' if is_least else 'most'} {number} {noun}"


def _unknown(root: type[Strict], path: tuple[int | str, ...]) -> str:
    """A key that is none, with the one that was probably meant: of its block, or a like-named one elsewhere."""
    *around, last = path
    key = str(last)[:64]
    block = _block(root, around)
    known = list(block.model_fields) if block is not None else []
    elsewhere = [place for place in _places(root) if place.rpartition(".")[2] == key]
    if elsewhere:
        return f"unknown key here: it belongs at {' or '.join(elsewhere)}"
    begun = [name for name in known if len(key) > 2 and (name.startswith(key) or key.startswith(f"{name}_"))]
    near = begun or get_close_matches(key.replace("-", "_").lower(), known, n=1, cutoff=_LEAST_LIKENESS)
    return f"unknown key: write {' or '.join(near[:2])}, if that was meant, or remove it" if near else UNKNOWN_KEY


def _block(root: type[Strict], path: Iterable[int | str]) -> type[Strict] | None:
    """The block at a path, None where there is none."""
    block: type[Strict] | None = root
    for part in path:
        if isinstance(part, str) and block is not None:
            field = block.model_fields.get(part)
            block = _block_in(field.annotation) if field is not None else None
    return block


def _block_in(annotation: object) -> type[Strict] | None:
    """The block that a field's type is, holds or may be."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    return next((found for part in get_args(annotation) if (found := _block_in(part)) is not None), None)


def _places(block: type[Strict], lead: str = "") -> list[str]:
    """Every key of a block and below it, by its path."""
    found: list[str] = []
    for name, field in block.model_fields.items():
        found.append(lead + name)
        inner = _block_in(field.annotation)
        if inner is not None:
            found += _places(inner, f"{lead}{name}.")
    return found
