"""The entry of `fairlease`: find the command, run its module, turn what it raises into an exit code.

Nothing is imported here that a command might not need. What the machine refuses (rights, room, a name too long) is
told in a line; any other exception that is not a CommandError is a mistake of ours and is shown whole.
"""

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Final

from fairlease.cli.exits import BROKEN_PIPE, FAILED, INTERRUPTED, CommandError
from fairlease.cli.output import refused, report, wants_data
from fairlease.cli.parser import parse
from fairlease.cli.verbs import build

_GARBAGE_THRESHOLD: Final = 50_000
"""Objects made before the collector looks: what is imported is no garbage, and not looking saves a tenth of a start."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of these words (of the process, when absent); the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if argv is None:
        gc.set_threshold(_GARBAGE_THRESHOLD)
        _stand_in()
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal that cannot show a letter shows its code; an answer is not lost over it.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go()
        return BROKEN_PIPE
    except OSError as error:
        if not error.strerror:  # the machine said nothing: a mistake of ours
            raise
        _let_go_if_full()
        told = CommandError(FAILED, refused(error), way_out="mend its rights, make room there, or name another place")
        report(told, is_data=wants_data(words))
        return FAILED
    except KeyboardInterrupt:
        report(CommandError(INTERRUPTED, "interrupted"), is_data=wants_data(words))
        return INTERRUPTED
    return code


def _run(words: Sequence[str]) -> int:
    try:
        args = parse(words, build())
        module = importlib.import_module(args.module)
        return int(module.run(args))
    except CommandError as error:
        sys.stdout.flush()
        report(error, is_data=wants_data(words))
        return error.code
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0


def _stand_in() -> None:
    """Standard files that were closed by whoever started us lead nowhere; a socket of ours would take their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _let_go_if_full() -> None:
    """It may be standard output itself that takes no more."""
    try:
        sys.stdout.flush()
    except OSError:
        _let_go()


def _let_go() -> None:
    """Nobody reads any more: let the last flush of the interpreter go nowhere instead of complaining."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
