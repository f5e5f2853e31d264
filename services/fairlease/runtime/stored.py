"""Single messages as the bus has them stored, read through the stream's leader."""

import base64
from typing import Any

from nats.aio.client import Client

from fairlease.runtime import api

NO_MESSAGE_FOUND = 10037


async def last_message(client: Client, stream: str, subject: str) -> tuple[int, bytes] | None:
    """Sequence and body of the last message of a subject; None when there is none."""
    found = await _last(client, stream, subject)
    return None if found is None else (int(found["seq"]), base64.b64decode(found.get("data", "")))


async def last_headers(client: Client, stream: str) -> dict[str, str]:
    """The headers of the stream's last message; empty when there is none, or it has none."""
    found = await _last(client, stream, ">")
    if found is None:
        return {}
    lines = base64.b64decode(found.get("hdrs", "")).decode("utf-8", "replace").splitlines()[1:]
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines) if value}


async def _last(client: Client, stream: str, subject: str) -> dict[str, Any] | None:
    try:
        answer = await api.request(client, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    except api.Refused as refusal:
        if refusal.code == NO_MESSAGE_FOUND:
            return None
        raise
    message: dict[str, Any] = answer["message"]
    return message
