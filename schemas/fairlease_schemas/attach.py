"""A terminal by way of the bus (1.17): what a client and the agent of the job's host say to each other.

`attach.<host>.<account>.begin` begins a session. What is typed goes to the session's own subject,
`attach.<host>.<account>.<session>`, a question each time, so that either side soon notices that the other is gone; what
the terminal shows comes on `shown.<host>.<account>.<output>`. Who types is told by the subject, where the bus lets
nobody write but that account, and never by a message.
Nothing of it is kept anywhere but in the terminal's own memory of its last screens.
"""

from typing import Final

import msgspec

from fairlease_schemas.ids import AttemptId

MOST_TYPED_BYTES: Final = 4_096
"""In one message."""
MOST_SHOWN_BYTES: Final = 32 * 1024
"""In one message."""
WINDOW_BYTES: Final = 256 * 1024
"""How much may be on its way to a client that has not said that it saw it."""
HEARTBEAT_S: Final = 2.0
"""A client says at least so often that it is there."""
SILENCE_S: Final = 15.0
"""A client that says nothing for so long is gone."""


class AttachQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What begins a session. `output` is a name of the client's choice; `rows` and `cols` its window."""

    attempt: AttemptId
    output: str
    rows: int = 24
    cols: int = 80
    is_read_only: bool = False


class AttachAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send what is typed; or why not: `is_soon` means ask again, `is_over` that the attempt has ended."""

    input: str = ""
    problem: str = ""
    is_soon: bool = False
    is_over: bool = False


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """From the client: keys, its window where it changed, how many bytes it has shown, whether it leaves.

    With none of them it says that it is there.
    """

    data: bytes = b""
    rows: int = 0
    cols: int = 0
    seen: int = 0
    is_leaving: bool = False


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to it. `is_full`: the job reads too slowly, so the keys were not taken; send them again later.

    `sent` bytes of the terminal are on their way or there: what is not there at the next answer was lost.
    """

    is_full: bool = False
    problem: str = ""
    sent: int = 0


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """From the terminal: bytes, the first of them number `at` of this session; or that it is over."""

    at: int
    data: bytes = b""
    is_over: bool = False
