"""Cells that are sealed: `fairlease up --tls` and three servers of a bus, with all that connects to them."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fairlease.cli.exits import AWAY, OK
from fairlease.cli.up import CELL_FILE
from fairlease.runtime.connection import connect
from fairlease.runtime.errors import BusAway
from fairlease.runtime.keys import key_path
from fairlease.runtime.settings import Settings, url_in
from tests.house.tree import ROOT
from tests.live.cell import Up, up_at
from tests.live.cluster import Cluster, cluster_at
from tests.live.court import eventually
from tests.live.desk import Job

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUBMIT = ("submit", "--budget", "team-a", "--min-runtime", "1s", "--timeout", "1h")
ASKS = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from bus_client import Away, CellClient

async def main():
    client = CellClient.of_environment()
    await client.open()
    print((await client.ask("queue", {}))["running"])
    await client.close()

try:
    asyncio.run(main())
except Away as away:
    sys.exit(f"{away}")
"""


class Sealed(Up):
    """Asked for TLS at its first start; then it remembers."""

    async def start(self, *more: str) -> None:
        await super().start(*([] if (self.home / CELL_FILE).exists() else ["--tls"]), *more)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sealed]:
    async with up_at(tmp_path_factory.mktemp("tls") / "cell", Sealed) as up:
        yield up


async def _bus(up: Up, **more: str) -> tuple[bool, str, str]:
    """What the doctor says of the bus: whether it is well, what it found, how to mend it."""
    _, out, _ = await up.run("doctor", "--json", **more)
    check = next(check for check in json.loads(out)["checks"] if check["name"] == "bus")
    return check["is_ok"], check["found"], check["mend"]


async def test_a_job_is_handed_in_runs_and_is_followed_and_nothing_of_it_is_plain(up: Sealed) -> None:
    assert url_in(up.home).startswith("tls://127.0.0.1:")
    assert f"\n  authority {up.home}/tls/ca.crt, by which others know the bus" in (up.home / "up.out").read_text()
    code, out, err = await up.run(*SUBMIT, "--follow", "--", "sh", "-c", "echo one; sleep 1; echo two; exit 4")
    assert (code, out.splitlines()[-2:]) == (4, ["one", "two"]), err
    is_ok, found, _ = await _bus(up)
    assert is_ok
    assert ", by TLS, its certificate ends on 20" in found
    with pytest.raises(BusAway, match="it may want TLS: write tls://"):
        await connect(url_in(up.home).replace("tls://", "nats://"), "plain", exit_on_close=False)


async def test_a_renewed_certificate_is_served_by_itself_and_everything_stays_connected(up: Sealed) -> None:
    seen = up.home / "bus.log"
    before = seen.read_text().count("Reloaded: tls")
    code, out, err = await up.run("certs", "--renew", "--name", "cell.example.org")
    assert (code, "cell.example.org" in out) == (OK, True), err
    await eventually(lambda: seen.read_text().count("Reloaded: tls") > before, "the bus has read it")
    code, _, err = await up.run(*SUBMIT, "--wait", "--", "true")
    assert code == OK, err
    assert not [log for log in (up.home / "logs").glob("*.log") if "connection lost" in log.read_text()]
    code, _, said = await up.run("certs", "--force")
    assert (code, "a bus runs here" in said) == (7, True), said


async def test_from_elsewhere_who_has_a_key_and_the_authority_gets_in_and_who_lacks_it_is_told(
    up: Sealed, tmp_path: Path
) -> None:
    elsewhere = {
        "FAIRLEASE_HOME": str(tmp_path / "home"),
        "FAIRLEASE_URL": url_in(up.home).replace("127.0.0.1", "localhost"),
        "FAIRLEASE_CREDS": str(key_path(up.home, "client-local")),
    }
    known = {**elsewhere, "FAIRLEASE_CA": str(up.home / "tls/ca.crt")}
    code, _, err = await up.run("queue", **known)
    assert code == OK, err
    code, _, err = await up.run("queue", **elsewhere)
    assert (code, "name the cell's ca.crt in FAIRLEASE_CA" in err) == (AWAY, True), err
    is_ok, _, mend = await _bus(up, **elsewhere)
    assert (is_ok, mend) == (False, "name the cell's ca.crt in FAIRLEASE_CA")


async def test_a_client_that_needs_nothing_of_ours_gets_in_by_the_authority_and_not_without(
    up: Sealed, tmp_path: Path
) -> None:
    asks = tmp_path / "asks.py"
    asks.write_text(ASKS)
    known = {
        "FAIRLEASE_URL": url_in(up.home),
        "FAIRLEASE_CREDS": str(key_path(up.home, "client-local")),
        "FAIRLEASE_CA": str(up.home / "tls/ca.crt"),
    }
    for changes, code, said in (
        ({}, 0, "0\n"),
        ({"FAIRLEASE_CA": str(asks)}, 1, "no authority in "),
        ({"FAIRLEASE_URL": f"{url_in(up.home)},nats://127.0.0.1:1"}, 1, "some servers are tls:// and others are not"),
        ({"FAIRLEASE_CA": ""}, 1, "no bus at "),
    ):
        child = await up.beside(sys.executable, str(asks), str(ROOT / "examples"), **{**known, **changes})
        out, err = await child.communicate()
        assert child.returncode == code, err
        assert said in (out + err).decode()


async def test_a_backup_of_a_sealed_cell_is_made_and_restored_sealed_by_an_authority_of_its_own(
    up: Sealed, tmp_path: Path
) -> None:
    code, _, err = await up.run("backup", str(tmp_path / "cell.backup"))
    assert code == OK, err
    again = {"FAIRLEASE_HOME": str(tmp_path / "again"), "FAIRLEASE_URL": ""}
    code, _, err = await up.run("restore", str(tmp_path / "cell.backup"), **again)
    assert code == OK, err
    assert json.loads((tmp_path / "again" / CELL_FILE).read_text())["tls"] is True
    assert not (tmp_path / "again/tls").exists()


async def test_started_again_it_is_sealed_still_and_plain_only_when_that_is_said(up: Sealed) -> None:
    for words, scheme in (((), "tls"), (("--no-tls",), "nats"), ((), "nats"), (("--tls",), "tls")):
        assert up.process is not None
        up.process.send_signal(signal.SIGTERM)
        assert await up.wait_left() == 0
        await up.start(*words)
        assert url_in(up.home).partition("://")[0] == scheme
        code, _, err = await up.run(*SUBMIT, "--wait", "--", "true")
        assert code == OK, err


async def test_three_sealed_servers_lose_one_and_go_on(tmp_path: Path) -> None:
    async with cluster_at(tmp_path / "cell", is_sealed=True) as cluster:
        assert cluster.cell.url.count("tls://") == 3
        await cluster.submit(Job("before"))
        await eventually(cluster.is_whole, "every stream stands on three servers")
        await cluster.kill(await cluster.leader())
        await cluster.submit(Job("after"))
        await cluster.over(limit_s=120)
        await _refuses_what_is_plain(cluster)


async def _refuses_what_is_plain(cluster: Cluster) -> None:
    for server in cluster.cell.servers:
        with pytest.raises(BusAway, match="it may want TLS"):
            await connect(
                Settings(state_dir=cluster.home, url=f"nats://127.0.0.1:{server.port}"), "plain", exit_on_close=False
            )
