"""What a directory leaves out of its bundle: `.fairleaseignore`, written as a `.gitignore` is.

The file at the top counts, and no other. A line is a pattern; `#` begins a comment, `!` takes back what an
earlier line left out, a slash at the end means directories, one anywhere else ties the pattern to the top;
`*` and `?` stop at slashes, `**` does not, `[…]` is a set. The last line that fits decides. As with git,
nothing below a directory that is left out can be taken back. `.git` is always left out.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

IGNORE_FILE: Final = ".fairleaseignore"
_ALWAYS: Final = frozenset((".git",))


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    is_for_directories: bool
    is_left_out: bool


class Ignoring:
    """The rules of one directory, made of the lines of its file."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line)) is not None]

    def leaves_out(self, path: str, *, is_directory: bool) -> bool:
        """Whether a path, with slashes and relative to the top, stays out of the bundle."""
        if path.rpartition("/")[2] in _ALWAYS:
            return True
        is_left_out = False
        for rule in self._rules:
            if (is_directory or not rule.is_for_directories) and rule.pattern.fullmatch(path) is not None:
                is_left_out = rule.is_left_out
        return is_left_out


def _rule(line: str) -> _Rule | None:
    """A line as a rule; None for an empty one and for a comment. ValueError for a set that cannot be read."""
    text = line.rstrip("\r\n")
    text = text.rstrip(" ") if not text.endswith("\\ ") else text
    if not text or text.startswith("#"):
        return None
    is_left_out = not text.startswith("!")
    text = text if is_left_out else text[1:]
    is_for_directories = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    is_tied = "/" in text
    body = _translated(text.lstrip("/"))
    try:
        pattern = re.compile(body if is_tied else f"(?:.*/)?{body}", re.DOTALL)
    except re.error as error:
        raise ValueError(f"{line.strip()[:80]!r} is no pattern: {error}") from error
    return _Rule(pattern, is_for_directories, is_left_out)


_PARTS: Final = re.compile(
    r"(?P<above>^\*\*/)|(?P<between>/\*\*/)|(?P<below>/\*\*$)|(?P<any>\*+)|(?P<one>\?)"
    r"|(?P<set>\[[!^]?\]?[^\]]*\])|\\(?P<plain>.)|(?P<letter>.)",
    re.DOTALL,
)
_MEANINGS: Final = {"above": "(?:.*/)?", "between": "/(?:.*/)?", "below": "/.+", "any": "[^/]*", "one": "[^/]"}


def _translated(text: str) -> str:
    """A pattern as a regular expression."""
    written = []
    for part in _PARTS.finditer(text):
        kind = part.lastgroup or "letter"
        if kind in _MEANINGS:
            written.append(_MEANINGS[kind])
        elif kind == "set":
            inside = part["set"][1:-1]
            is_negated = inside[:1] in ("!", "^")
            inside = inside.removeprefix(inside[0]) if is_negated else inside
            escaped = inside.replace("\\", "\\\\").replace("]", "\\]").replace("[", "\\[").replace("^", "\\^")
            written.append(f"(?!/)[{'^' if is_negated else ''}{escaped}]")
        else:
            written.append(re.escape(part[kind]))
    return "".join(written)
