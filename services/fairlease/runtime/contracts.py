"""Contract bodies by digest, outside the log: erasable, and read only by agents of granted hosts."""

import json
from typing import Final

import nats.errors
from nats.aio.client import Client

from fairlease.runtime.errors import BusAway
from fairlease_schemas.subjects import Subjects

_TIMEOUT_S: Final = 3.0
_ALREADY_THERE: Final = 10077


class Contracts:
    """The store of one cell. A body is written once; writing it again is already so."""

    def __init__(self, client: Client, subjects: Subjects) -> None:
        self._client = client
        self._subjects = subjects
        self._stored: dict[str, None] = {}

    async def put(self, digest: str, body: bytes) -> None:
        """Store the body under its digest. BusAway when the bus did not say that it is there."""
        if digest in self._stored:
            return
        try:
            reply = await self._client.request(self._subjects.contract(digest), body, timeout=_TIMEOUT_S)
        except (nats.errors.Error, OSError) as error:
            raise BusAway(f"contract {digest[:12]}: the bus does not answer ({type(error).__name__})") from error
        refusal = json.loads(reply.data).get("error")
        if refusal is not None and refusal.get("err_code") != _ALREADY_THERE:
            raise BusAway(f"contract {digest[:12]}: {refusal.get('err_code')} {refusal.get('description')}")
        self._stored[digest] = None
        if len(self._stored) > 4_096:
            del self._stored[next(iter(self._stored))]
