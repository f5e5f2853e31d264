"""What a newcomer types: the verbs of the Makefile, and the pages they are told to read."""

import re
import tomllib
from pathlib import Path

from tests.house.tree import ROOT, report, write

VERBS = (
    "setup",
    "fmt",
    "check",
    "test",
    "test-peers",
    "test-long",
    "demo",
    "up",
    "load",
    "docs",
    "replay",
    "audit-deps",
    "sbom",
)
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Contract", "Policy")


def unlisted_verbs(root: Path) -> list[str]:
    """Verbs that are missing, or that `make` alone would not print for want of a `##` description."""
    text = (root / "Makefile").read_text(encoding="utf-8")
    listed = set(re.findall(r"^([a-z-]+):.*## \S", text, flags=re.MULTILINE))
    phony = set(re.findall(r"^\.PHONY: ([a-z-]+)$", text, flags=re.MULTILINE))
    findings = [f"Makefile: no verb '{verb}' with a description" for verb in VERBS if verb not in listed]
    return findings + [f"Makefile: '{verb}' has a description and is not .PHONY" for verb in sorted(listed - phony)]


def stale_changelog(root: Path) -> list[str]:
    """The version of the project has an entry, and the entry only the known sections."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    findings = [] if f"## [{version}]" in text else [f"CHANGELOG.md: no entry for {version}"]
    sections = re.findall(r"^### (.+)$", text, flags=re.MULTILINE)
    return findings + [f"CHANGELOG.md: unknown section '{name}'" for name in sections if name not in SECTIONS]


def test_make_alone_prints_every_verb() -> None:
    report(unlisted_verbs(ROOT))


def test_the_changelog_knows_this_version() -> None:
    report(stale_changelog(ROOT))


def test_a_verb_without_a_description_is_found(tmp_path: Path) -> None:
    rest = "".join(f".PHONY: {verb}\n{verb}: ## does it\n" for verb in VERBS[1:])
    write(tmp_path, "Makefile", ".PHONY: setup\nsetup:\n" + rest + "stray: ## not phony\n")
    assert len(unlisted_verbs(tmp_path)) == 2


def test_a_changelog_that_stands_still_is_found(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", '[project]\nversion = "9.9.9"\n')
    write(tmp_path, "CHANGELOG.md", "## [0.1.0]\n\n### Odds and ends\n")
    assert len(stale_changelog(tmp_path)) == 2
