"""The body of a contract: what a run executes, fetched by its digest and believed only if it has it.

The log holds no command lines, so the agent reads the body from the contracts stream when a run is
about to start. Of the body it reads the command, the environment and how the job saves itself; the
rest was read by admission.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal

import msgspec

from fairlease.agent.devices import Devices
from fairlease.agent.identity import User
from fairlease.runtime.errors import BusAway
from fairlease_schemas.codec import Unreadable, understood
from fairlease_schemas.ids import GpuUuid
from fairlease_schemas.job import Rendezvous
from fairlease_schemas.orders import RunOrder

Last = Callable[[str], Awaitable[bytes | None]]
"""The body kept under a digest, None when there is none; BusAway when nobody can say."""

PATIENCE_S: Final = 10.0
"""How long a body may be missing: a copy of the stream may be behind the log that names it."""
_PAUSE_S: Final = 0.2


class ContractRefused(Exception):
    """The run cannot start; the text says why, for the end's detail."""


class Saving(msgspec.Struct, frozen=True):
    """How the job saves itself: what tells it to, and where its checkpoints go."""

    signal: Literal["TERM", "USR1", "USR2", "none"] = "TERM"
    uri: str | None = None


class Like(msgspec.Struct, frozen=True):
    """The array that the job is one of: how many like it there are."""

    count: int


class Code(msgspec.Struct, frozen=True):
    """The code that runs: a bundle by its digest, or a commit of a repository (1.13)."""

    bundle: str = ""
    repo: str = ""
    commit: str = ""


class Command(msgspec.Struct, frozen=True):
    """What to execute. `env` is the contract's own, with what the job learns of its array and its code.

    `state` is what a resumed run must match (1.9).
    """

    command: tuple[str, ...]
    env: dict[str, str] = {}
    checkpoint: Saving = Saving()
    resumable: bool = True
    state: dict[str, str | int] | None = None
    array: Like | None = None
    source: Code | None = None
    terminal: bool = False


class _Body(msgspec.Struct, frozen=True):
    spec: Command


class _Beyond(msgspec.Struct, frozen=True):
    """What a contract may ask for that plain processes cannot give: better no start than another one than agreed."""

    image: str = ""
    secrets: dict[str, str] = {}


class _Asked(msgspec.Struct, frozen=True):
    spec: _Beyond


async def fetch(last: Last, digest: str, patience_s: float = PATIENCE_S) -> Command:
    """The command under this digest. Waits as long as the bus is away; ContractRefused for what cannot become right."""
    data = await patiently(lambda: last(digest), patience_s)
    if data is None:
        raise ContractRefused(f"no contract body is kept under digest {digest[:64]}")
    return read(data, digest)


async def patiently(ask: Callable[[], Awaitable[bytes | None]], patience_s: float = PATIENCE_S) -> bytes | None:
    """What the bus keeps; None when it said for so many seconds that there is nothing. Waits while it is away."""
    loop = asyncio.get_running_loop()
    missing_until_s: float | None = None
    while True:
        try:
            data = await ask()
        except BusAway:
            data = None
        else:
            if data is not None:
                return data
            missing_until_s = missing_until_s or loop.time() + patience_s
            if loop.time() >= missing_until_s:
                return None
        await asyncio.sleep(_PAUSE_S)


def read(data: bytes, digest: str) -> Command:
    """The command in a body; ContractRefused when the body is not the one that was admitted, or is none."""
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise ContractRefused(f"the contract body has digest {found}, the grant names {digest[:64]}")
    try:
        asked = understood(data, _Asked).spec
        missing = [name for name in ("image", "secrets") if getattr(asked, name)]
        if missing:
            raise ContractRefused(f"the contract asks for {' and '.join(missing)}, which this agent cannot give")
        command = understood(data, _Body).spec
    except Unreadable as error:
        raise ContractRefused(f"the contract body cannot be read: {error}") from error
    if not command.command:
        raise ContractRefused("the contract has no command")
    told = dict(command.env)
    if command.array is not None:
        told[ARRAY_COUNT] = str(command.array.count)
    if command.source is not None:
        told[SOURCE] = command.source.bundle or command.source.commit
    if command.terminal:
        told.setdefault("TERM", _TERM)
    return msgspec.structs.replace(command, env=told)


SOURCE: Final = "FAIRLEASE_SOURCE"
_TERM: Final = "xterm-256color"
"""What a terminal is taken for when the contract does not say."""
ARRAY_INDEX: Final = "FAIRLEASE_ARRAY_INDEX"
ARRAY_COUNT: Final = "FAIRLEASE_ARRAY_COUNT"
INHERITED: Final = ("PATH", "HOME", "LANG", "TMPDIR")
"""All that a job has of the agent's environment; the rest may hold addresses and credentials."""


def environment(
    order: RunOrder,
    contract: dict[str, str],
    devices: Devices,
    agent: dict[str, str],
    at: Rendezvous | None = None,
    user: User | None = None,
) -> dict[str, str]:
    """What a job finds in its environment: the agent's four, over them the contract's, over them the grant's.

    The grant's cannot be replaced by a contract: a job that could name other GPUs would use them. What launchers
    look for under names of their own (MASTER_ADDR …) can be, because a job may know better how its ranks meet `at`.
    A run that is a user's has his home, and not the agent's directory for what is temporary.
    """
    gpus: Iterable[GpuUuid] = order.gpus
    place = {ARRAY_INDEX: str(order.array_index)} if order.array_index >= 0 else {}
    meeting = {"MASTER_ADDR": at.address, "MASTER_PORT": str(at.port)} if at is not None else {}
    return {
        **{name: agent[name] for name in INHERITED if name in agent and (user is None or name != "TMPDIR")},
        **({"HOME": user.home, "USER": user.name, "LOGNAME": user.name} if user is not None else {}),
        "NNODES": str(len(order.hosts)),
        "NODE_RANK": str(order.rank),
        **meeting,
        **contract,
        **devices.environment(gpus),
        "FAIRLEASE_JOB": order.job,
        "FAIRLEASE_ATTEMPT": order.attempt,
        "FAIRLEASE_ATTEMPT_NUMBER": order.attempt.rpartition("-a")[2],
        "FAIRLEASE_TOKEN": order.token,
        "FAIRLEASE_HOST": devices.host,
        "FAIRLEASE_GPU_MODEL": devices.inventory().model,
        "FAIRLEASE_RANK": str(order.rank),
        "FAIRLEASE_WORLD_SIZE": str(len(order.hosts)),
        "FAIRLEASE_HOSTS": ",".join(order.hosts),
        **({"FAIRLEASE_RENDEZVOUS": str(at)} if at is not None else {}),
        **place,
    }
