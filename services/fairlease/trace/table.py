"""A trace file as rows of cells, read strictly: whatever is wrong is told with its line and column.

Real traces are edited, cut and converted by hand, and a slip of units or a missing column makes a wrong
answer that looks like a right one. So nothing is guessed and nothing dropped: every cell that cannot be
what it should be is a problem, all problems of a file are gathered, and one problem is enough to refuse it.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, NamedTuple

from fairlease_schemas.units import MAX_LENGTH_MS, SECOND_MS

SHOWN_PROBLEMS: Final = 20
MAX_GPUS: Final = 1_000_000
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_SHOWN_CHARS: Final = 40


class Problem(NamedTuple):
    """One thing wrong: the line (from 1), the column (empty: the whole line), the value, and what is wrong with it."""

    line: int
    column: str
    value: str
    text: str

    def sentence(self) -> str:
        """`line 7, column duration: 'x' is not a number: ...` for people."""
        column = f", column {self.column}" if self.column else ""
        value = f"{self.value[:_SHOWN_CHARS]!r} " if self.value else ""
        return f"line {self.line}{column}: {value}{self.text}"


class TraceWrong(Exception):
    """The file is not the trace it claims to be, or not one that these hosts could play."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [problem.sentence() for problem in self.problems[:SHOWN_PROBLEMS]]
        if len(self.problems) > SHOWN_PROBLEMS:
            lines.append(f"and {len(self.problems) - SHOWN_PROBLEMS} more")
        super().__init__("\n".join(lines))


class Row:
    """One line of the file. A cell that is wrong is noted, and reads as 0 from then on."""

    def __init__(self, line: int, cells: Mapping[str, str], problems: list[Problem]) -> None:
        self.line = line
        self._cells = cells
        self._problems = problems

    def complain(self, column: str, text: str) -> None:
        """Note that the cell is wrong."""
        self._problems.append(Problem(self.line, column, self._cells.get(column, ""), text))

    def text(self, column: str) -> str:
        """The cell, which must not be empty."""
        value = self._cells[column].strip()
        if not value:
            self.complain(column, "is empty")
        return value

    def whole(self, column: str, most: int) -> int:
        """A whole number from 0 to `most`."""
        value = self._cells[column].strip()
        if _WHOLE.fullmatch(value) is None:
            self.complain(column, "is not a whole number")
            return 0
        number = int(value)
        if number < 0:
            self.complain(column, "is negative")
        elif number > most:
            self.complain(column, f"is above {most}")
        return number if 0 <= number <= most else 0

    def number(self, column: str) -> Decimal:
        """A number that is not negative, exact as it was written."""
        value = self._cells[column].strip()
        if _NUMBER.fullmatch(value) is None:
            self.complain(column, "is not a number")
            return Decimal(0)
        number = Decimal(value)
        if number < 0:
            self.complain(column, "is negative")
            return Decimal(0)
        return number

    def seconds_ms(self, column: str) -> int:
        """Milliseconds of a length in seconds; half a millisecond is rounded up."""
        length_ms = int(self.number(column) * SECOND_MS + Decimal("0.5"))
        if length_ms > MAX_LENGTH_MS:
            self.complain(column, "is more than a year of seconds: is it in milliseconds?")
            return 0
        return length_ms

    def instant_ms(self, column: str) -> int:
        """A wall clock `2017-10-17 00:01:55`, as if there were neither zones nor summer time."""
        value = self._cells[column].strip()
        try:
            read = datetime.fromisoformat(value)
        except ValueError:
            self.complain(column, "is not a date and time such as 2017-10-17 00:01:55")
            return 0
        if read.tzinfo is not None or not 1990 <= read.year < 2100:
            self.complain(column, "is not a local date and time between 1990 and 2100")
            return 0
        return int(read.replace(tzinfo=UTC).timestamp() * SECOND_MS)


def header_of(lines: Iterable[str]) -> list[str]:
    """The column names of the first line that is neither empty nor a comment; none for an empty file."""
    for line in lines:
        if line.strip() and not line.startswith("#"):
            return [name.strip() for name in next(csv.reader([line]))]
    return []


def rows_of(lines: Iterable[str], problems: list[Problem]) -> Iterator[Row]:
    """The rows below the header, with the line each stands on. Comments and empty lines are none."""
    numbers: list[int] = []
    reader = csv.reader(_counted(lines, numbers))
    columns: list[str] | None = None
    while True:
        numbers.clear()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            problems.append(Problem(numbers[0] if numbers else 0, "", "", f"is not a row of a table: {error}"))
            continue
        if cells is None:
            return
        if columns is None:
            columns = [name.strip() for name in cells]
        elif len(cells) != len(columns):
            problems.append(
                Problem(numbers[0], "", ",".join(cells), f"has {len(cells)} cells, the header has {len(columns)}")
            )
        else:
            yield Row(numbers[0], dict(zip(columns, cells, strict=True)), problems)


def _counted(lines: Iterable[str], numbers: list[int]) -> Iterator[str]:
    """The lines that are rows; the number of each goes to `numbers`."""
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            numbers.append(number)
            yield line
