"""The file of a cell that somebody else keeps running, and the files that are made of it."""

import subprocess
from pathlib import Path

import pytest

from fairlease.runtime import bus_server, deployment, keys
from fairlease.runtime.deployment import Deployment
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.secret import Secret
from fairlease.runtime.settings import servers_in

ONE = '[[servers]]\nname = "bus-1"\nhost = "127.0.0.1"\n'
THREE = "".join(f'[[servers]]\nname = "bus-{n}"\nhost = "10.0.0.{n}"\n' for n in (1, 2, 3))
OPEN = '[bus]\nlisten = "0.0.0.0"\n'
PLAIN = OPEN + "plain = true\n"


def _read(tmp_path: Path, text: str) -> Deployment:
    path = tmp_path / "cell.toml"
    path.write_text(text)
    return deployment.read(path)


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "missing required field `servers`", id="a bus has servers"),
        pytest.param(ONE + "colour = 1\n", "unknown field `colour`", id="a typo is told"),
        pytest.param("servers = [\n", "docs/deploying.md says each field", id="no TOML at all"),
        pytest.param("accounts = []\n" + ONE, "accounts: there is none", id="somebody must be able to hand in"),
        pytest.param('accounts = ["Big"]\n' + ONE, "accounts: 'Big' is not a name", id="names are names"),
        pytest.param(
            ONE + '[posts]\nfixer = ["h1"]\n', "'fixer' is none of bots; write it there", id="hosts of no bot"
        ),
        pytest.param('bots = ["fixer"]\n' + ONE + "[posts]\nfixer = []\n", "posts.fixer: has no host", id="no host"),
        pytest.param('bots = ["fixer"]\n' + ONE + '[posts]\nfixer = ["*"]\n', "'*' is not a name", id="any host"),
        pytest.param('auditors = ["a", "a"]\n' + ONE, "auditors: 'a' stands there twice", id="an auditor twice"),
        pytest.param('bots = ["local"]\n' + ONE, "accounts and bots: 'local' stands there twice", id="bot or account"),
        pytest.param('[agents]\na = ["h"]\nb = ["h"]\n' + ONE, "agents: 'h' stands there twice", id="one agent a host"),
        pytest.param('[agents]\na = ["h h"]\n' + ONE, "agents.a: 'h h' is not a name", id="hosts have names"),
        pytest.param(ONE + ONE.replace("bus-1", "bus-2"), "there are 2; write 1, 3 or 5", id="two cannot outvote one"),
        pytest.param(THREE.replace("bus-3", "bus-2") + OPEN, "'bus-2' stands there twice", id="servers by name"),
        pytest.param(THREE.replace("10.0.0.3", "10.0.0.2"), "servers: '10.0.0.2:4222'", id="a port has one owner"),
        pytest.param(ONE.replace("bus-1", "accounts"), "would be accounts.conf", id="no server stands on the accounts"),
        pytest.param(ONE.replace("127.0.0.1", "a b"), "servers.host: 'a b' is no address", id="hosts are addresses"),
        pytest.param(ONE + "port = 70000\n", "70000 is no port", id="ports have a bound"),
        pytest.param(ONE + '[bus]\nstore = "here"\n', "bus.store: 'here'", id="paths are absolute"),
        pytest.param(
            ONE + "[bus]\nstore = '/a\"b'\n", "bus.store", id="a quote would end the text in the configuration"
        ),
        pytest.param(ONE + '[bus]\nlisten = "*"\n', "bus.listen: '*' is no address", id="one listens at an address"),
        pytest.param(THREE, "servers.host: '10.0.0.1' is where others reach it", id="who is reached listens there"),
        pytest.param(THREE + OPEN, "there is no TLS", id="nothing plain is reached from elsewhere by accident"),
    ],
)
def test_a_file_that_is_no_cell_is_refused_and_says_where(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigWrong, match=r"cell\.toml") as refused:
        _read(tmp_path, text)
    assert problem in str(refused.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigWrong, match="cannot be read"):
        deployment.read(tmp_path / "no.toml")


def test_each_stream_is_held_by_three_servers_where_there_are_as_many(tmp_path: Path) -> None:
    five = THREE + "".join(f'[[servers]]\nname = "bus-{n}"\nhost = "10.0.0.{n}"\n' for n in (4, 5))
    assert [_read(tmp_path, text + PLAIN).replicas for text in (ONE, THREE, five)] == [1, 3, 3]


def test_clients_are_told_every_server(tmp_path: Path) -> None:
    cell = _read(tmp_path, THREE + '[bus]\nlisten = "0.0.0.0"\ntls = "/etc/tls"\n')
    assert servers_in(cell.url) == ["tls://10.0.0.1:4222", "tls://10.0.0.2:4222", "tls://10.0.0.3:4222"]


def test_what_is_written_is_closed_to_others_and_the_same_the_next_time(tmp_path: Path) -> None:
    cell, out = _read(tmp_path, '[agents]\ngpu-1 = ["gpu-1"]\n' + THREE + PLAIN), tmp_path / "out"
    made = deployment.write(cell, out)
    first = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert [path.name for path in made] == ["bus-1.conf", "bus-2.conf", "bus-3.conf"]
    assert (out / "keys" / "agent-gpu-1.key").exists()
    assert deployment.write(cell, out) == made
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == first
    assert {_mode(path) & 0o077 for path in (out, *out.rglob("*"))} == {0}


def test_an_agent_more_gets_a_key_and_the_others_keep_theirs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    deployment.write(_read(tmp_path, ONE), out)
    before = keys.read(keys.key_path(out, "client-local"))
    deployment.write(_read(tmp_path, '[agents]\nnew = ["gpu-9"]\n' + ONE), out)
    assert keys.read(keys.key_path(out, "client-local")) == before
    assert "fl.lab.report.gpu-9.*" in (out / deployment.ACCOUNTS_FILE).read_text()


@pytest.mark.parametrize("servers", [ONE, THREE], ids=["one server", "three servers"])
def test_the_server_takes_what_is_written(tmp_path: Path, servers: str) -> None:
    cell = _read(tmp_path, servers + PLAIN + f'store = "{tmp_path}/store"\n')
    for conf in deployment.write(cell, tmp_path / "out"):
        words = [str(bus_server.program()), "-t", "-c", str(conf)]
        said = subprocess.run(words, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr


def test_a_single_server_has_no_routes_and_many_know_each_other_and_not_themselves(tmp_path: Path) -> None:
    (one,) = deployment.write(_read(tmp_path, ONE), tmp_path / "one")
    assert "cluster {" not in one.read_text()
    for number, conf in enumerate(deployment.write(_read(tmp_path, THREE + PLAIN), tmp_path / "three"), start=1):
        routes = [line for line in conf.read_text().splitlines() if "@10.0.0." in line]
        assert len(routes) == 2
        assert not any(f"@10.0.0.{number}:" in line for line in routes)


def test_with_certificates_clients_see_the_servers_and_servers_see_each_others(tmp_path: Path) -> None:
    cell = _read(tmp_path, THREE + '[bus]\nlisten = "0.0.0.0"\ntls = "/etc/tls"\n')
    text = deployment.config(cell, cell.servers[0], Secret("secret"))
    clients, _, routes = text.partition("cluster {")
    assert 'cert_file: "/etc/tls/server.crt"' in clients
    assert "verify: true" not in clients
    assert "handshake_first: true" in clients, "nobody hears a word before it"
    assert 'ca_file: "/etc/tls/ca.crt"' in routes
    assert "verify: true" in routes
