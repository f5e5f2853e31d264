"""What a contract asks of every host, and which registered hosts could meet it when empty (1.2, 1.3).

A constraint has the name of its field below `spec`, so that a refusal points at what was written. The
surprising choice: a GPU model matches by whole words, so that `H100` takes what the driver calls
`NVIDIA H100 80GB HBM3`; lower or upper case is the same.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from fairlease.core.host import Host
from fairlease.core.world import World
from fairlease_schemas.host import Inventory
from fairlease_schemas.ids import PoolId
from fairlease_schemas.job import Constraints, Problem, Request

SIZE = "gpus_per_host"
SAME_BLOCK = "constraints.same_block"
_MODEL = "constraints.gpu_model"
_MEMORY = "constraints.min_gpu_memory"
_LABELS = "constraints.labels."
_ROOM = ("cpu_per_host", "memory_per_host", "disk_per_host")
_NOTHING = Constraints()
_SHOWN = 8


def host_takes(request: Request, host: Host) -> str:
    """The first constraint that rules the host out for one host's part of the gang, were it empty; else empty.

    In this order: size (a gang of several hosts takes whole ones), CPU, memory, disk, GPU model, GPU memory,
    labels by key. What is asked of the gang together, `same_block`, is not a matter of one host.
    """
    return next(_ruling_out(request, host.inventory), "")


def could_take(world: World, pool: PoolId, request: Request) -> bool:
    """Whether the pool's registered hosts could take the gang if they were empty and had no hold."""
    able = (host for host in world.fleet.in_pool(pool) if not host_takes(request, host))
    if not _is_same_block(request):  # one more submission must not cost a look at the whole pool
        return sum(1 for _ in islice(able, max(request.hosts, 0))) == request.hosts
    return _most(list(able), request) >= request.hosts


def block_of(inventory: Inventory) -> str:
    """The outermost part of a host's topology label; empty where nobody said."""
    return inventory.block.partition("/")[0]


def problems_of(world: World, pools: Iterable[PoolId], request: Request) -> list[Problem]:
    """Which constraints rule out every one of the pools, given that sizes alone would do.

    Each that does so by itself; where only several together do, one problem that names them all.
    """
    sized = [
        [host for host in world.fleet.in_pool(pool) if SIZE not in _ruling_out(request, host.inventory)]
        for pool in pools
    ]
    found = [
        _problem(name, request, [host for hosts in sized for host in hosts])
        for name in _asked(request)
        if name != SAME_BLOCK
        and all(sum(name not in _ruling_out(request, h.inventory) for h in hosts) < request.hosts for hosts in sized)
    ]
    if not found and _is_same_block(request) and all(_most(hosts, request) < request.hosts for hosts in sized):
        found = [_problem(SAME_BLOCK, request, [host for hosts in sized for host in hosts])]
    return found or [_together(request, sized)]


def _ruling_out(request: Request, inventory: Inventory) -> Iterator[str]:
    """Every constraint that the host does not meet, in their order."""
    gpus = len(inventory.gpus)
    if gpus < request.gpus_per_host or (request.hosts > 1 and gpus != request.gpus_per_host):
        yield SIZE
    has = (inventory.cpu_cores, inventory.host_memory_mib, inventory.disk_mib)
    asks = (request.cpu_per_host, request.memory_per_host_mib, request.disk_per_host_mib)
    for name, asked, there in zip(_ROOM, asks, has, strict=True):
        if asked > there:
            yield name
    asked_of_it = request.constraints
    if asked_of_it is None:
        return
    if asked_of_it.gpu_models and not any(_is_model(model, inventory.model) for model in asked_of_it.gpu_models):
        yield _MODEL
    if asked_of_it.min_gpu_memory_mib > inventory.memory_mib:
        yield _MEMORY
    for key, value in asked_of_it.labels.items():
        if inventory.labels.get(key) != value:
            yield _LABELS + key


def _is_model(asked: str, model: str) -> bool:
    """Whether the asked words stand in the model's name, whole and in a row."""
    wanted, words = _words(asked), _words(model)
    return bool(wanted) and any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


def _words(text: str) -> list[str]:
    return "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()


def _is_same_block(request: Request) -> bool:
    return request.hosts > 1 and (request.constraints or _NOTHING).is_same_block


def _most(hosts: list[Host], request: Request) -> int:
    """How many of the hosts a gang could have together: all, or those of the fullest block. No label is no block."""
    if not _is_same_block(request):
        return len(hosts)
    blocks: dict[str, int] = {}
    for host in hosts:
        block = block_of(host.inventory)
        blocks[block] = blocks.get(block, 0) + bool(block)
    return max(blocks.values(), default=0)


def _asked(request: Request) -> list[str]:
    """The constraints that the request has, in their order."""
    wanted = request.constraints or _NOTHING
    asks = (request.cpu_per_host, request.memory_per_host_mib, request.disk_per_host_mib)
    names = [name for name, asked in zip(_ROOM, asks, strict=True) if asked]
    names += [_MODEL] * bool(wanted.gpu_models) + [_MEMORY] * bool(wanted.min_gpu_memory_mib)
    return [*names, *(_LABELS + key for key in wanted.labels), *[SAME_BLOCK] * _is_same_block(request)]


def _problem(name: str, request: Request, hosts: list[Host]) -> Problem:
    """The constraint with what was asked and what the hosts have."""
    value, there = _value_and_limit(name, request, [host.inventory for host in hosts])
    whom = "one host" if request.hosts == 1 else f"{request.hosts} hosts of one pool"
    return Problem(
        field=f"spec.{name}",
        rule="1.2" if name in _ROOM else "1.3",
        value=value[:80],
        limit=there[:300],
        way_out=f"ask for what {whom} could give when empty",
    )


def _value_and_limit(name: str, request: Request, hosts: list[Inventory]) -> tuple[str, str]:
    wanted = request.constraints or _NOTHING
    if name == "cpu_per_host":
        return f"{request.cpu_per_host} cores", f"at most {max(h.cpu_cores for h in hosts)} cores on a host"
    if name == "memory_per_host":
        return f"{request.memory_per_host_mib}Mi", f"at most {max(h.host_memory_mib for h in hosts)}Mi on a host"
    if name == "disk_per_host":
        return f"{request.disk_per_host_mib}Mi", f"at most {max(h.disk_mib for h in hosts)}Mi on a host"
    if name == _MODEL:
        return ", ".join(wanted.gpu_models), _listed("models", {h.model for h in hosts})
    if name == _MEMORY:
        return f"{wanted.min_gpu_memory_mib}Mi", f"at most {max(h.memory_mib for h in hosts)}Mi on a GPU"
    if name == SAME_BLOCK:
        return f"{request.hosts} hosts", _listed("blocks", {block_of(h) for h in hosts} - {""})
    key = name.removeprefix(_LABELS)
    return wanted.labels[key], _listed("values", {h.labels[key] for h in hosts if key in h.labels})


def _listed(what: str, found: set[str]) -> str:
    return f"{what}: {', '.join(sorted(found)[:_SHOWN]) or 'none'}"


def _together(request: Request, sized: list[list[Host]]) -> Problem:
    """Each constraint alone could be met, and all of them together cannot."""
    able = [[host for host in hosts if not host_takes(request, host)] for hosts in sized]
    most = max((_most(hosts, request) for hosts in able), default=0)
    return Problem(
        field="spec.constraints",
        rule="1.3",
        value=f"{request.hosts} hosts",
        limit=f"{most} hosts of one pool meet {', '.join(_asked(request))}"[:300],
        way_out="leave one of them out",
    )
