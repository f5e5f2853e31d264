"""The certificates of a bus: made at once or not at all, closed to others, renewed under who knows the authority."""

import os
import socket
import ssl
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fairlease.runtime import bus_server, certificates, tls
from fairlease.runtime.certificates import Certificates
from fairlease.runtime.errors import ConfigWrong

FILES = {"ca.crt": 0o644, "ca.key": 0o600, "server.crt": 0o644, "server.key": 0o600}
NAMES = {"localhost", "127.0.0.1", "::1", socket.gethostname().lower()}
A_DAY = timedelta(days=1)


def _bytes(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((home / "tls").iterdir())}


def _days(ends: datetime) -> int:
    return round((ends - datetime.now(UTC)) / A_DAY)


def test_four_files_are_made_and_keys_are_their_owners_alone(tmp_path: Path) -> None:
    made = certificates.make(tmp_path / "home")
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.directory.iterdir()}
    assert (found, stat.S_IMODE(made.directory.stat().st_mode)) == (FILES, 0o700)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["tls"]
    assert (set(made.names), _days(made.server_ends), _days(made.authority_ends)) == (NAMES, 396, 3_652)
    tls.check(made.directory)


def test_whoever_else_may_read_the_state_directory_may_not_read_the_keys(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = certificates.make(tmp_path)
    finally:
        os.umask(before)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.directory.iterdir()} == FILES


def test_further_names_are_named_once_as_they_are_compared(tmp_path: Path) -> None:
    made = certificates.make(tmp_path, ["Bus-1.Example.org", "bus-1.example.org", "10.0.0.9", "0:0::1"])
    assert set(made.names) == NAMES | {"bus-1.example.org", "10.0.0.9"}
    assert len(made.names) == len(set(made.names))


@pytest.mark.parametrize("name", ["", "a b", "*.example.org", "bus:4222", "a/b", "x" * 300, "bus\n"])
def test_what_is_no_name_of_a_machine_is_refused_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigWrong, match=r"--name .*write an IP address or a host name"):
        certificates.make(tmp_path, [name])
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    certificates.make(tmp_path)
    before = _bytes(tmp_path)
    with pytest.raises(ConfigWrong, match=r"is there already; `--renew`.*`--force`"):
        certificates.make(tmp_path)
    assert certificates.ensure(tmp_path).directory == tmp_path / "tls"
    assert _bytes(tmp_path) == before


def test_a_renewed_certificate_is_of_the_same_authority_by_another_key_for_all_names_so_far(tmp_path: Path) -> None:
    first = certificates.make(tmp_path, ["bus-1.example.org"])
    before = _bytes(tmp_path)
    second = certificates.renew(tmp_path, ["bus-2.example.org"])
    changed = {name for name, data in _bytes(tmp_path).items() if data != before[name]}
    assert (changed, second.fingerprint) == ({"server.crt", "server.key"}, first.fingerprint)
    assert set(second.names) == {*first.names, "bus-2.example.org"}
    tls.check(second.directory)


def test_another_authority_changes_everything_and_forgets_names(tmp_path: Path) -> None:
    first = certificates.make(tmp_path, ["bus-1.example.org"])
    before = _bytes(tmp_path)
    second = certificates.replace(tmp_path)
    assert all(data != before[name] for name, data in _bytes(tmp_path).items())
    assert (first.fingerprint != second.fingerprint, set(second.names)) == (True, NAMES)


def test_under_a_running_bus_the_authority_stays(tmp_path: Path) -> None:
    certificates.make(tmp_path)
    before = _bytes(tmp_path)
    server = bus_server.start(tmp_path, dies_with_parent=True, is_sealed=True)
    with pytest.raises(ConfigWrong, match="a bus runs here, and its cell knows the old authority; stop it"):
        certificates.replace(tmp_path)
    server.stop()
    assert _bytes(tmp_path) == before
    certificates.replace(tmp_path)
    bus_server.start(tmp_path, dies_with_parent=True, is_sealed=True).stop()


def _ending_in(monkeypatch: pytest.MonkeyPatch, home: Path, days: int) -> Certificates:
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "SERVER_DAYS", days)
        return certificates.renew(home) if (home / "tls").exists() else certificates.make(home)


def test_a_start_renews_what_ends_soon_and_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _ending_in(monkeypatch, tmp_path, 31)
    assert _days(certificates.ensure(tmp_path).server_ends) == 31
    before = _ending_in(monkeypatch, tmp_path, 29)
    after = certificates.ensure(tmp_path)
    assert (_days(after.server_ends), after.fingerprint) == (396, before.fingerprint)


