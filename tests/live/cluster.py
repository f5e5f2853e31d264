"""A cell as an operator runs it: three servers of one bus, two replicas of each service, an agent; nobody's `up`.

Everything is made by the commands that docs/deploying.md names. What systemd, compose or Kubernetes do is here
a loop that starts a process again when it has left.
"""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fairlease.runtime import certificates, deployment, keys, tls
from fairlease.runtime.connection import connect
from fairlease.runtime.deployment import BusPlan, Deployment, Server
from fairlease.runtime.errors import STAYS_DOWN
from fairlease.runtime.parent import PARENT_VARIABLE
from fairlease.runtime.settings import Settings
from fairlease_schemas.subjects import SERVICES
from tests.house.tree import ROOT
from tests.live import process
from tests.live.court import LIMIT_S, eventually
from tests.live.desk import ACCOUNTS, QUICK, Desk
from tests.live.journal import api
from tests.live.witness import WITNESS, witness

HOSTS, GPUS = 4, 8
SERVERS = ("bus-1", "bus-2", "bus-3")
REPLICAS = ("a", "b")
_AGAIN_S = 0.2


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def cell_of(home: Path, *, is_sealed: bool = False) -> Deployment:
    """A cell of three servers on this machine; a sealed one has its certificates in `home`."""
    ports = iter(_free_ports(3 * len(SERVERS)))
    hosts = tuple(f"host-{number:03d}" for number in range(1, HOSTS + 1))
    return Deployment(
        servers=tuple(
            Server(name=name, host="127.0.0.1", port=next(ports), route_port=next(ports), monitor_port=next(ports))
            for name in SERVERS
        ),
        accounts=ACCOUNTS,
        agents={"agent": hosts},
        bus=BusPlan(store=str(home / "store"), tls=str(tls.certificates_of(home)) if is_sealed else ""),
    )


