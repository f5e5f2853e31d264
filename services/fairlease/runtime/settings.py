"""What a process is told by its environment, read once and frozen.

Environment variables carry addresses and names; numbers of policy are in the log. The surprising
choice: without FAIRLEASE_URL the address is read from `bus.json` in the state directory, which the
embedded bus writes, so that every command of one user finds the same bus without being told.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from fairlease.runtime import plain_file
from fairlease.runtime.errors import BusAway, ConfigWrong
from fairlease.runtime.redaction import redacted
from fairlease_schemas.address import is_address
from fairlease_schemas.ids import is_name
from fairlease_schemas.subjects import Subjects

BUS_FILE: Final = "bus.json"
OWN_SERVER: Final = "FAIRLEASE_OWN_NATS_SERVER"
"""The variable by which an operator vouches for a server of their own."""
DEFAULT_ACCOUNTS: Final = ("local",)
"""Client accounts of the embedded bus; each has an inbox of its own."""
GIT_SCHEMES: Final = ("https", "ssh")
"""What an agent's git may use unless FAIRLEASE_GIT_SCHEMES says otherwise; `file` is for sites that mean it."""
_KNOWN_SCHEMES: Final = (*GIT_SCHEMES, "file")
MOST_PORT: Final = 65_535
LABEL_LIMIT: Final = "a key is 1 to 63 of a-z 0-9 . _ / -, a value at most 63 printable characters"
_LABEL_KEY: Final = re.compile(r"[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?")
_LABEL_VALUE_CHARS: Final = 63


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One process. `url` is empty when no bus is known yet; `bus_url` then says what to do."""

    state_dir: Path
    url: str = ""
    cell: str = "lab"
    service: str = ""
    replica: str = "a"
    accounts: tuple[str, ...] = DEFAULT_ACCOUNTS
    pool: str = ""
    """The pool that an agent's hosts join; empty when nobody said."""
    labels: tuple[tuple[str, str], ...] = ()
    """What an agent says of its hosts, for contracts to ask for (1.3)."""
    host_address: str = ""
    """Where other hosts reach the agent's (1.15); empty when nobody said."""
    git_schemes: tuple[str, ...] = GIT_SCHEMES
    """From where an agent fetches commits (1.13)."""
    users: str = ""
    """The file that maps accounts to users of the agent's host (1.16); empty when nobody said."""
    traces: str = ""
    """Where spans go: `file:/PATH` or `http://HOST:PORT`; empty when nobody wants them."""
    metrics_port: int | None = None
    """Where figures are answered on loopback, 0 for a port that is free; None when nobody wants them."""
    own_server: Path | None = None
    """A nats-server that the operator vouches for; None for the checked one that is installed with us."""
    creds: str = ""
    """The file of the key to connect with; empty: the identity's own in the state directory (keys.py)."""
    ca: str = ""
    """The file of the authority whose certificates are believed; empty: the state directory's, else the system's."""

    def __repr__(self) -> str:
        """As every struct shows itself, but for a user and password in an address."""
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__)
        return redacted(f"Settings({shown})")

    @property
    def subjects(self) -> Subjects:
        return Subjects(self.cell)

    @property
    def own_dir(self) -> Path:
        """The directory of this replica alone; nobody else writes there."""
        return self.state_dir / self.cell / f"{self.service}-{self.replica}"

    def bus_url(self) -> str:
        """Where the bus is; BusAway, with the way out, when nothing says so."""
        url = self.url or url_in(self.state_dir)
        if not servers_in(url):
            raise BusAway(
                f"no bus is known: {self.state_dir / BUS_FILE} does not exist and FAIRLEASE_URL is not set; "
                "start one with 'fairlease up', or set FAIRLEASE_URL=nats://HOST:PORT"
            )
        return url


def servers_in(url: str) -> list[str]:
    """The servers of a bus, written `nats://A:4222,nats://B:4222`; any of them will do."""
    return [server for server in map(str.strip, url.split(",")) if server]


