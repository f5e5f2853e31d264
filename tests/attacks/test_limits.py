"""What one connection and one account may use of the bus: who goes beyond is refused, and others go on."""

import asyncio
from typing import Final

import pytest

from fairlease_schemas.bundle import PIECE_BYTES
from fairlease_schemas.subjects import VERBS
from tests.attacks.bench import PEOPLE, SUBJECTS, Bus
from tests.live.crowd import Crowd

pytestmark = pytest.mark.asyncio(loop_scope="module")

OUTSIDE: Final = [name for name in PEOPLE if name.startswith(("client-", "auditor-", "agent-"))]
TOO_MANY: Final = b"-ERR 'maximum subscriptions exceeded'"
BEYOND: Final = 5
_PATIENCE_S: Final = 20.0


async def _others_go_on(bus: Bus, name: str) -> None:
    """Somebody of another account has what it asks for."""
    account = "local" if name != "client-local" else "ci"
    other = await bus.as_(f"client-{account}")
    assert "seq" in (await other.ask(SUBJECTS.command(account, "hold-job"), b"{}") or {})


async def _said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[bytes]:
    """What the bus said of all that was sent so far."""
    writer.write(b"PING\r\n")
    await writer.drain()
    said = []
    while (line := (await asyncio.wait_for(reader.readline(), _PATIENCE_S)).strip()) != b"PONG":
        assert line, "the bus hung up"
        if not line.startswith(b"INFO"):
            said.append(line)
    return said


@pytest.mark.parametrize("name", OUTSIDE)
async def test_a_connection_has_so_many_subscriptions_and_no_more(bus: Bus, name: str) -> None:
    """Given one that subscribes without end, then it is told no at its limit, and what it gives back it has again."""
    limit = PEOPLE[name].subscriptions
    async with Crowd(bus.url) as crowd:
        reader, writer = await crowd.open(bus.home, name)
        writer.writelines(f"SUB _INBOX.{name}.{n} {n}\r\n".encode() for n in range(limit))
        assert await _said(reader, writer) == []
        writer.writelines(f"SUB _INBOX.{name}.{n} {n}\r\n".encode() for n in range(limit, limit + BEYOND))
        assert await _said(reader, writer) == [TOO_MANY] * BEYOND
        await _others_go_on(bus, name)
        beside, its = await crowd.open(bus.home, name)
        its.write(f"SUB _INBOX.{name}.x 1\r\n".encode())
        assert await _said(beside, its) == [], "another connection of the same account has its own"
        writer.write(b"UNSUB 0\r\n" + f"SUB _INBOX.{name}.again 999999\r\n".encode())
        assert await _said(reader, writer) == []


@pytest.mark.parametrize("name", OUTSIDE)
async def test_a_message_above_the_limit_of_its_sender_ends_that_connection_alone(bus: Bus, name: str) -> None:
    """Given one that sends more than its role needs, then nothing of it is stored, and its connection is closed."""
    limit = PEOPLE[name].payload
    subject = next(way.name for way in PEOPLE[name].sends if not way.name.startswith(VERBS)).replace("*", "x")
    before = await bus.seen()
    async with Crowd(bus.url) as crowd:
        (reader, writer), (beside, its) = [await crowd.open(bus.home, name) for _ in range(2)]
        writer.write(f"PUB {subject} {limit + 1}\r\n".encode())  # the bus does not wait for what would follow
        said = await asyncio.wait_for(reader.read(-1), _PATIENCE_S)
        assert b"-ERR 'Maximum Payload Violation'" in said
        assert await _said(beside, its) == []
        assert await bus.seen() == before
        await _others_go_on(bus, name)


async def test_each_role_may_send_what_it_needs_and_bots_and_auditors_no_code(bus: Bus) -> None:
    small = {PEOPLE[name].payload for name in ("client-fixer", "auditor-ours")}
    assert max(small) < PIECE_BYTES < PEOPLE["client-ci"].payload < PEOPLE["service-explainer"].payload
    ci = await bus.as_("client-ci")
    assert "seq" in (await ci.ask(SUBJECTS.bundle("ci", "whole", 1), b"x" * PIECE_BYTES) or {})
