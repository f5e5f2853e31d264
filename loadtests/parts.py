"""What programs write into pages: the JSON that a command prints, told between two lines of a page."""

import contextlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(ROOT), str(ROOT / "services"), str(ROOT / "schemas")]

from fairlease.cli.main import main as fairlease  # noqa: E402 - the sources are found only from here on

END = "<!-- to here -->\n"


def asked(words: Sequence[str]) -> tuple[int, bytes]:
    """The exit code of the command, and its JSON; empty where it knows nothing."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = fairlease([*words, "-o", "json"])
    return code, out.getvalue().encode()


def replaced(page: str, begin: str, text: str) -> str:
    """The page with this text between its line `begin` and the next END; ValueError for a page that lacks one."""
    before, found, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    if not (found and end):
        raise ValueError(
            f"the page has lost the lines between which a part is written: {begin.strip()} and {END.strip()}"
        )
    return f"{before}{begin}\n{text}\n{END}{after}"