def test_a_start_leaves_certificates_of_somebody_elses_authority_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ending_in(monkeypatch, tmp_path, 29)
    (tmp_path / "tls/ca.key").unlink()
    before = _bytes(tmp_path)
    certificates.ensure(tmp_path)
    assert _bytes(tmp_path) == before
    with pytest.raises(ConfigWrong, match=r"ca\.key: cannot be read .*renew where the authority is kept"):
        certificates.renew(tmp_path)


@pytest.mark.parametrize("names", [("server.crt", "server.key"), ("ca.crt", "server.crt", "server.key")])
def test_a_start_leaves_a_certificate_alone_that_is_not_by_our_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """Whoever put certificates of a site there, and left our key where it was, gets no other ones by night."""
    certificates.make(tmp_path / "ours")
    _ending_in(monkeypatch, tmp_path / "site", 5)
    for name in names:
        (tmp_path / "ours/tls" / name).write_bytes((tmp_path / "site/tls" / name).read_bytes())
    before = _bytes(tmp_path / "ours")
    certificates.ensure(tmp_path / "ours")
    assert _bytes(tmp_path / "ours") == before


def test_what_somebody_put_beside_them_stays(tmp_path: Path) -> None:
    (certificates.make(tmp_path).directory / "README").write_text("made for the lab")
    certificates.renew(tmp_path)
    assert (certificates.replace(tmp_path).directory / "README").read_text() == "made for the lab"


def test_a_directory_that_is_elsewhere_is_let_be_and_ours_stands_in_its_place(tmp_path: Path) -> None:
    elsewhere = certificates.make(tmp_path / "elsewhere").directory
    (tmp_path / "home").mkdir()
    (tmp_path / "home/tls").symlink_to(elsewhere)
    before = _bytes(tmp_path / "elsewhere")
    for _ in range(2):
        certificates.renew(tmp_path / "home")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["tls"]
    assert _bytes(tmp_path / "elsewhere") == before
    tls.check(tmp_path / "home/tls")


def test_an_authority_that_ends_soon_signs_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "AUTHORITY_DAYS", 29)
        made = certificates.make(tmp_path)
    assert made.server_ends == made.authority_ends, "no certificate outlives its authority"
    with pytest.raises(ConfigWrong, match="too soon for what it would sign; make another"):
        certificates.renew(tmp_path)
    assert certificates.ensure(tmp_path) == made


@pytest.mark.parametrize("name", ["ca.key", "ca.crt"])
@pytest.mark.parametrize(
    "data", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff" * 999]
)
def test_a_spoiled_authority_is_told_and_kept(tmp_path: Path, name: str, data: bytes) -> None:
    certificates.make(tmp_path)
    (tmp_path / "tls" / name).write_bytes(data)
    before = _bytes(tmp_path)
    with pytest.raises(ConfigWrong, match="`fairlease certs --force`"):
        certificates.renew(tmp_path)
    assert _bytes(tmp_path) == before


def test_a_key_of_another_authority_signs_nothing(tmp_path: Path) -> None:
    certificates.make(tmp_path / "one")
    certificates.make(tmp_path / "two")
    (tmp_path / "one/tls/ca.key").write_bytes((tmp_path / "two/tls/ca.key").read_bytes())
    with pytest.raises(ConfigWrong, match=r"is not the key of ca\.crt"):
        certificates.renew(tmp_path / "one")


def test_of_many_who_make_certificates_at_once_one_does(tmp_path: Path) -> None:
    words = "import sys, pathlib; from fairlease.runtime import certificates as c; c.make(pathlib.Path(sys.argv[1]))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    many = [
        subprocess.Popen([sys.executable, "-c", words, str(tmp_path)], env=env, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ends = [(child.communicate(timeout=60)[1], child.returncode) for child in many]
    assert sorted(code for _, code in ends) == [0, 1, 1, 1], ends
    assert sum("is there already" in said for said, _ in ends) == 3
    tls.check(tmp_path / "tls")


def test_renewals_at_once_come_one_after_the_other(tmp_path: Path) -> None:
    certificates.make(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda name: certificates.renew(tmp_path, [name]), ("a", "b", "c", "d")))
    assert {name for one in made for name in one.names} == NAMES | {"a", "b", "c", "d"}
    assert max(len(one.names) for one in made) == len(NAMES) + 4, "the last one knows of all before it"
    assert [path.name for path in tmp_path.iterdir()] == ["tls"]
    tls.check(tmp_path / "tls")


