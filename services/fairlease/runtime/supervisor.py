"""Keeps a whole cell alive on one machine: the bus, the streams, the services, the agents.

Every part is a process of its own and may die at any time: it is started again after a short wait
that doubles while it keeps dying at once. When the supervisor is killed, all of them end with it, so that
the next one finds a clean place; running jobs go on. The surprising choice: nothing is restarted *because*
something else died. A service whose bus is away waits for it, and a job whose agent is away goes on. Only a bus that
lives on after a write that failed is ended here, for its log would take nothing more.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.client import Client

from fairlease.runtime import bus_server, keys, streams, tls
from fairlease.runtime.access import Access, access
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.errors import STAYS_DOWN, BusAway, ConfigWrong
from fairlease.runtime.parent import PARENT_VARIABLE
from fairlease.runtime.permissions import Identity, Plan, identities
from fairlease.runtime.room import Room
from fairlease.runtime.settings import MOST_PORT, Settings, simulated_host
from fairlease.runtime.spans import check_sink
from fairlease.runtime.tasks import end
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.explain import Health
from fairlease_schemas.subjects import SCOPES, SERVICES

log = logging.getLogger("fairlease.supervisor")

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 5.0
STEADY_AFTER_S: Final = 10.0
STOP_LIMIT_S: Final = 10.0
READY_LIMIT_S: Final = 30.0
WATCH_S: Final = 1.0
RENEW_S: Final = 3_600.0
"""How often it is looked whether certificates end soon."""
_ASK_S: Final = 0.5
_LAST_BYTES: Final = 16 * 1024
_RECOVERY_S: Final = 10.0
"""How long a bus that was ended for a stalled log is given before that is looked at again."""


class _Hosts(msgspec.Struct, frozen=True):
    """All that is counted of a page of hosts."""

    rows: tuple[msgspec.Raw, ...] = ()


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the cell: its name, its arguments after `python -m fairlease`, its environment.

    `hosts` are those an agent serves, and may speak for.
    """

    name: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = {}
    hosts: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """Who it is on the bus: replicas of a service are one, agents are each their own."""
        return keys.agent_name(self.name) if self.arguments[1] == "agent" else keys.service_name(self.arguments[1])


def service_parts(replicas: int = 1) -> list[Part]:
    """All seven services, each `replicas` times; replicas are named a, b, c …"""
    return [
        Part(
            name=f"{name}-{replica}",
            arguments=("serve", name),
            env={"FAIRLEASE_REPLICA": replica},
        )
        for name in SERVICES
        for replica in "abcdefgh"[:replicas]
    ]


def agent_part(simulate: str, name: str = "agent", *, first_host: int = 1) -> Part:
    """An agent that offers simulated hosts, such as `4x8`: four hosts of eight GPUs."""
    arguments = ("serve", "agent", "--simulate-gpus", simulate, "--first-host", str(first_host))
    count = int(simulate.partition("x")[0])
    hosts = tuple(simulated_host(number) for number in range(first_host, first_host + count))
    return Part(name=name, arguments=arguments, hosts=hosts)


