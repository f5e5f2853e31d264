"""What the bus holds of a cell, read message by message with no help of the code under test."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client

from fairlease_schemas.subjects import VERBS
from tests.live.oracle import TERMINAL, Oracle

_AT_ONCE = 64
_NOT_FOUND = 10037


class Stored(NamedTuple):
    """One message of a stream."""

    seq: int
    subject: str
    data: bytes
    headers: dict[str, str]


class Tail:
    """All messages of a stream so far: `read` takes up what is new."""

    def __init__(self, client: Callable[[], Client], stream: str) -> None:
        self._client = client
        self._stream = stream
        self.messages: list[Stored] = []

    async def read(self) -> int:
        """Reads to the end and returns the last sequence."""
        last = self.messages[-1].seq if self.messages else 0
        self.messages += await read_stream(self._client(), self._stream, last + 1)
        return self.messages[-1].seq if self.messages else 0


class Journal(Tail):
    """The log so far, as plain JSON and as the oracle sees it. A record that is no JSON is kept as an empty one."""

    def __init__(self, client: Callable[[], Client], stream: str) -> None:
        super().__init__(client, stream)
        self.records: list[dict[str, Any]] = []
        self.ends: dict[str, dict[str, Any]] = {}
        self.admitted: set[str] = set()
        self.oracle = Oracle()

    async def read(self) -> int:
        position = await super().read()
        for message in self.messages[len(self.records) :]:
            record = _plain(message.data)
            self.records.append(record)
            assert message.seq == len(self.records), f"position {len(self.records)} is missing"
            if record:
                self.oracle.see(record)
            for event in record.get("events", ()):
                if event["type"] in TERMINAL:
                    self.ends[event["job"]] = event
                elif event["type"] == "job-admitted":
                    self.admitted.add(event["job"])
        return position

    def events(self, *tags: str, after: int = 0) -> list[dict[str, Any]]:
        """Events with these tags in records behind that position, in order."""
        return [e for record in self.records[after:] for e in record.get("events", ()) if e["type"] in tags]

    def of_job(self, job: str, *tags: str) -> list[dict[str, Any]]:
        """Events of one job and its attempts, with these tags or all."""
        return [
            event
            for record in self.records
            for event in record.get("events", ())
            if (event.get("job") == job or str(event.get("attempt", "")).rpartition("-a")[0] == job)
            and (not tags or event["type"] in tags)
        ]

    def written_by(self, service: str, *, after: int = 0) -> int:
        """How many records of the service stand behind that position."""
        return sum(record.get("by") == service for record in self.records[after:])


async def read_stream(client: Client, stream: str, start: int = 1) -> list[Stored]:
    """Every message of a stream from `start` on that is still there."""
    info = await api(client, f"STREAM.INFO.{stream}")
    last = int(info["state"]["last_seq"])
    found: list[Stored] = []
    for low in range(start, last + 1, _AT_ONCE):
        numbers = range(low, min(low + _AT_ONCE, last + 1))
        answers = await asyncio.gather(*(api(client, f"STREAM.MSG.GET.{stream}", {"seq": n}) for n in numbers))
        found += [_stored(answer["message"]) for answer in answers if answer]
    return found


async def last_on(client: Client, stream: str, subject: str) -> Stored | None:
    answer = await api(client, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    return _stored(answer["message"]) if answer else None


async def api(client: Client, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request to the bus, repeated while it is away; empty for a message that is not there."""
    for _ in range(100):
        try:
            reply = await client.request(f"{VERBS}.{verb}", json.dumps(body or {}).encode(), timeout=2)
        except (nats.errors.Error, OSError):
            await asyncio.sleep(0.05)
            continue
        answer: dict[str, Any] = json.loads(reply.data)
        if "error" not in answer:
            return answer
        if answer["error"].get("err_code") == _NOT_FOUND:
            return {}
        assert answer["error"].get("code", 0) >= 500, f"{verb}: {answer['error']}"
        await asyncio.sleep(0.05)
    raise AssertionError(f"the bus does not answer {verb}")


def _stored(message: dict[str, Any]) -> Stored:
    lines = base64.b64decode(message.get("hdrs", "")).decode(errors="replace").splitlines()[1:]
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    return Stored(int(message["seq"]), message["subject"], base64.b64decode(message.get("data", "")), headers)


def _plain(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
