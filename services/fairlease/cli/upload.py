"""A bundle on its way to the bus: in pieces, the manifest last, and not at all when it is there already.

Whoever finds the manifest finds all of the bundle, so an upload that was broken off is begun again. The bus
keeps bundles for a while; one that has had half of its time is uploaded again, in its own place.
"""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import nats.errors

from fairlease.cli.exits import AWAY, FORBIDDEN, LATER, CommandError
from fairlease.cli.link import Link
from fairlease.cli.packing import Packed
from fairlease_schemas.bundle import FRESH_DAYS, MANIFEST_PIECE, PIECE_BYTES, BundleManifest, hex_of
from fairlease_schemas.subjects import VERBS

_PATIENCE_S: Final = 10.0
_AT_ONCE: Final = 8
"""Pieces in flight: 2 MiB."""


async def upload(link: Link, packed: Packed) -> bool:
    """Returns when the bus has the bundle for the link's account; False when it had it before.

    Raises CommandError: 69 when the bus does not answer, 75 when it takes no more, 77 without the right.
    """
    digest = hex_of(packed.bundle)
    pieces = [packed.data[at : at + PIECE_BYTES] for at in range(0, len(packed.data), PIECE_BYTES)]
    manifest = msgspec.json.encode(BundleManifest(size=len(packed.data), pieces=len(pieces)))
    if await _is_there(link, digest, manifest):
        return False
    room = asyncio.Semaphore(_AT_ONCE)

    async def put(number: int, data: bytes) -> None:
        async with room:
            await _put(link, digest, number, data)

    try:
        async with asyncio.TaskGroup() as group:
            for number, piece in enumerate(pieces, start=1):
                group.create_task(put(number, piece))
    except ExceptionGroup as wrong:
        raise wrong.exceptions[0] from None  # all of them failed for what the first one did
    await _put(link, digest, MANIFEST_PIECE, manifest)
    return True


async def _is_there(link: Link, digest: str, manifest: bytes) -> bool:
    """Whether the bus has this bundle, and will for long enough."""
    subject = link.subjects.bundle(link.account, digest, MANIFEST_PIECE)
    request = f"{VERBS}.DIRECT.GET.{link.subjects.bundles_stream}.{subject}"
    try:
        reply = await link.client.request(request, b"", timeout=_PATIENCE_S)
    except nats.errors.NoRespondersError as error:
        raise _no_store(link) from error
    except nats.errors.Error as error:
        raise CommandError(AWAY, f"the bus does not say which bundles it has: {error}") from error
    headers = reply.headers or {}
    if "Status" in headers or reply.data != manifest:
        return False
    stored = datetime.fromisoformat(headers["Nats-Time-Stamp"][:19] + "+00:00")
    return datetime.now(UTC) - stored < timedelta(days=FRESH_DAYS)


async def _put(link: Link, digest: str, number: int, data: bytes) -> None:
    subject = link.subjects.bundle(link.account, digest, number)
    try:
        reply = await link.client.request(subject, data, timeout=_PATIENCE_S)
    except nats.errors.NoRespondersError as error:
        raise _no_store(link) from error
    except nats.errors.Error as error:
        if "permissions violation" in str(link.client.last_error).lower():
            raise CommandError(FORBIDDEN, f"account {link.account} may not upload code") from error
        raise CommandError(
            AWAY, f"the bus did not confirm piece {number} of the code: {error}", way_out="try again: nothing was lost"
        ) from error
    refusal = json.loads(reply.data).get("error")
    if refusal is not None:
        raise CommandError(
            LATER,
            f"the bus did not take piece {number} of the code: {refusal.get('description')}",
            way_out="try again later, or ask whoever runs the cell for room",
        )


def _no_store(link: Link) -> CommandError:
    name = link.settings.cell
    return CommandError(
        AWAY,
        f"cell {name} keeps no bundles",
        way_out="a cell of an earlier release: stop it (Ctrl-C; running jobs go on) and start it again",
    )
