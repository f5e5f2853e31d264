"""A cell that somebody else keeps running, as one file says it: its accounts, agents and bus servers.

`fairlease up` keeps a cell by itself. Where systemd, compose or Kubernetes do, the same table of permissions
(permissions.py) becomes files: a key for each identity, the accounts, one configuration for each server of the bus.
The surprising choice: the servers' files hold the routes' password, so they are as closed as a key, and are made
again, with the same keys, whenever the cell's file changes.
"""

import secrets
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from fairlease.runtime import keys, plain_file, tls
from fairlease.runtime.access import access
from fairlease.runtime.bus_server import MAX_PAYLOAD
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.permissions import Identity, Plan, identities
from fairlease.runtime.secret import Secret
from fairlease.runtime.settings import DEFAULT_ACCOUNTS
from fairlease.runtime.whole_file import replace
from fairlease_schemas.address import is_address
from fairlease_schemas.ids import is_name
from fairlease_schemas.subjects import Subjects

ACCOUNTS_FILE: Final = "accounts.conf"
ROUTES_PASSWORD: Final = "routes.password"  # noqa: S105 - the name of the file in which it lies
SERVER_COUNTS: Final = (1, 3, 5)
REPLICAS: Final = 3
"""How many servers hold each stream, where there are as many: any one of them may be lost."""
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_CONFIG: Final = """\
# Server {name} of the bus of cell `{cell}`. Written by `fairlease bus write`; edits are lost.
server_name: "{name}"
listen: "{listen}:{port}"
{advertise}http: "127.0.0.1:{monitor_port}"
max_payload: {max_payload}
max_control_line: 4096
max_connections: 16384
write_deadline: "10s"
jetstream {{
  store_dir: "{store}"
  # Streams have their own limits; without this, the sum of them is refused on a small disk.
  max_file_store: 1TB
  # An acknowledgement means: on disk. A power cut takes back nothing.
  sync_interval: always
}}
{tls}{cluster}{accounts}
"""
_ACCOUNTS: Final = f'include "{ACCOUNTS_FILE}"'
"""The last line, so that a file that was cut short does not have it."""
_CLUSTER: Final = """\
cluster {{
  name: "fairlease-{cell}"
  listen: "{listen}:{route_port}"
  authorization {{
    user: "routes"
    password: "{password}"
  }}
{tls}  routes: [
{routes}
  ]
}}
"""


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One nats-server: where clients and the other servers reach it, and at which ports of that address."""

    name: str
    host: str
    port: int = 4222
    route_port: int = 6222
    monitor_port: int = 8222
    """Of loopback alone: figures and health for who is on the machine."""


class BusPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all servers of the bus have in common; `tls` is a directory with ca.crt, server.crt and server.key."""

    store: str = "/var/lib/fairlease-bus"
    listen: str = "127.0.0.1"
    tls: str = ""
    plain: bool = False
    """Whether the bus may go without TLS where others reach it, because something else seals that network."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of a cell; `agents` maps each agent to the hosts it serves and may speak for, `posts` bots to theirs."""

    servers: tuple[Server, ...]
    cell: str = "lab"
    accounts: tuple[str, ...] = DEFAULT_ACCOUNTS
    bots: tuple[str, ...] = ()
    posts: dict[str, tuple[str, ...]] = {}
    auditors: tuple[str, ...] = ()
    agents: dict[str, tuple[str, ...]] = {}
    bus: BusPlan = BusPlan()

    @property
    def subjects(self) -> Subjects:
        return Subjects(self.cell)

    @property
    def plan(self) -> Plan:
        """The people and machines of the cell, for the table; bots are accounts too."""
        agents, accounts = tuple(self.agents.items()), (*self.accounts, *self.bots)
        posts = tuple(self.posts.items())
        return Plan(
            cell=self.cell, accounts=accounts, agents=agents, bots=self.bots, posts=posts, auditors=self.auditors
        )

    @property
    def replicas(self) -> int:
        """How many servers hold each stream."""
        return min(len(self.servers), REPLICAS)

    @property
    def url(self) -> str:
        """What FAIRLEASE_URL says: every server, so that any one of them may be away."""
        scheme = "tls" if self.bus.tls else "nats"
        return ",".join(f"{scheme}://{_bracketed(server.host)}:{server.port}" for server in self.servers)


def read(path: Path) -> Deployment:
    """The cell that this TOML file says; ConfigWrong, naming field and way out, for what is no cell."""
    try:
        found = msgspec.convert(tomllib.loads(plain_file.text(path)), Deployment)
    except OSError as error:
        raise ConfigWrong(f"{path}: cannot be read ({error.strerror}); name the file of the cell") from error
    except (ValueError, RecursionError) as error:
        raise ConfigWrong(
            f"{path}: {error}; infra/cell.toml is an example, docs/deploying.md says each field"
        ) from error
    for problem in _problems(found):
        raise ConfigWrong(f"{path}: {problem}")
    return found


