"""Every rule of docs/decisions.md that decides (sections 1-9) names its tests, and docs/rules.md says which.

A test names the rules it holds in a comment of its own, `# rule: 5.2 3.6`, inside the function or, in a
scenario, on a line of its file. After a change: `python -m tests.house.test_rules` writes the page anew.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.tree import ROOT, at, files, parse, report, write

SECTIONS = ("1", "2", "3", "4", "5", "6", "7", "8", "9")
PAGE, TABLE = "docs/decisions.md", "docs/rules.md"
HEADING = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
RULE = re.compile(
    r"^\s*\* \*\*(\d+)\.(\d+)(?: \N{EN DASH} \d+\.(\d+))?(?P<title>[^*]*)\*\*(?P<text>.*?)(?=^\s*\*|^#|^$|\Z)",
    re.MULTILINE | re.DOTALL,
)
LATER = re.compile(r"^\| (?P<ids>[\d., ]+?)(?: in part)? \| (?P<text>.+) \|$", re.MULTILINE)
MARKER = re.compile(r"# rule: *(?P<ids>.*)$")
ID = re.compile(r"\d+\.\d+")

NOT_YET = {
    "3.9": "one ranker so far",
    "7.5": "classes of GPU faults come with their table",
}
"""Rules that may be without a test, and why. It only ever gets shorter."""

NOT_ON_THE_PAGE: tuple[str, ...] = ()
"""Rules that have tests and that the page does not number yet. It only ever gets shorter."""


class Marker(NamedTuple):
    """A rule id in a test: where it stands, and whether that is inside a test."""

    rule: str
    path: Path
    line: int
    is_inside: bool


def rules_of(root: Path) -> dict[str, str]:
    """The page's rule ids in order, each with its first sentence; those of its last table with what it says of them."""
    text = (root / PAGE).read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for rule in RULE.finditer(text):
        first, last = int(rule[2]), int(rule[3] or rule[2])
        for number in range(first, last + 1):
            found[f"{rule[1]}.{number}"] = _sentence(rule["title"].strip() + rule["text"])
    for row in LATER.finditer(text):
        for rule_id in ID.findall(row["ids"]):
            found.setdefault(rule_id, "")
    return {rule_id: found[rule_id] for rule_id in sorted(found, key=_order) if rule_id.split(".")[0] in SECTIONS}


def missing_sections(root: Path) -> set[str]:
    """Sections of which the page says that all of them is still to come."""
    text = (root / PAGE).read_text(encoding="utf-8")
    return {part.strip() for row in LATER.finditer(text) for part in row["ids"].split(",") if part.strip().isdigit()}


def _sentence(text: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split())).strip()
    return re.split(r"(?<=[.;]) ", plain)[0].rstrip(" .;")


def _order(rule_id: str) -> tuple[int, ...]:
    return tuple(map(int, rule_id.split(".")))


def markers(root: Path) -> Iterator[Marker]:
    """Every marker below tests/, file by file."""
    for path in files(root, "tests"):
        if path.suffix not in (".py", ".toml") or path == root / "tests/house/test_rules.py":
            continue
        text = path.read_text(encoding="utf-8")
        inside = _lines_of_tests(path) if path.suffix == ".py" and "# rule:" in text else None
        for number, line in enumerate(text.splitlines(), start=1):
            if found := MARKER.search(line):
                for rule_id in found["ids"].split() or [""]:
                    yield Marker(rule_id, path, number, inside is None or number in inside)