def read_settings(service: str = "", env: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process from FAIRLEASE_URL, _HOME, _CELL, _REPLICA, _CREDS, _CA, _TRACES, _METRICS_PORT.

    An agent's also from _POOL, _LABELS, _HOST_ADDRESS, _USERS and _GIT_SCHEMES, from where it fetches commits.
    FAIRLEASE_HOME (default `~/.fairlease`) is the one state directory. Raises ConfigWrong for a cell, replica or pool
    that is no name (`a-z 0-9 -`), for labels that are not `key=value,key=value`, for an address that is none, and for
    schemes that are not some of https, ssh and file.
    """
    seen = os.environ if env is None else env
    home = _home_in(seen.get("FAIRLEASE_HOME", ""))
    settings = Settings(
        state_dir=home,
        url=seen.get("FAIRLEASE_URL", "").strip() or url_in(home),
        cell=seen.get("FAIRLEASE_CELL", "") or "lab",
        service=service,
        replica=seen.get("FAIRLEASE_REPLICA", "") or "a",
        pool=seen.get("FAIRLEASE_POOL", ""),
        labels=labels_in(seen.get("FAIRLEASE_LABELS", "")),
        host_address=seen.get("FAIRLEASE_HOST_ADDRESS", "").strip(),
        git_schemes=_schemes_in(seen.get("FAIRLEASE_GIT_SCHEMES", ",".join(GIT_SCHEMES))),
        users=seen.get("FAIRLEASE_USERS", ""),
        traces=seen.get("FAIRLEASE_TRACES", "").strip(),
        metrics_port=_port_in(seen.get("FAIRLEASE_METRICS_PORT", "").strip()),
        own_server=Path(own) if (own := seen.get(OWN_SERVER, "")) else None,
        creds=seen.get("FAIRLEASE_CREDS", "").strip(),
        ca=seen.get("FAIRLEASE_CA", "").strip(),
    )
    if settings.host_address and not is_address(settings.host_address):
        raise ConfigWrong(
            f"FAIRLEASE_HOST_ADDRESS={settings.host_address[:80]!r} is not an address: "
            "write an IP address or a host name, without a port"
        )
    names = {"CELL": settings.cell, "REPLICA": settings.replica, "POOL": settings.pool or "unsaid"}
    for name, value in ((f"FAIRLEASE_{key}", value) for key, value in names.items()):
        if not is_name(value):
            raise ConfigWrong(f"{name}={value[:80]!r} is not a name: write 1 to 63 of a-z, 0-9 and '-', as in 'lab'")
    return settings


def _home_in(text: str) -> Path:
    """The state directory written there; ConfigWrong where nobody knows whose home is meant, as in many containers."""
    try:
        return Path(text or "~/.fairlease").expanduser().absolute()
    except RuntimeError as error:
        raise ConfigWrong(
            f"FAIRLEASE_HOME={text[:200]!r} cannot be found: there is no such user, or no HOME; write an absolute path"
        ) from error


def labels_in(text: str) -> tuple[tuple[str, str], ...]:
    """The labels written `key=value,key=value`, in that order; ConfigWrong for what no contract could ask for."""
    labels = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not is_label(key, value):
            raise ConfigWrong(
                f"FAIRLEASE_LABELS: {part[:80]!r} is not a label: write KEY=VALUE,KEY=VALUE; {LABEL_LIMIT}"
            )
        labels.append((key, value))
    return tuple(labels)


def simulated_host(number: int) -> str:
    """The name of host `number` (1, 2, 3 …) of a cluster that does not exist."""
    return f"host-{number:03d}"


def _schemes_in(text: str) -> tuple[str, ...]:
    """The schemes written `https,ssh`; ConfigWrong for one that git is not let use. Nothing is none at all."""
    schemes = tuple(filter(None, (part.strip() for part in text.split(","))))
    for scheme in schemes:
        if scheme not in _KNOWN_SCHEMES:
            raise ConfigWrong(f"FAIRLEASE_GIT_SCHEMES: {scheme[:40]!r} is none of {', '.join(_KNOWN_SCHEMES)}")
    return schemes


def _port_in(text: str) -> int | None:
    """The port written there, None for nothing; ConfigWrong for what is no port."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= MOST_PORT):
        raise ConfigWrong(f"FAIRLEASE_METRICS_PORT={text[:20]!r} is not a port: write a number from 0 to {MOST_PORT}")
    return int(text)


def is_label(key: str, value: str) -> bool:
    """Whether a contract can ask for this label (1.3)."""
    return _LABEL_KEY.fullmatch(key) is not None and value.isprintable() and len(value) <= _LABEL_VALUE_CHARS


def url_in(state_dir: Path) -> str:
    """The address the embedded bus of this state directory wrote; empty when it never ran here.

    Raises ConfigWrong when the file is there and is not what the bus writes.
    """
    path = state_dir / BUS_FILE
    try:
        data = plain_file.read(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigWrong(f"{path}: cannot be read ({error.strerror}); mend its rights or set FAIRLEASE_URL") from error
    try:
        url = json.loads(data)["url"]
        if not isinstance(url, str):
            raise TypeError(url)  # noqa: TRY301 - it is as wrong as no JSON, and told alike
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigWrong(f"{path}: is not {{\"url\": ...}}; delete it and start 'fairlease up' again") from error
    return url
