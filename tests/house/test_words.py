"""Names of files and words that have no place in the tree (STYLE.md, naming and habits)."""

import re
from pathlib import Path

import pytest

from tests.house.tree import FOLDERS, ROOT, at, files, python_files, report, text_files, write

NAMELESS = re.compile(r"^_*(test_)?(utils?|helpers?|commons?|misc)([._]|$)|_(utils?|helpers?|misc)(\.|$)")

# Spelt so that this file passes its own test: here with a class of one letter, below with a ~ taken out.
TREE_WORDS = {
    r"\b(TOD[O]|FIXM[E]|XX[X])\b": "open work belongs in an issue; the tree says what is",
    r"(?<![\w.~}/-])/(work|root|Users)/": "a path of one machine: take it from settings or a temporary folder",
}
CODE_WORDS = {
    r"\bNotImplementedErro[r]\b": "write it, or leave the name out",
    r"\bif (not )?(\w+\.)*(is_)?simulatin[g]\b": "the simulator swaps log, clock, ids and machines; code does not know",
}


def nameless_files(root: Path) -> list[str]:
    """Files and folders whose name says nothing of the domain."""
    return [
        f"{at(root, path)}: '{part}' is a name for anything: say the noun of the domain it holds"
        for path in files(root, *FOLDERS)
        for part in path.relative_to(root).parts
        if NAMELESS.search(part)
    ]


def _spoken(root: Path, path: Path, words: dict[str, str]) -> list[str]:
    return [
        f"{at(root, path, number)}: '{found.group().strip()}': {why}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for word, why in words.items()
        if (found := re.search(word, line))
    ]


def banned_words(root: Path) -> list[str]:
    """Marks of unfinished work, machine paths, and code that knows it is being simulated."""
    findings = [finding for path in text_files(root) for finding in _spoken(root, path, TREE_WORDS)]
    for path in python_files(root, "schemas", "services", "tests", "loadtests"):
        findings += _spoken(root, path, CODE_WORDS)
    return findings


def test_every_file_is_named_for_what_it_holds() -> None:
    report(nameless_files(ROOT))


def test_no_banned_word_stands_in_the_tree() -> None:
    report(banned_words(ROOT))


@pytest.mark.parametrize(
    "name", ["util.py", "utils/x.py", "helpers.py", "bus_helper.py", "common.py", "misc.md", "test_utils.py"]
)
def test_a_nameless_file_is_found(tmp_path: Path, name: str) -> None:
    write(tmp_path, f"services/fairlease/{name}", "")
    assert len(nameless_files(tmp_path)) == 1


def test_a_noun_of_the_domain_is_not_taken_for_a_nameless_file(tmp_path: Path) -> None:
    for name in ("utilisation.py", "licence.py", "communities.py", "helperless_nothing.py"):
        write(tmp_path, f"services/fairlease/{name}", "")
    assert nameless_files(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "a TO~DO for later"),
        ("Makefile", "# FIX~ME: slow"),
        ("services/fairlease/core/job.py", "# XX~X"),
        ("docs/install.md", "cd /wo~rk/main"),
        (".ci/run", "source /ro~ot/.profile"),
        ("services/fairlease/core/job.py", "raise NotImplemented~Error"),
        ("services/fairlease/runtime/clock.py", "if self.simul~ating:"),
    ],
)
def test_a_banned_word_is_found(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, name, text.replace("~", "") + "\n")
    assert [finding.split(":")[0] for finding in banned_words(tmp_path)] == [name]


def test_paths_below_other_paths_and_longer_words_are_let_be(tmp_path: Path) -> None:
    write(tmp_path, "docs/a.md", "see example.org/wo~rk/ and build/wo~rk/x, mktemp out.XX~XXXX\n".replace("~", ""))
    assert banned_words(tmp_path) == []
