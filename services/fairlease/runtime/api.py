"""One request to the JetStream interface: JSON in, JSON out, errors in our own words.

Streams and consumers are spoken to in the server's own field names and nanoseconds, not through the
client's classes: what we declare is then, key by key, what we later compare (log.md L1).

Verbs are asked under a name of our own, because the streams stand in accounts where nobody lives
(permissions.py): each account's import, or the mapping of a bus without accounts, turns it into `$JS.API`.
"""

import json
from typing import Any, Final

import nats.errors
from nats.aio.client import Client

from fairlease.runtime.errors import BusAway, ShellError
from fairlease_schemas.subjects import VERBS

TIMEOUT_S: Final = 3.0
STREAM_NOT_FOUND: Final = 10059
WRONG_LAST_SEQUENCE: Final = 10071
NO_PEERS: Final = 10005
"""Fewer servers are there than shall hold the stream."""


class Refused(ShellError):
    """The bus understood and said no; `code` is its error code (errors.json of nats-server)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


async def request(client: Client, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer to that verb of JetStream. Refused when the bus says no, BusAway when it does not answer."""
    payload = json.dumps(body).encode() if body is not None else b""
    try:
        reply = await client.request(f"{VERBS}.{verb}", payload, timeout=TIMEOUT_S)
    except (nats.errors.Error, OSError) as error:
        raise BusAway(f"{verb}: the bus does not answer ({type(error).__name__}: {error})") from error
    answer: dict[str, Any] = json.loads(reply.data)
    if (error_found := answer.get("error")) is not None:
        if error_found.get("code") == 503:
            raise BusAway(f"{verb}: {error_found.get('description')}")
        raise Refused(int(error_found.get("err_code", 0)), f"{verb}: {error_found.get('description')}")
    return answer
