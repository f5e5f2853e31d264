"""What a host shall run: its whole desired state, on `fl.<cell>.order.<host>`, last message kept.

An order is a projection of the log up to (epoch, position); an agent keeps the greatest it saw. An
attempt that is no longer named may be forgotten; one that was ever started is never started again.
"""

import msgspec

from fairlease_schemas.ids import AttemptId, GpuUuid, HostId, JobId


class RunOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt's part on this host.

    `token` is the address of its grant. `digest` names the contract body to fetch. `stop` is empty
    while the attempt shall run, else why it shall stop, with `grace_ms` between notice and TERM, and
    all of it gone within `grace_ms` + `margin_ms`, the policy's stop margin.
    `hosts` are all hosts of the gang in rank order; `rank` is this host's place among them. `run_grace_ms` is
    the contract's grace, for a stop that nobody orders: when the host's lease runs out (7.6).
    `array_index` is the job's place in its array (1.11), -1 outside one. With `is_clean` what earlier attempts
    left where checkpoints go is set aside before the start (8.3).
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
    is_clean: bool = False


class HostOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the host shall run, as of this position of the log, and how long its lease lasts."""

    epoch: int
    position: int
    host: HostId
    runs: tuple[RunOrder, ...] = ()
    lease_ms: int = 60_000