KILLED = """
import os, pathlib, signal, sys
from fairlease.runtime import certificates

home, verb = pathlib.Path(sys.argv[1]), sys.argv[2]
WRITES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "fcntl.flock"}

def dies_at(last):
    count = 0
    def hook(event, arguments):
        nonlocal count
        if event in WRITES and str(home) in str(arguments[0]) or event == "fcntl.flock":
            count += 1
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

child = os.fork()
if child == 0:
    dies_at(int(sys.argv[3]))
    getattr(certificates, verb)(home)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def _killed_at(step: int, home: Path, verb: str) -> bool:
    """Whether the run was killed before its operation of that number on the disk; else it came to its end."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = [sys.executable, "-c", KILLED, str(home), verb, str(step)]
    said = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    assert said in ("0", "-9"), said
    return said == "-9"


@pytest.mark.parametrize("verb", ["make", "renew", "replace"])
def test_whenever_a_run_is_killed_all_four_files_are_old_or_new_and_the_next_run_goes_on(
    tmp_path: Path, verb: str
) -> None:
    step, seen = 0, set()
    while True:
        step += 1
        home = tmp_path / str(step)
        home.mkdir()
        before = _bytes(home) if verb != "make" and certificates.make(home) else {}
        if not _killed_at(step, home, verb):
            break
        found = _bytes(home) if (home / "tls").exists() else {}
        seen.add("none" if not found else "old" if found == before else "new")
        if found:
            tls.check(home / "tls")
        # The next run puts right what was left, and loses no authority that somebody knows.
        certificates.ensure(home)
        tls.check(home / "tls")
        assert [path.name for path in home.iterdir() if path.name != "bus.lock"] == ["tls"]
        if verb == "renew":
            assert _bytes(home)["ca.crt"] == before["ca.crt"]
    assert step > 10, "the operations were not seen"
    assert seen == ({"none", "new"} if verb == "make" else {"none", "old", "new"}), seen


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("server.crt", r"server\.crt: is not there; make certificates with `fairlease certs`"),
        ("server.key", r"server\.key: is not there"),
        ("ca.crt", r"ca\.crt: is not there"),
    ],
)
def test_a_bus_without_its_certificates_is_not_started(tmp_path: Path, name: str, problem: str) -> None:
    certificates.make(tmp_path)
    (tmp_path / "tls" / name).unlink()
    with pytest.raises(ConfigWrong, match=problem):
        bus_server.start(tmp_path, is_sealed=True)
    assert not (tmp_path / "bus.conf").exists()


def test_a_bus_whose_certificate_has_another_key_is_not_started(tmp_path: Path) -> None:
    key = (certificates.make(tmp_path).directory / "server.key").read_bytes()
    certificates.renew(tmp_path)
    (tmp_path / "tls/server.key").write_bytes(key)
    with pytest.raises(ConfigWrong, match=r"do not belong together .*`fairlease certs --renew`"):
        bus_server.start(tmp_path, is_sealed=True)


def test_a_bus_whose_certificate_has_expired_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates.make(tmp_path)
    monkeypatch.setattr(certificates, "_EARLIER", 2 * A_DAY)
    _ending_in(monkeypatch, tmp_path, -1)
    with pytest.raises(ConfigWrong, match="has expired; renew it where the bus runs: `fairlease certs --renew`"):
        bus_server.start(tmp_path, is_sealed=True)
    monkeypatch.undo()
    certificates.ensure(tmp_path)
    bus_server.start(tmp_path, dies_with_parent=True, is_sealed=True).stop()


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    certificates.make(tmp_path)
    key = tmp_path / "tls/server.key"
    from cryptography.hazmat.primitives import serialization

    plain = serialization.load_pem_private_key(key.read_bytes(), password=None)
    key.write_bytes(
        plain.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )
    with pytest.raises(ConfigWrong, match="do not belong together or cannot be read"):
        tls.check(tmp_path / "tls")


def test_the_strictest_reader_of_certificates_takes_ours(tmp_path: Path) -> None:
    """As Python 3.13 reads them by default."""
    made = certificates.make(tmp_path)
    strict = tls.context(made.directory / "ca.crt")
    strict.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    server = bus_server.start(tmp_path, dies_with_parent=True, is_sealed=True)
    try:
        with (
            socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=5) as link,
            strict.wrap_socket(link, server_hostname="localhost") as sealed,
        ):
            assert sealed.version() == "TLSv1.3"
            assert sealed.recv(4) == b"INFO"
    finally:
        server.stop()
