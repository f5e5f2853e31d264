"""Hosts, their devices and their holds, as health records them (scope `alloc`)."""

import msgspec

from fairlease_schemas.ids import AccountId, GpuUuid, HostId, PoolId


class Inventory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a host is, as its agent reports it. GPU k of the host is `gpus[k]`.

    `block` is the topology label, outermost first, parts joined by `/`. `is_simulated` marks
    devices that do not exist; it is shown wherever the host is. `memory_mib` is that of one GPU, `disk_mib`
    what jobs may fill, 0 when nobody said; `labels` are what contracts may ask for (1.3).
    """

    pool: PoolId
    gpus: tuple[GpuUuid, ...]
    model: str
    memory_mib: int
    cpu_cores: int
    host_memory_mib: int
    block: str = ""
    is_simulated: bool = False
    disk_mib: int = 0
    labels: dict[str, str] = {}


class HostRegistered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="host-registered"):
    """A host joined, or came back with other facts. `incarnation` changes with every boot."""

    host: HostId
    incarnation: str
    inventory: Inventory


class HostHeld(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="host-held"):
    """A reason why the host takes no new work (7.1); several may stand, each with its owner and kind."""

    host: HostId
    owner: AccountId
    kind: str
    reason: str = ""


class HostHoldCleared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="host-hold-cleared"):
    """The hold of this owner and kind is gone."""

    host: HostId
    owner: AccountId
    kind: str
