"""Asks whether the packages that requirements/run.txt locks have known holes, and says plainly when nobody answered.

    python requirements/audit.py        in the environment of requirements/audit.txt: `make audit-deps`

pip-audit ends with 0 also when its source of advisories knew nothing of a package, or could not be asked about it;
an audit that asked nobody is no audit. So its answer is read as data here. Exit codes: 0 all were asked about and none
has a known hole; 1 some have; 2 some could not be asked about.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

LOCK = Path(__file__).resolve().parent / "run.txt"
OK, HOLES, UNASKED = 0, 1, 2
_SHOWN = 5


class Verdict(NamedTuple):
    """The exit code, and what is said of it, a line each."""

    code: int
    lines: list[str]


def verdict(answer: dict[str, Any] | None, errors: str) -> Verdict:
    """What pip-audit's answer means; None is no answer at all, and `errors` is what it said instead."""
    if answer is None:
        last = next((line for line in reversed(errors.splitlines()) if line.strip()), "it said nothing")
        return Verdict(UNASKED, [f"could not ask: {last.strip()[:300]}", _WAY_OUT])
    packages = answer["dependencies"]
    unasked = [one["name"] for one in packages if "skip_reason" in one]
    holes = [
        f"{one['name']} {one['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version yet'}"
        for one in packages
        for hole in one.get("vulns", ())
    ]
    lines = [*holes]
    if unasked:
        more = f" and {len(unasked) - _SHOWN} more" if len(unasked) > _SHOWN else ""
        lines += [f"could not ask about {', '.join(unasked[:_SHOWN])}{more}: {_reason(packages)}", _WAY_OUT]
    asked = len(packages) - len(unasked)
    lines.append(f"{asked} of {len(packages)} locked packages were asked about, {len(holes)} known holes")
    return Verdict(HOLES if holes else UNASKED if unasked or not packages else OK, lines)


_WAY_OUT = "run it where the package index and its advisories can be reached; until then nothing is known either way"


def _reason(packages: list[dict[str, Any]]) -> str:
    return next(str(one["skip_reason"])[:120] for one in packages if "skip_reason" in one)


def main() -> int:
    """Ask, say, and the exit code."""
    words = ["--requirement", str(LOCK), "--require-hashes", "--disable-pip", "--progress-spinner=off", "--format=json"]
    done = subprocess.run(  # noqa: S603 - the argument vector is ours, no shell reads it
        [sys.executable, "-m", "pip_audit", *words], capture_output=True, text=True, check=False
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    code, lines = verdict(answer, done.stderr)
    print("\n".join(f"audit-deps: {line}" for line in lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
