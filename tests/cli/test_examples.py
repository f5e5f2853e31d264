"""The command line in the header of an example is one that works, word for word."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fairlease.cli.main import main
from fairlease.cli.packing import pack
from tests.house.tree import ROOT


def test_the_training_example_is_submitted_as_its_header_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule: 1.13
    monkeypatch.chdir(ROOT)
    header = (ROOT / "examples" / "train.yaml").read_text(encoding="utf-8")
    found = re.search(r"^# +fairlease (submit .+)$", header, re.MULTILINE)
    assert found is not None
    words = shlex.split(os.path.expandvars(found[1].replace("$PWD", str(ROOT))))
    at = words.index("--")
    assert main([*words[:at], "--dry-run", "--json", *words[at:]]) == 0
    spec = json.loads(capsys.readouterr().out)["contract"]["spec"]
    assert spec["command"] == words[at + 1 :]
    assert spec["source"]["bundle"] == pack(words[words.index("--bundle") + 1]).bundle
    assert (ROOT / "examples" / Path(spec["command"][1])).is_file(), "the script is in the bundle by that name"


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("memory=echo {host} has {0} faults", "memory=0:host-1 has {0} faults"),
        ("memory=false", "memory=1:"),
        ("memory=sh -c 'echo worse; exit 9'", "memory=3:worse"),
        ("memory=/nowhere/check", "memory=3:/nowhere/check: No such file or directory"),
    ],
)
def test_a_check_of_the_bot_is_told_however_it_ends(check: str, told: str) -> None:
    assert runpy.run_path(str(ROOT / "examples/service_hosts.py"))["made"](check, "host-1") == told


def test_the_script_of_the_example_runs_where_the_bundle_is_unpacked(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "train.py", "--steps", "20", "--out", str(tmp_path / "out")],
        cwd=ROOT / "examples",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
