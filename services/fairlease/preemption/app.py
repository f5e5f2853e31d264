"""The wiring of preemption: its rule from core, what it reads, what follows a fold."""

from fairlease.core.deciders import RULES
from fairlease.core.world import World
from fairlease.preemption.orders import Orders
from fairlease.runtime.service import Service, Shell
from fairlease_schemas.envelope import Record

NAME = "preemption"


def define(shell: Shell) -> Service:
    """Preemption's rule, and the orders that follow every fold."""
    orders = Orders(shell.client, shell.subjects, shell.spans)

    async def after_fold(world: World, _records: list[tuple[int, Record]]) -> None:
        if shell.is_ready:
            orders.changed(world)

    async def publish() -> None:
        orders.changed(shell.world)
        await orders.run()

    return Service(
        name=NAME,
        decide=RULES[NAME].decide,
        after_fold=after_fold,
        tasks=(publish,),
        streams=(shell.subjects.orders_stream,),
    )
