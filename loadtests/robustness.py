"""docs/policy.md anew: `python loadtests/robustness.py [--from RESULT.json | options of fairlease robust]`.

Plays the shipped suite, keeps its result beside this file, and writes the page's part and its pictures from that;
`--from` writes them from another result. Leaves with what `fairlease robust` leaves with: 1 when a limit is missed.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from parts import END, ROOT, asked, replaced

from fairlease.simulator.page.robustness import part, pictures
from fairlease.simulator.robustness import opened
from fairlease_schemas.robustness import Robustness

RESULT = ROOT / "loadtests/robustness.json"
PAGE = ROOT / "docs/policy.md"
BEGIN = "<!-- from here on written by `python loadtests/robustness.py` -->\n"
__all__ = ["BEGIN", "END", "PAGE", "RESULT", "main", "written"]


def main(words: Sequence[str]) -> int:
    """The exit code of the run; the page is written also when a limit is missed, for it says so."""
    code = 0
    if words[:1] == ["--from"]:
        raw = Path(words[1]).read_bytes()
    else:
        code, raw = asked(["robust", *words])
        if not raw:
            return code
    found = msgspec.json.decode(raw, type=Robustness)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    for name, text in written(found, PAGE.read_text(encoding="utf-8")).items():
        (PAGE.parent / name).write_text(text, encoding="utf-8")
    return code


def written(found: Robustness, page: str) -> dict[str, str]:
    """The page with its part, and its pictures, by the names of their files."""
    suite = opened(None).suite
    limit = suite.limits["gain.held"].most
    return {PAGE.name: replaced(page, BEGIN, part(found, suite.case)), **pictures(found, limit)}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
