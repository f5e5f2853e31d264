"""The wheel: the same bytes wherever it is built, and nothing in it but the packages."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import ROOT

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "services", "schemas")
PACKAGES = ("fairlease", "fairlease_schemas", "fairlease_sdk")
EPOCH_S = 1_700_000_000


def checkout(place: Path, *, age_s: int, umask: int) -> Path:
    """A copy of what a wheel is made of, its files as old and as closed as that, with what a used tree gathers."""
    place.mkdir(parents=True)
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
        else:
            shutil.copy(source, place / name)
    for path in sorted(place.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
        os.utime(path, (EPOCH_S + age_s, EPOCH_S + age_s))
    return place


def litter(place: Path) -> None:
    """What lies about in a checkout that was worked in."""
    for package in (place / "services/fairlease", place / "services/fairlease/core", place / "schemas"):
        for name in ("__pycache__/rank.cpython-311.pyc", ".mypy_cache/x.json", "rank.pyc"):
            path = package / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"\0")
    (place / "tests").mkdir()
    (place / "tests/test_x.py").write_text("", encoding="utf-8")
    (place / "services/leftover.py").write_text("", encoding="utf-8")


def built(place: Path, out: Path) -> Path:
    """The wheel of this checkout, made with what is installed here: no network, no environment of its own."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(place)],
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH_S)},
    )
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One from a fresh checkout, one from an older one elsewhere that was worked in by somebody more careful."""
    where = tmp_path_factory.mktemp("wheels")
    fresh = checkout(where / "a", age_s=0, umask=0o022)
    used = checkout(where / "somewhere/else", age_s=-86_400 * 300, umask=0o077)
    litter(used)
    return built(fresh, where / "one"), built(used, where / "two")


def test_two_builds_are_the_same_bytes(wheels: tuple[Path, Path]) -> None:
    one, two = (hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    assert one == two


def test_the_wheel_holds_the_packages_and_nothing_else(wheels: tuple[Path, Path]) -> None:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = {name for name in archive.namelist() if ".dist-info/" not in name}
        sources = {
            path.relative_to(root).as_posix()
            for root in (ROOT / "services", ROOT / "schemas")
            for package in PACKAGES
            for path in (root / package).rglob("*")
            if (path.suffix in (".py", ".css", ".json", ".toml") and path.name != "ruff.toml")
            or path.name == "py.typed"
        }
        assert names == sources
