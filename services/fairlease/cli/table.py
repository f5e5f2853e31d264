"""Tables and lists of facts for a terminal: aligned, cut to the width, coloured where that helps.

Small and our own: a table library costs 100 ms at every start. Widths are counted in terminal
cells, so that Chinese text lines up too. Whatever a cell holds was typed by somebody else; control
characters in it are shown as a replacement character and never reach the terminal.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_GAP: Final = "  "
_LEAST_WIDTH: Final = 8
_WIDE: Final = "\u2e80-\u9fff\uac00-\ud7ff\uff00-\uffef"
_STOPS: Final = "\uff0c\uff1b\uff1a\u3002\uff09\u3001"
_PIECES: Final = re.compile(rf"\s+|[{_WIDE}][{_STOPS}]*|[^\s{_WIDE}]+[{_STOPS}]*")
"""What a line may end behind: a word, a space, a wide letter; each with the stops that follow it."""
_COLORS: Final = {
    "running": "32",
    "succeeded": "32",
    "granted": "36",
    "waiting": "33",
    "backoff": "33",
    "stopping": "33",
    "failed": "31",
    "timed-out": "31",
    "cancelled": "35",
    "simulated": "35",
    "ok": "32",
    "wrong": "31",
}
"""Words that are coloured wherever they fill a cell."""


class Style(NamedTuple):
    """What the terminal can show: its width in cells, colour, and whether wide columns are wanted."""

    width: int
    has_color: bool
    is_wide: bool


class Column(NamedTuple):
    """One column. A number stands to the right; only a flexible column is cut, so that ids stay whole."""

    title: str
    is_number: bool = False
    is_wide: bool = False
    is_flexible: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], style: Style, *, has_titles: bool = True) -> str:
    """The table as text, with a line end after each line; no rows give the titles alone.

    Columns marked wide are left out unless the style is wide. What does not fit the width is cut in
    the flexible columns, from the last to the first, none below eight cells or its title.
    """
    kept = [index for index, column in enumerate(columns) if style.is_wide or not column.is_wide]
    shown = [columns[index] for index in kept]
    cells = [[printable(row[index]) for index in kept] for row in rows]
    titles = [column.title for column in shown]
    lines = [titles, *cells] if has_titles else cells
    widths = [max((cell_width(line[index]) for line in lines), default=0) for index in range(len(shown))]
    _fit(widths, shown, style.width)
    return "".join(
        _line(line, widths, shown, style, is_title=has_titles and number == 0) for number, line in enumerate(lines)
    )


def facts(pairs: Iterable[tuple[str, str]], limit: int = 0) -> str:
    """Names and values, a pair a line, the values aligned; pairs without a value are left out.

    With a `limit` in cells long values go on in further lines, below where they began.
    """
    kept = [(name, printable(value)) for name, value in pairs if value]
    width = max((cell_width(name) for name, _ in kept), default=0)
    room = limit - width - len(_GAP)
    lines = []
    for name, value in kept:
        first, *more = wrapped(value, room) if room >= _LEAST_WIDTH else [value]
        lines.append(f"{_padded(name, width)}{_GAP}{first}\n")
        lines += [f"{' ' * width}{_GAP}{line}\n" for line in more]
    return "".join(lines)


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most so many cells, broken at spaces and between wide letters; a longer word stays whole."""
    lines = [""]
    for piece in _PIECES.findall(text):
        if lines[-1] and cell_width(lines[-1] + piece.rstrip()) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += piece if lines[-1] or not piece.isspace() else ""
    return lines


def printable(text: str) -> str:
    """The text without anything that could command a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or unicodedata.category(letter) == "Zs" else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )


def cell_width(text: str) -> int:
    """Cells a terminal needs: wide letters two, marks that combine none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def _fit(widths: list[int], columns: Sequence[Column], limit: int) -> None:
    """Narrow the flexible widths in place until the line fits or nothing can be narrowed."""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - limit
    for index in reversed(range(len(widths))):
        if excess <= 0:
            return
        if not columns[index].is_flexible:
            continue
        least = max(_LEAST_WIDTH, cell_width(columns[index].title))
        given = min(max(widths[index] - least, 0), excess)
        widths[index] -= given
        excess -= given


def _line(
    cells: Sequence[str], widths: Sequence[int], columns: Sequence[Column], style: Style, *, is_title: bool
) -> str:
    parts = []
    for cell, width, column in zip(cells, widths, columns, strict=True):
        text = _padded(_cut(cell, width), width, is_right=column.is_number)
        code = "1" if is_title else _COLORS.get(cell, "")
        parts.append(f"\x1b[{code}m{text}\x1b[0m" if style.has_color and code else text)
    return _GAP.join(parts).rstrip() + "\n"


def _padded(text: str, width: int, *, is_right: bool = False) -> str:
    space = " " * (width - cell_width(text))
    return space + text if is_right else text + space


def _cut(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text
    while text and cell_width(text) > width - 1:
        text = text[:-1]
    return text + "\N{HORIZONTAL ELLIPSIS}"
