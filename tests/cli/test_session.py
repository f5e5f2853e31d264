"""A session at a job's terminal, against an agent that the test plays: how it ends when the job does."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, cast

import msgspec
import nats.errors
import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from fairlease.cli import attach
from fairlease.cli.attach import Session
from fairlease.cli.console import Console
from fairlease.cli.link import Link
from fairlease.runtime.connection import connect
from fairlease.runtime.settings import Settings
from fairlease_schemas.attach import Shown, Taken
from tests.cli.cell import SUBJECTS, Cell

INPUT = SUBJECTS.attach("host-1", "local", "a" * 32)
OUTPUT = SUBJECTS.shown("host-1", "local", "b" * 32)
SLOW_S = 0.02


class Screen(Console):
    """A console that takes its time to show anything."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = b""

    async def show(self, data: bytes) -> None:
        await asyncio.sleep(SLOW_S)
        self.seen += data


@pytest.fixture
async def link(cell: Cell) -> AsyncIterator[Link]:
    client = await connect(cell.url, "test", exit_on_close=False)
    yield Link(client, Settings(state_dir=cell.home, url=cell.url), "local")
    await client.close()


async def test_what_the_job_said_last_is_shown_also_where_its_keys_are_heard_no_more(link: Link) -> None:
    # rule: 1.17
    async def agent(message: Msg) -> None:
        """Takes the first keys; then the job prints and ends, and the session with it."""
        words = [b"one ", b"two ", b"three"]
        for number, word in enumerate(words):
            at = sum(map(len, words[:number]))
            await link.client.publish(OUTPUT, msgspec.json.encode(Shown(at=at, data=word)))
        await link.client.publish(OUTPUT, msgspec.json.encode(Shown(at=13, is_over=True)))
        await hears.unsubscribe()
        await message.respond(msgspec.json.encode(Taken(sent=13)))

    hears = await link.client.subscribe(INPUT, cb=agent)
    heard = await link.subscribe(OUTPUT)
    screen = Screen()
    talk = asyncio.create_task(Session(link, INPUT, heard, screen).run())
    await asyncio.sleep(SLOW_S)
    screen.news.set()  # a key that comes after the end: nobody hears it, and the last words are still to be shown
    assert (await talk).value == "over"
    assert screen.seen == b"one two three"


class Stale(NamedTuple):
    """An agent that is gone, and a terminal that says nothing more."""

    async def request(self, *_question: object, **_wait: object) -> Msg:
        raise nats.errors.NoRespondersError

    async def next_msg(self, **_wait: object) -> Msg:
        await asyncio.sleep(60)
        raise nats.errors.TimeoutError


async def test_a_session_whose_agent_is_gone_is_lost_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "_ON_ITS_WAY_S", 0.1)
    gone = Stale()
    link = cast("Link", type("Gone", (), {"client": gone}))
    session = Session(link, INPUT, cast("Subscription", gone), Screen())
    assert (await asyncio.wait_for(session.run(), 10)).value == "lost"
