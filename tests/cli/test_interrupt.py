"""An interrupted wait ends, also where the interruption came in the same turn as an answer."""

import asyncio
import contextlib
from typing import Any, cast

import nats.errors
import pytest
from nats.aio.subscription import Subscription

from fairlease.cli.link import Answer, Link
from fairlease.cli.watch import Watch
from tests.cli.cell import job_view


class Deaf:
    """A link whose answer comes in the turn of the interruption, which is lost as in Python 3.11's `wait_for`."""

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, _question: str, _body: dict[str, Any]) -> Answer | None:
        self.asked += 1
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return cast("Answer", type("Seen", (), {"view": job_view("job-1", "ann", "a")})())


class Silent:
    """A feed on which nothing happens."""

    async def next_msg(self, **wait: float) -> None:
        await asyncio.sleep(wait["timeout"])
        raise nats.errors.TimeoutError


def test_a_wait_whose_interruption_was_swallowed_ends_all_the_same() -> None:
    async def story() -> int:
        link = Deaf()
        watch = Watch(cast("Link", link), "job-1", cast("Subscription", Silent()), lambda _step: None)
        waiting = asyncio.create_task(watch.end())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 4)
        return link.asked

    assert asyncio.run(story()) == 1
