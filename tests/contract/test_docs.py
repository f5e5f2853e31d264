"""The pages say what is: commands parse, links lead somewhere, nothing public goes unmentioned."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlease.cli import exits
from fairlease.cli.parser import parse
from fairlease.cli.verbs import build
from fairlease.core.words import REASONS
from fairlease_schemas.generate import entries, json_schemas, tag_of
from tests.house.tree import FOLDERS, ROOT, at, files, report, write

TOP = ("README.md", "ARCHITECTURE.md", "DECISIONS.md", "CHANGELOG.md", "STYLE.md")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`(fairlease [^`]+)`")
RULE = re.compile(r"\*\*(\d+\.\d+)(?: \N{EN DASH} \d+\.(\d+))?[^*]*\*\*")


def pages(root: Path) -> Iterator[Path]:
    """Every page of the project: those of the top level that exist, of docs/, and what stands beside the sources."""
    yield from (root / name for name in TOP if (root / name).is_file())
    yield from (path for path in files(root, *FOLDERS) if path.suffix == ".md")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def without_fences(text: str) -> str:
    return FENCE.sub("", text)


# commands ------------------------------------------------------------------------------------------------
def fenced_commands(text: str) -> list[str]:
    """`fairlease …` and `make …` lines of shell blocks; of sessions only what stands after the prompt."""
    found = []
    for language, body in FENCE.findall(text):
        if language in ("sh", "bash", "console"):
            lines = body.replace("\\\n", " ").splitlines()
            prompt = "$ " if language == "console" else ""
            found += [line.removeprefix(prompt) for line in lines if line.startswith(f"{prompt}fairlease ")]
            found += [line.removeprefix(prompt) for line in lines if line.startswith(f"{prompt}make ")]
    return found


def unparsed(root: Path) -> list[str]:
    """Commands in fences that the command line or the Makefile does not know."""
    makefile = root / "Makefile"
    verbs = (
        set(re.findall(r"^([a-z-]+):", makefile.read_text(encoding="utf-8"), re.MULTILINE)) if makefile.exists() else ()
    )
    findings = []
    for path in pages(root):
        for command in fenced_commands(path.read_text(encoding="utf-8")):
            program, *words = shlex.split(command, comments=True)
            if program == "make":
                findings += [f"{at(root, path)}: no verb: {command}" for word in words[:1] if word not in verbs]
                continue
            try:
                parse(words, build())
            except exits.CommandError as error:
                findings.append(f"{at(root, path)}: {command}: {error.text}")
    return findings


def leaves(parser: argparse.ArgumentParser, path: str = "fairlease") -> list[str]:
    """Every command with its words, such as `fairlease budget set`."""
    branches = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not branches:
        return [path]
    return [
        leaf for branch in branches for word, sub in branch.choices.items() for leaf in leaves(sub, f"{path} {word}")
    ]


def unknown_verbs(root: Path) -> list[str]:
    """Commands named in running text whose first words are no command."""
    known = leaves(build())
    return [
        f"{at(root, path)}: `{command}` is no command"
        for path in pages(root)
        for command in INLINE.findall(without_fences(path.read_text(encoding="utf-8")))
        if not any(f"{command} ".startswith(f"{leaf} ") for leaf in known)
        and not command.startswith("fairlease COMMAND")
    ]


def test_every_fenced_command_parses() -> None:
    report(unparsed(ROOT))


def test_every_command_named_in_the_text_exists() -> None:
    report(unknown_verbs(ROOT))


def test_the_command_line_page_lists_every_command() -> None:
    text = page("docs/cli.md")
    assert [leaf for leaf in leaves(build()) if f"`{leaf}" not in text] == []


def test_every_exit_code_stands_in_the_command_line_page() -> None:
    rows = set(re.findall(r"^\| (\d+) \|", page("docs/cli.md"), re.MULTILINE))
    codes = {str(value) for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert rows == codes


# links -----------------------------------------------------------------------------------------------------
def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    titles = re.findall(r"^#+ (.+)$", without_fences(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(root: Path) -> list[str]:
    """Relative links to a file, or a heading, that is not there."""
    findings = []
    for path in pages(root):
        for link in LINK.findall(without_fences(path.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = path.parent / name if name else path
            if not target.exists():
                findings.append(f"{at(root, path)}: {link}: no such file")
            elif anchor and anchor not in slugs(target.read_text(encoding="utf-8")):
                findings.append(f"{at(root, path)}: {link}: no such heading")
    return findings


def test_every_relative_link_leads_somewhere() -> None:
    report(broken_links(ROOT))


# what is public is written about -------------------------------------------------------------------------------
def numbered_rules() -> set[str]:
    found = set()
    for first, last in RULE.findall(page("docs/decisions.md")):
        chapter, _, number = first.partition(".")
        found |= {f"{chapter}.{k}" for k in range(int(number), int(last or number) + 1)}
    return found


def test_every_event_has_an_entry() -> None:
    headings = set(re.findall(r"^### ([a-z-]+)$", page("docs/events.md"), re.MULTILINE))
    assert {tag_of(entry.cls) for entry in entries()} <= headings


def test_every_rule_that_a_refusal_names_is_written_down() -> None:
    sources = [path for path in files(ROOT, "services", "schemas/fairlease_schemas") if path.suffix == ".py"]
    named = {rule for path in sources for rule in re.findall(r'rule="(\d+\.\d+)"', path.read_text(encoding="utf-8"))}
    assert named
    assert named - numbered_rules() == set()


def test_every_section_that_the_sources_cite_is_there() -> None:
    missing = set()
    titles = {
        name: re.findall(r"^## (\w+)\.", page(f"docs/{name}"), re.MULTILINE) for name in ("decisions.md", "log.md")
    }
    for path in files(ROOT, "services", "schemas/fairlease_schemas"):
        if path.suffix == ".py":
            cited = re.findall(r"\b(decisions\.md|log\.md) (L?\d+)", path.read_text(encoding="utf-8"))
            missing |= {f"{at(ROOT, path)}: {name} {number}" for name, number in cited if number not in titles[name]}
    report(sorted(missing))


def test_every_reason_with_a_sentence_is_explained() -> None:
    rows = set(re.findall(r"^ *\| `([a-z-]+)` \|", page("docs/decisions.md"), re.MULTILINE))
    assert rows == {str(reason) for reason in REASONS}


def test_every_schema_is_linked_from_a_page() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in pages(ROOT))
    assert [name for name in json_schemas() if f"schemas/json/{name}" not in text] == []


def test_every_decision_says_what_it_costs_and_how_it_would_show() -> None:
    for number, entry in enumerate(page("DECISIONS.md").split("\n## ")[1:], start=1):
        assert re.match(rf"{number}\. .+ \(\d{{4}}-\d{{2}}-\d{{2}}\)\n", entry), entry[:60]
        assert re.findall(r"^\*\*(.+?)\*\*", entry, re.MULTILINE) == [
            "Context.",
            "Choice.",
            "Price.",
            "We would notice",
        ]


# the rules of this file, failing -----------------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["fairlease fly", "fairlease queue --colour", "make coffee"])
def test_a_command_that_does_not_exist_is_found(tmp_path: Path, command: str) -> None:
    write(tmp_path, "Makefile", "demo: ## it\n")
    write(tmp_path, "README.md", f"```sh\n{command}\nmake demo\nfairlease queue --limit 3 # some\n```\n")
    write(tmp_path, "docs/a.md", f"```console\n$ {command}\n{command} is what it printed\n```\n`fairlease fly high`\n")
    assert len(unparsed(tmp_path)) == 2
    assert len(unknown_verbs(tmp_path)) == 1


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    write(tmp_path, "README.md", "# A b: c\n[a](docs/b.md) [b](#a-b-c) [c](#gone) [d](https://example.org) [e](d.md)\n")
    write(tmp_path, "docs/b.md", "[up](../README.md#a-b-c) [x](../README.md#x)\n")
    assert len(broken_links(tmp_path)) == 3
