"""`up` and `serve agent` on a machine without GPUs, and what is said of hosts."""

import argparse
import json
import signal
from pathlib import Path

import msgspec
import pytest

from fairlease.agent.devices import NoGpus, Site
from fairlease.cli import up
from fairlease.cli.exits import USAGE, CommandError
from fairlease.cli.up import Served, Wanted
from fairlease.runtime.backup import CELL_FILE
from fairlease.runtime.settings import Settings
from tests.cli.cell import Cell
from tests.house.tree import ROOT

NONE = "there is no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded"
BINDINGS = """
NVML_ERROR_LIBRARY_NOT_FOUND = 12
class NVMLError(Exception):
    value = 12
def nvmlInit():
    raise NVMLError("NVML Shared Library Not Found")
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without a driver, also where the tests run on one that has GPUs."""
    (tmp_path / "pynvml.py").write_text(BINDINGS)
    paths = f"{tmp_path}:{ROOT / 'schemas'}:{ROOT / 'services'}"
    return {"PYTHONPATH": paths, "FAIRLEASE_HOME": str(tmp_path / "home")}


def test_an_agent_without_gpus_offers_to_simulate_some(cell: Cell, bare: dict[str, str]) -> None:
    seen = cell.run("serve", "agent", **bare)
    assert seen.code == 7
    assert seen.err.splitlines() == [
        f"fairlease: {NONE}",
        "  simulate some: fairlease serve agent --simulate-gpus 4x8",
    ]


def test_up_without_gpus_says_so_and_brings_the_rest_of_the_cell(cell: Cell, bare: dict[str, str]) -> None:
    started = cell.start("up", "--pool", "lab", **bare)
    assert started.stdout is not None
    said = [started.stdout.readline() for _ in range(3)]
    started.send_signal(signal.SIGTERM)
    started.communicate(timeout=30)
    assert said[2] == f"  devices   none: {NONE}; simulate some: `fairlease up --simulate-gpus 4x8`\n"
    kept = json.loads((Path(bare["FAIRLEASE_HOME"]) / "cell.json").read_text())
    assert (kept["simulate"], kept["site"]["pool"]) == ("", "lab")


def test_a_machine_without_gpus_is_well(cell: Cell, bare: dict[str, str]) -> None:
    checks = json.loads(cell.run("doctor", "--json", **bare, FAIRLEASE_URL="nats://127.0.0.1:1").out)["checks"]
    (check,) = [check for check in checks if check["name"] == "devices"]
    assert (check["is_ok"], check["found"]) == (True, NONE)


def test_simulated_hosts_have_names_of_their_own(cell: Cell) -> None:
    seen = cell.run("serve", "agent", "--simulate-gpus", "1x8", "--host", "gpu-7")
    assert (seen.code, "simulated ones are host-001" in seen.err) == (USAGE, True)


def test_a_cluster_that_no_agent_takes_is_refused_before_anything_is_kept(cell: Cell, tmp_path: Path) -> None:
    home = tmp_path / "new"
    seen = cell.run("up", "--simulate-gpus", "4x17", FAIRLEASE_HOME=str(home))
    assert (seen.code, home.exists()) == (USAGE, False)
    assert "at most 4096 hosts of 16 GPUs are simulated" in seen.err
    assert "for example 8x8" in seen.err


def test_a_directory_that_kept_such_a_cluster_can_be_used_again(tmp_path: Path) -> None:
    up.keep(tmp_path, Wanted(("local", "bob"), "4x17"))
    assert up.remembered(tmp_path) == Wanted(("local", "bob"), "")


def test_a_driver_that_is_broken_does_not_keep_the_cell_from_starting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object) -> None:
        raise NoGpus("it is broken", "mend it")

    monkeypatch.setattr("fairlease.agent.nvml.open_gpus", broken)
    served = up._served("", Site(), Settings(state_dir=tmp_path))
    assert (served.hosts, served.line) == (
        0,
        "none: it is broken (mend it); simulate some: `fairlease up --simulate-gpus 4x8`",
    )
    args = argparse.Namespace(replicas=1)
    assert "agent" not in [part.name for part in up._parts(args, Wanted(), served)]


@pytest.mark.parametrize(
    ("simulate", "words"),
    [
        (
            "",
            [
                "serve",
                "agent",
                "--pool=p",
                "--block=a/b",
                "--host=gpu-7",
                "--address=fd00::7",
                "--users=/u",
                "--label=zone=a",
            ],
        ),
        (
            "2x8",
            [
                *("serve", "agent", "--simulate-gpus", "2x8", "--first-host", "1"),
                *("--pool=p", "--block=a/b", "--address=fd00::7", "--users=/u", "--label=zone=a"),
            ],
        ),
    ],
)
def test_the_agent_is_told_what_up_was_told(simulate: str, words: list[str]) -> None:
    site = Site(host="gpu-7", pool="p", block="a/b", labels={"zone": "a"}, address="fd00::7", users="/u")
    parts = up._parts(argparse.Namespace(replicas=1), Wanted(simulate=simulate), Served(1, "", site))
    assert list(parts[-1].arguments) == words


def test_what_was_said_at_an_earlier_start_stands_under_what_is_said_now(tmp_path: Path) -> None:
    before = Wanted(simulate="1x8", site=Site(pool="a", labels={"zone": "a", "net": "ib"}, address="gpu-7"))
    up.keep(tmp_path, before)
    assert up.remembered(tmp_path) == before
    merged = up._merged(up.remembered(tmp_path).site, Site(block="b", labels={"zone": "b"}))
    assert merged == Site(pool="a", block="b", labels={"zone": "b", "net": "ib"}, address="gpu-7")


def test_a_cell_that_an_earlier_release_made_is_remembered(tmp_path: Path) -> None:
    (tmp_path / CELL_FILE).write_text('{"accounts": ["local"], "simulate": "4x8"}')
    assert up.remembered(tmp_path) == msgspec.structs.replace(Wanted(), simulate="4x8")


@pytest.mark.parametrize(
    "told",
    [
        {"auditors": ["no name"]},
        {"posts": [["ops", ["*"]]]},
        {"posts": [["o p", ["host-001"]]]},
        {"agents": [["gpu", [">"]]]},
    ],
    ids=str,
)
def test_a_directory_that_names_what_is_no_name_is_refused(tmp_path: Path, told: dict[str, list[object]]) -> None:
    (tmp_path / CELL_FILE).write_text(json.dumps({"accounts": ["ops"], **told}))
    with pytest.raises(CommandError, match="is not a name"):
        up.remembered(tmp_path)


def test_an_agent_of_ones_own_gets_hosts_that_no_other_has() -> None:
    own = up._parts(argparse.Namespace(replicas=1), Wanted(simulate="2x8"), Served(2, "", Site()))
    up._refuse_shared_hosts(own, (("mine", ("gpu-7",)), ("yours", ("gpu-8",))))
    for agents, text in (
        ((("mine", ("host-002",)),), "--agent mine: host-002 is a host of agent"),
        ((("mine", ("gpu-7",)), ("yours", ("gpu-7",))), "--agent yours: gpu-7 is a host of mine"),
    ):
        with pytest.raises(CommandError, match=text):
            up._refuse_shared_hosts(own, agents)
