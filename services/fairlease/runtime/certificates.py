"""An authority of the cell's own and a certificate for its bus: what `fairlease certs` makes, renews and replaces.

It owns `<home>/tls`. The authority is good for ten years and is what clients know; a server's certificate is good for
thirteen months and is renewed under them without a word. The surprising choice: the directory is replaced as a whole,
because a certificate and its key are two files and one without the other keeps a bus from starting. A run that is
killed leaves `tls.new`, or at worst `tls.old` in place of `tls`; the next one puts that right before it does anything.
Who may do what is not said here: that is the accounts' business, by keys (keys.py).
"""

import contextlib
import fcntl
import ipaddress
import os
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlease.runtime import plain_file
from fairlease.runtime.bus_server import locked
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.tls import AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY, TLS, certificates_of
from fairlease.runtime.whole_file import sync_names
from fairlease_schemas.address import is_address

AUTHORITY_DAYS: Final = 3_652
SERVER_DAYS: Final = 396
LEAST_DAYS: Final = 30
"""What has less than this before it ends soon, and is renewed; an authority is replaced."""
_EARLIER: Final = timedelta(hours=1)
"""Certificates begin before now, for machines whose clock is behind."""
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class Certificates(NamedTuple):
    """What lies in the directory: until when, for which names, and by what people compare two authorities."""

    directory: Path
    authority_ends: datetime
    fingerprint: str
    server_ends: datetime
    names: tuple[str, ...]


