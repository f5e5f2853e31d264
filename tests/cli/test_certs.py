"""`fairlease certs` as it is typed, and what the doctor says of certificates; with a cell: tests/live/test_tls.py."""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlease.cli import up
from fairlease.cli.exits import FAILED, USAGE
from fairlease.cli.main import main
from fairlease.cli.up import Wanted
from fairlease.cli.verbs import build
from fairlease.runtime import bus_server, certificates
from fairlease.runtime.errors import EXIT_CONFIG


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FAIRLEASE_URL", "FAIRLEASE_CREDS", "FAIRLEASE_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FAIRLEASE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_what_was_made_is_told_and_what_comes_next(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", "--name", "bus-1.example.org", "--name", "10.0.0.9"]) == 0
    authority, fingerprint, server, names, following = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"authority {home}/tls/ca\.crt, until 20\d\d-\d\d-\d\d", authority)
    assert re.fullmatch(r"  sha256 [0-9a-f]{2}(:[0-9a-f]{2}){31}", fingerprint)
    assert re.fullmatch(rf"server    {home}/tls/server\.crt, until 20\d\d-\d\d-\d\d", server)
    assert names.startswith("  for localhost, 127.0.0.1, ::1, ")
    assert names.endswith(", bus-1.example.org, 10.0.0.9")
    assert following.startswith("next: `fairlease up --tls`; who connects from elsewhere needs ca.crt and nothing else")


def test_made_again_is_seven_and_renewed_and_replaced_are_none(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs"]) == 0
    first = capsys.readouterr().out.splitlines()[1]
    assert main(["certs"]) == EXIT_CONFIG
    assert "is there already; `--renew`" in capsys.readouterr().err
    assert main(["certs", "--renew"]) == 0
    renewed = capsys.readouterr().out.splitlines()
    assert (renewed[1], renewed[-1]) == (first, "a cell of `fairlease up --tls` takes it at once; reload any other bus")
    assert main(["certs", "--force"]) == 0
    assert capsys.readouterr().out.splitlines()[1] != first


@pytest.mark.parametrize("words", [["--renew", "--force"], ["--name", "bus:4222"], ["--name", "*.example.org"], ["x"]])
def test_what_is_mistyped_is_64_and_makes_nothing(home: Path, words: list[str]) -> None:
    assert main(["certs", *words]) == USAGE
    assert not home.exists()


def test_nothing_can_be_renewed_that_was_never_made(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", "--renew"]) == EXIT_CONFIG
    assert "without it nothing is renewed here" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEASE_HOME", "/proc/nobody/home")
    assert main(["certs"]) == EXIT_CONFIG
    assert "mend its rights or choose another FAIRLEASE_HOME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"), [([], None), (["--tls"], True), (["--no-tls"], False), (["--tls", "--no-tls"], False)]
)
def test_tls_is_asked_for_left_or_not_spoken_of(words: list[str], said: bool | None) -> None:
    found: argparse.Namespace = build().parse_args(["up", *words])
    assert found.tls is said


def test_a_cell_of_an_earlier_release_is_plain_until_somebody_asks(home: Path) -> None:
    home.mkdir()
    (home / up.CELL_FILE).write_text('{"accounts": ["local"], "simulate": "4x8"}')
    assert up.remembered(home) == Wanted(simulate="4x8", tls=False)
    up.keep(home, Wanted(tls=True))
    assert list(json.loads((home / up.CELL_FILE).read_text()))[-1] == "tls"
    assert up.remembered(home).tls


@pytest.fixture
def ending_soon(home: Path) -> Iterator[bus_server.BusServer]:
    """A sealed bus with 20 days left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "SERVER_DAYS", 20)
        certificates.make(home)
    server = bus_server.start(home, dies_with_parent=True, is_sealed=True)
    yield server
    server.stop()


def _checks(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert main(["doctor", "--json"]) == FAILED
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_the_doctor_says_a_month_before_that_a_certificate_ends(
    ending_soon: bus_server.BusServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = _checks(capsys)["bus"]
    assert (bus["is_ok"], ", by TLS, its certificate ends on 20" in str(bus["found"])) == (False, True)
    assert str(bus["mend"]).startswith("`fairlease certs --renew` where the bus runs")
    monkeypatch.setattr("fairlease.cli.doctor.LEAST_CERTIFICATE_MS", 19 * 86_400_000)
    assert _checks(capsys)["bus"]["is_ok"]


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"FAIRLEASE_URL": "tls://a:1,nats://b:1"}, "some servers are tls:// and others nats://"),
        ({"FAIRLEASE_URL": "https://a:1"}, "https:// is no bus; write nats://HOST:PORT, or tls://HOST:PORT"),
        ({"FAIRLEASE_URL": "tls://a:1", "FAIRLEASE_CA": "/dev/null"}, "authority /dev/null: cannot be read"),
        ({"FAIRLEASE_URL": "tls://a:1", "FAIRLEASE_CA": "/nowhere"}, "No such file or directory"),
    ],
)
def test_addresses_and_an_authority_that_are_none_are_told_before_the_bus_is_asked(
    home: Path,
    env: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    config = _checks(capsys)["config"]
    assert (config["is_ok"], told in str(config["found"])) == (False, True), config