def _problems(cell: Deployment) -> Iterable[str]:
    """What no file of a cell may say, the first one first."""
    names = [("cell", cell.cell), *(("accounts", name) for name in cell.accounts)]
    names += [("bots", name) for name in cell.bots] + [("auditors", name) for name in cell.auditors]
    names += [(f"posts.{bot}", name) for bot, posted in cell.posts.items() for name in (bot, *posted)]
    names += [(f"agents.{agent}", name) for agent, hosts in cell.agents.items() for name in (agent, *hosts)]
    names += [("servers.name", server.name) for server in cell.servers]
    for field, name in names:
        if not is_name(name):
            yield f"{field}: {name[:80]!r} is not a name; write 1 to 63 of a-z, 0-9 and '-'"
    if any(f"{server.name}.conf" == ACCOUNTS_FILE for server in cell.servers):
        yield f"servers.name: a server's file would be {ACCOUNTS_FILE}, where the accounts stand; name it otherwise"
    for bot, posted in cell.posts.items():
        if bot not in cell.bots:
            yield f"posts.{bot}: {bot[:80]!r} is none of bots; write it there too"
        if not posted:
            yield f"posts.{bot}: has no host, so it could do nothing; write its hosts, or leave it out for all"
    if not cell.accounts:
        yield "accounts: there is none, so nobody could hand in a job; write at least one"
    if len(cell.servers) not in SERVER_COUNTS:
        yield f"servers: there are {len(cell.servers)}; write 1, 3 or 5, because more than half must be there to agree"
    hosts = [host for served in cell.agents.values() for host in served]
    places = [f"{s.host}:{port}" for s in cell.servers for port in (s.port, s.route_port, s.monitor_port)]
    for field, values, why in (
        ("accounts and bots", [*cell.accounts, *cell.bots], "an account is a bot or it is not"),
        ("auditors", [*cell.auditors], "each has one key"),
        ("agents", hosts, "a host has one agent"),
        ("servers.name", [server.name for server in cell.servers], "servers know each other by it"),
        ("servers", places, "a port has one owner"),
    ):
        for value in (value for at, value in enumerate(values) if value in values[:at]):
            yield f"{field}: {value!r} stands there twice, and {why}; leave one out"
    yield from _bad_places(cell)


def _bad_places(cell: Deployment) -> Iterable[str]:
    for server in cell.servers:
        if not is_address(server.host):
            yield f"servers.host: {server.host[:80]!r} is no address; write an IP address or a host name"
        for port in (server.port, server.route_port, server.monitor_port):
            if not 0 < port < 65_536:
                yield f"servers: {port} is no port; write 1 to 65535"
    bus = cell.bus
    for field, text in (("store", bus.store), ("tls", bus.tls or "/")):
        if not text.startswith("/") or not text.isprintable() or set(text) & set('"\\'):
            yield f"bus.{field}: {text[:80]!r} is not an absolute path without quotes; write one, as in '/var/lib/bus'"
    if not is_address(bus.listen):
        yield f"bus.listen: {bus.listen[:80]!r} is no address; write 127.0.0.1, or 0.0.0.0 for all of the machine"
    for server in cell.servers if bus.listen in _LOOPBACK else ():
        if server.host not in _LOOPBACK and not server.host.startswith("127."):
            yield (
                f"servers.host: {server.host[:80]!r} is where others reach it, and bus.listen is {bus.listen}, where "
                "nobody but its own machine does; set bus.listen to 0.0.0.0, with bus.tls"
            )
    if bus.listen not in _LOOPBACK and not bus.tls and not bus.plain:
        yield (
            f"bus.listen: {bus.listen} is reached from elsewhere, and there is no TLS; set bus.tls to the directory of "
            "the certificates, or bus.plain = true where something else seals the network"
        )


def write(cell: Deployment, out: Path, guests: tuple[Callable[[Plan], Identity], ...] = ()) -> list[Path]:
    """Writes keys, accounts and server configurations below `out`, and returns the files of the servers.

    Keys and the password of the routes that are there stay. All is closed to others: keys prove who one is, and
    who knows the password is a server of the bus. `guests` make identities beside those of the table.
    """
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    people = (*identities(cell.plan), *(guest(cell.plan) for guest in guests))
    replace(out / ACCOUNTS_FILE, access(out, cell.subjects, people).text)
    password = password_of(out)
    made = []
    for server in cell.servers:
        replace(out / f"{server.name}.conf", config(cell, server, password))
        made.append(out / f"{server.name}.conf")
    return made


def config(cell: Deployment, server: Server, password: Secret) -> str:
    """The configuration of one server; the accounts stand beside it. The same cell gives the same bytes."""
    bus = cell.bus
    is_many = len(cell.servers) > 1
    sealed = tls.for_clients(Path(bus.tls)) if bus.tls else ""
    # Clients learn the other servers' addresses from the server they are at: the name must be one they can use.
    advertise = f'client_advertise: "{_bracketed(server.host)}:{server.port}"\n' if is_many else ""
    return _CONFIG.format(
        name=server.name,
        cell=cell.cell,
        listen=_bracketed(bus.listen),
        port=server.port,
        advertise=advertise,
        monitor_port=server.monitor_port,
        max_payload=MAX_PAYLOAD,
        store=f"{bus.store}/{server.name}" if bus.listen in _LOOPBACK else bus.store,
        tls=sealed,
        cluster=_cluster(cell, server, password) if is_many else "",
        accounts=_ACCOUNTS,
    )


def has_accounts(conf: str) -> bool:
    """Whether a server's configuration names the accounts; a server without them lets in everybody, from everywhere."""
    return _ACCOUNTS in conf.splitlines()


def _cluster(cell: Deployment, server: Server, password: Secret) -> str:
    bus = cell.bus
    others = [other for other in cell.servers if other is not server]
    routes = [
        f'    "nats://routes:{password.reveal()}@{_bracketed(other.host)}:{other.route_port}"' for other in others
    ]
    sealed = tls.for_routes(Path(bus.tls)) if bus.tls else ""
    return _CLUSTER.format(
        cell=cell.cell,
        listen=_bracketed(bus.listen),
        route_port=server.route_port,
        password=password.reveal(),
        tls=sealed,
        routes="\n".join(routes),
    )


def password_of(out: Path) -> Secret:
    """What servers of this bus know of each other, made at the first time."""
    path = out / keys.KEYS / ROUTES_PASSWORD
    if not path.exists():
        replace(path, secrets.token_hex(32) + "\n", mode=0o400)
    return Secret(plain_file.text(path).strip())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
