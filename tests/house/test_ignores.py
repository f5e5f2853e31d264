"""Every exception from a rule says why (STYLE.md, habits)."""

import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT, at, python_files, report, write

CODE = ("schemas", "services", "tests", "loadtests", "examples")
SECTION = re.compile(r"^\[+([\w.\-]+)\]+")
LIST_OPENS = re.compile(r"^(extend-)?ignore\s*=\s*\[(?P<items>.*)")
FILE_OPENS = re.compile(r'^"[^"]+"\s*=\s*\[(?P<items>.*)')
RULE = re.compile(r'"[A-Z]{1,4}[0-9]*"')
SETTING = re.compile(r'^(ignore_missing_imports|ignore_errors|disable_error_code|follow_imports)\s*=|^"ignore[:"]')
# In sources the reason follows the codes: hash, noqa, colon, S603, dash, "the argument vector is ours".
EXCUSE = re.compile(r"#\s*(noqa|type:\s*ignore|fmt:\s*(off|skip)|ruff:\s*noqa)(?P<rest>.*)$", re.IGNORECASE)
CODES = re.compile(r"^\s*(:\s*[A-Z]+[0-9]+([,\s]+[A-Z]+[0-9]+)*|\[[a-z\-, ]+\])\s*")


def _without_comment(line: str) -> str:
    return re.sub(r'("[^"]*")|#.*', r"\1", line).strip()


def _has_reason(lines: list[str], index: int) -> bool:
    """A comment on the line itself, or on the line above it."""
    own = lines[index].strip() != _without_comment(lines[index])
    return own or (index > 0 and lines[index - 1].strip().startswith("#"))


def _ignore_lines(lines: list[str]) -> list[int]:
    """The lines of a TOML file that switch a rule off: ruff's, mypy's and pytest's."""
    found = []
    section, is_listing = "", False
    for index, line in enumerate(lines):
        items = _without_comment(line)
        if not is_listing:
            if header := SECTION.match(items):
                section = header[1]
            opens = FILE_OPENS if section.endswith("per-file-ignores") else LIST_OPENS
            if opened := opens.match(items):
                is_listing, items = True, opened["items"]
        if (is_listing and RULE.search(items)) or SETTING.match(items):
            found.append(index)
        is_listing = is_listing and not items.endswith("]")
    return found


def unreasoned_settings(root: Path) -> list[str]:
    """Ignores in pyproject.toml and in the ruff.toml files that carry no reason."""
    findings = []
    for path in [root / "pyproject.toml", *sorted((root / "services").rglob("ruff.toml"))]:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        findings += [
            f"{at(root, path, index + 1)}: {lines[index].strip()}: say in a comment why this is allowed"
            for index in _ignore_lines(lines)
            if not _has_reason(lines, index)
        ]
    return findings


def unreasoned_excuses(root: Path) -> list[str]:
    """`noqa`, `type: ignore` and their like without codes or without a reason after them."""
    findings = []
    for path in python_files(root, *CODE):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            excuse = EXCUSE.search(line)
            if excuse is None or line[: excuse.start()].count('"') % 2:
                continue
            reason = CODES.sub("", excuse["rest"]).strip(" -#:")
            if len(reason.split()) < 2:
                findings.append(
                    f"{at(root, path, number)}: {excuse.group()}: name the codes, then ' - ' and the reason"
                )
    return findings


def test_every_ignore_in_the_settings_carries_its_reason() -> None:
    report(unreasoned_settings(ROOT))


def test_every_excuse_in_the_sources_carries_its_reason() -> None:
    report(unreasoned_excuses(ROOT))


def test_the_ignores_of_this_repository_are_seen_at_all() -> None:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    seen = [lines[index] for index in _ignore_lines(lines)]
    assert len(seen) > 20
    assert any('"S101"' in line for line in seen)
    assert any("ignore_missing_imports" in line for line in seen)


@pytest.mark.parametrize(
    "text",
    [
        '[tool.ruff.lint]\nignore = ["E501"]\n',
        '[tool.ruff.lint]\nignore = [\n    "E501",\n]\n',
        '[tool.ruff.lint]\nextend-ignore = [\n    "D100", # its reason\n    "E501",\n]\n',
        '[tool.ruff.lint.per-file-ignores]\n"tests/**" = ["S101"]\n',
        '[tool.ruff.lint.per-file-ignores]\n"tests/**" = [\n    "S101",\n]\n',
        '[[tool.mypy.overrides]]\nmodule = "x"\nignore_missing_imports = true\n',
        '[tool.pytest.ini_options]\nfilterwarnings = [\n    "ignore::DeprecationWarning",\n]\n',
    ],
)
def test_a_setting_without_a_reason_is_found(tmp_path: Path, text: str) -> None:
    write(tmp_path, "pyproject.toml", text)
    assert len(unreasoned_settings(tmp_path)) == 1


def test_a_reason_may_stand_on_the_line_or_above_it(tmp_path: Path) -> None:
    text = (
        '[lint]\nselect = ["E"]\nignore = [\n    "E501", # long urls\n    # the formatter does this\n    "W191",\n]\n'
    )
    write(tmp_path, "services/fairlease/core/ruff.toml", text)
    assert unreasoned_settings(tmp_path) == []


# Without the hash before them, so that ruff and this file's own test do not read them as excuses.
@pytest.mark.parametrize("excuse", ["noqa", "noqa: S603", "type: ignore", "type: ignore[arg-type]"])
def test_an_excuse_without_a_reason_is_found(tmp_path: Path, excuse: str) -> None:
    write(tmp_path, "services/fairlease/core/job.py", f"x = 1  # {excuse}\n")
    assert len(unreasoned_excuses(tmp_path)) == 1


@pytest.mark.parametrize(
    "excuse", ["noqa: S603, S607 - the argument vector is ours", "type: ignore[arg-type]  # the stub is wrong"]
)
def test_an_excuse_with_codes_and_reason_is_let_be(tmp_path: Path, excuse: str) -> None:
    write(tmp_path, "services/fairlease/core/job.py", f"x = 1  # {excuse}\n")
    assert unreasoned_excuses(tmp_path) == []
