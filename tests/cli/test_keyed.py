"""Doctor and debug bundle at a bus that knows everybody by a key, as that of `fairlease up` does; no service runs."""

import asyncio
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlease.cli.exits import FAILED, OK
from fairlease.cli.main import main
from fairlease.runtime import bus_server, keys, streams
from fairlease.runtime.access import access
from fairlease.runtime.connection import connect
from fairlease.runtime.permissions import Plan, identities
from fairlease_schemas.subjects import Subjects

SUBJECTS = Subjects("lab")
ACCOUNTS = ("local", "ci")


async def declared(server: bus_server.BusServer) -> None:
    key = keys.read(keys.key_path(server.home, keys.DEPLOYER))
    client = await connect(server.url, "test", key=key, exit_on_close=False)
    await streams.declare(client, SUBJECTS, ACCOUNTS)
    await client.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The state directory of such a bus, with every key in it."""
    known = access(tmp_path / "home", SUBJECTS, identities(Plan(cell="lab", accounts=ACCOUNTS)))
    server = bus_server.start(tmp_path / "home", access=known, dies_with_parent=True)
    asyncio.run(declared(server))
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FAIRLEASE_URL", raising=False)
    yield tmp_path / "home"
    server.stop()


def checks(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    """What the doctor finds wrong or well, by check; services are missing, so it never ends with 0."""
    assert main(["doctor", "--json"]) == FAILED
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def bundled(where: Path) -> dict[str, Any]:
    """What is said of the streams in a bundle that is made now, by name."""
    assert main(["debug", "bundle", str(where)]) == OK
    with tarfile.open(where) as tar:
        file = tar.extractfile("cell/streams.json")
        assert file is not None
        found = json.load(file)
    return {one["config"]["name"]: one for one in found} if isinstance(found, list) else found


def renewed(home: Path, identity: str) -> None:
    """The key lies there anew, and the bus knows the old one."""
    keys.key_path(home, identity).unlink()
    keys.make(home, identity)


def test_a_bundle_tells_every_stream_of_a_cell_with_keys(home: Path, tmp_path: Path) -> None:
    found = bundled(tmp_path / "cell.tar.gz")
    assert found.keys() == streams.wanted(SUBJECTS, ACCOUNTS).keys()
    told = found[SUBJECTS.inbox_stream("ci")]
    assert (told["config"]["max_msg_size"], told["state"]["messages"]) == (65_536, 0)


def test_who_has_not_the_cells_keys_is_told_that_streams_are_not_his_to_see(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEASE_CREDS", str(keys.key_path(home, "client-ci")))
    keys.key_path(home, keys.AUDIT).unlink()
    assert bundled(tmp_path / "cell.tar.gz") == {"trouble": "streams are for who has the cell's keys"}


def test_a_key_of_the_auditor_that_the_bus_does_not_know_shows_nothing_and_the_rest_is_looked_at(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renewed(home, keys.AUDIT)
    found = checks(capsys)
    assert found["streams"]["found"] == "not looked at: that is for who has the cell's keys"
    assert (found["bus"]["is_ok"], found["inbox"]["is_ok"], found["clock"]["is_ok"]) == (True, True, True)
    assert bundled(tmp_path / "cell.tar.gz") == {"trouble": "streams are for who has the cell's keys"}


def test_the_password_of_the_bus_is_not_told_by_a_refusal_of_the_key(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = json.loads((home / "bus.json").read_text())["url"].removeprefix("nats://")
    monkeypatch.setenv("FAIRLEASE_URL", f"nats://ann:canary-word@{url}")
    renewed(home, "client-local")
    assert main(["queue"]) != OK
    said = capsys.readouterr().err
    assert ("refuses the key of client-local" in said, "canary" in said) == (True, False)
