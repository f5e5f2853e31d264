"""A cell's client over the bus, with nats-py and nothing of Fairlease: what a pipeline or a bot needs, and no more.

It publishes `fl.<cell>.cmd.<account>.>`, hears `fl.<cell>.answer.<account>.*` and `fl.<cell>.feed.>`, and asks
`fl.<cell>.ask.explainer.*`: a client's rights, by the account's key. Commands go as CloudEvents in binary mode. A plain
subscription may miss what was said while the connection was away, so whoever waits here also asks now and then.
"""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

ANSWER_S = 10.0
CONNECT_S = 15.0
TRIES = 6
AWAY = 69
LATER = 75


class Away(Exception):
    """The cell cannot be reached, or does not answer; `code` is what a program should leave with."""

    def __init__(self, text: str, code: int = AWAY) -> None:
        super().__init__(text)
        self.code = code


class CellClient:
    """One account's view of a cell; `open` it first."""

    def __init__(self, url: str, cell: str, account: str, creds: str = "") -> None:
        self.url, self.cell, self.account, self.creds = url, cell, account, creds
        self._client = Client()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._early: dict[int, dict[str, Any]] = {}

    @classmethod
    def of_environment(cls) -> "CellClient":
        """By FAIRLEASE_URL, FAIRLEASE_CELL (`lab`), FAIRLEASE_ACCOUNT (`local`) and FAIRLEASE_CREDS, its key's file."""
        env = os.environ
        url = env.get("FAIRLEASE_URL", "nats://127.0.0.1:4222")
        return cls(
            url, env.get("FAIRLEASE_CELL", "lab"), env.get("FAIRLEASE_ACCOUNT", "local"), env.get("FAIRLEASE_CREDS", "")
        )

    async def open(self) -> None:
        """Connect, and hear answers from now on; Away when nobody is there, or the key is none that the bus knows."""
        try:
            options = {"max_reconnect_attempts": -1, **_proof(self.creds)}
            self._client = await asyncio.wait_for(nats.connect(self.url, **options), CONNECT_S)
            await self._client.subscribe(f"fl.{self.cell}.answer.{self.account}.*", cb=self._heard)
            await self._client.flush(10)
        except (OSError, nats.errors.Error, TimeoutError) as error:
            raise Away(f"no bus at {self.url.rpartition('@')[2]}: {type(error).__name__}") from error

    async def close(self) -> None:
        """End the connection, if there ever was one."""
        if self._client.is_connected:
            await self._client.close()

    async def follow(self, subject: str) -> Subscription:
        """The feed below `fl.<cell>.feed.`, from now on."""
        heard = await self._client.subscribe(f"fl.{self.cell}.feed.{subject}")
        await self._client.flush(10)
        return heard

    async def command(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a command and return its answer; sends it again until there is one, which changes nothing twice.

        The subject of a command about a host ends in it, so that the bus can let a bot look after its own hosts alone.

        Away 69 when the bus does not take it, 75 when it took it and nobody answers.
        """
        headers = {
            "ce-specversion": "1.0",
            "ce-id": str(body.get("request_id") or uuid.uuid4()),
            "ce-source": f"/client/{self.account}",
            "ce-type": f"dev.fairlease.{verb}",
            "content-type": "application/json",
        }
        why = Away("the bus did not take the command")
        for _ in range(TRIES):
            try:
                subject = f"fl.{self.cell}.cmd.{self.account}.{verb}" + (f".{body['host']}" if "host" in body else "")
                reply = await self._client.request(subject, json.dumps(body).encode(), timeout=5, headers=headers)
                place = json.loads(reply.data)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                why = Away(f"the bus did not take the command: {type(error).__name__}")
                await asyncio.sleep(1)
                continue
            if "error" in place:
                raise Away(f"the bus refuses the command: {place['error'].get('description')}", LATER)
            try:
                return await asyncio.wait_for(self._answer(int(place["seq"])), ANSWER_S)
            except TimeoutError:
                why = Away(f"no answer to {verb} within {ANSWER_S:.0f} s", LATER)
        raise why

    async def ask(self, question: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The explainer's answer; None while nobody answers."""
        try:
            subject = f"fl.{self.cell}.ask.explainer.{question}"
            reply = await self._client.request(subject, json.dumps(body).encode(), timeout=5)
        except (OSError, nats.errors.Error, TimeoutError):
            return None
        found: dict[str, Any] = json.loads(reply.data)
        return found

    async def _heard(self, message: Any) -> None:  # noqa: ANN401 - nats-py's own message
        seq = int(message.subject.rpartition(".")[2])
        answer = json.loads(message.data)
        waiting = self._answers.pop(seq, None)
        if waiting is None:
            self._early[seq] = answer  # it may come before the bus said which place the command has
        elif not waiting.done():
            waiting.set_result(answer)

    async def _answer(self, seq: int) -> dict[str, Any]:
        if seq in self._early:
            return self._early.pop(seq)
        self._answers[seq] = asyncio.get_running_loop().create_future()
        return await self._answers[seq]


def _proof(creds: str) -> dict[str, Any]:
    """What a connection proves itself by: the file holds an identity, whose inboxes alone it may hear, and a seed."""
    if not creds:
        return {}
    try:
        key = json.loads(Path(creds).read_text(encoding="utf-8"))
        return {"nkeys_seed_str": key["seed"], "inbox_prefix": f"_INBOX.{key['identity']}".encode()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Away(f"no key in {creds} (FAIRLEASE_CREDS): {type(error).__name__}") from None


async def messages(heard: Subscription, every_s: float) -> AsyncIterator[dict[str, Any] | None]:
    """Every message of the subscription; None whenever there was none for `every_s`, which is the time to ask."""
    while True:
        try:
            yield json.loads((await heard.next_msg(timeout=every_s)).data)
        except (nats.errors.TimeoutError, TimeoutError):
            yield None