class Supervisor:
    """One cell. `start`, then `wait_ready`; `stop` ends everything but the running jobs.

    Everyone gets the key that the table has for it, and so do `agents` that somebody else starts, each with
    its hosts, `bots` are accounts that only look after hosts, of `posts` if they have some; `auditors` read the log;
    `guests` make identities beside those of the table. `is_sealed`: the bus speaks TLS alone, with the certificates of
    the state directory (certificates.py).
    """

    def __init__(
        self,
        settings: Settings,
        parts: list[Part],
        guests: tuple[Callable[[Plan], Identity], ...] = (),
        *,
        agents: tuple[tuple[str, tuple[str, ...]], ...] = (),
        bots: tuple[str, ...] = (),
        auditors: tuple[str, ...] = (),
        posts: tuple[tuple[str, tuple[str, ...]], ...] = (),
        is_sealed: bool = False,
    ) -> None:
        self.settings = settings
        self.parts = {part.name: part for part in parts}
        self.url = ""
        self._guests = guests
        self._agents = agents
        self._bots, self._posts = bots, posts
        self._auditors = auditors
        self._is_sealed = is_sealed
        self._access: Access | None = None
        self.processes: dict[str, Process] = {}
        self.restarts: dict[str, int] = {}
        self._left: dict[str, int] = {}
        self._bus: bus_server.BusServer | None = None
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._is_stopping = False

    @property
    def bus_pid(self) -> int:
        return self._bus.pid if self._bus is not None else 0

    @property
    def reach(self) -> Settings:
        """How its bus is reached: by the authority of its own, whatever this environment says of others."""
        return msgspec.structs.replace(self.settings, url=self.url, ca="")

    @property
    def logs(self) -> Path:
        """Where each process writes what it has to say."""
        return self.settings.state_dir / "logs"

    async def start(self) -> None:
        """Start the bus, declare the streams, start every part. Raises ConfigWrong, BusAway or OSError."""
        self._check()
        self.settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        self._access = access(self.settings.state_dir, self.settings.subjects, self._people())
        self._start_bus()
        key = keys.make(self.settings.state_dir, keys.DEPLOYER)
        client = await connect(self.reach, keys.DEPLOYER, key=key, exit_on_close=False, first_connect_s=READY_LIMIT_S)
        try:
            await streams.declare(client, self.settings.subjects, self.settings.accounts)
        finally:
            await client.close()
        self._start_keeper("bus", self._keep_bus())
        self._start_keeper("log", self._watch_log())
        if self._is_sealed:
            self._start_keeper("certificates", self._watch_certificates())
        for part in self.parts.values():
            self._start_keeper(part.name, self._keep(part))

    async def wait_ready(self, limit_s: float = READY_LIMIT_S, *, hosts: int = 0) -> None:
        """Return once every service has folded the log, and `hosts` hosts are registered; else BusAway.

        ConfigWrong at once, with its last words, for a part that is needed and stays down.
        """
        until_s = time.monotonic() + limit_s
        key = keys.make(self.settings.state_dir, keys.client_name(self.settings.accounts[0]))
        client = await connect(self.reach, "fairlease-ready", key=key, exit_on_close=False)
        try:
            waiting = {part.arguments[1] for part in self.parts.values() if part.arguments[1] in SERVICES}
            while True:
                waiting -= {name for name in sorted(waiting) if await self._is_ready(client, name)}
                if not waiting and (not hosts or await self._registered(client) >= hosts):
                    return
                self._refuse_gone(waiting or {"agent"})
                if time.monotonic() > until_s:
                    late = ", ".join(sorted(waiting)) or "the agents"
                    raise BusAway(f"not ready after {limit_s:g} s: {late}; what they said is in {self.logs}")
                await asyncio.sleep(0.02)
        finally:
            await client.close()

    async def stop(self) -> None:
        """End the services and agents, then the bus. Jobs go on, and are adopted at the next start."""
        self._is_stopping = True
        await end(self._keepers.values())
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        await asyncio.gather(*(_ended(name, process) for name, process in self.processes.items()))
        if self._bus is not None:
            await asyncio.to_thread(self._bus.stop)

    def pid(self, name: str) -> int:
        """The process id of a part as it runs now; 0 while it is away."""
        process = self.processes.get(name)
        return process.pid if process is not None and process.returncode is None else 0

    def _check(self) -> None:
        """ConfigWrong for what the parts would only say one by one, each in its log."""
        first, last = self.settings.metrics_port, len(self.parts) - 1
        if first and first + last > MOST_PORT:
            raise ConfigWrong(
                f"FAIRLEASE_METRICS_PORT={first}: {last + 1} parts count on from it, beyond {MOST_PORT}; "
                f"name one up to {MOST_PORT - last}, or 0"
            )
        if self.settings.traces:
            check_sink(self.settings.traces)

    def _refuse_gone(self, waited_for: set[str]) -> None:
        """ConfigWrong where nobody is left of one that is waited for: each of its replicas stays down."""
        for kind in sorted(waited_for):
            names = [part.name for part in self.parts.values() if part.arguments[1] == kind]
            if names and all(name in self._left for name in names):
                name = names[0]
                said = _last_words(self.logs / f"{name}.log")
                raise ConfigWrong(
                    f"{name} left with code {self._left[name]} and stays down: {said}; more is in {self.logs}"
                )

    def _people(self) -> tuple[Identity, ...]:
        own = tuple((part.name, part.hosts) for part in self.parts.values() if part.hosts)
        cell, accounts = self.settings.cell, self.settings.accounts
        agents = (*own, *self._agents)
        plan = Plan(
            cell=cell,
            accounts=accounts,
            agents=agents,
            bots=self._bots,
            posts=self._posts,
            auditors=self._auditors,
        )
        return (*identities(plan), *(guest(plan) for guest in self._guests))

    def _start_keeper(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        keeper = self._keepers[name] = asyncio.create_task(work)
        keeper.add_done_callback(partial(_tell_end, name))

    def _start_bus(self) -> None:
        # In this thread, not a worker's: the server dies with the thread that started it.
        own, access = self.settings.own_server, self._access
        if own is not None:
            log.warning("the bus is a server of your own, and nobody checked it: %s", own)
        self._bus = bus_server.start(
            self.settings.state_dir,
            access=access,
            dies_with_parent=True,
            own_server=own,
            is_sealed=self._is_sealed,
        )
        self.url = self._bus.url

    async def _keep_bus(self) -> None:
        """Start the bus again whenever it dies, until it can be: its disk may be full, its port taken meanwhile."""
        wait, told = _Wait(), ""
        while True:
            bus = self._bus
            assert bus is not None, "kept before it was started"
            await asyncio.to_thread(bus.process.wait)
            if self._is_stopping:
                return
            if not told:
                log.warning("the bus left with code %s, starting it again", bus.process.returncode)
            self.restarts["bus"] = self.restarts.get("bus", 0) + 1
            await wait.after_end()
            try:
                self._start_bus()
                told = ""
            except (BusAway, ConfigWrong, OSError) as error:
                if str(error) != told:
                    log.error("the bus cannot be started, trying on: %s", error)  # noqa: TRY400 - its text is for people
                told = str(error)

    async def _watch_log(self) -> None:
        """End a bus whose log takes nothing: after a write that failed it answers, and stores no more until a start.

        So it is with every other stream, and no one sees it of all: after its disk was full it is ended once there is
        room again.
        """
        room, was_full = Room(self.settings.state_dir / "jetstream"), False
        client = await self._watcher()
        try:
            while True:
                await asyncio.sleep(WATCH_S)
                room.look()
                if not room.can_start_bus():
                    if not was_full:
                        log.error("the bus's disk is full: make room, and the bus is started again; %s", room.told())
                    was_full = True
                    continue
                stalled = await self._stalled(client)
                if self._bus is not None and (stalled or (was_full and not room.is_closed)):
                    why = f"the log takes no records of {stalled}" if stalled else "its disk was full"
                    log.error("the bus is started again, for %s; %s", why, room.told())
                    was_full = False
                    await asyncio.to_thread(self._bus.stop)
                    await asyncio.sleep(_RECOVERY_S)
        finally:
            await client.close()

    async def _watch_certificates(self) -> None:
        """Renew them before they end, and have the bus read those that were renewed: whoever is connected stays."""
        from fairlease.runtime import certificates  # noqa: PLC0415 - 80 ms that a plain cell need not pay

        directory = tls.certificates_of(self.settings.state_dir)
        seen, looked_s = tls.stamp(directory), -RENEW_S
        while True:
            await asyncio.sleep(WATCH_S)
            if time.monotonic() - looked_s >= RENEW_S:
                looked_s = time.monotonic()
                try:
                    await asyncio.to_thread(certificates.ensure, self.settings.state_dir)
                except (ConfigWrong, OSError) as error:
                    log.warning("the certificates cannot be renewed: %s", error)
            now = tls.stamp(directory)
            if now == seen:
                continue
            seen = now
            try:
                tls.check(directory)
            except ConfigWrong as error:
                log.warning("the bus keeps the certificates that it has: %s", error)
                continue
            log.info("the bus reads its certificates again")
            if self._bus is not None and self._bus.is_running():
                self._bus.reload()

    async def _watcher(self) -> Connection:
        """A connection for questions, as soon as the bus is there."""
        key = keys.make(self.settings.state_dir, keys.client_name(self.settings.accounts[0]))
        while True:
            with contextlib.suppress(BusAway):
                return await connect(self.reach, "fairlease-watch", key=key, exit_on_close=False)
            await asyncio.sleep(WATCH_S)

    async def _stalled(self, client: Client) -> str:
        """The first service of whose records the log took none, in the order of their names; empty when all is well."""
        found = await asyncio.gather(*(self._health(client, service) for service in sorted(SCOPES)))
        return next((health.service for health in found if health is not None and health.is_stalled), "")

    async def _keep(self, part: Part) -> None:
        """Start the part, and again whenever it leaves."""
        wait = _Wait()
        while True:
            try:
                process = await self._spawn(part)
            except OSError as error:  # no process, no open file or no room for its log is left, for now
                log.error("%s cannot be started, trying on: %s", part.name, error)  # noqa: TRY400 - as above
                await wait.after_end()
                continue
            self.processes[part.name] = process
            code = await process.wait()
            if self._is_stopping:
                return
            if code in STAYS_DOWN:
                log.error("%s left with code %s and stays down; why is in %s", part.name, code, self.logs)
                self._left[part.name] = code
                return
            self.restarts[part.name] = self.restarts.get(part.name, 0) + 1
            log.warning("%s left with code %s, starting it again", part.name, code)
            await wait.after_end()

    async def _spawn(self, part: Part) -> Process:
        inherited = {name: value for name, value in os.environ.items() if name != "FAIRLEASE_METRICS_PORT"}
        env = {
            **inherited,
            **self._metrics(part),
            "FAIRLEASE_HOME": str(self.settings.state_dir),
            "FAIRLEASE_URL": self.url,
            "FAIRLEASE_CELL": self.settings.cell,
            **self._authority(),
            "FAIRLEASE_CREDS": str(keys.key_path(self.settings.state_dir, part.identity)),
            PARENT_VARIABLE: str(os.getpid()),
            **part.env,
        }
        with (self.logs / f"{part.name}.log").open("ab") as out:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fairlease",
                *part.arguments,
                stdin=DEVNULL,
                stdout=out,
                stderr=out,
                env=env,
                start_new_session=True,
            )

    def _authority(self) -> dict[str, str]:
        """By what the parts know a sealed bus; of a plain one they need to know nothing."""
        authority = tls.authority_of(self.reach) if self._is_sealed else None
        return {"FAIRLEASE_CA": str(authority)} if authority is not None else {}

    def _metrics(self, part: Part) -> dict[str, str]:
        """One port can be one process's: the parts count on from the one that was named, in their order.

        Without one in the settings there is none, whatever this environment says: it may name that of another cell.
        """
        first = self.settings.metrics_port
        if first is None:
            return {}
        return {"FAIRLEASE_METRICS_PORT": str(first and first + list(self.parts).index(part.name))}

    async def _is_ready(self, client: Client, service: str) -> bool:
        health = await self._health(client, service)
        return health is not None and health.is_ready

    async def _health(self, client: Client, service: str) -> Health | None:
        """What a replica of the service says about itself; None when none does in time."""
        try:
            asked = self.settings.subjects.ask(service, "health")
            return understood((await client.request(asked, b"{}", timeout=_ASK_S)).data, Health)
        except (nats.errors.Error, OSError, Unreadable):
            return None

    async def _registered(self, client: Client) -> int:
        try:
            reply = await client.request(self.settings.subjects.ask("explainer", "hosts"), b"{}", timeout=0.5)
            return len(understood(reply.data, _Hosts).rows)
        except (nats.errors.Error, Unreadable):
            return 0


