"""How a command ends: exit codes, and the exception that carries one with its words.

Owned here and public (docs/cli): pipelines branch on these numbers. The surprising choice: the code
of `submit --wait` follows the state the job ended in before it looks at what the process returned. A
cancelled run that caught the signal and left with 0 is not a success, and a run that was timed out
is known by 202 rather than by the 143 its TERM left behind.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 64
CONTRACT: Final = 65
AWAY: Final = 69
LATER: Final = 75
FORBIDDEN: Final = 77
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
REFUSED: Final = 200
CANCELLED: Final = 201
TIMED_OUT: Final = 202
PREEMPTED: Final = 203
LOST: Final = 204
RESUME_REFUSED: Final = 205
START_FAILED: Final = 206
NOT_STARTED: Final = 207

TERMINAL: Final = frozenset(("succeeded", "failed", "cancelled", "timed-out"))
"""The states a job does not leave."""

_BY_STATE: Final = {"succeeded": OK, "cancelled": CANCELLED, "timed-out": TIMED_OUT}
_BY_END: Final = {
    "cancelled": CANCELLED,
    "timed-out": TIMED_OUT,
    "preempted": PREEMPTED,
    "fault": LOST,
    "lost": LOST,
    "resume-refused": RESUME_REFUSED,
    "start-failed": START_FAILED,
}


class Finding(NamedTuple):
    """One thing wrong: where it stands (line and column from 1, 0 when in no file), the rule, the way out."""

    field: str
    rule: str = ""
    value: str = ""
    limit: str = ""
    way_out: str = ""
    file: str = ""
    line: int = 0
    column: int = 0

    def sentence(self) -> str:
        """`file:line:column: field: value (rule, limit): way out`, without the parts that are absent."""
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else f"{self.file}: " if self.file else ""
        notes = [part for part in (f"rule {self.rule}" * bool(self.rule), self.limit) if part]
        parts = [self.field, repr(self.value) if self.value else "", f"({', '.join(notes)})" if notes else ""]
        head = " ".join(part for part in parts if part)
        return place + ": ".join(part for part in (head, self.way_out) if part)


class CommandError(Exception):
    """A command that ends without its answer.

    `code` is the exit code, `text` one sentence for people, `way_out` what to do about it. `findings`
    are told one a line, and `facts` (such as the job id) are added to the JSON form.
    """

    def __init__(
        self,
        code: int,
        text: str,
        *,
        way_out: str = "",
        findings: Sequence[Finding] = (),
        facts: dict[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.way_out = way_out
        self.findings = tuple(findings)
        self.facts = facts or {}


def exit_code(state: str, end: str, own_code: int | None) -> int:
    """The exit code of a job that is over.

    1. the state, where it says all: succeeded 0, cancelled 201, timed out 202;
    2. how the last attempt ended, where that was not the job's doing: 203 to 206;
    3. the job's own code, 1 to 255; a negative one is a signal and becomes 128 + n;
    4. 1 when it failed and no process gave a code, or the code was 0.
    """
    if state in _BY_STATE:
        return _BY_STATE[state]
    if end in _BY_END:
        return _BY_END[end]
    if own_code is None:
        return FAILED
    code = 128 - own_code if own_code < 0 else own_code
    return code if 0 < code < 256 else FAILED
