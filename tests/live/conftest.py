"""Live tests leave nothing behind, and say on failure how to see it again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

_SHOWN_LINES = 12


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Adds to a failure: the seed, the command to run it again, and the last complaints of every process."""
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    seed = getattr(item, "callspec", None) and item.callspec.params.get("seed", "none")
    lines = [f"seed {seed}; again: python -m pytest '{item.nodeid}'"]
    for name in ("cell", "up"):
        desk = getattr(item, "funcargs", {}).get(name)
        if desk is not None:
            lines += _complaints(desk.home)
    report.sections.append(("how to see it again", "\n".join(lines)))


def _complaints(home: Path) -> list[str]:
    """The last lines of each log that are more than information."""
    found = []
    for path in sorted((home / "logs").glob("*.log")):
        said = [line for line in path.read_text(errors="replace").splitlines() if '"level": "info"' not in line]
        found += [f"{path.name}: {line[:600]}" for line in said[-_SHOWN_LINES:]]
    return found
