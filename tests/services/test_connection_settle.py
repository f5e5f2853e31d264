"""What was said is with the bus when `settle` returns, so that another connection may build on it."""

from nats.aio.client import Client

from fairlease.runtime.bus_server import BusServer
from fairlease.runtime.connection import Connection, settle

ROUNDS = 300
"""Behind one ping alone, one subscription in sixty came too late."""


async def test_who_speaks_after_somebody_settled_is_heard_by_him(client: Connection, bus: BusServer) -> None:
    """Given a subscription and a settled connection, when another speaks at once, then every word of it is heard."""
    other = Client()
    await other.connect(bus.url)
    try:
        for number in range(ROUNDS):
            heard = await client.subscribe(f"said.{number}")
            await settle(client, 10)
            await other.publish(f"said.{number}", b"once")
            await settle(other, 10)
            assert (await heard.next_msg(timeout=10)).data == b"once"
            await heard.unsubscribe()
    finally:
        await other.close()
