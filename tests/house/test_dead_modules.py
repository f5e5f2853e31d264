"""Every module is imported by another or is an entry point; what only its own test imports is dead."""

import ast
import re
import tomllib
from pathlib import Path

from tests.house.tree import ROOT, at, parse, python_files, report, write

DOTTED = re.compile(r"^fairlease\w*(\.\w+)+$")


def _module(root: Path, path: Path) -> str:
    """The import name of a source below one of the two source roots."""
    parts = list(path.relative_to(root).with_suffix("").parts[1:])
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _mentioned(tree: ast.Module) -> set[str]:
    """Import names a source mentions: its imports, and strings that spell a module (lazy imports)."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), names=aliases):
                names.add(module)
                names.update(f"{module}.{alias.name}" for alias in aliases)
            case ast.Constant(value=str(text)) if DOTTED.match(text):
                names.add(text)
            case _:
                pass
    return names


def _is_entry_point(path: Path, tree: ast.Module) -> bool:
    return path.name in ("__init__.py", "__main__.py") or any(
        isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) and "__main__" in ast.unparse(node.test)
        for node in tree.body
    )


def _scripts(root: Path) -> set[str]:
    project = root / "pyproject.toml"
    scripts = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["scripts"] if project.exists() else {}
    return {target.partition(":")[0] for target in scripts.values()}


def dead_modules(root: Path) -> list[str]:
    """Modules of services/ and schemas/ that no other source there, and no load test, mentions."""
    alive = _scripts(root)
    waiting: list[tuple[str, Path]] = []
    for path in python_files(root, "services", "schemas", "loadtests"):
        tree = parse(path)
        is_load_test = path.relative_to(root).parts[0] == "loadtests"
        name = "" if is_load_test else _module(root, path)
        alive |= _mentioned(tree) - {name}
        if not is_load_test and not _is_entry_point(path, tree):
            waiting.append((name, path))
    return [
        f"{at(root, path)}: nothing imports {name}: use it or remove it" for name, path in waiting if name not in alive
    ]


def test_no_module_is_dead() -> None:
    report(dead_modules(ROOT))


def test_a_dead_module_is_found(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", '[project]\nname = "x"\n[project.scripts]\nx = "fairlease.cli.main:main"\n')
    core = "services/fairlease/core"
    write(tmp_path, f"{core}/__init__.py", "")
    write(tmp_path, f"{core}/used.py", "")
    write(tmp_path, f"{core}/named.py", "")
    write(tmp_path, f"{core}/script.py", 'if __name__ == "__main__":\n    pass\n')
    write(tmp_path, f"{core}/dead.py", "import fairlease.core.dead\n")
    write(
        tmp_path, "services/fairlease/cli/main.py", 'from fairlease.core import used\nLATE = "fairlease.core.named"\n'
    )
    write(tmp_path, "tests/core/test_dead.py", "from fairlease.core import dead\n")
    assert [finding.split(":")[0] for finding in dead_modules(tmp_path)] == [f"{core}/dead.py"]
