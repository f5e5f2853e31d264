"""What health knows of hosts' leases, and how it comes to know it for certain (decisions.md 7.6).

Renewals are heard as they pass, and that is only a suspicion: a replica whose bus was away hears nobody.
So silence arms a timer for now, and the timer's message is answered with what the *leader* of the leases'
stream then says of the hosts in question. That is what core decides on, whoever of the replicas read it.
What the leader said is remembered like what was heard, so that a host that is known to be silent, and of
which nothing more is to be decided, arms no timer at all.
"""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import nats.errors
from nats.aio.msg import Msg

from fairlease.core import lease
from fairlease.core.host import LEASE, Host
from fairlease.runtime import api
from fairlease.runtime.bus import Message
from fairlease.runtime.clock import parse_bus_time_ms
from fairlease.runtime.errors import BusAway
from fairlease.runtime.service import Shell
from fairlease.runtime.stored import NO_MESSAGE_FOUND
from fairlease.runtime.timers import Timers
from fairlease_schemas.envelope import Answer, LeasesRead
from fairlease_schemas.ids import HostId
from fairlease_schemas.policy import Policy
from fairlease_schemas.subjects import last_token

_LONGEST_LEASE_MS: Final = 1 << 40
MOST_READ: Final = 200
"""Hosts read for one timer; the next timer reads others."""
_LOOK_S: Final = 0.25
_AGAIN_S: Final = 1.0
_LONGEST_AGAIN_S: Final = 32.0
"""What was asked and led to nothing is asked again after a second, and then less and less often."""
_UNKNOWN, _SILENT, _GONE, _BACK = "unknown", "silent", "gone", "back"


class _Asked(NamedTuple):
    """What was asked of a host, when it is asked again if it stays so, and the pause before that."""

    what: str
    again_s: float
    pause_s: float


