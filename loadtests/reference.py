"""The tables of the reference workload in docs/policy.md and README.md, from comparisons that were played.

`python loadtests/reference.py` plays both, an hour or two of processor time, and leaves with 1 when a limit that must
hold is missed; with `--from` nothing is played, and the tables are of what stands beside this file: `fairlease compare
--workload lab-1024 -o json` of seeds 1-20 by our policy, and of seeds 1-3 by four.
"""

import sys
import tomllib
from collections.abc import Sequence
from typing import Final

import msgspec
from parts import ROOT, asked, replaced

from fairlease.simulator.comparison import Limit, shown, span
from fairlease.simulator.page.words import FIGURES
from fairlease.simulator.scenario import must
from fairlease_schemas.comparison import Comparison, Range

COMMON: Final = ("compare", "--workload", "lab-1024")
OURS, OTHERS = ROOT / "loadtests/reference.json", ROOT / "loadtests/side-by-side.json"
PLAYS: Final = {
    OURS: (*COMMON, "--seeds", "1-20", "--policies", "budget-window", "--must", "lab-1024"),
    OTHERS: (*COMMON, "--seeds", "1-3", "--policies", "budget-window,static-priority,fair-tree,kai-time"),
}
BEGIN: Final = "<!-- {} by `python loadtests/reference.py` -->\n"
PAGES: Final = {ROOT / "docs/policy.md": ("reference", "side-by-side"), ROOT / "README.md": ("side-by-side",)}
"""Which of the two tables stand where."""


def main(words: Sequence[str]) -> int:
    """The worst exit code of what was played; the pages are written also when a limit is missed, for they say so."""
    code = 0
    if words[:1] != ["--from"]:
        for path, wanted in PLAYS.items():
            played, raw = asked(wanted)
            code = max(code, played)
            if not raw:
                return code
            path.write_bytes(msgspec.json.format(raw, indent=1) + b"\n")
    told = tables()
    for page, names in PAGES.items():
        page.write_text(written(page.read_text(encoding="utf-8"), names, told), encoding="utf-8")
    return code


def tables() -> dict[str, str]:
    """Both tables by name, of the comparisons that stand beside this file."""
    ours, others = (msgspec.json.decode(path.read_bytes(), type=Comparison) for path in (OURS, OTHERS))
    return {"reference": held(ours), "side-by-side": side_by_side(others)}


def written(page: str, names: Sequence[str], told: dict[str, str]) -> str:
    """The page with these of the tables."""
    for name in names:
        page = replaced(page, BEGIN.format(name), told[name])
    return page


def held(found: Comparison) -> str:
    """Every figure that must hold, beside its limit, over the seeds."""
    limits = msgspec.convert(tomllib.loads(must()), dict[str, Limit])
    (figures,) = found.policies.values()
    rows = [
        (
            FIGURES[name]["en"],
            _limit(name, limit),
            *_range(name, figures[name]),
            "" if _holds(limit, figures[name]) else "missed",
        )
        for name, limit in limits.items()
    ]
    head = f"Seeds {found.seeds[0]} to {found.seeds[-1]}, {found.days:g} days measured; result `{found.digest[:16]}`."
    return f"{head}\n\n{_table(('figure', 'must', 'median', 'least to most', ''), rows)}"


def side_by_side(found: Comparison) -> str:
    """The same figures by policy, medians with the least and the most."""
    names = [name for name in tomllib.loads(must()) if name != "wait.debug.p99_s"]
    rows = [
        (FIGURES[name]["en"], *(_told(name, figures.get(name)) for figures in found.policies.values()))
        for name in names
    ]
    head = f"Seeds {found.seeds[0]} to {found.seeds[-1]}, {found.days:g} days measured; result `{found.digest[:16]}`."
    return f"{head}\n\n{_table(('figure', *(f'`{policy}`' for policy in found.policies)), rows)}"


def _holds(limit: Limit, found: Range) -> bool:
    return limit.holds(found.median)


def _limit(name: str, limit: Limit) -> str:
    return f"≥ {shown(name, limit.least)}" if limit.least is not None else f"≤ {shown(name, limit.most)}"


def _range(name: str, found: Range) -> tuple[str, str]:
    if found.min is None or found.max is None:
        return shown(name, found.median), ""
    return shown(name, found.median), span(shown(name, found.min), shown(name, found.max))


def _told(name: str, found: Range | None) -> str:
    if found is None:
        return "-"
    median, around = _range(name, found)
    return median if found.min == found.max else f"{median} ({around})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
