"""Pages as sessions: what a reader types after `$ `, and what the page says that it prints.

A `console` block is typed, in the order of the page. A comment right above one changes that:

* `<!-- first terminal -->`: its last command goes on in a terminal of its own; a later block under the same
  mark shows what that prints further on, after a Ctrl-C where it begins with `^C`;
* `<!-- not run: REASON -->`: nobody types it here. The tests count these.

The page is compared with the output word by word; how wide a column is does not matter. `…` stands for any text within
a line and `...` alone for any lines. Lengths after "in", "for" or "within" and before "ago", and positions of the log,
are compared by their form. An id of a job on the page stands for one job, whatever its real id is, from where it
is first printed to the end of the page.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

SESSIONS: Final = ("README.md", "docs/tour.md", "docs/operating.md")
"""The pages that are typed, all of them."""
FENCE: Final = re.compile(
    r"^(?: *<!-- (?P<mark>[^>]*?) -->\n)?(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
NOT_RUN: Final = "not run: "
FIRST_TERMINAL: Final = "first terminal"
INTERRUPT: Final = "^C"

JOB: Final = re.compile(r"job-[a-z2-7]{20}")
_LENGTH: Final = r"\d+(?:\.\d+)?(?:ms|s|m|h|d)(?:\d+(?:ms|s|m|h))*"
_PART: Final = re.compile(
    rf"(?P<job>{JOB.pattern})|(?P<before>(?<=in )|(?<=for )|(?<=within )){_LENGTH}(?![\w.])"
    rf"|(?P<ago>(?<![\w.]){_LENGTH} ago|just now)|(?P<position>(?<=position 1-)\d+)|(?P<any>…)"
)


class Fence(NamedTuple):
    """A fenced block: its language, its text, the mark above it and the line it begins on."""

    language: str
    body: str
    mark: str
    line: int

    @property
    def is_typed(self) -> bool:
        return self.language == "console" and not self.mark.startswith(NOT_RUN)


class Typed(NamedTuple):
    """One command, what the page prints below it, and its line on the page."""

    command: str
    printed: str
    line: int


def fences(page: Path) -> list[Fence]:
    """Every fenced block of the page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Fence(
            found["language"],
            textwrap.dedent(found["body"]) if found["indent"] else found["body"],
            found["mark"] or "",
            1 + text.count("\n", 0, found.start("language")),
        )
        for found in FENCE.finditer(text)
    ]


def commands(fence: Fence) -> Iterator[Typed]:
    """The commands of a session; one goes on below a line that ends in a backslash. ValueError for text before."""
    body = fence.body.replace("\\\n", "\0").splitlines()
    begins = [at for at, text in enumerate(body) if text.startswith("$ ") or text == INTERRUPT]
    if not begins or begins[0] != 0:
        raise ValueError(f"line {fence.line + 1}: a session begins with `$ `: {body[:1]}")
    for at, end in zip(begins, [*begins[1:], len(body)], strict=True):
        line = fence.line + 1 + at + sum(text.count("\0") for text in body[:at])
        yield Typed(body[at].removeprefix("$ ").replace("\0", "\\\n"), "\n".join(body[at + 1 : end]), line)


class Names:
    """Which real job each job of the page is."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def said(self, command: str) -> str:
        """The command with the real ids. KeyError names an id that nothing printed yet."""
        return JOB.sub(lambda found: self._real[found[0]], command)

    def agrees(self, printed: str, output: str) -> bool:
        """Whether the output is what the page says; then the ids that are new in it are known from now on."""
        new: list[str] = []
        expected = "".join(self._pattern(line, new) for line in printed.rstrip().splitlines())
        found = re.fullmatch(expected, _even(output))
        if found is None:
            return False
        self._real |= {page: found[f"job{number}"] for number, page in enumerate(new)}
        return True

    def _pattern(self, line: str, new: list[str]) -> str:
        """A line of the page as a regular expression with its end; ids that it names first are added to `new`."""
        even = " ".join(line.split())
        if even == "...":
            return r"(?:.*\n)*?"
        written, at = "", 0
        for part in _PART.finditer(even):
            written += re.escape(even[at : part.start()]) + self._part(part, new)
            at = part.end()
        return written + re.escape(even[at:]) + r"\n"

    def _part(self, part: re.Match[str], new: list[str]) -> str:
        if part["job"] is None:
            kinds = {"before": _LENGTH, "ago": rf"(?:{_LENGTH} ago|just now)", "position": r"\d+", "any": r".*?"}
            return kinds[str(part.lastgroup)]
        page = part["job"]
        if page in self._real:
            return re.escape(self._real[page])
        if page in new:
            return f"(?P=job{new.index(page)})"
        new.append(page)
        return f"(?P<job{len(new) - 1}>{JOB.pattern})"


def _even(output: str) -> str:
    return "".join(" ".join(line.split()) + "\n" for line in output.rstrip().splitlines())
