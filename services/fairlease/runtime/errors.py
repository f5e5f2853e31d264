"""What can go wrong in the shell, each with a text that says field, rule, value and way out.

The exit codes are public: a supervisor restarts a service that left with 3, 4 or 6 and leaves one
alone that left with 5 or 7, because starting it again cannot help before a person has acted.
"""

from typing import Final

EXIT_BUS_CLOSED: Final = 3
"""The connection was closed for good: start again."""
EXIT_STARVED: Final = 4
"""The event loop did not run for too long: start again."""
EXIT_LOG_DAMAGED: Final = 5
"""The log holds what cannot be read, or lost something: restore it, then open an epoch."""
EXIT_INVARIANT: Final = 6
"""Our own code is wrong here; the log was kept as it was."""
EXIT_CONFIG: Final = 7
"""A stream, a variable or a file is not as this program needs it."""

STAYS_DOWN: Final = frozenset({EXIT_LOG_DAMAGED, EXIT_CONFIG})
"""What a restart cannot mend: a supervisor leaves the process down, and a person must look."""


class ShellError(Exception):
    """What the shell raises; its text is one line for people."""

    exit_code: int = EXIT_INVARIANT


class LogMoved(ShellError):
    """Somebody wrote in the scope since the fold: fold the news and decide again."""


class OutcomeUnknown(ShellError):
    """The record may or may not be in the log: read the tail for its id before deciding again."""


class BusAway(ShellError):
    """The bus does not answer, and nothing was stored."""

    exit_code = EXIT_BUS_CLOSED


class LogDamaged(ShellError):
    """The log is not what was written: a gap, a shorter tail, another record at a known position."""

    exit_code = EXIT_LOG_DAMAGED


class ConfigWrong(ShellError):
    """A stream, variable or file differs from what the program was written for."""

    exit_code = EXIT_CONFIG


class InvariantBroken(ShellError):
    """Our code is wrong; the text says which promise did not hold."""

    exit_code = EXIT_INVARIANT


def config_wrong(where: str, field: str, expected: object, found: object, way_out: str) -> ConfigWrong:
    """The error for one field that is not as it must be."""
    return ConfigWrong(f"{where}: {field} must be {expected!r} and is {found!r}; {way_out}")
