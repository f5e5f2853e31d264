"""The locked requirements: every file by hash, no index, no path, nothing loose."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.house.tree import ROOT, at, report, write

PINNED = re.compile(r"^[a-z0-9][a-z0-9.\-]*==[^\s;]+$")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def _entries(text: str) -> list[tuple[int, str]]:
    """Logical lines with the number of their first line; comments and empty lines left out."""
    entries: list[tuple[int, str]] = []
    is_open = False
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if is_open:
            entries[-1] = (entries[-1][0], entries[-1][1] + " " + bare.rstrip("\\").strip())
        else:
            entries.append((number, bare.rstrip("\\").strip()))
        is_open = bare.endswith("\\")
    return entries


def loose_requirements(root: Path) -> list[str]:
    """Lines of requirements/*.txt that are not `name==version` with hashes, or that name a place."""
    findings = []
    for path in sorted((root / "requirements").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        for number, entry in _entries(text):
            where = at(root, path, number)
            name, *options = entry.split()
            if name.startswith("-"):
                findings.append(f"{where}: {entry}: an index or option belongs to the installer's own settings")
            elif not PINNED.match(name):
                findings.append(f"{where}: {name}: pin it with == (`make lock`)")
            elif not options or not all(HASH.fullmatch(option) for option in options):
                findings.append(f"{where}: {name}: pinned without hashes (`make lock`)")
        findings += [
            f"{at(root, path, number)}: {line.strip()}: an address or a path of one machine"
            for number, line in enumerate(text.splitlines(), start=1)
            if "://" in line or re.search(r"(^|\s)(file:)?/", line)
        ]
    return findings


def _names(path: Path) -> dict[str, str]:
    pins = (entry.split()[0].split("==") for _, entry in _entries(path.read_text(encoding="utf-8")))
    return {pin[0]: pin[1] for pin in pins}


def _canonical(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]).lower()


def test_every_requirement_is_pinned_by_hash_and_names_no_place() -> None:
    report(loose_requirements(ROOT))


def test_the_locks_hold_what_the_project_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    run, dev = _names(ROOT / "requirements/run.txt"), _names(ROOT / "requirements/dev.txt")
    builders = {"hatchling", "editables"}
    assert {_canonical(name) for name in project["dependencies"]} | builders <= run.keys()
    assert {_canonical(name) for name in project["optional-dependencies"]["dev"]} <= dev.keys()
    assert run.items() <= dev.items(), "one package, one version: run `make lock`"


def test_what_audits_is_locked_apart_from_what_it_audits() -> None:
    lines = (ROOT / "requirements/audit.in").read_text(encoding="utf-8").splitlines()
    asked = [line for line in lines if line and not line.startswith("#")]
    audit, dev = _names(ROOT / "requirements/audit.txt"), _names(ROOT / "requirements/dev.txt")
    assert {_canonical(name) for name in asked} <= audit.keys(), "run `make lock`"
    assert not {_canonical(name) for name in asked} & dev.keys()


@pytest.mark.parametrize(
    "line",
    [
        "--index-url somewhere\n",
        "msgspec>=0.20\n",
        "msgspec==0.20\n",
        "msgspec==0.20 \\\n    --hash=md5:00\n",
        "msgspec @ file:///tmp/msgspec.whl\n",
        "# via -r /srv/here/build.in\n",
    ],
)
def test_a_loose_requirement_is_found(tmp_path: Path, line: str) -> None:
    write(tmp_path, "requirements/run.txt", line)
    assert loose_requirements(tmp_path)


def test_a_pinned_requirement_is_let_be(tmp_path: Path) -> None:
    write(
        tmp_path,
        "requirements/run.txt",
        f"# via x\nmsgspec==0.20 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\n",
    )
    assert loose_requirements(tmp_path) == []
