"""How the house tests see the tree: which files are sources, and where they stand.

The walk goes by the fixed names of the top level, not by what lies about: environments, caches and
what a developer keeps beside the sources are nobody's business here. It needs no git, so that an
unpacked archive passes the same tests.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    ".ci",
    "compose",
    "docs",
    "examples",
    "infra",
    "loadtests",
    "requirements",
    "schemas",
    "services",
    "tests",
)
TEXT_SUFFIXES = frozenset(
    (
        *("", ".cfg", ".css", ".conf", ".html", ".in", ".ini", ".js", ".json", ".jsonl", ".md"),
        *(".py", ".rst", ".sh", ".svg", ".toml", ".txt", ".yaml", ".yml"),
    )
)
CACHES = frozenset(("__pycache__", "node_modules", "build", "dist"))


def files(root: Path, *folders: str) -> Iterator[Path]:
    """The files below the named folders, in the order of their paths; a missing folder is empty."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            parts = path.relative_to(root).parts
            if path.is_file() and not CACHES.intersection(parts):
                yield path


def python_files(root: Path, *folders: str) -> Iterator[Path]:
    """The Python sources below the named folders."""
    return (path for path in files(root, *folders) if path.suffix == ".py")


def text_files(root: Path) -> Iterator[Path]:
    """Every text that is part of the project: the known folders and the files of the top level."""
    yield from (path for path in files(root, *FOLDERS) if path.suffix in TEXT_SUFFIXES)
    yield from (path for path in sorted(root.iterdir()) if path.is_file() and path.suffix in TEXT_SUFFIXES)


def parse(path: Path) -> ast.Module:
    """The syntax tree of a source; its name is kept for the message when it cannot be read."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def at(root: Path, path: Path, line: int = 1) -> str:
    """Where a finding stands, as editors understand it."""
    return f"{path.relative_to(root)}:{line}"


def report(findings: list[str]) -> None:
    """Fails with one finding a line."""
    assert not findings, "\n" + "\n".join(findings)


def write(root: Path, name: str, text: str) -> Path:
    """A sample file in a tree of its own."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
