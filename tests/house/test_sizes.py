"""Lengths (STYLE.md, sizes)."""

import ast
from pathlib import Path

from tests.house.tree import ROOT, at, parse, python_files, report, write

CODE = ("schemas", "services", "loadtests")
MODULE_WALL = 600
FUNCTION_WALL = 70
MAIN_WALL = 30
TEST_WALL = 3 * 400


def _length(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def long_modules(root: Path) -> list[str]:
    """Modules above the wall, entry points of thirty lines or more, test files above three modules."""
    findings = []
    for path in python_files(root, *CODE, "tests"):
        length = _length(path)
        where = f"{at(root, path, length)}: {length} lines"
        is_test = path.relative_to(root).parts[0] == "tests"
        if is_test and length > TEST_WALL:
            findings.append(f"{where} of tests, the wall is {TEST_WALL}: split as the modules are split")
        elif not is_test and length > MODULE_WALL:
            findings.append(f"{where}, the wall is {MODULE_WALL}: give the idea that fits least a file")
        elif path.name == "__main__.py" and length >= MAIN_WALL:
            findings.append(f"{where}, an entry point stays under {MAIN_WALL}: move the wiring to app.py")
    return findings


def _lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring: an order spelt out in prose is no complexity."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def long_functions(root: Path) -> list[str]:
    """Functions that do not fit a screen, in code and in tests alike."""
    return [
        f"{at(root, path, node.lineno)}: {node.name}: {lines} lines, the wall is {FUNCTION_WALL}: move the leaves out"
        for path in python_files(root, *CODE, "tests")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := _lines_of(node)) > FUNCTION_WALL
    ]


def test_no_module_is_longer_than_the_wall() -> None:
    report(long_modules(ROOT))


def test_every_function_fits_a_screen() -> None:
    report(long_functions(ROOT))


def test_a_long_module_is_found(tmp_path: Path) -> None:
    write(tmp_path, "services/fairlease/core/short.py", "x = 1\n" * MODULE_WALL)
    write(tmp_path, "services/fairlease/core/long.py", "x = 1\n" * (MODULE_WALL + 1))
    write(tmp_path, "services/fairlease/core/__main__.py", "x = 1\n" * MAIN_WALL)
    write(tmp_path, "tests/core/test_long.py", "x = 1\n" * (TEST_WALL + 1))
    found = long_modules(tmp_path)
    assert [finding.split(":")[0] for finding in found] == [
        "services/fairlease/core/__main__.py",
        "services/fairlease/core/long.py",
        "tests/core/test_long.py",
    ]


def test_a_long_function_is_found_and_its_docstring_is_not_counted(tmp_path: Path) -> None:
    prose = '    """Said.\n' + "\n    More.\n" * 40 + '    """\n'
    write(tmp_path, "services/fairlease/core/fits.py", "def fits():\n" + prose + "    x = 1\n" * (FUNCTION_WALL - 1))
    write(tmp_path, "services/fairlease/core/wide.py", "async def wide():\n" + "    x = 1\n" * FUNCTION_WALL)
    assert [finding.split(":")[0] for finding in long_functions(tmp_path)] == ["services/fairlease/core/wide.py"]