class Cluster(Desk):
    """`parts` are the words of every process by its name: `bus-1`, `ranker-a`, `agent` …"""

    def __init__(self, home: Path, *, is_sealed: bool = False) -> None:
        super().__init__(home)
        home.mkdir()
        if is_sealed:
            certificates.make(home)
        self.cell = cell_of(home, is_sealed=is_sealed)
        self.parts: dict[str, tuple[str, ...]] = {
            **{name: ("bus", "serve", str(home / f"{name}.conf")) for name in SERVERS},
            **{f"{name}-{replica}": ("serve", name) for name in SERVICES for replica in REPLICAS},
            "agent": ("serve", "agent", "--simulate-gpus", f"{HOSTS}x{GPUS}"),
        }
        self._processes: dict[str, Process] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Writes everything, starts everything, and returns when the hosts are registered."""
        deployment.write(self.cell, self.home, (witness,))
        for name in SERVERS:
            self._keepers[name] = asyncio.create_task(self._keep(name))
        await self.declare()
        for name in self.parts:
            if name not in self._keepers:
                self._keepers[name] = asyncio.create_task(self._keep(name))
        await self.open()
        await eventually(self._are_hosts_there, "the hosts are registered")

    async def declare(self) -> None:
        """As an operator does, from the file of the cell."""
        (self.home / "cell.toml").write_text(as_toml(self.cell))
        words = ("bus", "declare", str(self.home / "cell.toml"))
        child = await self._spawn("declare", words)
        assert await child.wait() == 0, (self.home / "logs" / "declare.log").read_text()

    async def open(self) -> None:
        key = keys.read(keys.key_path(self.home, WITNESS))
        settings = Settings(state_dir=self.home, url=self.cell.url)
        self._client = await connect(settings, "desk", key=key, exit_on_close=False, first_connect_s=LIMIT_S)

    async def _are_hosts_there(self) -> bool:
        return len((await self.ask("explainer", "hosts")).get("rows", ())) == HOSTS

    async def leader(self) -> str:
        """The server that leads the log, once one does."""

        async def found() -> str:
            info = await api(self.client, f"STREAM.INFO.{self.log}")
            return str(info.get("cluster", {}).get("leader", ""))

        return str(await eventually(found, "a leader of the log"))

    async def is_whole(self) -> bool:
        """Whether every stream has a leader and two others that have all of it: then one may die."""
        names = (await api(self.client, "STREAM.NAMES")).get("streams") or []
        infos = await asyncio.gather(*(api(self.client, f"STREAM.INFO.{name}") for name in (self.log, *names)))
        groups = [info["cluster"] for info in infos]
        return all(
            group.get("leader") and sum(other.get("current", False) for other in group.get("replicas", ())) == 2
            for group in groups
        )

    @property
    def log(self) -> str:
        return self.subjects.log_stream

    async def kill(self, name: str) -> None:
        """SIGKILL; returns when another process stands in its place."""
        old = self._processes[name]
        if old.returncode is None:  # one that is gone already may have left its number to a stranger
            process.kill(old.pid)
        await eventually(lambda: self._processes[name] is not old, f"another {name}")

    def halt(self, name: str) -> None:
        """SIGSTOP: it stands where it is, with its sockets open."""
        process.send(signal.SIGSTOP, self._processes[name].pid)

    def go_on(self, name: str) -> None:
        process.send(signal.SIGCONT, self._processes[name].pid)

    async def _keep(self, name: str) -> None:
        while True:
            child = self._processes[name] = await self._spawn(name, self.parts[name])
            code = await child.wait()
            assert code not in STAYS_DOWN, f"{name} left with {code}"
            await asyncio.sleep(_AGAIN_S)

    async def _spawn(self, name: str, words: tuple[str, ...]) -> Process:
        who, _, replica = name.rpartition("-")
        identity = {"declare": keys.DEPLOYER, "agent": keys.agent_name("agent")}.get(name, keys.service_name(who))
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEASE_")}
        env = {
            **kept,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "schemas"), str(ROOT / "services"))),
            "FAIRLEASE_HOME": str(self.home),
            "FAIRLEASE_URL": self.cell.url,
            "FAIRLEASE_CREDS": str(keys.key_path(self.home, identity)),
            "FAIRLEASE_REPLICA": replica or "a",
            PARENT_VARIABLE: str(os.getpid()),
        }
        (self.home / "logs").mkdir(exist_ok=True)
        with (self.home / "logs" / f"{name}.log").open("ab") as out:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "fairlease", *words, env=env, stdin=DEVNULL, stdout=out, stderr=out
            )

    def check_keepers(self) -> None:
        """Raises what ended a keeper: a process that left for good."""
        for keeper in self._keepers.values():
            if keeper.done():
                keeper.result()

    async def stop(self) -> None:
        """Ends everything but running jobs: whoever keeps them first, so that nothing comes back."""
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)
        await self.close()
        process.kill_all(self.home)
        for child in self._processes.values():
            await child.wait()


def as_toml(cell: Deployment) -> str:
    """The file that says this cell."""
    lines = [f"accounts = {list(cell.accounts)}", "[agents]"]
    lines += [f"{agent} = {list(hosts)}" for agent, hosts in cell.agents.items()]
    for s in cell.servers:
        lines += ["[[servers]]", f'name = "{s.name}"', f'host = "{s.host}"', f"port = {s.port}"]
        lines += [f"route_port = {s.route_port}", f"monitor_port = {s.monitor_port}"]
    return "\n".join([*lines, "[bus]", f'store = "{cell.bus.store}"', f'tls = "{cell.bus.tls}"', ""])


@asynccontextmanager
async def cluster_at(home: Path, *, is_sealed: bool = False) -> AsyncIterator[Cluster]:
    """A furnished cell, judged at the end; afterwards nothing of it is left, whatever happened."""
    cluster = Cluster(home, is_sealed=is_sealed)
    try:
        await cluster.start()
        await cluster.furnish(QUICK)
        yield cluster
        cluster.check_keepers()
        await cluster.judge()
    finally:
        await cluster.stop()
