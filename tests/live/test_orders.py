"""Two publishers of one host's orders: the later order stands, however far the other lags behind."""

import msgspec
import pytest

from fairlease.preemption.orders import Orders
from fairlease.runtime.connection import Connection
from fairlease.runtime.errors import BusAway
from fairlease.runtime.spans import Spans
from fairlease_schemas.orders import HostOrder
from fairlease_schemas.subjects import Subjects
from tests.live.journal import last_on

HOST = "host-001"


def _order(position: int) -> HostOrder:
    return HostOrder(epoch=1, position=position, host=HOST)


async def _standing(client: Connection, subjects: Subjects) -> int:
    stored = await last_on(client, subjects.orders_stream, subjects.order(HOST))
    assert stored is not None
    return msgspec.json.decode(stored.data, type=HostOrder).position


async def test_a_publisher_that_lags_behind_never_puts_an_older_order_over_a_later_one(
    client: Connection, subjects: Subjects
) -> None:
    ahead, behind = Orders(client, subjects, Spans()), Orders(client, subjects, Spans())
    await behind._publish(_order(30))
    await ahead._publish(_order(50))
    for position in (40, 45, 49, 50):
        await behind._publish(_order(position))
        assert await _standing(client, subjects) == 50
    await behind._publish(_order(51))
    assert await _standing(client, subjects) == 51
    with pytest.raises(BusAway):  # somebody else wrote since: it looks, and is called again
        await ahead._publish(_order(52))
    await ahead._publish(_order(52))
    assert await _standing(client, subjects) == 52
