"""Messages are frozen, keyword-only and tagged by their own name (STYLE.md, messages)."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT, at, parse, report, write


def _is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def kebab(name: str) -> str:
    """`JobAdmitted` on the wire is `job-admitted`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def loose_structs(root: Path) -> list[str]:
    """Tagged classes of the schemas that leave something of their class line to inheritance."""
    findings = []
    tags: dict[str, str] = {}
    for path in sorted((root / "schemas/fairlease_schemas").glob("*.py")):
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            said = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
            if "tag" not in said:
                continue
            where = at(root, path, node.lineno)
            findings += [
                f"{where}: {node.name} does not write {option}=True"
                for option in ("frozen", "kw_only")
                if not _is_true(said.get(option))
            ]
            if "tag_field" in said:
                continue  # a view for people and their programs, named as Kubernetes names a kind
            tag = said["tag"]
            if not (isinstance(tag, ast.Constant) and tag.value == kebab(node.name)):
                findings.append(f'{where}: {node.name} writes tag={ast.unparse(tag)}, its tag is "{kebab(node.name)}"')
            elif (other := tags.setdefault(str(tag.value), where)) != where:
                findings.append(f"{where}: the tag of {node.name} is taken at {other}")
    return findings


def test_every_tagged_struct_says_what_it_is_in_its_class_line() -> None:
    report(loose_structs(ROOT))


@pytest.mark.parametrize(
    "line",
    [
        'class JobAdmitted(Struct, kw_only=True, tag="job-admitted"): ...\n',
        'class JobAdmitted(Struct, frozen=True, tag="job-admitted"): ...\n',
        'class JobAdmitted(Struct, frozen=False, kw_only=True, tag="job-admitted"): ...\n',
        'class JobAdmitted(Struct, frozen=True, kw_only=True, tag="admitted"): ...\n',
        "class JobAdmitted(Struct, frozen=True, kw_only=True, tag=True): ...\n",
        'class A(Struct, frozen=True, kw_only=True, tag="a"): ...\n' * 2,
    ],
)
def test_a_loose_struct_is_found(tmp_path: Path, line: str) -> None:
    write(tmp_path, "schemas/fairlease_schemas/job.py", line)
    assert len(loose_structs(tmp_path)) == 1


def test_a_view_may_name_its_kind(tmp_path: Path) -> None:
    line = 'class JobView(Struct, frozen=True, kw_only=True, tag_field="kind", tag="Job"): ...\n'
    write(tmp_path, "schemas/fairlease_schemas/explain.py", line)
    assert loose_structs(tmp_path) == []


def test_a_value_without_a_tag_is_let_be(tmp_path: Path) -> None:
    write(tmp_path, "schemas/fairlease_schemas/job.py", "class Request(Struct): ...\n")
    assert loose_structs(tmp_path) == []
