"""What a gang asks of hosts, as a value that steps can compare and remember answers by."""

import msgspec

from fairlease.core.constraint import host_takes
from fairlease.core.placement.sides import NONE, Sizes, asked
from fairlease.core.world import World
from fairlease_schemas.ids import HostId, PoolId
from fairlease_schemas.job import Request


class Shape(msgspec.Struct, frozen=True):
    """`hosts` x `gpus_per_host`; more than one host means whole hosts (1.2).

    `sizes` is what is asked beside GPUs, `among` the hosts that meet every constraint were they empty, None
    for all of that size; `is_same_block` keeps the gang in one outermost topology block (1.3).
    """

    hosts: int
    gpus_per_host: int
    sizes: Sizes = NONE
    among: frozenset[HostId] | None = None
    is_same_block: bool = False

    @property
    def gpus(self) -> int:
        return self.hosts * self.gpus_per_host

    def suits(self, host: HostId, size: int) -> bool:
        """Whether the host, of `size` GPUs, could take one host's part when empty."""
        if self.among is not None:
            return host in self.among
        return size >= self.gpus_per_host if self.hosts == 1 else size == self.gpus_per_host


def shape_of(world: World, pool: PoolId, request: Request) -> Shape:
    """The request's shape in this pool."""
    sizes = asked(request)
    if sizes == NONE and request.constraints is None:
        return Shape(request.hosts, request.gpus_per_host)
    return Shape(
        request.hosts,
        request.gpus_per_host,
        sizes,
        frozenset(host.id for host in world.fleet.in_pool(pool) if not host_takes(request, host)),
        request.hosts > 1 and request.constraints is not None and request.constraints.is_same_block,
    )