class Leases:
    """One replica's. `listen` before the log is read, `watch` for ever after, `read_timer` for every timer."""

    def __init__(self, name: str, shell: Shell, steady_s: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._shell = shell
        self._steady_s = steady_s
        self._timers = Timers(shell.client, shell.subjects, shell.clock)
        self._heard_s: dict[HostId, float] = {}
        self._asked: dict[HostId, _Asked] = {}
        self._wanted: dict[HostId, None] = {}
        self._is_back = asyncio.Event()

    async def listen(self) -> None:
        """Hears every renewal from now on, across reconnections. BusAway when there is no connection."""
        try:
            await self._shell.client.subscribe(self._shell.subjects.lease("*"), cb=self._hear)
        except nats.errors.Error as error:
            raise BusAway(f"renewals cannot be listened to: {type(error).__name__}") from error

    async def watch(self) -> None:
        """Looks at every host four times a second, and at once when a held one is heard. Never returns."""
        while True:
            with contextlib.suppress(BusAway):
                await self._look()
            self._is_back.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._is_back.wait()

    async def read_timer(self, message: Message) -> Answer:
        """The timer's message, answered with what the leader says of the hosts in question. BusAway as it comes."""
        shell, hosts = self._shell, self._in_question()
        found = await asyncio.gather(*(self._last_renewal(host) for host in hosts))
        renewed = {host: renewed_ms for host, (renewed_ms, _) in zip(hosts, found, strict=True)}
        leases_ms = {host: lease_ms for host, (_, lease_ms) in zip(hosts, found, strict=True) if lease_ms}
        bus_now_ms, now_s = shell.clock.bus_now_ms(), self._steady_s()
        for host, renewed_ms in renewed.items():
            known_ms = max(renewed_ms, _registered_ms(shell.world.fleet.hosts.get(host)))
            said_s = now_s - (bus_now_ms - known_ms) / 1_000
            self._heard_s[host] = max(said_s, self._heard_s.get(host, said_s))
        said = LeasesRead(due_ms=int(last_token(message.subject)), renewed=renewed, leases_ms=leases_ms)
        return Answer(stream=message.stream, seq=message.seq, time_ms=message.time_ms, who=self._name, said=said)

    async def _hear(self, message: Msg) -> None:
        host = last_token(message.subject)
        self._heard_s[host] = self._steady_s()
        if _is_held(self._shell.world.fleet.hosts.get(host)):
            self._is_back.set()

    async def _look(self) -> None:
        """Arms a timer for now when there is something to ask that was not asked just before."""
        now_s = self._steady_s()
        states = dict(self._states())
        due = {host: asked for host, what in states.items() if (asked := self._due(host, what, now_s)) is not None}
        if due:
            await self._timers.arm(self._name, self._timers.now_ms())
            chosen = dict(islice(due.items(), MOST_READ))
            self._asked.update(chosen)
            self._wanted.update(dict.fromkeys(chosen))
        for host in self._asked.keys() - states.keys():
            del self._asked[host]

    def _due(self, host: HostId, what: str, now_s: float) -> _Asked | None:
        """The question, should it be asked now; None when it was asked and is not due again."""
        asked = self._asked.get(host)
        if asked is None or asked.what != what:
            return _Asked(what, now_s + _AGAIN_S, _AGAIN_S)
        if now_s < asked.again_s:
            return None
        pause_s = min(2 * asked.pause_s, _LONGEST_AGAIN_S)
        return _Asked(what, now_s + pause_s, pause_s)

    def _states(self) -> Iterator[tuple[HostId, str]]:
        """Every host of which there may be something to decide, and what."""
        world, now_s = self._shell.world, self._steady_s()
        policy = world.policy
        if policy is None:
            return
        silence_ms = lease.silence_ms(policy)
        for host in world.fleet.hosts.values():
            heard_s = self._heard_s.get(host.id)
            silent_ms = (now_s - heard_s) * 1_000 if heard_s is not None else None
            if silent_ms is None:
                yield host.id, _UNKNOWN
            elif silent_ms < silence_ms:
                if _is_held(host):
                    yield host.id, _BACK
            elif not _is_held(host):
                yield host.id, _SILENT
            elif self._is_gone(policy, host.id, silent_ms):
                yield host.id, _GONE

    def _is_gone(self, policy: Policy, host: HostId, silent_ms: float) -> bool:
        """Whether something that ran there is still on the books, and must be over by now."""
        world = self._shell.world
        return silent_ms >= lease.loss_ms(world, policy, host) and bool(lease.remains(world, host))

    def _in_question(self) -> list[HostId]:
        """Those the timer was armed for, others of which there may be something to decide, and those held.

        These last because their return may have been missed.
        """
        hosts, wanted = self._shell.world.fleet.hosts, self._wanted
        self._wanted = {}
        others = [name for name, _ in self._states()] + [host.id for host in hosts.values() if _is_held(host)]
        return list(islice((name for name in dict.fromkeys([*wanted, *others]) if name in hosts), MOST_READ))

    async def _last_renewal(self, host: HostId) -> tuple[int, int]:
        """By the stream's leader the bus's timestamp of the host's last renewal, and the lease it names; 0 for none."""
        subjects, asked = self._shell.subjects, {"last_by_subj": self._shell.subjects.lease(host)}
        try:
            found = await api.request(self._shell.client, f"STREAM.MSG.GET.{subjects.leases_stream}", asked)
        except api.Refused as refusal:
            if refusal.code == NO_MESSAGE_FOUND:
                return 0, 0
            raise
        return parse_bus_time_ms(found["message"]["time"]), _lease_of(found["message"].get("data", ""))


def _lease_of(data: str) -> int:
    """The lease that the body of a renewal names; 0 where it names none."""
    try:
        said = json.loads(base64.b64decode(data))
    except (ValueError, RecursionError):
        return 0
    length_ms = said.get("lease_ms") if isinstance(said, dict) else None
    return length_ms if type(length_ms) is int and 0 < length_ms < _LONGEST_LEASE_MS else 0


def _is_held(host: Host | None) -> bool:
    return host is not None and host.is_held_as(LEASE)


def _registered_ms(host: Host | None) -> int:
    return host.registered_ms if host is not None else 0