class _Wait:
    """How long to wait before the next start: short at first, doubling while the part dies at once."""

    def __init__(self) -> None:
        self._wait_s = FIRST_WAIT_S
        self._since_s = time.monotonic()

    async def after_end(self) -> None:
        if time.monotonic() - self._since_s > STEADY_AFTER_S:
            self._wait_s = FIRST_WAIT_S
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
        self._since_s = time.monotonic()


def _last_words(log_file: Path) -> str:
    """The last line that a part wrote, in its own words; a line of its log is JSON, an error of a command is text."""
    try:
        with log_file.open("rb") as said:
            said.seek(max(0, said.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = said.read(_LAST_BYTES).decode(errors="replace").split("\n")
    except OSError as error:
        return f"its log cannot be read ({error.strerror})"
    last = next((line for line in reversed(lines) if line and not line.startswith(" ")), "it said nothing")
    try:
        return str(json.loads(last)["text"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return last.removeprefix("fairlease: ")


async def _ended(name: str, process: Process) -> None:
    """Wait for a process that was asked to end; after the limit it is killed."""
    try:
        await asyncio.wait_for(process.wait(), STOP_LIMIT_S)
    except TimeoutError:
        log.warning("%s did not end in %g s and is killed", name, STOP_LIMIT_S)
        process.kill()
        await process.wait()


def _tell_end(name: str, keeper: "asyncio.Task[None]") -> None:
    """A keeper that ends by an error of ours would leave what it kept down, and nobody told."""
    if not keeper.cancelled() and (error := keeper.exception()) is not None:
        log.error("nobody keeps %s any more: our own code is wrong; start again", name, exc_info=error)
