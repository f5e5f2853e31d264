"""Faults, repairs and maintenance of a cluster's hosts, as the workload's file states them."""

from collections.abc import Sequence
from typing import Final

from fairlease.core.world import World
from fairlease.simulator.draws import POINTS, Stream
from fairlease.simulator.engine import T0, Engine
from fairlease.simulator.machines import Machines
from fairlease.simulator.scenario import Cluster
from fairlease_schemas.commands import RequestDrain, ReturnHost
from fairlease_schemas.envelope import Record
from fairlease_schemas.host import DrainCompleted
from fairlease_schemas.ids import HostId
from fairlease_schemas.units import DAY_MS, HOUR_MS

SERVICE: Final = "maintenance"


class Upkeep:
    """What befalls hosts. A fault that would come to a host that is out comes to nothing; its return draws the next."""

    def __init__(
        self,
        engine: Engine,
        machines: Machines,
        cluster: Cluster,
        hosts: Sequence[HostId],
        seed: int,
        mtbf: Sequence[int],
    ) -> None:
        self._engine = engine
        self._machines = machines
        self._cluster = cluster
        self._mtbf = mtbf
        self._streams = {host: Stream(seed, f"fault/{host}") for host in hosts}
        self._broken: set[HostId] = set()
        self._serviced: set[HostId] = set()
        self._unarmed: set[HostId] = set()
        self._to_service = list(hosts)
        for host in hosts:
            self._arm(host)
        engine.at(T0 + cluster.maintenance.from_day * DAY_MS, self._next_group)

    def follow(self, _world: World, record: Record) -> None:
        """A host that is empty for its service is back after it."""
        for event in record.events:
            if isinstance(event, DrainCompleted) and event.host in self._serviced:
                back_ms = self._engine.now_ms + self._cluster.maintenance.needs_h * HOUR_MS
                self._engine.at(back_ms, lambda host=event.host: self._is_serviced(host))  # type: ignore[misc]  # bound now: the loop goes on

    def _arm(self, host: HostId) -> None:
        after_ms = self._mtbf[self._streams[host].below(POINTS)]
        self._engine.at(self._engine.now_ms + after_ms, lambda: self._fault(host))

    def _is_out(self, host: HostId) -> bool:
        is_empty = host in self._serviced and not self._engine.world.fleet.attempts_on(host)
        return host in self._broken or is_empty

    def _fault(self, host: HostId) -> None:
        self._unarmed.add(host)
        if self._is_out(host):
            return
        self._broken.add(host)
        self._machines.breaks(host)
        self._engine.at(self._engine.now_ms + self._cluster.host_repair_h * HOUR_MS, lambda: self._repaired(host))

    def _repaired(self, host: HostId) -> None:
        self._broken.discard(host)
        self._machines.repaired(host)
        self._returned(host)

    def _returned(self, host: HostId) -> None:
        if host in self._unarmed and not self._is_out(host):
            self._unarmed.discard(host)
            self._arm(host)

    def _next_group(self) -> None:
        plan = self._cluster.maintenance
        group, self._to_service = self._to_service[: plan.hosts_at_once], self._to_service[plan.hosts_at_once :]
        for host in group:
            self._serviced.add(host)
            start_ms = self._engine.now_ms + plan.notice_h * HOUR_MS
            self._engine.say(RequestDrain(host=host, not_before_ms=start_ms, reason="service"), SERVICE)

    def _is_serviced(self, host: HostId) -> None:
        self._serviced.discard(host)
        self._engine.say(ReturnHost(host=host), SERVICE)
        self._returned(host)
        if not self._serviced:
            self._next_group()
