"""docs/policy.md anew: `python loadtests/robustness.py [--from RESULT.json | options of fairlease robust]`.

Plays the shipped suite, keeps its result beside this file, and writes the page's part and its pictures from that;
`--from` writes them from another result. Leaves with what `fairlease robust` leaves with: 1 when a limit is missed.
"""

import contextlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(ROOT), str(ROOT / "services"), str(ROOT / "schemas")]

from fairlease.cli.main import main as fairlease  # noqa: E402 - the sources are found only from here on
from fairlease.simulator.page.robustness import part, pictures  # noqa: E402 - as above
from fairlease.simulator.robustness import opened  # noqa: E402 - as above
from fairlease_schemas.robustness import Robustness  # noqa: E402 - as above

RESULT = ROOT / "loadtests/robustness.json"
PAGE = ROOT / "docs/policy.md"
BEGIN, END = "<!-- from here on written by `python loadtests/robustness.py` -->\n", "<!-- to here -->\n"


def main(words: Sequence[str]) -> int:
    """The exit code of the run; the page is written also when a limit is missed, for it says so."""
    code = 0
    if words[:1] == ["--from"]:
        raw = Path(words[1]).read_bytes()
    else:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = fairlease(["robust", *words, "-o", "json"])
        raw = out.getvalue().encode()
        if not raw:
            return code
    found = msgspec.json.decode(raw, type=Robustness)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    for name, text in written(found, PAGE.read_text(encoding="utf-8")).items():
        (PAGE.parent / name).write_text(text, encoding="utf-8")
    return code


def written(found: Robustness, page: str) -> dict[str, str]:
    """The page with its part, and its pictures, by the names of their files."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, PAGE.name
    assert end, f"{PAGE.name} has lost the lines between which its part is written"
    suite = opened(None).suite
    told = part(found, suite.case)
    limit = suite.limits["gain.held"].most
    return {PAGE.name: f"{before}{begin}\n{told}\n{end}{after}", **pictures(found, limit)}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
