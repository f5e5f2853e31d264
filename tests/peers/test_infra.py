"""Units and alerts, by the programs that read them: systemd-analyze and promtool."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.tree import ROOT

UNITS = sorted(path.name for path in (ROOT / "infra/systemd").glob("*.service"))
PROMETHEUS = ROOT / "infra/prometheus"


def _said(*words: str, cwd: Path) -> tuple[int, str]:
    found = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    return found.returncode, found.stdout + found.stderr


def _here(unit: str, tmp_path: Path) -> str:
    """The unit with a program that this machine has."""
    text = (ROOT / "infra/systemd" / unit).read_text().replace("/opt/fairlease/bin/fairlease", "/bin/true")
    (tmp_path / unit).write_text(text)
    return f"./{unit}"


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_the_unit_without_a_word(unit: str, tmp_path: Path) -> None:
    assert _said("systemd-analyze", "verify", "--man=no", _here(unit, tmp_path), cwd=tmp_path) == (0, "")


def test_systemd_would_not_take_a_slip(tmp_path: Path) -> None:
    path = tmp_path / _here("fairlease@.service", tmp_path)
    path.write_text(path.read_text().replace("NoNewPrivileges=", "NoNewPrivilege="))
    assert "NoNewPrivilege" in _said("systemd-analyze", "verify", "--man=no", str(path), cwd=tmp_path)[1]


@pytest.mark.parametrize("unit", ["fairlease@.service", "fairlease-bus@.service"])
def test_services_and_bus_are_exposed_to_less_than_two_of_ten(unit: str, tmp_path: Path) -> None:
    _, said = _said("systemd-analyze", "security", "--offline=yes", "--no-pager", _here(unit, tmp_path), cwd=tmp_path)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found is not None, said
    assert float(found[1]) < 2.0


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    code, said = _said("promtool", "check", "rules", "fairlease.rules.yml", cwd=PROMETHEUS)
    assert code == 0, said


def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    code, said = _said("promtool", "test", "rules", "fairlease.test.yml", cwd=PROMETHEUS)
    assert code == 0, said


def test_an_alert_that_fires_too_late_would_be_found(tmp_path: Path) -> None:
    for name in ("fairlease.rules.yml", "fairlease.test.yml"):
        shutil.copy(PROMETHEUS / name, tmp_path / name)
    rules = tmp_path / "fairlease.rules.yml"
    rules.write_text(rules.read_text().replace("for: 2m", "for: 2h"))
    assert _said("promtool", "test", "rules", "fairlease.test.yml", cwd=tmp_path)[0] != 0
