"""Core decides from its arguments alone: what it may import, what it may not call, no `async`.

core/ruff.toml bans by name and says the way out while one types. Here stands the list of what is
allowed, which also holds against what nobody thought of banning.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT, at, parse, python_files, report, write

CORE = "services/fairlease/core"
ALLOWED = frozenset(
    (
        *("math", "heapq", "bisect", "itertools", "functools", "collections", "operator"),
        *("__future__", "abc", "dataclasses", "enum", "types", "typing"),
        "hashlib",  # a digest is arithmetic on bytes: the same everywhere
        *("msgspec", "fairlease_schemas", "fairlease.core"),
    )
)
BANNED_CALLS = {
    "float": "no float is recorded or compared in a decision: integers, and cross-multiplication for ratios",
    "hash": "differs from process to process: order by the id",
    "id": "an address in memory is chance: order by the domain's own id",
    "input": "core asks nobody",
    "open": "core reads and writes no files: the runtime reads, core is handed the value",
    "print": "return the explanation as data; the shell shows it",
}


def _is_allowed(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in ALLOWED)


def _impurity(node: ast.AST) -> str | None:
    match node:
        case ast.Import(names=aliases):
            strangers = [alias.name for alias in aliases if not _is_allowed(alias.name)]
            return f"imports {', '.join(strangers)}: not among what core may read" if strangers else None
        case ast.ImportFrom(module=module) if module != "fairlease" and not _is_allowed(module or ""):
            return f"imports {module}: not among what core may read"
        case ast.AsyncFunctionDef(name=name):
            return f"async def {name}: core waits for nothing"
        case ast.Call(func=ast.Name(id=name)) if name in BANNED_CALLS:
            return f"{name}(): {BANNED_CALLS[name]}"
        case _:
            return None


def impurities(root: Path) -> list[str]:
    """Imports, calls and coroutines by which the world could leak into a decision."""
    return [
        f"{at(root, path, getattr(node, 'lineno', 1))}: {what}"
        for path in python_files(root, CORE)
        for node in ast.walk(parse(path))
        if (what := _impurity(node))
    ]


def test_core_reads_nothing_but_its_arguments() -> None:
    report(impurities(ROOT))


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "import os.path",
        "from datetime import datetime",
        "import fairlease.runtime.bus",
        "from fairlease.runtime import bus",
        "from nats.js import api",
        "import mathematics",
        "async def f(): ...",
        "x = float(1)",
        "x = open('f')",
        "x = sorted(y, key=lambda z: hash(z))",
    ],
)
def test_an_impurity_is_found(tmp_path: Path, line: str) -> None:
    write(tmp_path, f"{CORE}/job.py", line + "\n")
    assert len(impurities(tmp_path)) == 1


def test_arithmetic_and_the_schemas_are_let_be(tmp_path: Path) -> None:
    text = """
import heapq
from collections.abc import Mapping
import msgspec
from fairlease.core import budget
from fairlease_schemas.job import End
"""
    write(tmp_path, f"{CORE}/job.py", text)
    assert impurities(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["time", "random", "uuid", "os", "asyncio", "datetime", "socket", "logging", "nats", "pydantic"]
)
def test_ruff_bans_it_in_core_and_says_the_way_out(tmp_path: Path, name: str) -> None:
    for settings in ("pyproject.toml", f"{CORE}/ruff.toml"):
        write(tmp_path, settings, (ROOT / settings).read_text(encoding="utf-8"))
    write(tmp_path, f"{CORE}/bad.py", f'"""Bad."""\n\nimport {name}\n\nX = {name}\n')
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "TID251" in line)
    assert f"`{name}` is banned: Core" in line or "The bus is the runtime's" in line or "checked at the edge" in line
