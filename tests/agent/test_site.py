"""What is measured of a machine, and what is told of it."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlease.agent import devices
from fairlease.agent.devices import Site, measure, simulated
from fairlease.agent.main import told
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import read_settings
from fairlease_schemas.terms import LABEL_PATTERN


def test_cores_are_those_of_the_affinity_and_memory_and_disk_are_there(tmp_path: Path) -> None:
    machine = measure(tmp_path / "not" / "made" / "yet")
    assert machine.cpu_cores == len(os.sched_getaffinity(0))
    assert machine.memory_mib > 0
    total = os.statvfs(tmp_path)
    assert 0 < machine.disk_mib <= total.f_blocks * total.f_frsize // 1024**2
    assert machine == measure(tmp_path), "what is used meanwhile must not change the facts"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({}, 2048, id="no limit is the whole machine"),
        pytest.param({"v2": "max\n"}, 2048, id="max is the whole machine"),
        pytest.param({"v2": "1073741824\n"}, 1024, id="a limit of version 2"),
        pytest.param({"v1": "9223372036854771712\n"}, 2048, id="version 1 says a number for none"),
        pytest.param({"v1": "536870912\n"}, 512, id="a limit of version 1"),
    ],
)
def test_memory_goes_up_to_the_limit_of_the_group(tmp_path: Path, limits: dict[str, str], expected: int) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:        2097152 kB\nMemFree:  1 kB\n")
    for name, text in limits.items():
        (tmp_path / name).write_text(text)
    assert devices._memory_mib(meminfo, [tmp_path / "v1", tmp_path / "v2"]) == expected


def test_simulated_hosts_are_told_of_in_the_same_way() -> None:
    site = Site(pool="lab", block="row-a/rack-1", labels={"zone": "a"})
    for host in simulated("2x4", site=site, disk_mib=99):
        inventory = host.inventory()
        assert (inventory.pool, inventory.block, inventory.labels) == ("lab", "row-a/rack-1", {"zone": "a"})
        assert (inventory.disk_mib, inventory.is_simulated) == (99, True)


def test_the_command_line_goes_before_the_settings_label_by_label(tmp_path: Path) -> None:
    env = {"FAIRLEASE_HOME": str(tmp_path), "FAIRLEASE_POOL": "lab", "FAIRLEASE_LABELS": "zone=a, net=ib,"}
    env |= {"FAIRLEASE_HOST_ADDRESS": "gpu-7", "FAIRLEASE_USERS": "/etc/users"}
    settings = read_settings("agent", env)
    assert told(Site(), settings) == Site(
        pool="lab", labels={"zone": "a", "net": "ib"}, address="gpu-7", users="/etc/users"
    )
    said = Site(pool="big", labels={"zone": "b"}, address="10.0.0.7", users="/u")
    assert told(said, settings) == replace(said, labels={"zone": "b", "net": "ib"})


@pytest.mark.parametrize("text", ["zone", "=a", "Zone=a", "a b=c", f"zone={'a' * 64}", "zone=a\x07"])
def test_labels_that_no_contract_could_ask_for_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigWrong, match=r"FAIRLEASE_LABELS: .* is not a label: write KEY=VALUE,KEY=VALUE"):
        read_settings("agent", {"FAIRLEASE_HOME": str(tmp_path), "FAIRLEASE_LABELS": text})


def test_a_pool_that_is_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigWrong, match="FAIRLEASE_POOL"):
        read_settings("agent", {"FAIRLEASE_HOME": str(tmp_path), "FAIRLEASE_POOL": "Big Pool"})


def test_keys_of_labels_are_those_of_contracts() -> None:
    from fairlease.runtime.settings import _LABEL_KEY

    assert f"^{_LABEL_KEY.pattern}$" == LABEL_PATTERN