class _Signer(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make(home: Path, names: Iterable[str] = ()) -> Certificates:
    """A new authority, and a certificate by it for this machine and these further names.

    ConfigWrong where there are certificates already, or for what is neither an address nor a host name.
    """
    with _alone(home):
        if certificates_of(home).exists():
            raise ConfigWrong(
                f"{certificates_of(home)}: is there already; `--renew` makes a new certificate of the same authority, "
                "`--force` a new authority, which every client elsewhere must then be told"
            )
        return _put(home, _fresh_authority(), _named(names))


def ensure(home: Path) -> Certificates:
    """Those of the directory: made now where there are none, renewed where they end soon and the authority is ours."""
    with _alone(home):
        if not certificates_of(home).exists():
            return _put(home, _fresh_authority(), _named(()))
        found = _read(home)
        can_renew = not _ends_soon(found.authority_ends) and _is_ours(found.directory)
        return _renewed(home, ()) if can_renew and _ends_soon(found.server_ends) else found


def renew(home: Path, names: Iterable[str] = ()) -> Certificates:
    """A new key and certificate of the same authority, for the names of the last one and these.

    ConfigWrong where there is no authority of ours, or it ends soon itself.
    """
    with _alone(home):
        return _renewed(home, names)


def replace(home: Path, names: Iterable[str] = ()) -> Certificates:
    """A new authority in place of whatever is there; clients that know the old one are refused from now on.

    ConfigWrong while a bus runs here: its own cell is among them.
    """
    with _alone(home):
        try:
            lock = locked(home)
        except ConfigWrong:
            raise ConfigWrong(
                f"{home}: a bus runs here, and its cell knows the old authority; stop it (running jobs go on), then "
                "ask again, or make a new certificate of the same authority with `--renew`"
            ) from None
        try:
            return _put(home, _fresh_authority(), _named(names))
        finally:
            os.close(lock)


def _renewed(home: Path, names: Iterable[str]) -> Certificates:
    directory = certificates_of(home)
    signer = _signer(directory)
    ends = signer.certificate.not_valid_after_utc
    if _ends_soon(ends):
        raise ConfigWrong(
            f"{directory / AUTHORITY}: ends on {ends:%Y-%m-%d}, too soon for what it would sign; make another with "
            "`fairlease certs --force`, and give its ca.crt to whoever connects"
        )
    before = _names_of(_certificate(directory / CERTIFICATE)) if (directory / CERTIFICATE).exists() else ()
    return _put(home, signer, _named((*before, *names)))


def _is_ours(directory: Path) -> bool:
    """Whether the authority's key is here, and the server's certificate is by it and not by somebody else's."""
    try:
        _certificate(directory / CERTIFICATE).verify_directly_issued_by(_signer(directory).certificate)
    except (ConfigWrong, InvalidSignature, TypeError, ValueError):
        return False
    return True


def _ends_soon(ends: datetime) -> bool:
    return ends - datetime.now(UTC) < timedelta(days=LEAST_DAYS)


def _read(home: Path) -> Certificates:
    directory = certificates_of(home)
    authority, server = _certificate(directory / AUTHORITY), _certificate(directory / CERTIFICATE)
    return Certificates(
        directory,
        authority.not_valid_after_utc,
        authority.fingerprint(hashes.SHA256()).hex(":"),
        server.not_valid_after_utc,
        _names_of(server),
    )


def _named(names: Iterable[str]) -> tuple[str, ...]:
    """This machine's own names and then those, each once, as they are compared; ConfigWrong for what is none."""
    found = [*_OWN_NAMES, *filter(is_address, [socket.gethostname()])]
    for name in names:
        if not is_address(name):
            raise ConfigWrong(
                f"--name {name[:80]!r}: is no name of a machine; write an IP address or a host name, without a port"
            )
        found.append(name)
    return tuple(dict.fromkeys(_canonical(name) for name in found))


def _canonical(name: str) -> str:
    address = _address(name)
    return str(address) if address is not None else name.lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        said = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(str(one.value) for one in said if isinstance(one, x509.DNSName | x509.IPAddress))


def _fresh_authority() -> _Signer:
    """A key and its own word for it; each has a name of its own, so that none is taken for another."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Fairlease authority {secrets.token_hex(4)}")])
    now = datetime.now(UTC)
    certificate = (
        _begun(name, name, key.public_key(), now, now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _Signer(certificate, key)


def _server_certificate(signer: _Signer, names: tuple[str, ...]) -> _Signer:
    """Servers of one bus show it to clients and to each other, so it is good for both ends of a connection."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    ends = min(now + timedelta(days=SERVER_DAYS), signer.certificate.not_valid_after_utc)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fairlease bus")])
    said: list[x509.GeneralName] = []
    for one in names:
        address = _address(one)
        said.append(x509.DNSName(one) if address is None else x509.IPAddress(address))
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    certificate = (
        _begun(name, signer.certificate.subject, key.public_key(), now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(said), critical=False)
        .add_extension(by, critical=False)
        .sign(signer.key, hashes.SHA256())
    )
    return _Signer(certificate, key)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signer(directory: Path) -> _Signer:
    """The authority of the directory with its key; ConfigWrong where it is not ours to sign with."""
    path = directory / AUTHORITY_KEY
    try:
        key = serialization.load_pem_private_key(plain_file.read(path), password=None)
    except OSError as error:
        raise ConfigWrong(
            f"{path}: cannot be read ({error.strerror}), and without it nothing is renewed here; renew where the "
            "authority is kept, or make a new one with `fairlease certs --force`"
        ) from None
    except (ValueError, TypeError):
        key = None
    certificate = _certificate(directory / AUTHORITY)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigWrong(f"{path}: is not the key of {AUTHORITY}; make a new authority with `fairlease certs --force`")
    return _Signer(certificate, key)


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(plain_file.read(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no certificate"
        raise ConfigWrong(
            f"{path}: cannot be read ({why}); mend its rights, or make a new authority with `fairlease certs --force`"
        ) from None


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    """One at a time, by a lock on the state directory itself; first what a killed run left is put right."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        current, fresh, old = _places(home)
        if old.exists() and not current.exists():
            old.rename(current)
        for left in (fresh, old):
            _remove(left)
        yield
    finally:
        os.close(lock)


def _places(home: Path) -> tuple[Path, Path, Path]:
    return certificates_of(home), home / f"{TLS}.new", home / f"{TLS}.old"


def _put(home: Path, signer: _Signer, names: tuple[str, ...]) -> Certificates:
    """All four files at once, in place of what was there; on disk before they have their name.

    Other files that somebody put beside them go along.
    """
    current, fresh, old = _places(home)
    server = _server_certificate(signer, names)
    fresh.mkdir(mode=0o700)
    _write(fresh / AUTHORITY_KEY, _private(signer.key), 0o600)
    _write(fresh / AUTHORITY, signer.certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    _write(fresh / KEY, _private(server.key), 0o600)
    _write(fresh / CERTIFICATE, server.certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    if current.exists():
        for other in current.iterdir():
            if other.is_file() and other.name not in (AUTHORITY_KEY, AUTHORITY, KEY, CERTIFICATE):
                shutil.copy2(other, fresh)
        current.rename(old)
    sync_names(fresh)
    fresh.rename(current)
    sync_names(home)
    _remove(old)
    return _read(home)


def _remove(directory: Path) -> None:
    """It and all in it; of a link, which somebody may have put there, the link alone."""
    if directory.is_symlink():
        directory.unlink()
    elif directory.exists():
        shutil.rmtree(directory)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
