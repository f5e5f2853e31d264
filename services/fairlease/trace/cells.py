"""A file of rows and columns, read strictly: whatever is wrong is told with its row, column and value, and the way out.

Real traces are edited, cut and converted by hand, and a slip of units or a missing column makes a wrong answer that
looks like a right one. So nothing is guessed: the problems of a file are gathered, and one is enough to refuse it.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, NamedTuple

from fairlease_schemas.units import MAX_LENGTH_MS, SECOND_MS

SHOWN_PROBLEMS: Final = 20
MAX_PROBLEMS: Final = 1_000
"""After so many a file is read no further."""
MAX_GPUS: Final = 1_000_000
MAX_ROWS: Final = 1_000_000
_DECIMAL: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_CLOCK: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")
_ID: Final = re.compile(r"[A-Za-z0-9._:@/+=-]{1,100}")
_SHOWN_CHARS: Final = 40
_MOST_CHARS: Final = 128


class Problem(NamedTuple):
    """One thing wrong: the row (line of the file, from 1), the column (empty: the whole row), value and text."""

    row: int
    column: str
    value: str
    text: str

    def sentence(self) -> str:
        """`row 7, column duration: 'x' is not a number: ...` for people."""
        column = f", column {self.column}" if self.column else ""
        value = f"{self.value[:_SHOWN_CHARS]!r} " if self.value else ""
        return f"row {self.row}{column}: {value}{self.text}"


class TraceWrong(ValueError):
    """The file is not the trace it claims to be, or not one for this cluster; says the file and each problem."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__(listed(file, [problem.sentence() for problem in self.problems]))


def listed(file: str, sentences: Sequence[str]) -> str:
    """The first problems of a file, a line each, and how many more there are."""
    lines = [*sentences[:SHOWN_PROBLEMS]]
    if len(sentences) > SHOWN_PROBLEMS:
        lines.append(f"and {len(sentences) - SHOWN_PROBLEMS} more")
    return "\n".join(f"{file}: {line}" for line in lines)


class Cells:
    """One row. A cell that is wrong is noted, and reads as nothing from then on."""

    def __init__(self, row: int, cells: dict[str, str], problems: list[Problem]) -> None:
        self.row = row
        self._cells = cells
        self._problems = problems
        self._before = len(problems)

    @property
    def is_sound(self) -> bool:
        """Whether nothing of this row has been found wrong so far."""
        return len(self._problems) == self._before

    def complain(self, column: str, text: str) -> None:
        """Note that the cell is wrong."""
        self._problems.append(Problem(self.row, column, self._cells[column], text))

    def text(self, column: str) -> str:
        """The cell, which must not be empty."""
        value = self._cells[column]
        if not value:
            self.complain(column, "is empty: write a name there")
        elif len(value) > _MOST_CHARS or not value.isprintable():
            self.complain(column, f"is no name: write at most {_MOST_CHARS} printable characters")
        return value

    def id(self, column: str) -> str:
        """The cell as part of a request's id."""
        value = self._cells[column]
        if _ID.fullmatch(value) is None:
            self.complain(column, "is no id: write 1 to 100 letters, digits or . _ : @ / + = -")
        return value

    def whole(self, column: str, most: int, way_out: str) -> int:
        """A whole number from 0 to `most`; above it, `way_out` says what may have been meant."""
        value = self._cells[column]
        if _WHOLE.fullmatch(value) is None:
            self.complain(column, "is not a whole number: write digits alone")
            return 0
        number = int(value)
        if number < 0:
            self.complain(column, "is negative: correct the row or leave it out")
        elif number > most:
            self.complain(column, f"is above {most}: {way_out}")
        return number if 0 <= number <= most else 0

    def gpus(self, column: str) -> int:
        """A number of GPUs."""
        return self.whole(column, MAX_GPUS, "correct the row or leave it out")

    def decimal(self, column: str) -> Decimal:
        """A number that is not negative, exact as it was written."""
        value = self._cells[column]
        if _DECIMAL.fullmatch(value) is None:
            self.complain(column, "is not a number: write digits, with a point at most")
            return Decimal(0)
        number = Decimal(value)
        if number < 0:
            self.complain(column, "is negative: correct the row or leave it out")
            return Decimal(0)
        return number

    def seconds_ms(self, column: str) -> int:
        """Milliseconds of a length in seconds; half a millisecond is rounded up."""
        length_ms = int(self.decimal(column) * SECOND_MS + Decimal("0.5"))
        if length_ms > MAX_LENGTH_MS:
            self.complain(column, "is more than a year of seconds: is it in milliseconds? divide the column by 1000")
            return 0
        return length_ms

    def instant_ms(self, column: str) -> int:
        """A wall clock `2017-10-17 00:01:55`, as if there were neither zones nor summer time."""
        value = self._cells[column]
        try:
            read = datetime.fromisoformat(value if _CLOCK.fullmatch(value) else "")
        except ValueError:
            self.complain(column, "is not a date and time: write it as in 2017-10-17 00:01:55")
            return 0
        if not 1990 <= read.year < 2100:
            self.complain(column, "is not between 1990 and 2100: correct the row")
            return 0
        return int(read.replace(tzinfo=UTC).timestamp()) * SECOND_MS


Line = tuple[int, str]
"""A line that is neither empty nor a comment, with its number in the file, from 1."""


def told(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines that say something; `#` begins a comment."""
    return ((row, line) for row, line in lines if line.strip() and not line.startswith("#"))


def split(line: str) -> list[str]:
    """The cells of a line; a line that is no row of a table is one cell, which no trace has."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], strict=True))]
    except csv.Error:
        return [line.strip()]


def rows_of(lines: Iterable[Line], columns: list[str], problems: list[Problem]) -> Iterator[Cells]:
    """The rows below the header, until the end or too many problems.

    A row is one line, so that a quote left open cannot swallow the rows below it.
    """
    for number, (row, line) in enumerate(lines, start=1):
        if len(problems) >= MAX_PROBLEMS:
            return
        if number > MAX_ROWS:
            problems.append(Problem(row, "", "", f"is row {number} of a table: cut it to {MAX_ROWS}"))
            return
        cells = split(line)
        if len(cells) != len(columns):
            text = f"has {len(cells)} cells, the header has {len(columns)}: correct the row"
            problems.append(Problem(row, "", line.strip(), text))
        else:
            yield Cells(row, dict(zip(columns, cells, strict=True)), problems)
