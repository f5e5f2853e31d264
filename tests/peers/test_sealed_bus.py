"""Three servers that are sealed: routes and clients by certificates of openssl, as docs/deploying.md has them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from fairlease.runtime import deployment
from fairlease.runtime.deployment import Deployment
from tests.house.tree import ROOT
from tests.live import process
from tests.live.cluster import as_toml, cell_of

_WAIT = "40s"


def _openssl(tls: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=tls, check=True, capture_output=True)


def _certificates(tls: Path, name: str) -> None:
    """An authority, and a server's certificate by it for that address alone."""
    tls.mkdir()
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj")
    _openssl(tls, *new, "/CN=authority", "-x509", "-days", "1", "-keyout", "ca.key", "-out", "ca.crt")
    _openssl(tls, *new, "/CN=bus", "-keyout", "server.key", "-out", "server.csr")
    (tls / "names").write_text(f"subjectAltName=IP:{name}\nextendedKeyUsage=serverAuth,clientAuth\n")
    by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "1")
    _openssl(tls, "x509", "-req", "-in", "server.csr", *by, "-out", "server.crt")


def _command(
    cell: Deployment, home: Path, *words: str, ca: Path | None, variable: str = "SSL_CERT_FILE"
) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("FAIRLEASE_", "SSL_"))}
    paths = os.pathsep.join((str(ROOT), str(ROOT / "schemas"), str(ROOT / "services")))
    env = {**kept, "PYTHONPATH": paths, "FAIRLEASE_HOME": str(home)}
    env |= {variable: str(ca)} if ca is not None else {}
    return subprocess.run(
        [sys.executable, "-m", "fairlease", *words], env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture(params=["127.0.0.1", "127.0.0.9"], ids=["its own address", "another address"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Deployment, Path, bool]]:
    """A cell whose servers run, its directory, and whether their certificate is for where they are."""
    home = tmp_path / "cell"
    cell = cell_of(home)
    # Not where our own would lie: the authority is known by what the environment says of it, or not at all.
    cell = msgspec.structs.replace(cell, bus=msgspec.structs.replace(cell.bus, tls=str(home / "certificates")))
    confs = deployment.write(cell, home)
    _certificates(home / "certificates", request.param)
    (home / "cell.toml").write_text(as_toml(cell))
    with ExitStack() as stack:
        stack.callback(process.kill_all, home)
        for conf in confs:
            words = [sys.executable, "-m", "fairlease", "bus", "serve", str(conf)]
            paths = os.pathsep.join((str(ROOT / "schemas"), str(ROOT / "services")))
            log = stack.enter_context((home / f"{conf.stem}.log").open("wb"))
            env = {**os.environ, "PYTHONPATH": paths, "FAIRLEASE_HOME": str(home)}
            stack.enter_context(subprocess.Popen(words, env=env, stdout=log, stderr=log)).poll()
            stack.callback(process.kill_all, home)  # before the process is waited for
        yield cell, home, request.param == "127.0.0.1"


def test_servers_and_clients_meet_by_the_authority_they_know_and_the_names_it_vouched_for(
    sealed: tuple[Deployment, Path, bool],
) -> None:
    cell, home, is_true = sealed
    ca, file = home / "certificates/ca.crt", str(home / "cell.toml")
    found = _command(cell, home, "bus", "declare", file, "--wait", _WAIT if is_true else "1s", ca=ca)
    assert found.returncode == (0 if is_true else 69), found.stderr
    strange = _command(cell, home, "bus", "declare", file, "--wait", "1ms", ca=None)
    assert strange.returncode == 69
    if is_true:
        again = _command(cell, home, "bus", "declare", file, ca=ca, variable="FAIRLEASE_CA")
        assert again.stdout == "every stream is there, and as it must be\n", again.stderr
