"""Hosts, their devices and their holds, as health records them (scope `alloc`)."""

import msgspec

from fairlease_schemas.ids import AccountId, AttemptId, GpuUuid, HostId, PoolId


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
    """A reason why the host takes no new work (7.1); several may stand, each with its owner and kind.

    Of devices that changed under running work, `inventory` and `incarnation` are what its agent reported: the host
    is registered as that once nothing of before is left there.
    """

    host: HostId
    owner: AccountId
    kind: str
    reason: str = ""
    inventory: Inventory | None = None
    incarnation: str = ""


MAX_CHECKS = 16
"""Checks that come with a return, and that a policy names."""
MAX_OUTPUT = 200
"""Characters that are kept of a check's last words."""
CODES = {0: "ok", 1: "warning", 2: "critical", 3: "unknown"}
"""What a check may end with, in the manner of Nagios."""


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A check of a host, in the manner of Nagios: `code` is 0 ok, 1 warning, 2 critical or 3 unknown.

    `at_ms` is when it was made, by whoever made it; `output` its last words.
    """

    name: str
    code: int
    at_ms: int
    output: str = ""


class HostHoldCleared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="host-hold-cleared"):
    """The hold of this owner and kind is gone; `checks` are those that came with its return (7.4)."""

    host: HostId
    owner: AccountId
    kind: str
    checks: tuple[Check, ...] = ()


class BreakerTripped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="breaker-tripped"):
    """So much of the pool was held by itself in a short time that no further host is: a person is asked (7.3).

    `host` is the one that would have been held.
    """

    pool: PoolId
    host: HostId
    held_gpus: int
    limit_gpus: int


class LeaseLost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="lease-lost"):
    """The host has said nothing for so long that nothing of what it ran is left (7.6).

    `silent_ms` is how long ago the bus stored its last renewal, 0 in words of a host that never sent one. The
    attempts with a part there that is not gone are over on this host; admission ends them.
    """

    host: HostId
    silent_ms: int
    attempts: tuple[AttemptId, ...]


class DrainPlanned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="drain-planned"):
    """The host will be emptied for its owner (7.2): from now on it takes only what is gone before the start.

    `start_in_ms` is how long until it takes nothing at all, `deadline_in_ms` until everybody leaves whatever their
    windows say, absent for never; `empty_in_ms` is the calendar's word on when nothing is left. With `is_queued`
    too much of the pool is draining already: the drain begins when it is planned again without.
    """

    host: HostId
    owner: AccountId
    start_in_ms: int = 0
    deadline_in_ms: int | None = None
    empty_in_ms: int = 0
    attempts: tuple[AttemptId, ...] = ()
    is_queued: bool = False
    reason: str = ""
    external_id: str = ""


class DrainProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="drain-progress"):
    """So many attempts are left on the host, which will be gone in so long."""

    host: HostId
    left: int
    empty_in_ms: int


class DrainCompleted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="drain-completed"):
    """Nothing is left on the host, and nothing comes there until its owner returns it."""

    host: HostId


class DrainCancelled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="drain-cancelled"):
    """The drain is called off, and all that was pending for it; what was told to leave leaves."""

    host: HostId
    account: AccountId