def _lines_of_tests(path: Path) -> set[int]:
    functions = [node for node in ast.walk(parse(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        line
        for node in functions
        if node.name.startswith("test_")
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def untested(root: Path, not_yet: dict[str, str]) -> list[str]:
    """Rules without a test that no list excuses, and excuses for what is no rule."""
    rules = rules_of(root)
    tested = {marker.rule for marker in markers(root)}
    findings = [f"{PAGE}: {rule}: no test names it" for rule in rules if rule not in tested and rule not in not_yet]
    return findings + [f"{PAGE}: {rule}: excused, and no rule of the page" for rule in not_yet if rule not in rules]


def misnamed(root: Path, not_on_the_page: tuple[str, ...]) -> list[str]:
    """Markers outside a test, of no rule, or of a rule that the page does not have."""
    rules, whole = rules_of(root), missing_sections(root)
    findings = []
    for marker in markers(root):
        section, _, number = marker.rule.partition(".")
        where = at(root, marker.path, marker.line)
        if not ID.fullmatch(marker.rule):
            findings.append(f"{where}: '{marker.rule}' is no rule id: write `# rule: 5.2 3.6`")
        elif not marker.is_inside:
            findings.append(f"{where}: rule {marker.rule} stands outside a test: write it inside the function")
        elif section in SECTIONS and section not in whole and marker.rule not in (*rules, *not_on_the_page):
            findings.append(f"{where}: {PAGE} has no rule {section}.{number}")
    return findings + [f"{PAGE}: {rule} is on the page by now" for rule in not_on_the_page if rule in rules]


def table(root: Path, not_yet: dict[str, str]) -> str:
    """docs/rules.md: by section, every rule with its sentence and the files that hold tests of it."""
    rules = rules_of(root)
    where: dict[str, set[str]] = {}
    for marker in markers(root):
        where.setdefault(marker.rule, set()).add(marker.path.relative_to(root / "tests").as_posix())
    titles = dict(HEADING.findall((root / PAGE).read_text(encoding="utf-8")))
    lines = [
        "# Which test holds which rule",
        "",
        "Generated by `python -m tests.house.test_rules` from [decisions.md](decisions.md) and the tests: each names",
        'its rules in a comment, so `grep -rn "# rule:.*5.2" tests` finds every test of rule 5.2.',
    ]
    every = sorted({*rules, *(rule for rule in where if ID.fullmatch(rule))}, key=_order)
    for section in SECTIONS:
        lines += [
            "",
            f"## {section}. {titles.get(section, '')}".rstrip(),
            "",
            "| rule | says | tests |",
            "|---|---|---|",
        ]
        for rule in (rule for rule in every if rule.split(".")[0] == section):
            tests = ", ".join(f"[{name}](../tests/{name})" for name in sorted(where.get(rule, ())))
            excuse = f"not yet: {not_yet[rule]}" if rule in not_yet else ""
            says = rules.get(rule, "").replace("|", "\\|")
            lines.append(f"| {rule} | {says} | {'; '.join(filter(None, (tests, excuse)))} |")
    return "\n".join(lines) + "\n"


def test_every_rule_has_a_test() -> None:
    report(untested(ROOT, NOT_YET))


def test_every_marker_stands_in_a_test_and_names_a_rule() -> None:
    report(misnamed(ROOT, NOT_ON_THE_PAGE))


def test_the_lists_of_exceptions_only_get_shorter() -> None:
    """Whoever takes a rule out changes this line too; nobody adds one."""
    assert list(NOT_YET) == ["3.9", "7.5"]
    assert NOT_ON_THE_PAGE == ()
    assert all(NOT_YET.values())


def test_the_page_of_rules_is_as_the_tests_are() -> None:
    assert (ROOT / TABLE).read_text(encoding="utf-8") == table(ROOT, NOT_YET), "run python -m tests.house.test_rules"


# the test itself can fail ---------------------------------------------------------------------------------

SAMPLE = """# Rules

## 5. Preemption

* **5.1** Evict only what is past its window. Never more.
* **5.2 \N{EN DASH} 5.4 Licences**: by standing; see
  [there](x.md).

## 10. Policy

* **10.1** Not of these sections.

## Not in this release

| rules | what is missing |
|---|---|
| 1.9, 5.5 in part | waiting |
| 6 | the calendar |
"""


def sample(root: Path, *tests: str) -> Path:
    write(root, PAGE, SAMPLE)
    write(root, "tests/core/test_x.py", "\n\n".join(tests) + "\n")
    return root


def named(rules: str, name: str = "x") -> str:
    return f'def test_{name}() -> None:\n    """Says."""\n    # rule: {rules}\n    assert True\n'


def test_the_rules_of_a_page_are_its_points_ranges_and_what_it_lists_as_missing(tmp_path: Path) -> None:
    found = rules_of(sample(tmp_path))
    assert found == {
        "1.9": "",
        "5.1": "Evict only what is past its window",
        "5.2": "Licences: by standing",
        "5.3": "Licences: by standing",
        "5.4": "Licences: by standing",
        "5.5": "",
    }


def test_a_rule_without_a_test_is_found(tmp_path: Path) -> None:
    root = sample(tmp_path, named("5.1 5.2"), named("5.3 5.4 1.9", "y"))
    assert untested(root, {}) == [f"{PAGE}: 5.5: no test names it"]
    assert untested(root, {"5.5": "later"}) == []


def test_an_excuse_for_no_rule_is_found(tmp_path: Path) -> None:
    root = sample(tmp_path, named("5.1 5.2 5.3 5.4 5.5 1.9"))
    assert untested(root, {"5.9": "later"}) == [f"{PAGE}: 5.9: excused, and no rule of the page"]


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        pytest.param(named("5.11"), "has no rule 5.11", id="a rule the page has not"),
        pytest.param(named("5.1, 5.2"), "'5.1,' is no rule id", id="a comma"),
        pytest.param(named(""), "'' is no rule id", id="nothing"),
        pytest.param("# rule: 5.1\n", "stands outside a test", id="beside the tests"),
        pytest.param("def build():\n    # rule: 5.1\n    return 1\n", "stands outside a test", id="in a builder"),
    ],
)
def test_a_marker_that_holds_nothing_is_found(tmp_path: Path, source: str, finding: str) -> None:
    (found,) = misnamed(sample(tmp_path, source), ())
    assert finding in found


def test_a_rule_of_another_section_or_of_one_that_is_still_to_come_is_let_be(tmp_path: Path) -> None:
    assert misnamed(sample(tmp_path, named("10.1 6.3 5.1")), ()) == []


def test_an_exception_that_is_none_any_more_is_found(tmp_path: Path) -> None:
    assert misnamed(sample(tmp_path), ("5.1",)) == [f"{PAGE}: 5.1 is on the page by now"]


def test_a_scenario_names_its_rules_on_lines_of_its_file(tmp_path: Path) -> None:
    root = sample(tmp_path)
    write(root, "tests/scenarios/a.toml", "# rule: 5.1 5.2\n")
    assert [(m.rule, m.is_inside) for m in markers(root)] == [("5.1", True), ("5.2", True)]


def test_the_table_names_rule_sentence_and_file(tmp_path: Path) -> None:
    text = table(sample(tmp_path, named("5.1")), {"5.2": "later"})
    assert "| 5.1 | Evict only what is past its window | [core/test_x.py](../tests/core/test_x.py) |" in text
    assert "| 5.2 | Licences: by standing | not yet: later |" in text
    assert "## 5. Preemption" in text


if __name__ == "__main__":
    (ROOT / TABLE).write_text(table(ROOT, NOT_YET), encoding="utf-8")
