"""How a connection to the bus is sealed, and what is said where it cannot be.

It owns which authority a client believes, and the rule that a `tls://` address means TLS or nothing. The surprising
choice: the handshake comes before the bus has said a word. The client library would look into the server's greeting
for whether to seal, and whoever stands in between can write that greeting and read what follows it, which is how the
client proves itself. Only the standard library is used here, because the agent loads it; certificates.py makes what
is read here.
"""

import contextlib
import ssl
import textwrap
from pathlib import Path
from typing import Any, Final

from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import Settings, servers_in

TLS: Final = "tls"
"""The directory of the certificates in a state directory, and the scheme of addresses that are sealed."""
AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY = "ca.crt", "ca.key", "server.crt", "server.key"
FILES: Final = (AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY)
_SERVED: Final = """\
tls {{
  cert_file: "{tls}/server.crt"
  key_file: "{tls}/server.key"
  ca_file: "{tls}/ca.crt"
  min_version: "1.3"
  {more}
}}
"""
_HOST: Final = "127.0.0.1"
# What OpenSSL says of a certificate, by its numbers (X509_V_ERR_*).
_EXPIRED: Final = 10
_NOT_YET: Final = 9
_STRANGE: Final = (18, 19, 20, 21)
_OTHER_NAME: Final = (62, 64)


def certificates_of(home: Path) -> Path:
    """Where the certificates of a state directory lie."""
    return home / TLS


def authority_of(settings: Settings) -> Path | None:
    """Whose certificates are believed: FAIRLEASE_CA, else the state directory's own authority; None: the system's."""
    if settings.ca:
        return Path(settings.ca)
    own = certificates_of(settings.state_dir) / AUTHORITY
    return own if own.exists() else None


def is_sealed(url: str) -> bool:
    """Whether these addresses ask for TLS; ConfigWrong where some do and others do not, or one is of no bus at all."""
    schemes = {server.partition("://")[0] if "://" in server else "nats" for server in servers_in(url)}
    if strange := sorted(schemes - {"nats", TLS}):
        raise ConfigWrong(f"FAIRLEASE_URL: {strange[0][:40]}:// is no bus; write nats://HOST:PORT, or tls://HOST:PORT")
    if len(schemes) > 1:
        raise ConfigWrong(
            "FAIRLEASE_URL: some servers are tls:// and others nats://, so what is sealed at one would be open at "
            "the next; write tls:// for all of them"
        )
    return TLS in schemes


def options(url: str, authority: Path | None) -> dict[str, Any]:
    """The arguments of a bus client for these addresses: none where they are plain.

    ConfigWrong as `is_sealed` and `context` say.
    """
    return {"tls": context(authority), "tls_handshake_first": True} if is_sealed(url) else {}


def context(authority: Path | None) -> ssl.SSLContext:
    """What a client asks of a server: TLS 1.3, a certificate by this authority, and for the name in the address.

    None is the authorities of the system, or SSL_CERT_FILE. ConfigWrong for a file that holds no certificate.
    """
    try:
        made = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror if not isinstance(error, ssl.SSLError) and error.strerror else "it holds no certificate"
        raise ConfigWrong(
            f"authority {authority}: cannot be read ({why}); name the cell's ca.crt in FAIRLEASE_CA, "
            "or unset it for the one of the state directory"
        ) from None
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    return made


def for_clients(directory: Path) -> str:
    """The block `tls` of a server's configuration: nobody hears a word from it before the handshake."""
    return _SERVED.format(tls=directory, more="handshake_first: true")


def for_routes(directory: Path) -> str:
    """The same inside its block `cluster`: a server shows the others its own certificate, and asks them for theirs."""
    return textwrap.indent(_SERVED.format(tls=directory, more="verify: true"), "  ")


def check(directory: Path) -> None:
    """Returns when a client on this machine would believe a server with these certificates; else ConfigWrong.

    Client and server shake hands in memory: so what is wrong is known before a server is started that nobody can reach.
    """
    paths = {name: directory / name for name in (AUTHORITY, CERTIFICATE, KEY)}
    for path in paths.values():
        if not path.is_file():
            raise ConfigWrong(f"{path}: is not there; make certificates with `fairlease certs`")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        serving.load_cert_chain(paths[CERTIFICATE], paths[KEY], password="")  # never ask a terminal for one
    except OSError as error:
        raise ConfigWrong(
            f"{directory}: {CERTIFICATE} and {KEY} do not belong together or cannot be read "
            f"({error.strerror or error}); make others with `fairlease certs --renew`"
        ) from None
    asked, answered = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context(paths[AUTHORITY]).wrap_bio(answered, asked, server_hostname=_HOST)
    server = serving.wrap_bio(asked, answered, server_side=True)
    try:
        _shake(client, server)
    except ssl.SSLError as error:
        raise ConfigWrong(f"{paths[CERTIFICATE]}: {trouble(error)}") from None


def stamp(directory: Path) -> tuple[int, ...]:
    """Another one whenever a certificate or key was replaced."""
    found = []
    for name in (CERTIFICATE, KEY):
        with contextlib.suppress(OSError):
            there = (directory / name).stat()
            found += [there.st_ino, there.st_mtime_ns]
    return tuple(found)


def _shake(client: ssl.SSLObject, server: ssl.SSLObject) -> None:
    """Each says what it can say, until the client is content; it is the first to be."""
    while True:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
            return
        with contextlib.suppress(ssl.SSLWantReadError):
            server.do_handshake()


def trouble(error: ssl.SSLError) -> str:
    """Why a connection could not be sealed, and the way out, in one line."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        reason = (error.reason or type(error).__name__).replace("_", " ").lower()
        return (
            f"no TLS there ({reason}), and nothing was said to it; see that the address and port are those of the "
            "bus, and that it was started with TLS (`fairlease up --tls`)"
        )
    if error.verify_code == _EXPIRED:
        return "the certificate has expired; renew it where the bus runs: `fairlease certs --renew`"
    if error.verify_code == _NOT_YET:
        return "the certificate is not valid yet; set the clocks of this machine and of the bus's (by NTP)"
    if error.verify_code in _STRANGE:
        return "the certificate is by an authority that is not known here; name the cell's ca.crt in FAIRLEASE_CA"
    if error.verify_code in _OTHER_NAME:
        said = error.verify_message.rstrip(".").rpartition("certificate is not valid for ")[2]
        return (
            f"the certificate is not for {said}; write an address that it names in FAIRLEASE_URL, or add the name "
            "where the bus runs: `fairlease certs --renew --name NAME`"
        )
    return f"the certificate is refused ({error.verify_message}); make others with `fairlease certs --renew`"
