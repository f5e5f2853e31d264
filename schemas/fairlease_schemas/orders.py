"""What a host shall run: its whole desired state, on `fl.<cell>.order.<host>`, last message kept.

An order is a projection of the log up to (epoch, position); an agent keeps the greatest it saw. An
attempt that is no longer named may be forgotten; one that was ever started is never started again.
"""

import msgspec

from fairlease_schemas.ids import AccountId, AttemptId, GpuUuid, HostId, JobId
from fairlease_schemas.job import Rendezvous


class RunOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt's part on this host.

    `token` is the address of its grant. `digest` names the contract body to fetch. `stop` is empty
    while the attempt shall run, else why it shall stop, with `grace_ms` between notice and TERM, and
    all of it gone within `grace_ms` + `margin_ms`, the policy's stop margin.
    `hosts` are all hosts of the gang in rank order; `rank` is this host's place among them. `run_grace_ms` is
    the contract's grace, for a stop that nobody orders: when the host's lease runs out (7.6).
    `array_index` is the job's place in its array (1.11), -1 outside one.
    Without `is_go` the part is only to be prepared: other parts of its gang are not ready yet (1.15). With it a gang
    of several hosts is told its `rendezvous`, unless its first host did not name one. `account` is who submitted the
    job: whose processes these are (1.16), whose bundles they may run (1.13), who may attach to them (1.17).
    `is_of_before`: it was granted before the host's machine was started anew. What of it there was is gone, and it
    must not begin, also where no disk remembers it. With `is_clean` what earlier attempts left where checkpoints go is
    set aside before the start (8.3).
    """

    attempt: AttemptId
    job: JobId
    token: str
    digest: str
    gpus: tuple[GpuUuid, ...]
    hosts: tuple[HostId, ...]
    rank: int
    stop: str = ""
    grace_ms: int = 0
    margin_ms: int = 30_000
    run_grace_ms: int = 0
    array_index: int = -1
    is_go: bool = True
    rendezvous: Rendezvous | None = None
    account: AccountId = ""
    is_of_before: bool = False
    is_clean: bool = False


class HostOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the host shall run, as of this position of the log, and how long its lease lasts.

    `incarnation` is the boot of the machine as it last registered: to another boot all of this is of before.
    """

    epoch: int
    position: int
    host: HostId
    runs: tuple[RunOrder, ...] = ()
    lease_ms: int = 60_000
    incarnation: str = ""
